//! Counts a few entries to compare ways.

use super::condition::Term;
use crate::{
    model::{epk::EpkRange, error::Result},
    query::access::IndexReader,
    store::keys,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    All(usize),
    /// At least as many as the limit.
    More,
}

/// Entries of a term, dead ones too.
pub fn count_entries(reader: &IndexReader<'_>, term: &Term, limit: usize) -> Result<Counted> {
    let bounds = term
        .ranges
        .iter()
        .next()
        .zip(term.ranges.iter().next_back());
    let Some((first, last)) = bounds else {
        return Ok(Counted::All(0));
    };
    let mut scan = reader.snapshot.cursor(
        &reader.entry_prefix(term.path.id, &first.from),
        &reader.entry_prefix(term.path.id, &last.to),
    );
    let mut count = 0;
    for range in term.ranges.iter() {
        let to = reader.entry_prefix(term.path.id, &range.to);
        scan.seek(&reader.entry_prefix(term.path.id, &range.from));
        while scan.entry()?.is_some_and(|(key, _)| key < to.as_slice()) {
            count += 1;
            if count >= limit {
                return Ok(Counted::More);
            }
            scan.advance();
        }
    }
    Ok(Counted::All(count))
}

/// Items of a range of keys, dead ones too.
pub fn count_keys(reader: &IndexReader<'_>, range: &EpkRange, limit: usize) -> Result<Counted> {
    let (from, to) = keys::document_range(&range.min, &range.max);
    let mut scan = reader.snapshot.cursor(&from, &to);
    scan.seek(&from);
    let mut count = 0;
    while scan.entry()?.is_some() {
        count += 1;
        if count >= limit {
            return Ok(Counted::More);
        }
        scan.advance();
    }
    Ok(Counted::All(count))
}
