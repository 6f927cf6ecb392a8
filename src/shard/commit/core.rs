//! What the actor, the commit log and the readers of a shard share: what is committed, and what
//! stands in the way of writes.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering},
};

use arc_swap::{ArcSwap, ArcSwapOption};

use super::write_queue::WriteQueue;
use crate::{
    clock::Clock,
    expiry::{EffectiveRules, ExpiryCheck, ExpiryRules},
    model::{
        error::{Error, ErrorKind, Result},
        indexing_policy::IndexingPolicy,
        ttl::{DefaultTtl, ItemTtl},
    },
    shard::{
        aggregate_cache::AggregateCache,
        document_cache::DocumentCache,
        key_cache::KeyCache,
        state::{
            ShardState, command::Command, facts::ShardFacts, generation::IndexState,
            indexing::LiveIndex,
        },
    },
    store::{Engine, EngineError},
};

/// The shared state of a shard.
pub struct ShardCore {
    pub facts: ShardFacts,
    pub engine: Arc<Engine>,
    pub clock: Clock,
    rules: ArcSwap<EffectiveRules>,
    state: ArcSwap<ShardState>,
    lsn: AtomicU64,
    /// Why writes are refused until the shard is opened again.
    poison: ArcSwapOption<Error>,
    /// Why writes are refused while the engine waits to be opened anew; reads and expiry go on.
    shortage: AtomicU8,
    pub counters: Arc<Counters>,
    /// Set while the engine also has items that are not in the shard's range.
    has_foreign: AtomicBool,
    /// Set when the log of its group has split the shard.
    is_cut: AtomicBool,
    /// The generations of the index; at least those that the state names.
    live_indexes: ArcSwap<Vec<Arc<LiveIndex>>>,
    /// Where requests wait for the actor.
    pub(in crate::shard) write_queue: WriteQueue,
    /// What stretches of the index come to.
    pub aggregate_cache: AggregateCache,
    /// Where items are that queries have found.
    pub key_cache: KeyCache,
    /// Documents that queries have found.
    pub document_cache: DocumentCache,
    /// The commit log's own: what is applied, and by which of the shard's owners.
    pub(in crate::shard) applied: Mutex<Applied>,
}

/// What an engine can run out of, and get back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shortage {
    Disk = 1,
    Descriptors = 2,
}

impl Shortage {
    /// Returns what a failure of the engine is a shortage of, if it is one.
    pub fn of(failure: &EngineError) -> Option<Self> {
        match failure {
            EngineError::Full(_) => Some(Self::Disk),
            EngineError::Exhausted(_) => Some(Self::Descriptors),
            EngineError::Io(_) | EngineError::Damaged(_) | EngineError::InUse(_) => None,
        }
    }

    fn refusal(self) -> Error {
        match self {
            Self::Disk => Error::new(
                ErrorKind::InsufficientStorage,
                "the disk is full: writes are refused until there is room",
            ),
            Self::Descriptors => Error::unavailable(
                "no file descriptor is left: writes are refused until there is one",
            ),
        }
    }
}

/// The applied state, under the lock that commits hold.
pub(in crate::shard) struct Applied {
    pub state: ShardState,
    /// Goes up when the actor is rebuilt, so that groups of the old one are refused.
    pub epoch: u64,
}

/// Counts what a shard has done since it was opened.
#[derive(Default)]
pub struct Counters {
    pub commands: AtomicU64,
    pub fsyncs: AtomicU64,
    pub purged: AtomicU64,
    pub restarts: AtomicU64,
    /// How long the engine took to open, the replay of its WAL included.
    pub recovery_micros: AtomicU64,
    /// The share of its time that the purger may work; 0 while nothing has expired.
    purger_duty_percent: AtomicU64,
}

impl Counters {
    /// Goes on from the counts before the engine was reopened.
    pub fn continue_from(&self, before: &Self) {
        let pairs = [
            (&self.commands, &before.commands),
            (&self.fsyncs, &before.fsyncs),
            (&self.purged, &before.purged),
            (&self.restarts, &before.restarts),
        ];
        for (count, before) in pairs {
            count.fetch_add(before.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    pub fn set_purger_duty(&self, percent: u64) {
        self.purger_duty_percent.store(percent, Ordering::Relaxed);
    }

    pub fn purger_duty_ratio(&self) -> f64 {
        self.purger_duty_percent.load(Ordering::Relaxed) as f64 / 100.0
    }
}

impl ShardCore {
    /// Makes the core of a shard. `state` is what a new shard begins with; what the engine holds
    /// wins when the shard is opened.
    pub fn new(facts: ShardFacts, engine: Arc<Engine>, clock: Clock, state: ShardState) -> Self {
        Self {
            facts,
            engine,
            clock,
            rules: ArcSwap::from_pointee(state.rules.into()),
            lsn: AtomicU64::new(state.lsn),
            state: ArcSwap::from_pointee(state),
            poison: ArcSwapOption::empty(),
            shortage: AtomicU8::new(0),
            counters: Arc::default(),
            has_foreign: AtomicBool::new(false),
            is_cut: AtomicBool::new(false),
            live_indexes: ArcSwap::default(),
            write_queue: WriteQueue::default(),
            aggregate_cache: AggregateCache::default(),
            document_cache: DocumentCache::default(),
            key_cache: KeyCache::default(),
            applied: Mutex::new(Applied { state, epoch: 0 }),
        }
    }

    /// Returns the LSN of the last committed transaction.
    pub fn lsn(&self) -> u64 {
        self.lsn.load(Ordering::Acquire)
    }

    pub fn state(&self) -> ShardState {
        **self.state.load()
    }

    pub fn live_indexes(&self) -> Arc<Vec<Arc<LiveIndex>>> {
        self.live_indexes.load_full()
    }

    /// Adds a generation, in place of one with its number.
    pub fn add_index(&self, added: &Arc<LiveIndex>) {
        self.live_indexes.rcu(|known| {
            let others = known.iter().filter(|one| one.number != added.number);
            others.chain([added]).cloned().collect::<Vec<_>>()
        });
    }

    /// Forgets generations that are no more.
    pub fn retain_indexes(&self, keep: impl Fn(u16) -> bool) {
        self.live_indexes.rcu(|known| {
            let kept = known.iter().filter(|one| keep(one.number));
            kept.cloned().collect::<Vec<_>>()
        });
    }

    /// Reads the generations that a state names from disk.
    pub fn load_indexes(&self, state: &ShardState) -> std::result::Result<(), EngineError> {
        for generation in state.index.generations() {
            self.add_index(&Arc::new(LiveIndex::load(&self.engine, generation.number)?));
        }
        Ok(())
    }

    /// Returns whether the newest generation of the index has this policy.
    pub fn has_policy(&self, policy: &IndexingPolicy) -> bool {
        let IndexState {
            mode,
            building,
            current,
            ..
        } = self.state().index;
        let live = self.live_indexes();
        mode == policy.mode.into()
            && building.or(current).is_none_or(|newest| {
                let live = live.iter().find(|one| one.number == newest.number);
                live.is_some_and(|live| live.policy == *policy)
            })
    }

    /// Returns how far a change of the index has come, in percent: of a new generation, and of what
    /// a lazy one follows.
    pub fn index_progress(&self) -> (u8, Option<u8>) {
        let state = self.state();
        let lazy = state.index.current.filter(|one| one.lazy);
        let building = state.index.building.or(lazy);
        (
            building.map_or(100, |one| one.build_progress()),
            lazy.map(|one| one.progress(state.lsn)),
        )
    }

    /// Returns how many transactions a lazy index has not seen yet.
    pub fn lazy_lag(&self) -> u64 {
        let state = self.state();
        let lazy = state.index.current.filter(|one| one.lazy);
        lazy.map_or(0, |one| {
            one.end(state.lsn).lsn.saturating_sub(one.cursor.lsn)
        })
    }

    /// Drops what the caches hold of items that these commands are about to change. One write at a
    /// time; `settle_write` with the number that this returns ends it.
    pub(in crate::shard) fn begin_write(&self, commands: &[Command]) -> u64 {
        let number = self.aggregate_cache.begin(commands);
        self.document_cache.begin(commands, number);
        number
    }

    /// Ends a write: it is in the engine, for all snapshots from now on.
    pub(in crate::shard) fn settle_write(&self, number: u64) {
        self.aggregate_cache.settle(number);
    }

    /// Makes a committed state visible.
    pub fn publish(&self, state: &ShardState) {
        if self.rules.load().is_changed_by(&state.rules, state.lsn) {
            self.rules
                .rcu(|rules| rules.with_committed(state.rules, state.lsn));
        }
        self.state.store(Arc::new(*state));
        self.lsn.store(state.lsn, Ordering::Release);
    }

    /// Decides a change of the default, which the command with this LSN will commit, not before the
    /// second `earliest`. Returns the new rules and their second; readers know of them by then. No
    /// reader has used the old rules alone at a later second, so what it found expired stays so.
    pub fn announce_default(
        &self,
        lsn: u64,
        decided: &ExpiryRules,
        default: DefaultTtl,
        earliest: i64,
    ) -> (ExpiryRules, i64) {
        loop {
            let at = self.clock.now().max(earliest);
            let rules = decided.with_default(default, at);
            self.rules
                .rcu(|effective| effective.with_pending(lsn, rules));
            if self.clock.now() <= at {
                return (rules, at);
            }
        }
    }

    /// Forgets announced changes of the default: none of them will be committed.
    pub fn forget_announced(&self) {
        self.rules.rcu(|rules| rules.without_pending());
    }

    pub fn poison(&self, error: Error) {
        self.poison.store(Some(Arc::new(error)));
    }

    pub fn set_shortage(&self, shortage: Option<Shortage>) {
        let code = shortage.map_or(0, |shortage| shortage as u8);
        self.shortage.store(code, Ordering::Relaxed);
    }

    /// Returns what the engine has run out of; it takes no writes until it is opened anew.
    pub fn shortage(&self) -> Option<Shortage> {
        match self.shortage.load(Ordering::Relaxed) {
            0 => None,
            code if code == Shortage::Disk as u8 => Some(Shortage::Disk),
            _ => Some(Shortage::Descriptors),
        }
    }

    pub fn set_foreign(&self, has: bool) {
        self.has_foreign.store(has, Ordering::Release);
    }

    /// Returns whether the engine also has items that are not in the shard's range: what a split
    /// has left.
    pub fn has_foreign(&self) -> bool {
        self.has_foreign.load(Ordering::Acquire)
    }

    pub fn set_cut(&self, is_cut: bool) {
        self.is_cut.store(is_cut, Ordering::Release);
    }

    /// Returns whether the log of the shard's group has split it: nothing is written to it any
    /// more.
    pub fn is_cut(&self) -> bool {
        self.is_cut.load(Ordering::Acquire)
    }

    pub fn poisoned(&self) -> Option<Error> {
        self.poison.load().as_deref().cloned()
    }

    /// Fails when users may not write.
    pub fn check_writable(&self) -> Result<()> {
        self.check_open()?;
        self.check_reserve()
    }

    /// Fails while the space that is set aside for purging is in use.
    pub(in crate::shard) fn check_reserve(&self) -> Result<()> {
        match self.engine.reserve.is_released() {
            true => Err(Shortage::Disk.refusal()),
            false => Ok(()),
        }
    }

    /// Fails when the engine takes no writes at all: purging and what the catalog asks for may use
    /// the reserve.
    pub fn check_open(&self) -> Result<()> {
        match (self.poisoned(), self.shortage()) {
            (Some(error), _) => Err(error),
            (None, Some(shortage)) => Err(shortage.refusal()),
            (None, None) => Ok(()),
        }
    }

    /// Returns how many requests wait for the actor.
    pub fn waiting(&self) -> usize {
        self.write_queue.len()
    }

    /// Returns the second at which an item expires; `None`: never, or not certain right now.
    pub fn expiry_of(&self, ts: i64, ttl: ItemTtl) -> Option<i64> {
        self.rules.load().expiry_of(ts, ttl)
    }

    /// Returns a check by the rules and the second of now, for a whole page of items.
    pub fn expiry_check(&self) -> ExpiryCheck {
        ExpiryCheck::new(self.rules.load_full(), self.clock.now())
    }

    /// Returns whether an item that was written at `ts` is visible at `now`.
    pub fn is_live(&self, ts: i64, ttl: ItemTtl, now: i64) -> bool {
        !self.rules.load().is_expired(ts, ttl, now)
    }
}
