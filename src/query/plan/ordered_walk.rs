//! Walks over the index that give the items in the order of a query.

use super::{
    composite::{Given, given, is_precise, names},
    condition::{Condition, IndexPath, Term},
    index_use::IndexUse,
    name_scope::item_path,
    ordinals::{self, ORDINALS_MAX},
    request::ScanRequest,
    terms::{scalars, shapes_path},
};
use crate::{
    index::{Indexer, PathId, policy::Column, value::tag},
    model::error::{Error, Result},
    query::access::{IndexReader, IndexWalkPlan, MissingItems, ValueRanges},
    sql::ast::SelectQuery,
};

/// A walk that gives the items in the order of the query.
pub struct OrderedWalk {
    pub plan: IndexWalkPlan,
    /// The condition that the walk takes care of.
    pub covers: Vec<PathId>,
    pub used: IndexUse,
}

impl OrderedWalk {
    pub fn of(
        reader: &IndexReader<'_>,
        request: &ScanRequest<'_>,
        conditions: &[Condition],
    ) -> Result<Option<Self>> {
        let columns = reader
            .index
            .as_ref()
            .and_then(|index| columns(request, &index.indexer));
        let Some(columns) = columns else {
            return Ok(None);
        };
        match columns.as_slice() {
            [] => Ok(None),
            [(path, descending)] => {
                // One that takes care of conditions too is shorter.
                let composite = Self::by_composite(reader, &columns, conditions);
                match composite {
                    Some(composite) if !composite.covers.is_empty() => Ok(Some(composite)),
                    composite => {
                        let by_path = Self::by_path(reader, path, *descending, conditions)?;
                        Ok(by_path.or(composite))
                    }
                }
            }
            columns => {
                check_composite(reader, columns, request.query.syntax())?;
                Ok(Self::by_composite(reader, columns, conditions))
            }
        }
    }

    fn by_path(
        reader: &IndexReader<'_>,
        path: &IndexPath,
        descending: bool,
        conditions: &[Condition],
    ) -> Result<Option<Self>> {
        let indexed = reader
            .index
            .as_ref()
            .is_some_and(|index| index.indexer.includes(&path.segments));
        if !indexed {
            return Ok(None);
        }
        let survey = reader.survey(path.id);
        let bound = conditions.iter().find_map(|one| match one {
            Condition::Term(term) if term.path.id == path.id => Some(&term.ranges),
            _ => None,
        });
        let ranges = bound.cloned().unwrap_or_else(scalars);
        let unsorted = (survey.has_cut && ranges.intersects(&ValueRanges::of_tag(tag::TEXT)))
            || (bound.is_none() && (survey.has_nested || survey.has_other));
        if unsorted {
            return Ok(None);
        }
        let missing = match (bound, survey.lacking.as_slice()) {
            (Some(_), _) | (None, []) => None,
            (None, [shape]) => Some(MissingItems::Shape(survey.ranges(&[*shape]))),
            (None, lacking) => {
                let term = Term {
                    path: shapes_path(),
                    ranges: survey.ranges(lacking),
                    exact: true,
                };
                match ordinals::of_term(reader, &term, ORDINALS_MAX)? {
                    Some(ordinals) => Some(MissingItems::Ordinals(ordinals)),
                    None => return Ok(None),
                }
            }
        };
        let used = IndexUse {
            utilized: vec![path.text()],
            ..IndexUse::default()
        };
        Ok(Some(Self {
            plan: IndexWalkPlan {
                driver: path.id,
                ranges,
                missing,
                backwards: descending,
            },
            covers: vec![path.id],
            used,
        }))
    }

    /// The composite index of which the filter gives the most first columns, and whose others are the order's.
    fn by_composite(
        reader: &IndexReader<'_>,
        order: &[(IndexPath, bool)],
        conditions: &[Condition],
    ) -> Option<Self> {
        let composites = &reader.index.as_ref()?.indexer;
        let fitting = composites.composites().iter().filter_map(|composite| {
            let first = composite.columns.len().checked_sub(order.len())?;
            let (first, rest) = composite.columns.split_at(first);
            let backwards = direction(rest, order)?;
            let given = given(first, conditions);
            let fits = given.covers.len() == first.len() && is_precise(reader, composite.id);
            fits.then_some((composite, given, backwards))
        });
        let (composite, Given { bytes, covers }, backwards) =
            fitting.max_by_key(|(_, given, _)| given.covers.len())?;
        Some(Self {
            plan: IndexWalkPlan {
                driver: composite.id,
                ranges: if bytes.is_empty() {
                    everything()
                } else {
                    ValueRanges::prefix(bytes)
                },
                missing: None,
                backwards,
            },
            covers,
            used: IndexUse {
                utilized_composite: vec![names(&composite.columns)],
                ..IndexUse::default()
            },
        })
    }
}

/// The columns of a query's ORDER BY and whether they are descending, if all of them are paths of the item.
pub fn columns(request: &ScanRequest<'_>, indexer: &Indexer) -> Option<Vec<(IndexPath, bool)>> {
    let syntax = request.query.syntax();
    if syntax.order_by_rank || !syntax.group_by.is_empty() {
        return None;
    }
    let columns = syntax.order_by.iter();
    columns
        .map(|item| {
            Some((
                item_path(request.query, indexer, &item.expr)?,
                item.descending,
            ))
        })
        .collect()
}

/// Whether columns are an order, forwards (`false`) or backwards.
fn direction(columns: &[Column], order: &[(IndexPath, bool)]) -> Option<bool> {
    let same_paths = columns.len() == order.len()
        && columns
            .iter()
            .zip(order)
            .all(|(column, (path, _))| column.id == path.id);
    let mut turned = columns
        .iter()
        .zip(order)
        .map(|(column, (_, descending))| column.descending != *descending);
    let first = turned.next()?;
    (same_paths && turned.all(|one| one == first)).then_some(first)
}

/// An order by several columns needs a composite index of them.
fn check_composite(
    reader: &IndexReader<'_>,
    order: &[(IndexPath, bool)],
    syntax: &SelectQuery,
) -> Result<()> {
    let Some(index) = &reader.index else {
        return Ok(());
    };
    let found = index.indexer.composites().iter().any(|composite| {
        let given = composite.columns.len().saturating_sub(order.len());
        let rest = composite.columns.get(given..).unwrap_or_default();
        direction(rest, order).is_some()
    });
    if found {
        return Ok(());
    }
    let columns: Vec<String> = syntax
        .order_by
        .iter()
        .map(|item| item.expr.to_string())
        .collect();
    Err(Error::bad_request(format!(
        "The order by query does not have a corresponding composite index that it can be served from: there is none over {}",
        columns.join(", ")
    )))
}
/// All values of a composite term, turned or not.
fn everything() -> ValueRanges {
    ValueRanges::one(vec![0], vec![0xff])
}
