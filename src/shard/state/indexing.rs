//! What a change of an item does to the index, and the generations of it as they are held in
//! memory.

use std::{collections::HashMap, sync::Arc};

use arc_swap::ArcSwap;
use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::{
    command::{GenerationChanges, IndexChanges},
    generation::{Generation, IndexState},
};
use crate::{
    index::{DraftTerms, Indexer, Shape, ShapeId, TermList},
    model::indexing_policy::{IndexingPolicy, PathKey},
    store::{Engine, EngineError, document::Stored, keys},
};

/// Shapes that a generation writes down; the items of others are together under one that says
/// nothing.
pub const SHAPES_MAX: usize = 2_048;

type Shapes = HashMap<ShapeId, Arc<Shape>>;

/// A generation as it is held in memory.
pub struct LiveIndex {
    pub number: u16,
    pub policy: IndexingPolicy,
    pub indexer: Indexer,
    /// All that are on disk, and those that are on their way there.
    shapes: ArcSwap<Shapes>,
}

impl LiveIndex {
    pub fn new(number: u16, policy: IndexingPolicy) -> Self {
        Self {
            number,
            indexer: Indexer::new(&policy),
            policy,
            shapes: ArcSwap::default(),
        }
    }

    pub fn load(engine: &Engine, number: u16) -> Result<Self, EngineError> {
        let damaged = || EngineError::Damaged(format!("the policy of index {number}"));
        let bytes = engine.get(&keys::policy(number))?.ok_or_else(damaged)?;
        let live = Self::new(number, decode_policy(&bytes).ok_or_else(damaged)?);
        live.reload_shapes(engine)?;
        Ok(live)
    }

    /// Forgets shapes that did not get to the disk.
    pub fn reload_shapes(&self, engine: &Engine) -> Result<(), EngineError> {
        let mut shapes = Shapes::new();
        let [_, (from, to), _] = keys::generation_ranges(self.number);
        let mut scan = engine.scan(&from, &to);
        while let Some((key, value)) = scan.entry()? {
            let (number, shape) = keys::shape_number(key)
                .zip(Shape::decode(value))
                .ok_or_else(|| EngineError::Damaged("a shape of the index".into()))?;
            shapes.insert(ShapeId(number), Arc::new(shape));
            scan.advance();
        }
        self.shapes.store(Arc::new(shapes));
        Ok(())
    }

    pub fn shapes(&self) -> Arc<Shapes> {
        self.shapes.load_full()
    }

    pub fn learn(&self, id: ShapeId, shape: &Arc<Shape>) {
        self.shapes.rcu(|shapes| {
            let mut shapes = Shapes::clone(shapes);
            shapes.insert(id, Arc::clone(shape));
            shapes
        });
    }

    /// Returns the terms of an item; and its shape, if that is new and to be written down.
    pub fn terms(&self, draft: DraftTerms, ts: i64) -> (TermList, Option<(ShapeId, Arc<Shape>)>) {
        let (shape, finished) = draft.finish(ts);
        let id = shape.id();
        let shapes = self.shapes.load();
        if shapes.contains_key(&id) {
            (finished.with_shape(id), None)
        } else if shapes.len() < SHAPES_MAX {
            (finished.with_shape(id), Some((id, Arc::new(shape))))
        } else {
            (finished.with_shape(ShapeId::OTHER), None)
        }
    }
}

/// Where the computed properties stand in a stored policy.
const COMPUTED: &str = "computedProperties";
/// Where the key of its paths stands.
const PATH_KEY: &str = "pathKey";

pub fn encode_policy(policy: &IndexingPolicy) -> Bytes {
    let mut json = policy.to_json();
    if !policy.computed.is_empty() {
        json[COMPUTED] = json!(policy.computed);
    }
    if let Some(key) = policy.path_key {
        json[PATH_KEY] = json!(key.to_text());
    }
    Bytes::from(json.to_string().into_bytes())
}

pub fn decode_policy(bytes: &[u8]) -> Option<IndexingPolicy> {
    let json: Value = serde_json::from_slice(bytes).ok()?;
    let policy = IndexingPolicy::from_json(Some(&json)).ok()?;
    let path_key = match json.get(PATH_KEY) {
        Some(text) => Some(PathKey::from_text(text.as_str()?)?),
        None => None,
    };
    Some(IndexingPolicy {
        path_key,
        ..policy.with_computed(json.get(COMPUTED))
    })
}

/// The generations that a decision must think of.
pub struct Indexing<'a> {
    pub state: IndexState,
    pub live: &'a [Arc<LiveIndex>],
}

/// A version that goes away, or the one that comes.
pub struct Version<'a> {
    pub stored: &'a Stored<Bytes>,
    /// Its terms, where they were worked out before: for the policy with this fingerprint.
    pub draft: Option<(u64, DraftTerms)>,
}

impl Indexing<'_> {
    fn live(&self) -> impl Iterator<Item = (Generation, &Arc<LiveIndex>)> {
        self.state.generations().filter_map(|generation| {
            let live = self
                .live
                .iter()
                .find(|one| one.number == generation.number)?;
            Some((generation, live))
        })
    }

    /// Returns what changes in the index when `new` takes the place of `old`. An expired version is
    /// not for us: its entries say that they are dead, and leave with the files they are in.
    pub fn changes(&self, old: Option<&Stored<Bytes>>, new: Option<Version<'_>>) -> IndexChanges {
        let (new, mut draft) = new.map_or((None, None), |new| (Some(new.stored), new.draft));
        let Some(Stored { header, .. }) = new.or(old) else {
            return IndexChanges::default();
        };
        let mut changes = IndexChanges {
            ordinal: header.ordinal,
            generations: Vec::new(),
        };
        let mut old_body = Parsed::new(old.map(Stored::body));
        let mut new_body = Parsed::new(new.map(Stored::body));
        for (generation, live) in self.live() {
            let mut new_shape = None;
            let mut added = TermList::default();
            if let Some(new) = new
                && generation.takes(new.header.position.lsn)
            {
                let terms = match draft
                    .take_if(|(fingerprint, _)| *fingerprint == live.indexer.fingerprint)
                {
                    Some((_, terms)) => Some(terms),
                    None => new_body
                        .object()
                        .map(|object| DraftTerms::new(&live.indexer, object)),
                };
                if let Some(terms) = terms {
                    (added, new_shape) = live.terms(terms, new.header.ts);
                }
            }
            let mut removed = TermList::default();
            if let Some(old) = old
                && generation.covers(old.header.position)
                && let Some(object) = old_body.object()
            {
                let (terms, _) = live.terms(DraftTerms::new(&live.indexer, object), old.header.ts);
                removed = terms.without(&added);
            }
            changes.generations.push(GenerationChanges {
                generation: generation.number,
                added,
                removed,
                new_shape: new_shape.map(|(id, shape)| (id, shape.encode().into())),
            });
        }
        changes
    }
}

/// A body that is parsed when it is needed, once.
struct Parsed<'b> {
    body: Option<&'b [u8]>,
    object: Option<Map<String, Value>>,
}

impl<'b> Parsed<'b> {
    fn new(body: Option<&'b [u8]>) -> Self {
        Self { body, object: None }
    }

    fn object(&mut self) -> Option<&Map<String, Value>> {
        if self.object.is_none() {
            self.object = parse(self.body?);
        }
        self.object.as_ref()
    }
}

/// Returns a stored item; what we stored is JSON.
pub fn parse(body: &[u8]) -> Option<Map<String, Value>> {
    serde_json::from_slice(body).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stored_policy_keeps_the_key_of_its_paths() {
        let mut policy = IndexingPolicy::default();
        assert_eq!(decode_policy(&encode_policy(&policy)), Some(policy.clone()));
        policy.path_key = Some(PathKey::from_bytes([9; 16]));
        let stored = encode_policy(&policy);
        assert_eq!(decode_policy(&stored), Some(policy));
        let text = String::from_utf8(stored.to_vec()).unwrap();
        let damaged = text.replace("CQkJ", "!!!!");
        assert_ne!(damaged, text);
        assert_eq!(decode_policy(damaged.as_bytes()), None);
    }
}
