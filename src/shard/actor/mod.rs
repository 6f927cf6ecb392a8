//! The shard actor: the only writer of its shard.

pub mod check;
mod cleanup;
mod groups;
pub mod index;
pub mod leadership;
mod purge;
pub mod split;
pub mod suspect;

use std::{sync::Arc, time::Duration};

use actix::prelude::*;
use tokio::sync::oneshot;
use tracing::debug;

use cleanup::CleanupWork;
use groups::Gathering;
use index::IndexWork;
use leadership::ShardRole;
use purge::PurgeWork;
use split::SplitPhase;
use suspect::suspect_time;

use crate::{
    expiry::{ExpiryRules, lanes::LaneCursors},
    model::{
        epk::Epk,
        error::{Error, Result},
        item::Etag,
        ttl::DefaultTtl,
    },
    shard::{
        commit::{
            self, CommitLog, Group, ReplicatedLogs, Reply, Standalone, Waiting, view::ShardView,
            write_queue::Perform,
        },
        commit_error::CommitOutcome,
        decide::{
            answer::AnswerBudget,
            conditions, guard,
            transaction::{Action, Done, Operation, Transaction},
            weight::Weight,
        },
        state::{
            ShardState,
            command::{Change, Command},
            generation::IndexState,
            indexing::Indexing,
            overlay::Overlay,
        },
    },
    store::{EngineError, document::Stored, keys},
};

/// How often the purger looks at the clock.
const PURGE_TICK: Duration = Duration::from_millis(500);

/// Requests have gathered in the write queue.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Wake;

/// Changes the container's default time to live at a second that is the same for all its shards,
/// unless that is in the past.
#[derive(Message)]
#[rtype(result = "()")]
pub struct ChangeDefaultTtl {
    pub default: DefaultTtl,
    pub at: i64,
    pub reply: oneshot::Sender<Result<Reply>>,
}

/// Ends the actor after what it has accepted is committed.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Close {
    pub closed: oneshot::Sender<()>,
}

#[derive(Message)]
#[rtype(result = "()")]
pub(super) struct Committed {
    pub group: u64,
    pub outcome: CommitOutcome,
}

/// What has been decided, committed or not.
pub(super) struct Decided {
    pub lsn: u64,
    pub ts: i64,
    pub next_ordinal: u64,
    pub rules: ExpiryRules,
    pub cursors: LaneCursors,
    pub index: IndexState,
}

impl From<ShardState> for Decided {
    fn from(state: ShardState) -> Self {
        Self {
            lsn: state.lsn,
            ts: state.ts,
            next_ordinal: state.next_ordinal,
            rules: state.rules,
            cursors: state.cursors,
            index: state.index,
        }
    }
}

pub struct Shard {
    pub(super) view: Arc<ShardView>,
    pub(super) log: Box<dyn CommitLog>,
    pub(super) role: ShardRole,
    pub(super) decided: Decided,
    pub(super) overlay: Overlay,
    /// What waits for the group in flight.
    pub(super) next: Group,
    pub(super) committing: bool,
    pub(super) gathering: Gathering,
    pub(super) purger: PurgeWork,
    pub(super) indexer: IndexWork,
    pub(super) cleaner: CleanupWork,
    /// How far a split has come.
    pub(super) split_phase: SplitPhase,
    pub(super) closing: Option<oneshot::Sender<()>>,
    /// Changes of the default that must not be made at a suspect time.
    pub(super) waits_for_time: Vec<ChangeDefaultTtl>,
    exit_notifier: ExitNotifier,
}

/// Runs when the actor is dropped, in order or by a panic.
pub struct ExitNotifier(pub Option<Box<dyn FnOnce() + Send>>);

impl Drop for ExitNotifier {
    fn drop(&mut self) {
        if let Some(tell) = self.0.take() {
            tell();
        }
    }
}

impl Shard {
    /// Builds the actor from what is on disk.
    pub fn open(view: Arc<ShardView>, exit_notifier: ExitNotifier) -> Result<Self, EngineError> {
        let (log, state) = Standalone::open(Arc::clone(&view))?;
        let log = Box::new(log);
        Ok(Self::new(
            view,
            exit_notifier,
            log,
            state,
            ShardRole::Standalone,
        ))
    }

    /// Builds the actor of a replica from what is on disk.
    pub fn open_replica(
        view: Arc<ShardView>,
        exit_notifier: ExitNotifier,
        replica: Arc<dyn ReplicatedLogs>,
    ) -> Result<Self, EngineError> {
        let (_, state) = commit::take_over(&view)?;
        let log = Arc::clone(&replica).log(0);
        let role = ShardRole::follower(replica);
        Ok(Self::new(view, exit_notifier, log, state, role))
    }

    fn new(
        view: Arc<ShardView>,
        exit_notifier: ExitNotifier,
        log: Box<dyn CommitLog>,
        state: ShardState,
        role: ShardRole,
    ) -> Self {
        Self {
            log,
            role,
            decided: state.into(),
            view,
            overlay: Overlay::default(),
            next: Group {
                number: 1,
                ..Group::default()
            },
            committing: false,
            gathering: Gathering::default(),
            purger: PurgeWork::default(),
            indexer: IndexWork::default(),
            cleaner: CleanupWork::default(),
            split_phase: SplitPhase::None,
            closing: None,
            waits_for_time: Vec::new(),
            exit_notifier,
        }
    }

    /// Makes an actor that was built anew during a split decide nothing: nothing that its
    /// predecessor had decided is in flight.
    pub(super) fn held(mut self) -> Self {
        self.split_phase = SplitPhase::Quiesced;
        self
    }

    /// Fails when users may not write.
    pub(super) fn check_writable(&self) -> Result<()> {
        self.check_open()?;
        self.view.check_reserve()
    }

    /// Fails when nothing can be written at all.
    pub(super) fn check_open(&self) -> Result<()> {
        if self.closing.is_some() {
            return Err(Error::unavailable("the shard is closing"));
        }
        if self.is_held() {
            return Err(Error::unavailable("the shard is being split; try again"));
        }
        self.role.check()?;
        self.view.check_open()
    }

    pub(super) fn decide(&mut self, request: Perform) {
        let Perform {
            place,
            operations,
            atomic,
            reply,
            stale,
            answer,
        } = request;
        if let Err(error) = self.check_writable() {
            let _ = reply.send(Err(error));
            return;
        }
        if let Some(stale) = stale
            && conditions::is_stale(&operations, |id| self.newest_etag(&place, id))
        {
            let _ = stale.send(operations);
            return;
        }
        self.indexer.requests += 1;
        let before = self.decided.lsn;
        let mut results = Vec::with_capacity(operations.len());
        if atomic {
            self.transact(&place, operations, answer.as_deref(), &mut results);
        } else {
            for operation in operations {
                self.transact(&place, vec![operation], answer.as_deref(), &mut results);
            }
        }
        let waiting = Waiting {
            reply,
            results,
            lsn: self.decided.lsn,
            range_id: self.view.facts.range_id,
        };
        if self.decided.lsn == before && !self.committing && self.next.is_empty() {
            // Nothing was changed and nothing pending was seen: there is nothing to wait for.
            waiting.succeed();
        } else {
            self.next.waiting.push(waiting);
        }
    }

    /// Returns the etag of the newest version of an item, committed or not.
    fn newest_etag(&self, place: &Epk, id: &str) -> Option<Etag> {
        let key = keys::document(place, id);
        let stored = self.overlay.get(&self.view.engine, &key).ok()??;
        Stored::decode(stored).map(|stored| stored.header.etag)
    }

    /// Decides the operations as one transaction and stages it, unless one of them fails.
    fn transact(
        &mut self,
        place: &Epk,
        operations: Vec<Operation>,
        answer: Option<&AnswerBudget>,
        results: &mut Vec<Result<Done>>,
    ) {
        let ts = self.view.clock.now().max(self.decided.ts);
        let live = self.view.live_indexes();
        let mut transaction = Transaction {
            facts: &self.view.facts,
            engine: &self.view.engine,
            overlay: &self.overlay,
            rules: &self.decided.rules,
            lsn: self.decided.lsn + 1,
            ts,
            next_ordinal: self.decided.next_ordinal,
            place,
            indexing: Indexing {
                state: self.decided.index,
                live: &live,
            },
            changes: Vec::with_capacity(operations.len()),
            writes: Vec::with_capacity(operations.len()),
            weight: Weight::default(),
            condition_steps_left: guard::ACTOR_CONDITION_STEPS_MAX,
        };
        let mut failed = false;
        for operation in operations {
            let reads = matches!(operation.action, Action::Read);
            let result = match answer {
                None => transaction.perform(operation),
                Some(answer) if reads => answer
                    .check_reads()
                    .and_then(|()| transaction.perform(operation))
                    .and_then(|done| answer.admit(done, reads)),
                Some(answer) => transaction
                    .perform(operation)
                    .and_then(|done| answer.admit(done, reads)),
            };
            failed |= result.is_err();
            results.push(result);
            if failed {
                return;
            }
        }
        let Transaction {
            changes,
            writes,
            next_ordinal,
            ..
        } = transaction;
        if !changes.is_empty() {
            self.decided.next_ordinal = next_ordinal;
            for (key, value) in writes {
                self.overlay.set(self.next.number, key, value);
            }
            self.stage(ts, changes);
        }
    }

    pub(super) fn stage(&mut self, ts: i64, changes: Vec<Change>) {
        self.decided.lsn += 1;
        self.decided.ts = ts;
        self.stage_index(&changes);
        for change in &changes {
            if let Change::Put { value, .. } = change
                && let Some(stored) = Stored::decode(value)
            {
                let header = stored.header;
                let expiry = self.decided.rules.expiry_of(header.ts, header.ttl);
                crate::telemetry::expiry::scheduled(expiry.map(|expiry| expiry - header.ts));
                if let Some(expiry) = expiry {
                    self.purger.next_expiry = self.purger.next_expiry.min(expiry);
                }
            }
        }
        self.next.push(Command {
            lsn: self.decided.lsn,
            ts,
            changes,
        });
    }

    /// Looks whether a full disk has room again, or whether there are descriptors again. The engine
    /// must then be opened anew, and the actor with it.
    fn probe_disk(&mut self, context: &mut Context<Self>) {
        if self.view.shortage().is_none()
            || self.view.poisoned().is_some()
            || self.committing
            || self.closing.is_some()
        {
            return;
        }
        match self.view.engine.probe() {
            Ok(()) => context.stop(),
            Err(failure) => {
                debug!(range = self.view.facts.range_id, %failure, "the engine cannot be opened anew yet")
            }
        }
    }

    /// What is done now and then, whether anybody asks or not.
    fn tick(&mut self, context: &mut Context<Self>) {
        self.probe_disk(context);
        self.purge(context);
        self.tick_index(context);
        self.clean_up(context);
        self.change_held_defaults(context);
    }

    pub(super) fn finish_closing(&mut self, context: &mut Context<Self>) {
        if !self.committing
            && (self.next.is_empty() || matches!(self.split_phase, SplitPhase::HandedOff(_)))
            && let Some(closed) = self.closing.take()
        {
            // Told when the actor is dropped and its share of the files with it.
            self.exit_notifier.0 = Some(Box::new(move || {
                let _ = closed.send(());
            }));
            context.stop();
        }
    }
}

/// Until the moment at which all shards of the node look at the clock.
fn until_next_tick() -> Duration {
    static START: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
    let passed = START.get_or_init(std::time::Instant::now).elapsed();
    let tick = PURGE_TICK.as_millis() as u64;
    Duration::from_millis(tick - passed.as_millis() as u64 % tick)
}

impl Actor for Shard {
    type Context = Context<Self>;

    fn started(&mut self, context: &mut Self::Context) {
        // Hundreds of shards at rest wake their thread together, not one after the other.
        context.run_later(until_next_tick(), |shard, context| {
            shard.tick(context);
            context.run_interval(PURGE_TICK, Self::tick);
        });
    }
}

impl Handler<Wake> for Shard {
    type Result = ();

    fn handle(&mut self, _: Wake, context: &mut Self::Context) {
        self.take_requests(context);
    }
}

impl Handler<ChangeDefaultTtl> for Shard {
    type Result = ();

    fn handle(&mut self, request: ChangeDefaultTtl, context: &mut Self::Context) {
        if let Err(error) = self.check_open() {
            let _ = request.reply.send(Err(error));
            return;
        }
        if let Some(suspicion) = self.holds_default(request.default) {
            if self.role.is_replica() {
                // The leader is told again.
                let _ = request.reply.send(Err(suspect_time(suspicion)));
            } else {
                self.waits_for_time.push(request);
            }
            return;
        }
        if self.decided.rules.default != request.default {
            let earliest = request.at.max(self.decided.ts);
            let lsn = self.decided.lsn + 1;
            let (rules, at) =
                self.view
                    .announce_default(lsn, &self.decided.rules, request.default, earliest);
            self.decided.rules = rules;
            self.purger.next_expiry = 0;
            self.stage(at, vec![Change::SetDefaultTtl(request.default)]);
        }
        self.next.waiting.push(Waiting {
            reply: request.reply,
            results: Vec::new(),
            lsn: self.decided.lsn,
            range_id: self.view.facts.range_id,
        });
        self.commit(context);
    }
}

impl Handler<Committed> for Shard {
    type Result = ();

    fn handle(&mut self, message: Committed, context: &mut Self::Context) {
        self.committed(message.group, message.outcome, context);
    }
}

impl Handler<Close> for Shard {
    type Result = ();

    fn handle(&mut self, message: Close, context: &mut Self::Context) {
        self.stop_gathering(context);
        self.closing = Some(message.closed);
        // From now on everybody is refused at once.
        self.view.write_queue.wake_at(1);
        self.finish_closing(context);
    }
}

/// Makes a shard actor panic, as a bug would.
#[cfg(test)]
#[derive(Message)]
#[rtype(result = "()")]
pub struct Panic;

#[cfg(test)]
impl Handler<Panic> for Shard {
    type Result = ();

    fn handle(&mut self, _: Panic, _: &mut Self::Context) {
        panic!("a test asked for it");
    }
}
