//! Counts rows whose conditions no single walk over the index takes care of: the items of each are gathered, joined and cut.

use super::answer::IndexAnswer;
use crate::{
    model::error::Result,
    query::{
        access::IndexReader,
        plan::{
            IndexUse, ScanRequest, condition::Condition, filter::filter, ordinals,
            planner::conditions, terms::collect_paths,
        },
    },
    sql::{Partial, TermAggregate, TermResult},
    store::keys,
};

/// Items gathered for one condition at most: as many as are gathered in the time of one slice of a query.
const SET_ITEMS_MAX: usize = 100_000;

/// `None` when the index does not tell, or when there is too much to gather.
pub fn count(
    reader: &IndexReader<'_>,
    request: &ScanRequest<'_>,
    aggregates: &[TermAggregate],
) -> Result<Option<IndexAnswer>> {
    let only_rows = aggregates.iter().all(|one| *one == TermAggregate::Rows);
    // A point belongs to a walk over items: a set is counted at once.
    let Some(index) = reader
        .index
        .as_ref()
        .filter(|_| only_rows && request.resume.is_none())
    else {
        return Ok(None);
    };
    let all = Condition::And(conditions(
        reader,
        filter(request.query, &index.indexer).condition,
    ));
    if !all.is_exact() {
        return Ok(None);
    }
    let Some(mut found) = ordinals::exactly(reader, &all, SET_ITEMS_MAX)? else {
        return Ok(None);
    };
    if reader.has_foreign {
        let keys = keys::document_range(&request.keys.min, &request.keys.max);
        let mut ours = Vec::with_capacity(found.len());
        for ordinal in found {
            if reader.is_within(ordinal, &keys)? {
                ours.push(ordinal);
            }
        }
        found = ours;
    }
    let mut used = IndexUse::default();
    collect_paths(&all, &mut used.utilized);
    let rows = TermResult::Count(found.len() as u64);
    Ok(Some(IndexAnswer {
        partial: Partial::of_terms(vec![rows; aggregates.len()]),
        resume: None,
        examined: found.len(),
        used,
    }))
}
