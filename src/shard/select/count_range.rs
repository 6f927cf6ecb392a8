//! Counts the live entries of a term: by sums of stretches where they are known, by a walk where they are not, which leaves its sums to those after it.

use super::{
    ResumePoint, Spent,
    condition::Term,
    foreign_resume_point,
    reader::Reader,
    walk::{HEAD_BYTES, entry_of, point_at},
};
use crate::{
    model::error::Result,
    shard::sums::{Line, Next, STRETCH_ENTRIES, STRETCH_ENTRIES_MIN, Sum},
    store::{engine::Scan, index_entry},
};

/// How many live entries there are; with a place to go on from when the budget is used up before the end.
pub fn count(
    reader: &Reader<'_>,
    term: &Term,
    resume: Option<&ResumePoint>,
    spent: &mut Spent,
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
        line: (reader.index.as_ref().map_or(0, |index| index.number), path),
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
    reader: &'a Reader<'v>,
    line: Line,
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
    /// Counts what is known from `at` on, or else a stretch: where to go on, or `None` at the end of the range.
    fn step(&mut self, at: &[u8], to: &[u8], spent: &mut Spent) -> Result<Option<Vec<u8>>> {
        let (sums, moment) = (&self.reader.view.sums, &self.reader.moment);
        let mut next = sums.next(self.line, moment, at, at, to);
        if let Next::Walk { .. } = next {
            self.scan.seek(at);
            match self.scan.entry()?.filter(|(key, _)| *key < to) {
                None => return Ok(None),
                Some((entry, _)) if entry != at => {
                    next = sums.next(self.line, moment, at, entry, to);
                }
                Some(_) => {}
            }
        }
        match next {
            Next::Known { entries, live, to } => {
                spent.examined += entries;
                self.live += live;
                Ok(Some(to))
            }
            Next::Walk { from, to } => {
                let walked = self.walk(&to, spent.left().clamp(1, STRETCH_ENTRIES))?;
                spent.examined += walked.entries;
                self.live += walked.live;
                let is_stretch = match &walked.next {
                    Some(_) => walked.entries >= STRETCH_ENTRIES,
                    None => walked.entries >= STRETCH_ENTRIES_MIN,
                };
                let next = walked.next.unwrap_or(to);
                if let Some((from, rules)) = from.zip(moment.rules).filter(|_| is_stretch) {
                    let sum = Sum {
                        entries: walked.entries,
                        live: walked.live,
                        seconds: (moment.now, walked.first_due),
                        rules,
                    };
                    sums.keep(self.line, moment, from, next.clone(), sum);
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
