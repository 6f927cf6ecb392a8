//! Counts the live entries of a term: from the aggregate cache where it has a block, by a walk where
//! it has none. The walk leaves the blocks that it counts in the cache.

use crate::{
    model::error::Result,
    query::{
        access::{
            HEAD_BYTES, IndexReader, ResumePoint, SpentBudget, entry_of, foreign_resume_point,
            point_at,
        },
        plan::condition::Term,
    },
    shard::aggregate_cache::{
        BLOCK_ENTRIES, BLOCK_ENTRIES_MIN, BlockAggregate, CountStep, PostingList,
    },
    store::{engine::Scan, index_entry},
};

/// Returns the number of live entries, and where to go on if the budget is used up before the end.
pub fn count(
    reader: &IndexReader<'_>,
    term: &Term,
    resume: Option<&ResumePoint>,
    spent: &mut SpentBudget,
) -> Result<(u64, Option<ResumePoint>)> {
    let path = term.path.id;
    let resumed = resume
        .map(|point| entry_of(point).ok_or_else(foreign_resume_point))
        .transpose()?;
    let ranges = || {
        term.ranges.iter().map(|range| {
            let key = |value| reader.entry_prefix(path, value);
            (key(&range.from), key(&range.to))
        })
    };
    let Some(((first, _), (_, last))) = ranges().next().zip(ranges().next_back()) else {
        return Ok((0, None));
    };
    let mut walk = CountWalk {
        reader,
        postings: (reader.index.as_ref().map_or(0, |index| index.number), path),
        scan: reader.snapshot.cursor(&first, &last),
        end: last,
        live: 0,
    };
    for (from, to) in ranges() {
        let mut at = from;
        if let Some(entry) = &resumed {
            let mut key = at.get(..HEAD_BYTES).unwrap_or_default().to_vec();
            key.extend_from_slice(entry);
            at = at.max(key);
        }
        while at < to {
            if spent.is_over() {
                return Ok((walk.live, Some(point_at(path, &at))));
            }
            match walk.step(&at, &to, spent)? {
                Some(next) => at = next,
                None => break,
            }
        }
    }
    Ok((walk.live, None))
}

struct CountWalk<'a, 'v> {
    reader: &'a IndexReader<'v>,
    postings: PostingList,
    scan: Scan<'v>,
    /// Where the scan ends by itself.
    end: Vec<u8>,
    live: u64,
}

/// What was walked over.
struct Walked {
    entries: usize,
    live: u64,
    /// When the first of the items falls due.
    first_due: i64,
    /// The first key behind it; `None` at the end.
    next: Option<Vec<u8>>,
}

impl CountWalk<'_, '_> {
    /// Counts what is cached from `at` on, or else one block. Returns where to go on; `None` at the
    /// end of the range.
    fn step(&mut self, at: &[u8], to: &[u8], spent: &mut SpentBudget) -> Result<Option<Vec<u8>>> {
        let (cache, point) = (&self.reader.view.aggregate_cache, &self.reader.read_point);
        let mut next = cache.next(self.postings, point, at, at, to);
        if let CountStep::Walk { .. } = next {
            self.scan.seek(at);
            match self.scan.entry()?.filter(|(key, _)| *key < to) {
                None => return Ok(None),
                Some((entry, _)) if entry != at => {
                    next = cache.next(self.postings, point, at, entry, to);
                }
                Some(_) => {}
            }
        }
        match next {
            CountStep::Known { entries, live, to } => {
                spent.examined += entries;
                self.live += live;
                Ok(Some(to))
            }
            CountStep::Walk { from, to } => {
                let walked = self.walk(&to, spent.left().clamp(1, BLOCK_ENTRIES))?;
                spent.examined += walked.entries;
                self.live += walked.live;
                let is_block = match &walked.next {
                    Some(_) => walked.entries >= BLOCK_ENTRIES,
                    None => walked.entries >= BLOCK_ENTRIES_MIN,
                };
                let next = walked.next.unwrap_or(to);
                if let Some((from, rules)) = from.zip(point.rules).filter(|_| is_block) {
                    let counted = BlockAggregate {
                        entries: walked.entries,
                        live: walked.live,
                        seconds: (point.now, walked.first_due),
                        rules,
                    };
                    cache.insert(self.postings, point, from, next.clone(), counted);
                }
                Ok(Some(next))
            }
        }
    }

    /// Walks over the entry under the cursor and those behind it, at most so many, before a key.
    fn walk(&mut self, to: &[u8], entries_max: usize) -> Result<Walked> {
        let judge = &self.reader.judge;
        let ends_by_itself = to == self.end;
        let (mut entries, mut live, mut first_due) = (0, 0, i64::MAX);
        let next = loop {
            let entry = self.scan.entry()?;
            let Some((key, value)) = entry.filter(|(key, _)| ends_by_itself || *key < to) else {
                break None;
            };
            if entries >= entries_max {
                break Some(key.to_vec());
            }
            entries += 1;
            match index_entry::decode(value) {
                Some((ts, ttl)) if judge.is_live(ts, ttl) => {
                    live += 1;
                    let due = judge.expiry_of(ts, ttl);
                    first_due = due.map_or(first_due, |due| due.min(first_due));
                }
                Some(_) => {}
                // What cannot be read counts, and its item will tell.
                None => live += 1,
            }
            self.scan.advance();
        };
        Ok(Walked {
            entries,
            live,
            first_due,
            next,
        })
    }
}
