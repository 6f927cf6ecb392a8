//! One look at a shard: a moment of the engine, the second of now, and the generation of the index that answers.

use std::sync::Arc;

use super::ranges::ValueRanges;
use crate::{
    expiry::ExpiryCheck,
    index::{Kind, PathId, ShapeId, path::SHAPES, terms::shape_term},
    model::error::Result,
    shard::{aggregate_cache::ReadPoint, indexing::LiveIndex, view::ShardView},
    store::{engine::Snapshot, index_entry, keys},
};

pub struct IndexReader<'v> {
    pub view: &'v ShardView,
    pub snapshot: Snapshot<'v>,
    pub judge: ExpiryCheck,
    /// Which cached aggregates hold for the snapshot.
    pub read_point: ReadPoint,
    /// `None`: nothing answers but the items themselves.
    pub index: Option<Arc<LiveIndex>>,
    /// The index also has entries of items that are not in the shard's range.
    pub has_foreign: bool,
}

impl<'v> IndexReader<'v> {
    pub fn open(view: &'v ShardView) -> Self {
        loop {
            let before = view.state().index.current;
            // Before the snapshot, which then has no more of them than this says.
            let has_foreign = view.has_foreign();
            let settled = view.aggregate_cache.settled();
            let snapshot = view.engine.snapshot();
            // A generation is removed only after readers were told of another one. Whoever was not told until now sees all of it.
            if view.state().index.current.map(|one| one.number) != before.map(|one| one.number) {
                continue;
            }
            let live = view.live_indexes();
            let index = before.and_then(|current| {
                live.iter()
                    .find(|one| one.number == current.number)
                    .cloned()
            });
            let judge = view.expiry_check();
            return Self {
                snapshot,
                read_point: ReadPoint {
                    settled,
                    now: judge.now(),
                    rules: judge.rules(),
                },
                judge,
                view,
                index,
                has_foreign,
            };
        }
    }

    /// Whether the item behind an entry with this value lives; a value that cannot be read is left to the item itself.
    pub fn is_live(&self, value: &[u8]) -> bool {
        index_entry::decode(value).is_none_or(|(ts, ttl)| self.judge.is_live(ts, ttl))
    }

    /// Whether the item with this ordinal has its document key between two others.
    pub fn is_within(&self, ordinal: u64, (from, to): &(Vec<u8>, Vec<u8>)) -> Result<bool> {
        let Some(resource) = self.snapshot.get(&keys::resource(ordinal))? else {
            return Ok(false);
        };
        let (_, key) = damaged(index_entry::resource_parts(&resource))?;
        Ok(from.as_slice() <= key && key < to.as_slice())
    }

    /// What the shapes of the shard say of a path.
    pub fn survey(&self, path: PathId) -> PathSurvey {
        let mut survey = PathSurvey::default();
        let Some(index) = &self.index else {
            return survey;
        };
        let shapes = index.shapes();
        for (id, shape) in shapes.iter() {
            match shape.kind_of(path) {
                None => survey.lacking.push(*id),
                Some(kind) => {
                    survey.having.push(*id);
                    survey.has_cut |= kind == Kind::Cut;
                    survey.has_nested |= kind == Kind::Nested;
                }
            }
        }
        survey.lacking.sort_unstable();
        survey.having.sort_unstable();
        survey.has_other = shapes.len() >= crate::shard::indexing::SHAPES_MAX;
        survey
    }

    /// The beginning of the keys of entries with this path and what follows.
    pub fn entry_prefix(&self, path: PathId, value: &[u8]) -> Vec<u8> {
        let number = self.index.as_ref().map_or(0, |index| index.number);
        let mut term = path.0.to_be_bytes().to_vec();
        term.extend_from_slice(value);
        keys::index_prefix(number, &term)
    }
}

/// What shapes say of a path.
#[derive(Default)]
pub struct PathSurvey {
    pub lacking: Vec<ShapeId>,
    pub having: Vec<ShapeId>,
    /// Some items may have strings there that were cut, or arrays or objects. Items of these shapes may be gone by now.
    pub has_cut: bool,
    pub has_nested: bool,
    /// There may be items of which nothing is known.
    pub has_other: bool,
}

impl PathSurvey {
    /// Shapes as ranges under the path of shapes; with those that may be of the kind, whether or not they are.
    pub fn ranges(&self, shapes: &[ShapeId]) -> ValueRanges {
        let other = self.has_other.then_some(ShapeId::OTHER);
        ValueRanges::union(shapes.iter().copied().chain(other).map(|shape| {
            let term = shape_term(shape);
            let number = term.get(SHAPES.0.to_be_bytes().len()..).unwrap_or_default();
            ValueRanges::prefix(number.to_vec())
        }))
    }
}

pub fn damaged<T>(entry: Option<T>) -> Result<T> {
    entry.ok_or_else(|| {
        crate::model::error::Error::unavailable(
            "the files are damaged: an entry of the index cannot be read",
        )
    })
}
