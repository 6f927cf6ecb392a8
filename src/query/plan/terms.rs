//! Terms of the index: what kinds of values they ask for.

use super::condition::{Condition, IndexPath, Term};
use crate::{
    index::{
        path::SHAPES,
        value::{self, tag},
    },
    query::access::{ValueRanges, successor},
};

/// Values of one path that are looked up one by one for an item.
const CHECK_VALUES_MAX: usize = 4;

pub fn shapes_path() -> IndexPath {
    IndexPath::of_id(SHAPES)
}

/// All values that have terms.
pub fn scalars() -> ValueRanges {
    ValueRanges::one(vec![tag::NULL], vec![tag::ARRAY])
}

/// The values that a term asks for, if it asks for a few values and not for a range of them.
pub fn whole_values(term: &Term) -> Option<Vec<Vec<u8>>> {
    is_checkable(term).then(|| term.ranges.iter().map(|range| range.from.clone()).collect())
}

/// Whether a handful of lookups tells if an item has the term.
pub fn is_checkable(term: &Term) -> bool {
    term.ranges.len() <= CHECK_VALUES_MAX
        && term
            .ranges
            .iter()
            .all(|range| range.to == successor(&range.from))
        && is_whole_value(term)
}

/// Whether the ranges are values, and not prefixes of values: those of a type, or of strings that begin alike.
pub fn is_whole_value(term: &Term) -> bool {
    term.ranges.iter().all(|range| match range.from.as_slice() {
        _ if term.path.of_cells => false,
        _ if term.path.id == SHAPES => true,
        [tag::NULL | tag::FALSE | tag::TRUE] => true,
        [tag::NUMBER, rest @ ..] => rest.len() >= 8,
        [tag::TEXT, rest @ ..] => {
            // An end mark is a zero, or a one behind the longest part that is kept.
            rest.last() == Some(&0)
                || (rest.len() == value::TEXT_BYTES_MAX + 1 && rest.last() == Some(&1))
        }
        _ => false,
    })
}

pub fn collect_paths(condition: &Condition, paths: &mut Vec<String>) {
    match condition {
        Condition::Term(term) if term.path.id != SHAPES => {
            let text = term.path.text();
            if !paths.contains(&text) {
                paths.push(text);
            }
        }
        Condition::And(all) | Condition::Or(all) => {
            all.iter().for_each(|one| collect_paths(one, paths));
        }
        _ => {}
    }
}
