//! Composite indexes: what a filter says of their columns, and which one would help.

use super::{
    condition::{Condition, IndexPath, Term},
    terms::is_whole_value,
};
use crate::{
    index::{PathId, path::SHAPES, policy::Column, value},
    model::indexing_policy::{COMPOSITE_PATHS_MAX, COMPOSITE_PATHS_MIN},
    query::access::{IndexReader, ValueRanges},
};

/// The first columns of a composite index, for which a filter gives a value each.
pub struct Given {
    /// What terms with these values begin with.
    pub bytes: Vec<u8>,
    pub covers: Vec<PathId>,
}

/// As many of the first columns as the filter gives values for.
pub fn given(columns: &[Column], conditions: &[Condition]) -> Given {
    let mut given = Given {
        bytes: Vec::new(),
        covers: Vec::new(),
    };
    for column in columns {
        let value = term_of(column, conditions)
            .filter(|term| is_whole_value(term))
            .and_then(|term| term.ranges.single_value())
            // A long string is cut elsewhere in a composite term.
            .filter(|value| value.len() <= value::COLUMN_TEXT_BYTES_MAX);
        let Some(value) = value else {
            break;
        };
        let start = given.bytes.len();
        given.bytes.extend_from_slice(value);
        if column.descending {
            value::invert(&mut given.bytes, start);
        }
        given.covers.push(column.id);
    }
    given
}

fn term_of<'c>(column: &Column, conditions: &'c [Condition]) -> Option<&'c Term> {
    conditions.iter().find_map(|one| match one {
        Condition::Term(term) if term.path.id == column.id => Some(term),
        _ => None,
    })
}

/// Several conditions in one: a range of a composite index.
pub struct CompositeTerm {
    pub term: Term,
    pub covers: Vec<PathId>,
    /// As index metrics name them.
    pub columns: Vec<String>,
}

/// The composite indexes that take care of two conditions or more: values of the first columns, and then perhaps a range.
pub fn of_filter(reader: &IndexReader<'_>, conditions: &[Condition]) -> Vec<CompositeTerm> {
    let composites = reader
        .index
        .iter()
        .flat_map(|index| index.indexer.composites());
    composites
        .filter_map(|composite| {
            let Given { bytes, mut covers } = given(&composite.columns, conditions);
            let next = composite.columns.get(covers.len());
            let range = next
                .filter(|column| !column.descending)
                .and_then(|column| term_of(column, conditions));
            let ranges = match range {
                Some(term) => {
                    covers.push(term.path.id);
                    let behind = |bound: &[u8]| [bytes.as_slice(), bound].concat();
                    let ranges = term.ranges.iter();
                    ValueRanges::union(
                        ranges
                            .map(|range| ValueRanges::one(behind(&range.from), behind(&range.to))),
                    )
                }
                None => ValueRanges::prefix(bytes),
            };
            (covers.len() > 1 && is_precise(reader, composite.id)).then(|| CompositeTerm {
                term: Term {
                    path: IndexPath::of_id(composite.id),
                    ranges,
                    exact: true,
                },
                covers,
                columns: names(&composite.columns),
            })
        })
        .collect()
}

/// Whether every item has a term under a composite index, and it says all of its columns.
pub fn is_precise(reader: &IndexReader<'_>, composite: PathId) -> bool {
    let survey = reader.survey(composite);
    !survey.has_cut && !survey.has_other
}

/// Columns as index metrics name them.
pub fn names(columns: &[Column]) -> Vec<String> {
    let names = columns
        .iter()
        .map(|column| name(&column.path, column.descending));
    names.collect()
}

fn name(path: &impl std::fmt::Display, descending: bool) -> String {
    format!("{path} {}", if descending { "DESC" } else { "ASC" })
}

/// The composite index that would take care of the filter's conditions together, and of the order behind them.
pub fn advice(order: &[(IndexPath, bool)], conditions: &[Condition]) -> Option<Vec<String>> {
    let terms = || {
        conditions.iter().filter_map(|one| match one {
            Condition::Term(term)
                if term.path.id != SHAPES
                    && !term.path.is_multiple()
                    && order.iter().all(|(path, _)| path.id != term.path.id) =>
            {
                Some(term)
            }
            _ => None,
        })
    };
    let is_given = |term: &&Term| is_whole_value(term) && term.ranges.single_value().is_some();
    let given = terms().filter(is_given);
    let mut columns: Vec<String> = given
        .map(|term| name(&term.path.property(), false))
        .collect();
    match order {
        [] => {
            let range = terms().find(|term| !is_given(term));
            columns.extend(range.map(|term| name(&term.path.property(), false)));
        }
        order if columns.is_empty() && order.len() == 1 => return None,
        order => {
            let order = order.iter();
            columns.extend(order.map(|(path, descending)| name(&path.property(), *descending)));
        }
    }
    (COMPOSITE_PATHS_MIN..=COMPOSITE_PATHS_MAX)
        .contains(&columns.len())
        .then_some(columns)
}
