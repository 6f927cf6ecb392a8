//! Sums of stretches of the index, so that a count need not look at each entry again. Kept in memory, made by counts, exact by this order:
//!
//! 1. Writes are numbered. Before one reaches the engine, every stretch that it touches is marked with its number (`begin`); when it is in the
//!    engine, it is settled (`settle`).
//! 2. A reader takes note of what is settled before its snapshot (`settled`): all of that is in the snapshot.
//! 3. A sum is kept, and used, only if the last write that touched its stretch was settled for the reader. Then the snapshots of whoever counted
//!    and of whoever uses the sum hold the same entries there: all writes to the stretch that have begun at all, and none after them.
//!
//! A sum also names the rules of expiry it was made by and the seconds for which it holds: until the first of its items falls due. Entries that leave
//! when files are rewritten are of dead items, which are in no sum.

use std::{
    collections::{BTreeMap, HashMap},
    ops::Bound,
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering},
    },
};

use super::command::{Change, Command, IndexChanges};
use crate::{
    expiry::ExpiryRules,
    index::{PathId, terms::PATH_BYTES},
    model::ttl::ItemTtl,
    store::{document::Stored, keys},
};

/// Entries of one stretch when it is made; it may grow to twice as many.
pub const STRETCH_ENTRIES: usize = if cfg!(test) { 4 } else { 4_096 };
/// What has fewer entries than this is counted each time.
pub const STRETCH_ENTRIES_MIN: usize = if cfg!(test) { 2 } else { 512 };
/// Stretches of one shard: with keys of usual length 4 MB.
const STRETCHES_MAX: usize = if cfg!(test) { 32 } else { 16_384 };

/// The entries of one path in one generation of the index.
pub type Line = (u16, PathId);

#[derive(Default)]
pub struct Sums {
    kept: Mutex<Kept>,
    /// The number of the last write that is in the engine.
    settled: AtomicU64,
    /// How often a sum was known.
    #[cfg(test)]
    used: AtomicU64,
}

#[derive(Default)]
struct Kept {
    /// The number of the last write that was begun.
    begun: u64,
    lines: HashMap<Line, Stretches>,
    /// Of all lines.
    stretches: usize,
    /// Goes up with each count, for what is used least.
    counts: u64,
}

#[derive(Default)]
struct Stretches {
    /// By their first key; they do not overlap.
    all: BTreeMap<Vec<u8>, Stretch>,
    /// The last count that asked for them.
    used: u64,
}

struct Stretch {
    to: Vec<u8>,
    /// The last write that may have changed entries of it.
    touched: u64,
    sum: Option<Sum>,
}

/// What the entries of a stretch come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sum {
    pub entries: usize,
    pub live: u64,
    /// The seconds for which it holds: from the first, before the second.
    pub seconds: (i64, i64),
    pub rules: ExpiryRules,
}

/// By what a reader judges.
#[derive(Clone, Copy)]
pub struct Moment {
    /// As [`Sums::settled`] said before the snapshot was taken.
    pub settled: u64,
    pub now: i64,
    /// `None` while they change: then no sum is used or kept.
    pub rules: Option<ExpiryRules>,
}

/// What comes next in a count.
#[derive(Debug, PartialEq, Eq)]
pub enum Next {
    /// So many up to a key.
    Known {
        entries: usize,
        live: u64,
        to: Vec<u8>,
    },
    /// Entries are to be walked over up to a key. They are a stretch from `from` on, if that is given.
    Walk { from: Option<Vec<u8>>, to: Vec<u8> },
}

impl Moment {
    fn may_use(&self, stretch: &Stretch) -> Option<Sum> {
        let sum = stretch.sum?;
        let (first, end) = sum.seconds;
        let holds = stretch.touched <= self.settled
            && Some(sum.rules) == self.rules
            && (first..end).contains(&self.now);
        holds.then_some(sum)
    }
}

impl Sums {
    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(|cut_off| {
            // Whoever held it may not have marked all that it meant to.
            self.kept.clear_poison();
            let mut kept = cut_off.into_inner();
            kept.forget();
            kept
        })
    }

    /// A write is about to be handed to the engine. Writes come one at a time.
    pub fn begin(&self, commands: &[Command]) -> u64 {
        let mut kept = self.lock();
        kept.begun += 1;
        if !kept.lines.is_empty() {
            let changes = commands.iter().flat_map(|command| &command.changes);
            changes.for_each(|change| kept.touch(change));
        }
        kept.begun
    }

    /// A write is in the engine, for all snapshots from now on.
    pub fn settle(&self, begun: u64) {
        self.settled.store(begun, Ordering::Release);
    }

    /// What every snapshot that is taken from now on holds.
    pub fn settled(&self) -> u64 {
        self.settled.load(Ordering::Acquire)
    }

    /// How a count goes on that has come to `at`, the first entry from there on being `entry`. It ends at `to`.
    pub fn next(&self, line: Line, moment: &Moment, at: &[u8], entry: &[u8], to: &[u8]) -> Next {
        let mut kept = self.lock();
        kept.counts += 1;
        let counts = kept.counts;
        let Some(stretches) = kept.lines.get_mut(&line) else {
            return Next::Walk {
                from: Some(at.to_vec()),
                to: to.to_vec(),
            };
        };
        stretches.used = counts;
        let next = stretches.next(moment, at, entry, to);
        #[cfg(test)]
        if matches!(next, Next::Known { .. }) {
            self.used.fetch_add(1, Ordering::Relaxed);
        }
        next
    }

    #[cfg(test)]
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Takes note of what the entries from `from` to `to` come to.
    pub fn keep(&self, line: Line, moment: &Moment, from: Vec<u8>, to: Vec<u8>, sum: Sum) {
        let mut kept = self.lock();
        if kept.stretches >= STRETCHES_MAX && !kept.make_room(line) {
            return;
        }
        let begun = kept.begun;
        let stretches = kept.lines.entry(line).or_default();
        let added = stretches.keep(moment, begun, from, to, sum);
        kept.stretches += added;
    }
}

impl Kept {
    fn forget(&mut self) {
        self.lines.clear();
        self.stretches = 0;
    }

    /// Gives up the line that was not asked for longest; not this one.
    fn make_room(&mut self, line: Line) -> bool {
        let others = self.lines.iter().filter(|(other, _)| **other != line);
        let least = others.min_by_key(|(_, stretches)| stretches.used);
        let Some(gone) = least.map(|(other, _)| *other) else {
            return false;
        };
        if let Some(stretches) = self.lines.remove(&gone) {
            self.stretches = self.stretches.saturating_sub(stretches.all.len());
        }
        self.stretches < STRETCHES_MAX
    }

    fn touch(&mut self, change: &Change) {
        match change {
            Change::Put {
                value,
                previous,
                index,
                ..
            } => {
                // An item that takes no other's place has an ordinal of its own: its entries are new.
                let fresh = Stored::decode(value)
                    .filter(|_| previous.is_none())
                    .map(|stored| (stored.header.ts, stored.header.ttl));
                self.touch_index(index, fresh);
            }
            Change::Delete { index, .. } => self.touch_index(index, None),
            Change::FillIndex(slice) => {
                for version in &slice.versions {
                    for term in version.terms.iter() {
                        self.touch_entry(slice.generation, term, version.ordinal, None);
                    }
                }
            }
            Change::BeginIndex(_) | Change::DropRetiredIndex => self.forget(),
            Change::SetDefaultTtl(_) | Change::Check(_) | Change::Split(_) => {}
        }
    }

    fn touch_index(&mut self, changes: &IndexChanges, fresh: Option<(i64, ItemTtl)>) {
        for one in &changes.generations {
            for term in one.removed.iter() {
                self.touch_entry(one.generation, term, changes.ordinal, None);
            }
            for term in one.added.iter() {
                self.touch_entry(one.generation, term, changes.ordinal, fresh);
            }
        }
    }

    /// An entry changes. One that is new since then is added to its sum; of others it is not known what they were.
    fn touch_entry(
        &mut self,
        generation: u16,
        term: &[u8],
        ordinal: u64,
        fresh: Option<(i64, ItemTtl)>,
    ) {
        let Some(path) = term.first_chunk::<PATH_BYTES>() else {
            return;
        };
        let line = (generation, PathId(u64::from_be_bytes(*path)));
        let Some(stretches) = self.lines.get_mut(&line) else {
            return;
        };
        let mut key = Vec::new();
        keys::write_index_entry(&mut key, generation, term, ordinal);
        let up_to_key = (Bound::Unbounded, Bound::Included(key.as_slice()));
        let before = stretches.all.range_mut::<[u8], _>(up_to_key).next_back();
        if let Some((_, stretch)) = before.filter(|(_, stretch)| key < stretch.to) {
            stretch.touched = self.begun;
            let known = stretch.sum.zip(fresh);
            stretch.sum = known.and_then(|(sum, (ts, ttl))| sum.with(ts, ttl));
        }
    }
}

impl Sum {
    /// With one more entry; `None` when it should be counted anew.
    fn with(mut self, ts: i64, ttl: ItemTtl) -> Option<Self> {
        self.entries += 1;
        self.live += 1;
        let (first, end) = self.seconds;
        let due = self.rules.expiry_of(ts, ttl);
        let end = due.map_or(end, |due| due.min(end));
        self.seconds = (first, end);
        (self.entries <= 2 * STRETCH_ENTRIES && first < end).then_some(self)
    }
}

impl Stretches {
    fn next(&self, moment: &Moment, at: &[u8], entry: &[u8], to: &[u8]) -> Next {
        let until_entry = (Bound::Unbounded, Bound::Included(entry));
        let before = self.all.range::<[u8], _>(until_entry).next_back();
        let around = before.filter(|(_, stretch)| entry < stretch.to.as_slice());
        let Some((from, stretch)) = around else {
            // Between two stretches.
            let begin = before.map_or(at, |(_, stretch)| at.max(&stretch.to));
            let behind = (Bound::Excluded(entry), Bound::Excluded(to));
            let next = self.all.range::<[u8], _>(behind).next();
            return Next::Walk {
                from: Some(begin.to_vec()),
                to: next.map_or(to, |(from, _)| from).to_vec(),
            };
        };
        // The first part of it, or the last, is not asked for.
        if from.as_slice() < at || stretch.to.as_slice() > to {
            return Next::Walk {
                from: None,
                to: to.min(&stretch.to).to_vec(),
            };
        }
        let (mut entries, mut live, mut end) = (0, 0, at);
        let mut expected: &[u8] = from;
        for (from, stretch) in self
            .all
            .range::<[u8], _>((Bound::Included(expected), Bound::Unbounded))
        {
            let Some(sum) = moment.may_use(stretch) else {
                break;
            };
            if from != expected || stretch.to.as_slice() > to {
                break;
            }
            entries += sum.entries;
            live += sum.live;
            (expected, end) = (&stretch.to, &stretch.to);
        }
        if end == at {
            return Next::Walk {
                from: Some(from.clone()),
                to: stretch.to.clone(),
            };
        }
        Next::Known {
            entries,
            live,
            to: end.to_vec(),
        }
    }

    /// How many stretches there are more than before.
    fn keep(&mut self, moment: &Moment, begun: u64, from: Vec<u8>, to: Vec<u8>, sum: Sum) -> usize {
        if from >= to {
            return 0;
        }
        let known = |touched: u64| (touched <= moment.settled).then_some(sum);
        if let Some(stretch) = self.all.get_mut(&from) {
            if stretch.to < to {
                return 0;
            }
            stretch.sum = known(stretch.touched);
            if stretch.to == to {
                return 0;
            }
            // It has grown: its rest is a stretch of its own.
            let touched = stretch.touched;
            let end = std::mem::replace(&mut stretch.to, to.clone());
            let rest = Stretch {
                to: end,
                touched,
                sum: None,
            };
            self.all.insert(to, rest);
            return 1;
        }
        let before = self.all.range::<Vec<u8>, _>(..&to).next_back();
        if before.is_some_and(|(_, stretch)| stretch.to > from) {
            return 0;
        }
        // Whether earlier writes touched it is not known.
        let stretch = Stretch {
            to,
            touched: begun,
            sum: known(begun),
        };
        self.all.insert(from, stretch);
        1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        index::TermList,
        model::ttl::DefaultTtl,
        shard::command::{GenerationChanges, Superseded},
    };

    const LINE: Line = (1, PathId(7));
    const ALL: (&[u8], &[u8]) = (&[1], &[9]);

    fn key(place: u8) -> Vec<u8> {
        let term = [7_u64.to_be_bytes().as_slice(), &[place]].concat();
        let mut key = Vec::new();
        keys::write_index_entry(&mut key, 1, &term, 5);
        key
    }

    fn moment(settled: u64) -> Moment {
        Moment {
            settled,
            now: 100,
            rules: Some(ExpiryRules::new(DefaultTtl::Off)),
        }
    }

    fn sum(live: u64) -> Sum {
        Sum {
            entries: live as usize,
            live,
            seconds: (100, 110),
            rules: ExpiryRules::new(DefaultTtl::Off),
        }
    }

    fn removal(place: u8) -> Command {
        let term = [7_u64.to_be_bytes().as_slice(), &[place]].concat();
        let index = IndexChanges {
            ordinal: 5,
            generations: vec![GenerationChanges {
                generation: 1,
                added: TermList::default(),
                removed: TermList::of(&[&term]),
                new_shape: None,
            }],
        };
        Command {
            lsn: 1,
            ts: 100,
            changes: vec![Change::Delete {
                key: bytes::Bytes::new(),
                place_bytes: 0,
                previous: Superseded {
                    position: keys::Position::START,
                    own_due: None,
                    fingerprints: Vec::new(),
                    size: 0,
                },
                index,
            }],
        }
    }

    fn known(sums: &Sums, moment: &Moment) -> Option<u64> {
        let (from, to) = (key(ALL.0[0]), key(ALL.1[0]));
        match sums.next(LINE, moment, &from, &from, &to) {
            Next::Known { live, .. } => Some(live),
            Next::Walk { .. } => None,
        }
    }

    fn keep(sums: &Sums, moment: &Moment, live: u64) {
        let (from, to) = (key(ALL.0[0]), key(ALL.1[0]));
        sums.keep(LINE, moment, from, to, sum(live));
    }

    #[test]
    fn a_sum_is_good_for_the_snapshots_that_hold_the_same_entries() {
        let sums = Sums::default();
        keep(&sums, &moment(0), 3);
        assert_eq!(known(&sums, &moment(0)), Some(3));
        let write = sums.begin(&[removal(4)]);
        assert_eq!(known(&sums, &moment(0)), None, "it may be gone already");
        keep(&sums, &moment(0), 3);
        assert_eq!(
            known(&sums, &moment(0)),
            None,
            "counted before the write, kept after it"
        );
        sums.settle(write);
        keep(&sums, &moment(sums.settled()), 2);
        assert_eq!(known(&sums, &moment(sums.settled())), Some(2));
        assert_eq!(
            known(&sums, &moment(0)),
            None,
            "a snapshot from before the write"
        );
        let beside = sums.begin(&[removal(200)]);
        assert_eq!(
            known(&sums, &moment(write)),
            Some(2),
            "another stretch is touched"
        );
        assert!(beside > write);
    }

    #[test]
    fn a_stretch_that_is_kept_beside_a_write_is_not_trusted() {
        let sums = Sums::default();
        let write = sums.begin(&[removal(4)]);
        keep(&sums, &moment(0), 3);
        assert_eq!(known(&sums, &moment(0)), None);
        sums.settle(write);
        assert_eq!(known(&sums, &moment(write)), None, "nobody counted since");
        keep(&sums, &moment(write), 2);
        assert_eq!(known(&sums, &moment(write)), Some(2));
    }

    #[test]
    fn a_sum_is_good_for_its_seconds_and_rules() {
        let sums = Sums::default();
        keep(&sums, &moment(0), 3);
        for (now, expected) in [(99, None), (100, Some(3)), (109, Some(3)), (110, None)] {
            assert_eq!(
                known(&sums, &Moment { now, ..moment(0) }),
                expected,
                "{now}"
            );
        }
        let rules = Some(ExpiryRules::new(DefaultTtl::NoDefault));
        for rules in [rules, None] {
            assert_eq!(known(&sums, &Moment { rules, ..moment(0) }), None);
        }
    }

    #[test]
    fn what_is_kept_is_bounded_and_the_line_in_use_stays() {
        let sums = Sums::default();
        for path in 0..3 * STRETCHES_MAX as u64 {
            let line = (1, PathId(path));
            sums.keep(line, &moment(0), key(1), key(9), sum(3));
            sums.keep(LINE, &moment(0), key(1), key(9), sum(3));
            assert_eq!(known(&sums, &moment(0)), Some(3));
        }
        let kept = sums.lock();
        assert!(kept.stretches <= STRETCHES_MAX);
        let there: usize = kept.lines.values().map(|line| line.all.len()).sum();
        assert_eq!(there, kept.stretches);
    }
}
