//! The terms of an item under a policy.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{
    cells,
    path::{PathHasher, PathId, SHAPES},
    policy::{Composite, Indexer, Place},
    shape::{Kind, Shape, ShapeId},
    value::{self, Precision},
};
use crate::{model::item::is_system_property, sql::Geometry};

/// Bytes of the path that a term begins with.
pub const PATH_BYTES: usize = 8;
/// Room for the terms of a usual item.
const TERM_BYTES_EXPECTED: usize = 640;

/// The terms of an item whose time of writing is not known yet.
#[derive(Clone, Debug, Default)]
pub struct DraftTerms {
    bytes: Vec<u8>,
    /// Where each term ends.
    ends: Vec<u32>,
    /// Where the time of the last write goes, as a number in a term, and whether turned.
    holes: Vec<(u32, bool)>,
    paths: Vec<(u64, Kind)>,
}

/// Terms in ascending order, each once: a length of two bytes (big-endian) and its bytes, one after the other.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TermList(Bytes);

impl TermList {
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest: &[u8] = &self.0;
        std::iter::from_fn(move || {
            let (length, after) = rest.split_first_chunk()?;
            let (term, after) = after.split_at_checked(usize::from(u16::from_be_bytes(*length)))?;
            rest = after;
            Some(term)
        })
    }

    /// Of terms in ascending order.
    #[cfg(test)]
    pub fn of(terms: &[&[u8]]) -> Self {
        let mut bytes = Vec::new();
        terms.iter().for_each(|term| push(&mut bytes, term));
        Self(bytes.into())
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Bytes of the terms with their lengths.
    pub fn bytes(&self) -> usize {
        self.0.len()
    }

    /// The terms that are not in `other`.
    pub fn without(&self, other: &Self) -> Self {
        let mut kept = Vec::new();
        let mut others = other.iter().peekable();
        for term in self.iter() {
            while others.next_if(|other| *other < term).is_some() {}
            if others.peek() != Some(&term) {
                push(&mut kept, term);
            }
        }
        Self(kept.into())
    }
}

/// Terms are shorter than 65,536 bytes: at most eight columns of some 130 bytes.
fn push(list: &mut Vec<u8>, term: &[u8]) {
    list.extend_from_slice(&(term.len() as u16).to_be_bytes());
    list.extend_from_slice(term);
}

impl DraftTerms {
    /// Returns the bytes of the terms.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// The terms of an item as the client means it; the server's properties are passed over.
    pub fn new(indexer: &Indexer, item: &Map<String, Value>) -> Self {
        let mut terms = Self {
            bytes: Vec::with_capacity(TERM_BYTES_EXPECTED),
            ..Self::default()
        };
        let item = indexer.with_computed(item);
        let item = item.as_ref();
        let place = indexer.start();
        let paths = &indexer.paths;
        for (name, value) in item {
            if !is_system_property(name) {
                let path = paths.property(PathId::ROOT, name);
                terms.walk(paths, value, place.property(name), path);
            }
        }
        if indexer.ts {
            let path = paths.property(PathId::ROOT, "_ts");
            terms.bytes.extend_from_slice(&path.0.to_be_bytes());
            terms.hole(false);
            terms.end(path, Kind::Exact);
        }
        for composite in &indexer.composites {
            terms.composite(composite, item);
        }
        if let Some(place) = indexer.start_of_geometries() {
            for (name, value) in item {
                let path = paths.property(PathId::ROOT, name);
                terms.geometries(paths, value, place.property(name), path);
            }
        }
        terms
    }

    /// The cells of every geometry. As deep as an item nests, which is bounded.
    fn geometries(&mut self, paths: &PathHasher, value: &Value, place: Place<'_>, path: PathId) {
        if place.is_barren() {
            return;
        }
        match value {
            Value::Object(properties) => {
                if place.is_included()
                    && let Ok(geometry) = Geometry::parse(value)
                {
                    let path = paths.cells(path);
                    for cell in cells::covering(geometry.cap(0.0), cells::CELLS_PER_ITEM_MAX) {
                        self.bytes.extend_from_slice(&path.0.to_be_bytes());
                        self.bytes.extend_from_slice(&cell.bytes());
                        self.end(path, Kind::Exact);
                    }
                }
                for (name, value) in properties {
                    self.geometries(
                        paths,
                        value,
                        place.property(name),
                        paths.property(path, name),
                    );
                }
            }
            Value::Array(elements) => {
                let (place, path) = (place.element(), paths.element(path));
                for value in elements {
                    self.geometries(paths, value, place, path);
                }
            }
            _ => {}
        }
    }

    /// As deep as an item nests, which is bounded.
    fn walk(&mut self, paths: &PathHasher, value: &Value, place: Place<'_>, path: PathId) {
        if place.is_barren() {
            return;
        }
        match value {
            Value::Object(properties) => {
                self.nested(place, path);
                for (name, value) in properties {
                    self.walk(
                        paths,
                        value,
                        place.property(name),
                        paths.property(path, name),
                    );
                }
            }
            Value::Array(elements) => {
                self.nested(place, path);
                let (place, path) = (place.element(), paths.element(path));
                for value in elements {
                    self.walk(paths, value, place, path);
                }
            }
            scalar if place.is_included() => {
                self.bytes.extend_from_slice(&path.0.to_be_bytes());
                let kind = match value::encode(&mut self.bytes, Some(scalar)) {
                    Precision::Exact => Kind::Exact,
                    Precision::Cut => Kind::Cut,
                };
                self.end(path, kind);
            }
            _ => {}
        }
    }

    fn nested(&mut self, place: Place<'_>, path: PathId) {
        if place.is_included() {
            self.path(path, Kind::Nested);
        }
    }

    fn composite(&mut self, composite: &Composite, item: &Map<String, Value>) {
        self.bytes.extend_from_slice(&composite.id.0.to_be_bytes());
        let mut kind = Kind::Exact;
        for column in &composite.columns {
            if column.is_ts() {
                self.hole(column.descending);
                continue;
            }
            let start = self.bytes.len();
            let value = column.path.get(item);
            // What the server sets is not what the client may have sent under that name.
            let value = value.filter(|_| !is_servers(&column.path));
            if value::encode_column(&mut self.bytes, value) == Precision::Cut {
                kind = Kind::Cut;
            }
            if column.descending {
                value::invert(&mut self.bytes, start);
            }
        }
        self.end(composite.id, kind);
    }

    fn hole(&mut self, descending: bool) {
        // Items are far smaller than 4 GB, and their terms with them.
        self.holes.push((self.bytes.len() as u32, descending));
        self.bytes.extend_from_slice(&value::small_number(0));
    }

    fn end(&mut self, path: PathId, kind: Kind) {
        self.ends.push(self.bytes.len() as u32);
        self.path(path, kind);
    }

    /// Adds a path; the values of an array have one path together.
    fn path(&mut self, path: PathId, kind: Kind) {
        if self.paths.last() != Some(&(path.0, kind)) {
            self.paths.push((path.0, kind));
        }
    }

    /// Fills in the time of the write: the item's shape, and its terms without that of the shape.
    pub fn finish(mut self, ts: i64) -> (Shape, Finished) {
        for (at, descending) in &self.holes {
            let mut number = value::small_number(ts);
            if *descending {
                value::invert(&mut number, 0);
            }
            if let Some(hole) = self
                .bytes
                .get_mut(*at as usize..*at as usize + number.len())
            {
                hole.copy_from_slice(&number);
            }
        }
        let shape = Shape::new(self.paths);
        let finished = Finished {
            bytes: self.bytes,
            ends: self.ends,
        };
        (shape, finished)
    }
}

/// Terms that lack only that of the shape.
pub struct Finished {
    bytes: Vec<u8>,
    ends: Vec<u32>,
}

impl Finished {
    pub fn with_shape(mut self, shape: ShapeId) -> TermList {
        self.bytes.extend_from_slice(&shape_term(shape));
        self.ends.push(self.bytes.len() as u32);
        let mut start = 0;
        let mut terms = Vec::with_capacity(self.ends.len());
        for end in &self.ends {
            let end = *end as usize;
            terms.push(self.bytes.get(start..end).unwrap_or_default());
            start = end;
        }
        terms.sort_unstable();
        terms.dedup();
        let mut list = Vec::with_capacity(self.bytes.len() + 2 * terms.len());
        for term in terms {
            push(&mut list, term);
        }
        TermList(list.into())
    }
}

/// The term under which every item of a shape stands.
pub fn shape_term(shape: ShapeId) -> [u8; 2 * PATH_BYTES] {
    let mut term = [0; 2 * PATH_BYTES];
    term[..PATH_BYTES].copy_from_slice(&SHAPES.0.to_be_bytes());
    term[PATH_BYTES..].copy_from_slice(&shape.0.to_be_bytes());
    term
}

/// Whether the path leads to a property that the server sets; `_ts` is known by then.
fn is_servers(path: &crate::model::path::PropertyPath) -> bool {
    path.segments()
        .first()
        .is_some_and(|first| is_system_property(first))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::model::indexing_policy::IndexingPolicy;

    fn indexer(policy: Value) -> Indexer {
        Indexer::new(&IndexingPolicy::from_json(Some(&policy)).unwrap())
    }

    fn terms(indexer: &Indexer, item: Value) -> (Shape, Vec<Vec<u8>>) {
        let draft = DraftTerms::new(indexer, item.as_object().unwrap());
        let (shape, finished) = draft.finish(1_790_000_000);
        let list = finished.with_shape(shape.id());
        (shape, list.iter().map(<[u8]>::to_vec).collect())
    }

    fn term(path: PathId, value: &Value) -> Vec<u8> {
        let mut term = path.0.to_be_bytes().to_vec();
        value::encode(&mut term, Some(value));
        term
    }

    #[test]
    fn every_scalar_has_a_term() {
        let indexer = Indexer::new(&IndexingPolicy::default());
        let property = |parent, name: &str| indexer.paths.property(parent, name);
        let root = |name: &str| property(PathId::ROOT, name);
        let (shape, found) = terms(
            &indexer,
            json!({"id": "1", "a": {"b": 5, "e": {}}, "tags": ["x", "y", "x"], "n": null, "_etag": "e", "_ts": 7}),
        );
        let tags = root("tags");
        let tag = indexer.paths.element(tags);
        let mut expected = vec![
            term(root("id"), &json!("1")),
            term(property(root("a"), "b"), &json!(5)),
            term(tag, &json!("x")),
            term(tag, &json!("y")),
            term(root("n"), &json!(null)),
            term(root("_ts"), &json!(1_790_000_000)),
            shape_term(shape.id()).to_vec(),
        ];
        expected.sort();
        assert_eq!(found, expected);
        assert_eq!(shape.kind_of(tags), Some(Kind::Nested));
        assert_eq!(shape.kind_of(tag), Some(Kind::Exact));
        assert_eq!(shape.kind_of(property(root("a"), "e")), Some(Kind::Nested));
        assert_eq!(shape.kind_of(root("_etag")), None);
    }

    #[test]
    fn excluded_paths_have_none() {
        let policy =
            json!({"includedPaths": [{"path": "/a/?"}], "excludedPaths": [{"path": "/*"}]});
        let indexer = indexer(policy);
        let (shape, found) = terms(&indexer, json!({"id": "1", "a": 1, "b": {"a": 1}}));
        let a = indexer.paths.property(PathId::ROOT, "a");
        assert_eq!(found, [shape_term(shape.id()).to_vec(), term(a, &json!(1))]);
        assert_eq!(shape, Shape::new(vec![(a.0, Kind::Exact)]));
    }

    #[test]
    fn composites_hold_all_columns_even_undefined_ones() {
        let policy = json!({
            "includedPaths": [], "excludedPaths": [{"path": "/*"}],
            "compositeIndexes": [[{"path": "/a"}, {"path": "/_ts", "order": "descending"}]],
        });
        let indexer = indexer(policy);
        let id = indexer.composites()[0].id;
        let (shape, found) = terms(&indexer, json!({"id": "1"}));
        let mut expected = id.0.to_be_bytes().to_vec();
        expected.push(value::tag::UNDEFINED);
        let start = expected.len();
        expected.extend_from_slice(&value::small_number(1_790_000_000));
        value::invert(&mut expected, start);
        assert_eq!(found, [shape_term(shape.id()).to_vec(), expected]);
        let (shape, _) = terms(&indexer, json!({"id": "1", "a": [1]}));
        assert_eq!(shape.kind_of(id), Some(Kind::Cut));
    }

    #[test]
    fn lists_tell_what_is_gone() {
        let list = |words: &[&str]| {
            let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
            TermList::of(&words)
        };
        let old = list(&["a", "b", "c", "e"]);
        assert_eq!(
            old.without(&list(&["", "b", "d", "e", "f"])),
            list(&["a", "c"])
        );
        assert_eq!(old.without(&list(&[])), old);
        assert!(old.without(&old).is_empty());
    }
}
