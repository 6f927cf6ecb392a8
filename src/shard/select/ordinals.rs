//! Sets of items by their ordinals: where several conditions each have a part in the answer, their items are gathered first.

use super::{
    ResumePoint,
    condition::{Condition, Term},
    estimate::{Counted, count_entries},
    foreign_resume_point,
    reader::{Reader, damaged},
};
use crate::{model::error::Result, store::keys};

/// The first byte of a resume point: at an ordinal, or behind it (see [`ResumePoint::behind`]).
const AT: u8 = b's';
const AFTER: u8 = b'S';

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
    reader: &Reader<'_>,
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
    reader: &Reader<'_>,
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
pub fn of_term(reader: &Reader<'_>, term: &Term, limit: usize) -> Result<Option<Vec<u64>>> {
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

/// A walk over a set.
pub struct OrdinalWalk {
    ordinals: Vec<u64>,
    next: usize,
    /// The ordinal at which an earlier walk stopped.
    resumed_at: Option<u64>,
}

fn parse(point: &ResumePoint) -> Option<(u64, bool)> {
    let (&kind, ordinal) = point.0.split_first()?;
    let ordinal = u64::from_be_bytes(ordinal.try_into().ok()?);
    match kind {
        AT => Some((ordinal, false)),
        AFTER => Some((ordinal, true)),
        _ => None,
    }
}

pub fn is_of_ordinals(point: &ResumePoint) -> bool {
    parse(point).is_some()
}

impl OrdinalWalk {
    pub fn open(ordinals: Vec<u64>, resume: Option<&ResumePoint>) -> Result<Self> {
        let resume = match resume.map(parse) {
            None => None,
            Some(Some(place)) => Some(place),
            Some(None) => return Err(foreign_resume_point()),
        };
        Ok(Self {
            next: match resume {
                None => 0,
                Some((place, after)) => {
                    ordinals.partition_point(|one| *one < place || (after && *one == place))
                }
            },
            resumed_at: resume.filter(|(_, after)| !after).map(|(place, _)| place),
            ordinals,
        })
    }

    pub fn held_bytes(&self) -> usize {
        self.ordinals.capacity() * size_of::<u64>()
    }

    pub fn advance(&mut self) -> bool {
        self.next += 1;
        self.next <= self.ordinals.len()
    }

    pub fn ordinal(&self) -> u64 {
        let at = self.next.checked_sub(1);
        at.and_then(|at| self.ordinals.get(at))
            .copied()
            .unwrap_or_default()
    }

    pub fn is_at_resume(&self) -> bool {
        self.resumed_at == Some(self.ordinal())
    }

    pub fn resume_at(&self) -> ResumePoint {
        let mut bytes = vec![AT];
        bytes.extend_from_slice(&self.ordinal().to_be_bytes());
        ResumePoint(bytes)
    }
}
