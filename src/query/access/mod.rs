//! Access paths: how a query gets at the items of one shard. A walk over the keys of the items, or over
//! entries of the index and from them to the items. Each can stop anywhere and go on from a [`ResumePoint`].

mod budget;
mod candidate;
mod index_items;
mod index_reader;
mod index_walk;
mod key_scan;
mod ordinal_walk;
mod ranges;
mod resume;

pub use budget::{ScanBudget, SpentBudget};
pub use candidate::Candidate;
pub use index_items::{IndexEntries, IndexItems, TermCheck};
pub use index_reader::{IndexReader, PathSurvey, damaged};
pub use index_walk::{
    HEAD_BYTES, IndexWalk, IndexWalkPlan, MissingItems, driver_of, entry_of, point_at,
};
pub use key_scan::KeyScan;
pub use ordinal_walk::{OrdinalWalk, is_of_ordinals};
pub use ranges::{ValueRange, ValueRanges, successor};
pub use resume::{RESUME_BYTES_MAX, ResumePoint, foreign_resume_point};

/// Returns whether a point is a position in the order of keys. Such a point is before or behind all
/// keys of another range; a position in the index is not.
pub fn is_of_keys(point: &ResumePoint) -> bool {
    driver_of(point).is_none() && !is_of_ordinals(point)
}
