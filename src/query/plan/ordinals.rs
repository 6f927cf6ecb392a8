//! Sets of items by their ordinals: where several conditions each have a part in the answer, their items are gathered first.

use super::{
    condition::{Condition, Term},
    estimate::{Counted, count_entries},
};
use crate::{
    model::error::Result,
    query::access::{IndexReader, damaged},
    store::keys,
};

/// The most items of one set: 8 MB.
pub const ORDINALS_MAX: usize = 1_000_000;
/// How far the conditions that must all be true are counted to find the one with the fewest items.
const COMPARED_ENTRIES_MAX: usize = 1_000;

/// Whether the index tells which items may fulfil a condition.
pub fn is_bounded(condition: &Condition) -> bool {
    match condition {
        Condition::Term(_) | Condition::Nothing => true,
        Condition::And(all) => all.iter().any(is_bounded),
        Condition::Or(all) => all.iter().all(is_bounded),
        Condition::All | Condition::Unknown | Condition::Present(_) | Condition::Missing(_) => {
            false
        }
    }
}

/// The live items that may fulfil a condition, in ascending order; `None` when there are too many, or when the index does not tell.
pub fn of_condition(
    reader: &IndexReader<'_>,
    condition: &Condition,
    limit: usize,
) -> Result<Option<Vec<u64>>> {
    match condition {
        Condition::Nothing => Ok(Some(Vec::new())),
        Condition::Term(term) => of_term(reader, term, limit),
        Condition::Or(all) => {
            let mut found = Vec::new();
            for one in all {
                match of_condition(reader, one, limit)? {
                    Some(more) => found.extend(more),
                    None => return Ok(None),
                }
            }
            found.sort_unstable();
            found.dedup();
            Ok((found.len() <= limit).then_some(found))
        }
        Condition::And(all) => {
            let bounded: Vec<&Condition> = all.iter().filter(|one| is_bounded(one)).collect();
            for one in &bounded {
                if let Condition::Term(term) = one
                    && let Counted::All(_) = count_entries(reader, term, COMPARED_ENTRIES_MAX)?
                {
                    return of_term(reader, term, limit);
                }
            }
            for one in bounded {
                if let Some(found) = of_condition(reader, one, limit)? {
                    return Ok(Some(found));
                }
            }
            Ok(None)
        }
        _ => Ok(None),
    }
}

/// The live items that fulfil a condition of exact terms, in ascending order; `None` when there are too many, or when the index does not tell.
pub fn exactly(
    reader: &IndexReader<'_>,
    condition: &Condition,
    limit: usize,
) -> Result<Option<Vec<u64>>> {
    let (all, joined) = match condition {
        Condition::Term(term) => return of_term(reader, term, limit),
        Condition::Nothing => return Ok(Some(Vec::new())),
        Condition::Or(all) => (all, true),
        Condition::And(all) => (all, false),
        _ => return Ok(None),
    };
    let mut found: Option<Vec<u64>> = None;
    for one in all {
        let Some(more) = exactly(reader, one, limit)? else {
            return Ok(None);
        };
        found = Some(match found {
            None => more,
            Some(mut known) if joined => {
                known.extend(more);
                known.sort_unstable();
                known.dedup();
                known
            }
            Some(mut known) => {
                known.retain(|ordinal| more.binary_search(ordinal).is_ok());
                known
            }
        });
    }
    Ok(found.filter(|found| found.len() <= limit))
}

/// The live items with a term, in ascending order, each once; `None` when there are too many.
pub fn of_term(reader: &IndexReader<'_>, term: &Term, limit: usize) -> Result<Option<Vec<u64>>> {
    let bounds = term
        .ranges
        .iter()
        .next()
        .zip(term.ranges.iter().next_back());
    let Some((first, last)) = bounds else {
        return Ok(Some(Vec::new()));
    };
    let mut scan = reader.snapshot.cursor(
        &reader.entry_prefix(term.path.id, &first.from),
        &reader.entry_prefix(term.path.id, &last.to),
    );
    let mut found = Vec::new();
    for range in term.ranges.iter() {
        let to = reader.entry_prefix(term.path.id, &range.to);
        scan.seek(&reader.entry_prefix(term.path.id, &range.from));
        while let Some((key, value)) = scan.entry()?.filter(|(key, _)| *key < to.as_slice()) {
            if reader.is_live(value) {
                let (_, ordinal) = damaged(keys::index_entry_parts(key))?;
                found.push(ordinal);
                if found.len() > limit {
                    return Ok(None);
                }
            }
            scan.advance();
        }
    }
    found.sort_unstable();
    found.dedup();
    Ok(Some(found))
}
