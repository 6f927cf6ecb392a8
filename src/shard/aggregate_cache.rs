//! The aggregate cache: counts of live entries for blocks of a posting list, so that a COUNT need not
//! look at every entry again. It lives in memory, COUNT queries fill it, and it is exact:
//!
//! 1. Writes are numbered. Before a write reaches the engine, every block that it touches is marked with
//!    its number (`begin`). Once it is in the engine, it is settled (`settle`).
//! 2. A reader notes the last settled write before it takes its snapshot (`settled`): the snapshot holds
//!    all writes up to there.
//! 3. A cached aggregate is valid for a reader iff the last write to its block was settled for the
//!    reader. Then the snapshot that produced the value and the one that reuses it hold the same
//!    entries for that block.
//!
//! An aggregate also names the expiry rules it was made with and the seconds for which it holds: until
//! the first of its items expires. Entries that a compaction drops are of expired items, which no
//! aggregate counts.

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

/// Entries of one block when it is made; it may grow to twice as many.
pub const BLOCK_ENTRIES: usize = if cfg!(test) { 4 } else { 4_096 };
/// What has fewer entries than this is counted each time.
pub const BLOCK_ENTRIES_MIN: usize = if cfg!(test) { 2 } else { 512 };
/// PostingBlocks of one shard: with keys of usual length 4 MB.
const BLOCKS_MAX: usize = if cfg!(test) { 32 } else { 16_384 };

/// The entries of one path in one generation of the index.
pub type PostingList = (u16, PathId);

#[derive(Default)]
pub struct AggregateCache {
    blocks: Mutex<Blocks>,
    /// The number of the last write that is in the engine.
    settled: AtomicU64,
    /// How often a aggregate was known.
    #[cfg(test)]
    used: AtomicU64,
}

#[derive(Default)]
struct Blocks {
    /// The number of the last write that was begun.
    begun: u64,
    lists: HashMap<PostingList, PostingBlocks>,
    /// Of all lists.
    blocks: usize,
    /// Goes up with each count, for what is used least.
    counts: u64,
}

#[derive(Default)]
struct PostingBlocks {
    /// By their first key; they do not overlap.
    all: BTreeMap<Vec<u8>, Block>,
    /// The last count that asked for them.
    used: u64,
}

struct Block {
    to: Vec<u8>,
    /// The last write that may have changed entries of it.
    touched: u64,
    aggregate: Option<BlockAggregate>,
}

/// What the entries of a block come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockAggregate {
    pub entries: usize,
    pub live: u64,
    /// The seconds for which it holds: from the first, before the second.
    pub seconds: (i64, i64),
    pub rules: ExpiryRules,
}

/// By what a reader judges.
#[derive(Clone, Copy)]
pub struct ReadPoint {
    /// As [`AggregateCache::settled`] said before the snapshot was taken.
    pub settled: u64,
    pub now: i64,
    /// `None` while they change: then no aggregate is used or kept.
    pub rules: Option<ExpiryRules>,
}

/// What comes next in a count.
#[derive(Debug, PartialEq, Eq)]
pub enum CountStep {
    /// So many up to a key.
    Known {
        entries: usize,
        live: u64,
        to: Vec<u8>,
    },
    /// Entries are to be walked over up to a key. They are a block from `from` on, if that is given.
    Walk { from: Option<Vec<u8>>, to: Vec<u8> },
}

impl ReadPoint {
    fn may_use(&self, block: &Block) -> Option<BlockAggregate> {
        let aggregate = block.aggregate?;
        let (first, end) = aggregate.seconds;
        let holds = block.touched <= self.settled
            && Some(aggregate.rules) == self.rules
            && (first..end).contains(&self.now);
        holds.then_some(aggregate)
    }
}

impl AggregateCache {
    fn lock(&self) -> MutexGuard<'_, Blocks> {
        self.blocks.lock().unwrap_or_else(|cut_off| {
            // Whoever held it may not have marked all that it meant to.
            self.blocks.clear_poison();
            let mut kept = cut_off.into_inner();
            kept.forget();
            kept
        })
    }

    /// A write is about to be handed to the engine. Writes come one at a time.
    pub fn begin(&self, commands: &[Command]) -> u64 {
        let mut kept = self.lock();
        kept.begun += 1;
        if !kept.lists.is_empty() {
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
    pub fn next(
        &self,
        postings: PostingList,
        point: &ReadPoint,
        at: &[u8],
        entry: &[u8],
        to: &[u8],
    ) -> CountStep {
        let mut kept = self.lock();
        kept.counts += 1;
        let counts = kept.counts;
        let Some(blocks) = kept.lists.get_mut(&postings) else {
            return CountStep::Walk {
                from: Some(at.to_vec()),
                to: to.to_vec(),
            };
        };
        blocks.used = counts;
        let next = blocks.next(point, at, entry, to);
        #[cfg(test)]
        if matches!(next, CountStep::Known { .. }) {
            self.used.fetch_add(1, Ordering::Relaxed);
        }
        next
    }

    #[cfg(test)]
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Takes note of what the entries from `from` to `to` come to.
    pub fn insert(
        &self,
        postings: PostingList,
        point: &ReadPoint,
        from: Vec<u8>,
        to: Vec<u8>,
        aggregate: BlockAggregate,
    ) {
        let mut kept = self.lock();
        if kept.blocks >= BLOCKS_MAX && !kept.make_room(postings) {
            return;
        }
        let begun = kept.begun;
        let blocks = kept.lists.entry(postings).or_default();
        let added = blocks.insert(point, begun, from, to, aggregate);
        kept.blocks += added;
    }
}

impl Blocks {
    fn forget(&mut self) {
        self.lists.clear();
        self.blocks = 0;
    }

    /// Gives up the postings that was not asked for longest; not this one.
    fn make_room(&mut self, postings: PostingList) -> bool {
        let others = self.lists.iter().filter(|(other, _)| **other != postings);
        let least = others.min_by_key(|(_, blocks)| blocks.used);
        let Some(gone) = least.map(|(other, _)| *other) else {
            return false;
        };
        if let Some(blocks) = self.lists.remove(&gone) {
            self.blocks = self.blocks.saturating_sub(blocks.all.len());
        }
        self.blocks < BLOCKS_MAX
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

    /// An entry changes. One that is new since then is added to its aggregate; of others it is not known what they were.
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
        let postings = (generation, PathId(u64::from_be_bytes(*path)));
        let Some(blocks) = self.lists.get_mut(&postings) else {
            return;
        };
        let mut key = Vec::new();
        keys::write_index_entry(&mut key, generation, term, ordinal);
        let up_to_key = (Bound::Unbounded, Bound::Included(key.as_slice()));
        let before = blocks.all.range_mut::<[u8], _>(up_to_key).next_back();
        if let Some((_, block)) = before.filter(|(_, block)| key < block.to) {
            block.touched = self.begun;
            let known = block.aggregate.zip(fresh);
            block.aggregate = known.and_then(|(aggregate, (ts, ttl))| aggregate.with(ts, ttl));
        }
    }
}

impl BlockAggregate {
    /// With one more entry; `None` when it should be counted anew.
    fn with(mut self, ts: i64, ttl: ItemTtl) -> Option<Self> {
        self.entries += 1;
        self.live += 1;
        let (first, end) = self.seconds;
        let due = self.rules.expiry_of(ts, ttl);
        let end = due.map_or(end, |due| due.min(end));
        self.seconds = (first, end);
        (self.entries <= 2 * BLOCK_ENTRIES && first < end).then_some(self)
    }
}

impl PostingBlocks {
    fn next(&self, point: &ReadPoint, at: &[u8], entry: &[u8], to: &[u8]) -> CountStep {
        let until_entry = (Bound::Unbounded, Bound::Included(entry));
        let before = self.all.range::<[u8], _>(until_entry).next_back();
        let around = before.filter(|(_, block)| entry < block.to.as_slice());
        let Some((from, block)) = around else {
            // Between two blocks.
            let begin = before.map_or(at, |(_, block)| at.max(&block.to));
            let behind = (Bound::Excluded(entry), Bound::Excluded(to));
            let next = self.all.range::<[u8], _>(behind).next();
            return CountStep::Walk {
                from: Some(begin.to_vec()),
                to: next.map_or(to, |(from, _)| from).to_vec(),
            };
        };
        // The first part of it, or the last, is not asked for.
        if from.as_slice() < at || block.to.as_slice() > to {
            return CountStep::Walk {
                from: None,
                to: to.min(&block.to).to_vec(),
            };
        }
        let (mut entries, mut live, mut end) = (0, 0, at);
        let mut expected: &[u8] = from;
        for (from, block) in self
            .all
            .range::<[u8], _>((Bound::Included(expected), Bound::Unbounded))
        {
            let Some(aggregate) = point.may_use(block) else {
                break;
            };
            if from != expected || block.to.as_slice() > to {
                break;
            }
            entries += aggregate.entries;
            live += aggregate.live;
            (expected, end) = (&block.to, &block.to);
        }
        if end == at {
            return CountStep::Walk {
                from: Some(from.clone()),
                to: block.to.clone(),
            };
        }
        CountStep::Known {
            entries,
            live,
            to: end.to_vec(),
        }
    }

    /// How many blocks there are more than before.
    fn insert(
        &mut self,
        point: &ReadPoint,
        begun: u64,
        from: Vec<u8>,
        to: Vec<u8>,
        aggregate: BlockAggregate,
    ) -> usize {
        if from >= to {
            return 0;
        }
        let known = |touched: u64| (touched <= point.settled).then_some(aggregate);
        if let Some(block) = self.all.get_mut(&from) {
            if block.to < to {
                return 0;
            }
            block.aggregate = known(block.touched);
            if block.to == to {
                return 0;
            }
            // It has grown: its rest is a block of its own.
            let touched = block.touched;
            let end = std::mem::replace(&mut block.to, to.clone());
            let rest = Block {
                to: end,
                touched,
                aggregate: None,
            };
            self.all.insert(to, rest);
            return 1;
        }
        let before = self.all.range::<Vec<u8>, _>(..&to).next_back();
        if before.is_some_and(|(_, block)| block.to > from) {
            return 0;
        }
        // Whether earlier writes touched it is not known.
        let block = Block {
            to,
            touched: begun,
            aggregate: known(begun),
        };
        self.all.insert(from, block);
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

    const POSTINGS: PostingList = (1, PathId(7));
    const ALL: (&[u8], &[u8]) = (&[1], &[9]);

    fn key(place: u8) -> Vec<u8> {
        let term = [7_u64.to_be_bytes().as_slice(), &[place]].concat();
        let mut key = Vec::new();
        keys::write_index_entry(&mut key, 1, &term, 5);
        key
    }

    fn point(settled: u64) -> ReadPoint {
        ReadPoint {
            settled,
            now: 100,
            rules: Some(ExpiryRules::new(DefaultTtl::Off)),
        }
    }

    fn aggregate(live: u64) -> BlockAggregate {
        BlockAggregate {
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

    fn known(cache: &AggregateCache, point: &ReadPoint) -> Option<u64> {
        let (from, to) = (key(ALL.0[0]), key(ALL.1[0]));
        match cache.next(POSTINGS, point, &from, &from, &to) {
            CountStep::Known { live, .. } => Some(live),
            CountStep::Walk { .. } => None,
        }
    }

    fn keep(cache: &AggregateCache, point: &ReadPoint, live: u64) {
        let (from, to) = (key(ALL.0[0]), key(ALL.1[0]));
        cache.insert(POSTINGS, point, from, to, aggregate(live));
    }

    #[test]
    fn a_sum_is_good_for_the_snapshots_that_hold_the_same_entries() {
        let cache = AggregateCache::default();
        keep(&cache, &point(0), 3);
        assert_eq!(known(&cache, &point(0)), Some(3));
        let write = cache.begin(&[removal(4)]);
        assert_eq!(known(&cache, &point(0)), None, "it may be gone already");
        keep(&cache, &point(0), 3);
        assert_eq!(
            known(&cache, &point(0)),
            None,
            "counted before the write, kept after it"
        );
        cache.settle(write);
        keep(&cache, &point(cache.settled()), 2);
        assert_eq!(known(&cache, &point(cache.settled())), Some(2));
        assert_eq!(
            known(&cache, &point(0)),
            None,
            "a snapshot from before the write"
        );
        let beside = cache.begin(&[removal(200)]);
        assert_eq!(
            known(&cache, &point(write)),
            Some(2),
            "another block is touched"
        );
        assert!(beside > write);
    }

    #[test]
    fn a_stretch_that_is_kept_beside_a_write_is_not_trusted() {
        let cache = AggregateCache::default();
        let write = cache.begin(&[removal(4)]);
        keep(&cache, &point(0), 3);
        assert_eq!(known(&cache, &point(0)), None);
        cache.settle(write);
        assert_eq!(known(&cache, &point(write)), None, "nobody counted since");
        keep(&cache, &point(write), 2);
        assert_eq!(known(&cache, &point(write)), Some(2));
    }

    #[test]
    fn a_sum_is_good_for_its_seconds_and_rules() {
        let cache = AggregateCache::default();
        keep(&cache, &point(0), 3);
        for (now, expected) in [(99, None), (100, Some(3)), (109, Some(3)), (110, None)] {
            assert_eq!(
                known(&cache, &ReadPoint { now, ..point(0) }),
                expected,
                "{now}"
            );
        }
        let rules = Some(ExpiryRules::new(DefaultTtl::NoDefault));
        for rules in [rules, None] {
            assert_eq!(known(&cache, &ReadPoint { rules, ..point(0) }), None);
        }
    }

    #[test]
    fn what_is_kept_is_bounded_and_the_line_in_use_stays() {
        let cache = AggregateCache::default();
        for path in 0..3 * BLOCKS_MAX as u64 {
            let postings = (1, PathId(path));
            cache.insert(postings, &point(0), key(1), key(9), aggregate(3));
            cache.insert(POSTINGS, &point(0), key(1), key(9), aggregate(3));
            assert_eq!(known(&cache, &point(0)), Some(3));
        }
        let kept = cache.lock();
        assert!(kept.blocks <= BLOCKS_MAX);
        let there: usize = kept.lists.values().map(|postings| postings.all.len()).sum();
        assert_eq!(there, kept.blocks);
    }
}
