//! What others may see of a shard: its committed state, read on the caller's thread. A message to the actor and back costs more
//! than the read itself, and a read must not wait behind writes.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering},
};

use arc_swap::{ArcSwap, ArcSwapOption};
use bytes::Bytes;

use super::{
    aggregate_cache::AggregateCache,
    command::Command,
    document_cache::DocumentCache,
    facts::ShardFacts,
    generation::IndexState,
    indexing::LiveIndex,
    intake::Intake,
    key_cache::KeyCache,
    state::ShardState,
    transaction::{self, Done},
};
use crate::{
    clock::Clock,
    model::{
        epk::{Epk, EpkRange},
        error::{Error, ErrorKind, Result},
        indexing_policy::IndexingPolicy,
        item::EtagCondition,
        ttl::{DefaultTtl, ExpiryRules, ItemTtl},
    },
    store::{Engine, EngineError, document::Stored, index_entry, keys},
};

/// Dead entries that a page may step over before it is handed out short.
const PAGE_EXAMINED_MAX: usize = 20_000;

pub struct ShardView {
    pub facts: ShardFacts,
    pub engine: Arc<Engine>,
    pub clock: Clock,
    rules: ArcSwap<RulesInForce>,
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
    pub(super) intake: Intake,
    pub aggregate_cache: AggregateCache,
    pub key_cache: KeyCache,
    pub document_cache: DocumentCache,
    /// The commit log's own: what is applied, and by which of the shard's owners.
    pub(super) applied: Mutex<Applied>,
}

/// What an engine can run out of, and get back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shortage {
    Disk = 1,
    Descriptors = 2,
}

impl Shortage {
    /// What a failure of the engine is a shortage of, if it is one.
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

/// By what readers judge expiry. While a change of the default is under way, an item is gone for them only if it is so before and
/// after the change: they can neither see what the change brings to an end, nor miss what it keeps alive and would then come back.
#[derive(Clone)]
struct RulesInForce {
    committed: ExpiryRules,
    /// Decided but not committed, with the LSNs of their commands, oldest first; nearly always empty.
    pending: Vec<(u64, ExpiryRules)>,
}

impl RulesInForce {
    fn is_expired(&self, ts: i64, ttl: ItemTtl, now: i64) -> bool {
        self.committed.is_expired(ts, ttl, now)
            && self
                .pending
                .iter()
                .all(|(_, rules)| rules.is_expired(ts, ttl, now))
    }

    /// The second at which an item falls due; not told while a change is under way.
    fn due(&self, ts: i64, ttl: ItemTtl) -> Option<i64> {
        let inherits = (ttl == ItemTtl::Inherit).then_some(ts);
        self.pending
            .is_empty()
            .then(|| self.committed.next_due(inherits, ttl.own_due(ts)))?
    }

    fn with_pending(&self, lsn: u64, rules: ExpiryRules) -> Self {
        let mut next = self.clone();
        next.pending.push((lsn, rules));
        next
    }

    /// Returns whether a commit up to this LSN changes what readers judge by. Rules alone do not tell: two changes in one
    /// group may end with the rules that they began with.
    fn is_changed_by(&self, committed: &ExpiryRules, lsn: u64) -> bool {
        self.committed != *committed || self.pending.first().is_some_and(|(first, _)| *first <= lsn)
    }

    /// These rules are committed up to this LSN, and what was pending up to there is past.
    fn with_committed(&self, committed: ExpiryRules, lsn: u64) -> Self {
        let pending = self.pending.iter().filter(|(pending, _)| *pending > lsn);
        Self {
            committed,
            pending: pending.copied().collect(),
        }
    }
}

/// The applied state, under the lock that commits hold.
pub(super) struct Applied {
    pub state: ShardState,
    /// Goes up when the actor is rebuilt, so that groups of the old one are refused.
    pub epoch: u64,
}

/// What a shard has done since it was opened.
#[derive(Default)]
pub struct Counters {
    pub commands: AtomicU64,
    pub fsyncs: AtomicU64,
    pub purged: AtomicU64,
    pub restarts: AtomicU64,
    /// How long the engine took to open, the replay of its journal included.
    pub recovery_micros: AtomicU64,
    /// The share of its time that the purger may work; 0 while nothing is due.
    purger_duty_percent: AtomicU64,
}

impl Counters {
    /// Goes on counting where those of the shard's engine before a reopening ended.
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

/// Items for one answer, bounded in number and size.
pub struct Page {
    pub items: Vec<PageItem>,
    /// When the first of the items falls due.
    pub first_due: Option<i64>,
    bytes: usize,
    items_max: usize,
    bytes_max: usize,
}

#[derive(Debug)]
pub struct PageItem {
    pub range_id: u32,
    pub key: Vec<u8>,
    pub stored: Stored<Bytes>,
}

impl Page {
    pub fn new(items_max: usize, bytes_max: usize) -> Self {
        Self {
            items: Vec::new(),
            first_due: None,
            bytes: 0,
            items_max,
            bytes_max,
        }
    }

    /// Whether an item of this size fits; the first one always does.
    pub fn has_room_for(&self, bytes: usize) -> bool {
        self.items.is_empty()
            || (self.items.len() < self.items_max && self.bytes + bytes <= self.bytes_max)
    }

    fn push(&mut self, item: PageItem, due: Option<i64>) {
        self.first_due = earlier(self.first_due, due);
        self.bytes += item.stored.body().len();
        self.items.push(item);
    }
}

impl ShardView {
    /// `state` is what a new shard begins with; what the engine holds wins when the shard is opened.
    pub fn new(facts: ShardFacts, engine: Arc<Engine>, clock: Clock, state: ShardState) -> Self {
        Self {
            facts,
            engine,
            clock,
            rules: ArcSwap::from_pointee(RulesInForce {
                committed: state.rules,
                pending: Vec::new(),
            }),
            lsn: AtomicU64::new(state.lsn),
            state: ArcSwap::from_pointee(state),
            poison: ArcSwapOption::empty(),
            shortage: AtomicU8::new(0),
            counters: Arc::default(),
            has_foreign: AtomicBool::new(false),
            is_cut: AtomicBool::new(false),
            live_indexes: ArcSwap::default(),
            intake: Intake::default(),
            aggregate_cache: AggregateCache::default(),
            document_cache: DocumentCache::default(),
            key_cache: KeyCache::default(),
            applied: Mutex::new(Applied { state, epoch: 0 }),
        }
    }

    /// The LSN of the last committed transaction.
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

    /// Whether the newest generation of the index has this policy.
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

    /// How far a change of the index has come, in percent: of a new generation, and of what a lazy one follows.
    pub fn index_progress(&self) -> (u8, Option<u8>) {
        let state = self.state();
        let lazy = state.index.current.filter(|one| one.lazy);
        let building = state.index.building.or(lazy);
        (
            building.map_or(100, |one| one.build_progress()),
            lazy.map(|one| one.progress(state.lsn)),
        )
    }

    /// Transactions that a lazy index has not seen yet.
    pub fn lazy_lag(&self) -> u64 {
        let state = self.state();
        let lazy = state.index.current.filter(|one| one.lazy);
        lazy.map_or(0, |one| {
            one.end(state.lsn).lsn.saturating_sub(one.cursor.lsn)
        })
    }

    /// Commands are about to be handed to the engine: what readers remember of their items is forgotten. One write at a time; `settle_write` with the
    /// number that this returns ends it.
    pub(super) fn begin_write(&self, commands: &[Command]) -> u64 {
        let number = self.aggregate_cache.begin(commands);
        self.document_cache.begin(commands, number);
        number
    }

    /// A write is in the engine, for all snapshots from now on.
    pub(super) fn settle_write(&self, number: u64) {
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

    /// Decides a change of the default, which the command with this LSN will commit, not before the second `earliest`: the new
    /// rules and their second. Readers know of them when this returns. No reader has judged by the old rules alone at a later second, so what it found expired stays so.
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
            self.rules.rcu(|in_force| in_force.with_pending(lsn, rules));
            if self.clock.now() <= at {
                return (rules, at);
            }
        }
    }

    /// Nothing that was announced will be committed.
    pub fn forget_announced(&self) {
        self.rules.rcu(|rules| RulesInForce {
            committed: rules.committed,
            pending: Vec::new(),
        });
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

    /// Whether the engine also has items that are not in the shard's range: what a split has left.
    pub fn has_foreign(&self) -> bool {
        self.has_foreign.load(Ordering::Acquire)
    }

    pub fn set_cut(&self, is_cut: bool) {
        self.is_cut.store(is_cut, Ordering::Release);
    }

    /// Whether the log of the shard's group has split it: nothing is written to it any more.
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
    pub(super) fn check_reserve(&self) -> Result<()> {
        match self.engine.reserve.is_released() {
            true => Err(Shortage::Disk.refusal()),
            false => Ok(()),
        }
    }

    /// Fails when the engine takes no writes at all: purging and what the catalog asks for may use the reserve.
    pub fn check_open(&self) -> Result<()> {
        match (self.poisoned(), self.shortage()) {
            (Some(error), _) => Err(error),
            (None, Some(shortage)) => Err(shortage.refusal()),
            (None, None) => Ok(()),
        }
    }

    /// Requests that wait for the actor to take them up.
    pub fn waiting(&self) -> usize {
        self.intake.len()
    }

    /// The second at which an item falls due; `None`: never, or not certain right now.
    pub fn due(&self, ts: i64, ttl: ItemTtl) -> Option<i64> {
        self.rules.load().due(ts, ttl)
    }

    /// The live document under a key, at this very second.
    pub fn live(&self, key: &[u8]) -> Result<Option<Stored<Bytes>>> {
        let Some(bytes) = self.engine.get(key)? else {
            return Ok(None);
        };
        let stored = decode(Bytes::copy_from_slice(&bytes))?;
        Ok(self.is_live(&stored, self.clock.now()).then_some(stored))
    }

    /// Reads one item.
    pub fn read(
        &self,
        place: &[u8],
        id: &str,
        if_none_match: Option<&EtagCondition>,
    ) -> Result<Done> {
        let live = self
            .live(&keys::document(place, id))?
            .ok_or_else(|| transaction::missing(id))?;
        let due = self.due(live.header.ts, live.header.ttl);
        Ok(Done {
            due,
            ..transaction::read(live, if_none_match)
        })
    }

    /// The id of the live item of a partition key that has this ordinal: by the index where it knows, else by a look at all of them.
    pub fn id_of(&self, place: &Epk, ordinal: u64) -> Result<Option<String>> {
        let known = self.engine.get(&keys::resource(ordinal))?;
        let known = known.as_deref().and_then(index_entry::resource_parts);
        let (from, to) = keys::document_range(place, &place.successor());
        if let Some((_, key)) =
            known.filter(|(_, key)| (from.as_slice()..to.as_slice()).contains(key))
            && self
                .live(key)?
                .is_some_and(|stored| stored.header.ordinal == ordinal)
        {
            return Ok(keys::document_id(key, place).map(str::to_owned));
        }
        let now = self.clock.now();
        let mut scan = self.engine.scan(&from, &to);
        while let Some((key, value)) = scan.entry()? {
            let stored = decode(value)?;
            if stored.header.ordinal == ordinal && self.is_live(&stored, now) {
                return Ok(keys::document_id(key, place).map(str::to_owned));
            }
            scan.advance();
        }
        Ok(None)
    }

    /// Judges expiry by the rules and the second of now, for a whole page of readings.
    pub fn judge(&self) -> Judge {
        Judge {
            rules: self.rules.load_full(),
            now: self.clock.now(),
        }
    }

    fn is_live<B: AsRef<[u8]>>(&self, stored: &Stored<B>, now: i64) -> bool {
        !self
            .rules
            .load()
            .is_expired(stored.header.ts, stored.header.ttl, now)
    }

    /// Adds the live documents of a range to a page, in key order from `from` on, without those that `skip` names. Gives back the key to go
    /// on from when the page is full, or after much work without result.
    pub fn fill(
        &self,
        page: &mut Page,
        range: &EpkRange,
        from: Option<&[u8]>,
        skip: impl Fn(&[u8]) -> bool,
    ) -> Result<Option<Vec<u8>>> {
        let (start, to) = keys::document_range(&range.min, &range.max);
        let from = from.map_or(start.as_slice(), |from| from.max(start.as_slice()));
        let now = self.clock.now();
        let mut scan = self.engine.scan(from, &to);
        for examined in 0.. {
            let Some((key, value)) = scan.entry()? else {
                break;
            };
            let stored = decode(value)?;
            if self.is_live(&stored, now) && !skip(key) {
                if !page.has_room_for(stored.body().len()) {
                    return Ok(Some(key.to_vec()));
                }
                let stored = decode(Bytes::copy_from_slice(value))?;
                let due = self.due(stored.header.ts, stored.header.ttl);
                let item = PageItem {
                    range_id: self.facts.range_id,
                    key: key.to_vec(),
                    stored,
                };
                page.push(item, due);
            } else if examined >= PAGE_EXAMINED_MAX {
                return Ok(Some(key.to_vec()));
            }
            scan.advance();
        }
        Ok(None)
    }
}

/// Who is expired, as of one second.
pub struct Judge {
    rules: Arc<RulesInForce>,
    now: i64,
}

impl Judge {
    pub fn is_live(&self, ts: i64, ttl: ItemTtl) -> bool {
        !self.rules.is_expired(ts, ttl, self.now)
    }

    pub fn now(&self) -> i64 {
        self.now
    }

    /// The rules, unless a change of them is under way.
    pub fn rules(&self) -> Option<ExpiryRules> {
        let is_settled = self.rules.pending.is_empty();
        is_settled.then_some(self.rules.committed)
    }

    /// As [`ShardView::due`].
    pub fn due(&self, ts: i64, ttl: ItemTtl) -> Option<i64> {
        self.rules.due(ts, ttl)
    }
}

/// The earlier of two seconds, if there are any.
pub fn earlier(one: Option<i64>, other: Option<i64>) -> Option<i64> {
    one.into_iter().chain(other).min()
}

pub fn decode<B: AsRef<[u8]>>(bytes: B) -> Result<Stored<B>> {
    Stored::decode(bytes)
        .ok_or_else(|| Error::unavailable("the files are damaged: a stored item cannot be read"))
}
