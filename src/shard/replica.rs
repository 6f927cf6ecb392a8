//! A replica of a shard. Commands reach the engine through the log of the shard's Raft group, on
//! the leader and on its followers alike.
//!
//! Purges do not: each replica removes expired items at its own pace, but never by a later time
//! than the log has reached. So no replica removes what the leader might still keep alive. A
//! command that meets a version which only some replicas have purged is reconciled with what is
//! there.

use std::{
    collections::VecDeque,
    path::Path,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
};

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use tracing::error;

use super::{
    check::{self, Checks},
    command::{Command, Purge},
    commit::{self, CommitLog, Group, OnCommitted, ReplicatedLogs, Waiting, index_follower},
    commit_error::{CommitError, CommitOutcome},
    freshness::Currency,
    host::{ShardHandle, split_replica},
    reconcile::{Met, still_true},
    state::{ShardState, split_mark},
    view::ShardView,
};
use crate::{
    cluster::{
        GroupId, NodeId,
        driver::{
            Driver,
            state_machine::{StateMachine, StateMachineError},
        },
        raft::{
            group::{Committed, ProposeError, Role},
            log_disk::InitialState,
            proposals::{ProposalOutcome, Proposals},
        },
    },
    model::error::Error,
    store::{Batch, Engine, EngineError, engine::Durability, keys},
};

/// Bytes of the commands of one log entry. A larger commit group becomes several entries, a longer
/// command has an entry of its own.
const ENTRY_BYTES: usize = 1024 * 1024;

pub struct Replica {
    pub(super) group: GroupId,
    pub(super) driver: Driver,
    pub(super) currency: Currency,
    pub(super) checks: Checks,
    /// Absent while the engine is replaced.
    view: ArcSwapOption<ShardView>,
    /// Not set while the replica waits for its first snapshot.
    initialized: AtomicBool,
    /// Why it takes no part in its group.
    halted: ArcSwapOption<String>,
    handle: Weak<ShardHandle>,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    role: Role,
    /// The node leads, but has not applied all entries of earlier leaders.
    taking_over: bool,
    proposals: Proposals<Proposed>,
}

/// A proposed entry.
struct Proposed {
    term: u64,
    commands: Vec<Command>,
    in_flight: InFlight,
}

/// A commit group in flight: what remains to be proposed, and who waits for it.
struct InFlight {
    chunks: VecDeque<Vec<Command>>,
    number: u64,
    waiting: Vec<Waiting>,
    done: OnCommitted,
    /// Whether nothing of the group is committed so far.
    is_untouched: bool,
}

impl InFlight {
    fn succeed(self, state: ShardState) {
        self.waiting.into_iter().for_each(Waiting::succeed);
        (self.done)(self.number, Ok(state));
    }

    fn fail(self, failure: CommitError) {
        let error = Error::from(failure.clone());
        self.waiting
            .into_iter()
            .for_each(|waiting| waiting.fail(error.clone()));
        (self.done)(self.number, Err(failure));
    }

    /// Fails because another entry was committed in its place. If it was the first of its group,
    /// the leader may decide the whole group anew.
    fn superseded(self, leader: Option<NodeId>) {
        let failure = match self.is_untouched {
            true => CommitError::NotLeader(leader),
            false => CommitError::OutcomeUnknown,
        };
        self.fail(failure);
    }
}

/// The engine of a replica is being replaced by a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EngineReplaced;

const ENGINE_REPLACED: &str = "the engine of the shard is being replaced by a snapshot";

impl From<EngineReplaced> for CommitError {
    fn from(_: EngineReplaced) -> Self {
        Self::Superseded
    }
}

impl From<EngineReplaced> for StateMachineError {
    fn from(_: EngineReplaced) -> Self {
        Self::Closed(ENGINE_REPLACED)
    }
}

impl From<EngineReplaced> for Error {
    fn from(_: EngineReplaced) -> Self {
        Self::unavailable(ENGINE_REPLACED)
    }
}

impl Replica {
    pub fn new(
        group: GroupId,
        driver: Driver,
        view: Arc<ShardView>,
        handle: Weak<ShardHandle>,
    ) -> Arc<Self> {
        Arc::new(Self {
            group,
            driver,
            currency: Currency::default(),
            checks: Checks::default(),
            view: ArcSwapOption::new(Some(view)),
            initialized: AtomicBool::new(false),
            halted: ArcSwapOption::empty(),
            handle,
            inner: Mutex::default(),
        })
    }

    /// Takes part in the group with the state in its engine.
    pub fn join(
        self: &Arc<Self>,
        engine: &Engine,
        initial: InitialState,
    ) -> Result<(), EngineError> {
        let applied = applied(engine)?;
        let initial = split_replica::beginning(engine, initial)?;
        self.currency.set_applied(applied);
        let initialized = applied > 0 || initial != InitialState::Uninitialized;
        self.initialized.store(initialized, Ordering::Release);
        self.halted.store(None);
        let machine: Arc<dyn StateMachine> = Arc::clone(self) as _;
        self.driver.add(self.group, machine, initial, applied);
        Ok(())
    }

    /// Returns why it takes no part in its group; `None` while it does.
    pub fn halted(&self) -> Option<String> {
        self.halted.load().as_deref().cloned()
    }

    /// Returns whether the shard was split, as far as this replica knows.
    pub(super) fn is_cut(&self) -> bool {
        self.view().is_ok_and(|view| view.is_cut())
    }

    /// Returns whether the replica has data, or was bootstrapped with none.
    pub(super) fn is_initialized(&self) -> bool {
        self.initialized.load(Ordering::Acquire)
    }

    pub(super) fn view(&self) -> Result<Arc<ShardView>, EngineReplaced> {
        self.view.load_full().ok_or(EngineReplaced)
    }

    /// Releases the engine, or takes a new one.
    pub(super) fn set_view(&self, view: Option<Arc<ShardView>>) {
        self.view.store(view);
    }

    /// Leaves the group, which is gone.
    pub fn leave(&self) {
        self.driver.remove(self.group);
        self.role(Role::default());
        self.expire_proposals();
    }

    /// Tells a rebuilt actor its role. A leader decides again when all proposals of its predecessor
    /// are applied.
    pub fn begin_again(self: &Arc<Self>) {
        let role = {
            let mut inner = self.inner();
            inner.taking_over = inner.role.is_leader;
            inner.role
        };
        if role.is_leader {
            let nothing = Box::new(|_| ());
            self.driver
                .propose(self.group, role.term, Bytes::new(), nothing);
        } else if let Some(handle) = self.handle.upgrade() {
            // The new actor does not know the leader.
            handle.follow(role.leader);
        }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn propose(self: &Arc<Self>, term: u64, mut in_flight: InFlight) {
        let Some(commands) = in_flight.chunks.pop_front() else {
            return;
        };
        let data = rmp_serde::to_vec(&commands).expect("commands have a MessagePack form");
        let data = Bytes::from(data);
        let replica = Arc::clone(self);
        let proposed =
            Box::new(move |proposed| replica.proposed(term, proposed, commands, in_flight));
        self.driver.propose(self.group, term, data, proposed);
    }

    fn proposed(
        &self,
        term: u64,
        proposed: Result<u64, ProposeError>,
        commands: Vec<Command>,
        in_flight: InFlight,
    ) {
        let refused = match proposed {
            Ok(index) => {
                let proposed = Proposed {
                    term,
                    commands,
                    in_flight,
                };
                return self.inner().proposals.add(index, term, proposed);
            }
            Err(refused) => refused,
        };
        if !in_flight.is_untouched {
            return in_flight.fail(CommitError::OutcomeUnknown);
        }
        in_flight.fail(match refused {
            ProposeError::NotLeader => CommitError::NotLeader(self.inner().role.leader),
            ProposeError::Full => CommitError::Overloaded,
            // Transactions are bounded when they are decided, so this is a bug: the writes fail,
            // the shard goes on.
            ProposeError::TooLong(bytes) => {
                error!(group = %self.group, bytes, "a log entry is too long and was not proposed");
                CommitError::TooLong(bytes)
            }
        });
    }

    /// Applies a purge to this replica alone.
    pub(super) fn purge(&self, purge: Purge) -> CommitOutcome {
        let view = self.view()?;
        let mut applied = commit::lock(&view)?;
        let mut state = applied.state;
        let purge = still_true(&view.engine, &state, purge)?;
        let mut batch = Batch::default();
        state.purge(&purge, &mut batch)?;
        if state != applied.state {
            state.store(&mut batch);
        }
        if !batch.is_empty() {
            view.engine.write(batch, Durability::Buffered)?;
        }
        applied.state = state;
        commit::note_purged(&view, &purge);
        view.publish(&state);
        Ok(state)
    }

    /// Applies commands in one batch, together with the index of the last entry.
    fn write(
        &self,
        view: &ShardView,
        commands: &mut [Command],
        index: u64,
    ) -> Result<ShardState, EngineError> {
        if view.is_cut() && !commands.is_empty() {
            return Err(EngineError::Damaged(format!(
                "entry {index} of the log changes a shard that was split before"
            )));
        }
        let mut applied = commit::lock(view)?;
        let mut state = applied.state;
        let mut batch = Batch::default();
        let mut met = Met::default();
        for command in commands.iter_mut() {
            for change in &mut command.changes {
                met.reconcile(&view.engine, change)?;
            }
            state.apply(command, &mut batch)?;
        }
        if state != applied.state {
            state.store(&mut batch);
        }
        batch.put(keys::APPLIED, index.to_be_bytes());
        let begun = view.begin_write(commands);
        // The log has it: it is applied again after a crash.
        view.engine.write(batch, Durability::Buffered)?;
        view.settle_write(begun);
        applied.state = state;
        // A replica that is not behind the log's time brings no expired item back, should it lead
        // one day.
        view.clock.raise(state.ts);
        let counter = &view.counters.commands;
        counter.fetch_add(commands.len() as u64, Ordering::Relaxed);
        view.publish(&state);
        if split_mark::is_asked_by(commands) {
            view.set_cut(true);
        }
        self.currency.set_applied(index);
        Ok(state)
    }

    /// Applies commands up to each of these positions, given as a number of commands and an index.
    /// Between two of them replicas are compared, or split.
    fn write_at_positions(
        &self,
        view: &Arc<ShardView>,
        mut commands: &mut [Command],
        positions: &[(usize, u64)],
    ) -> Result<ShardState, EngineError> {
        let (mut state, mut written) = (view.state(), 0);
        for (count, index) in positions {
            let (here, later) = commands.split_at_mut(count - written);
            state = self.write(view, here, *index)?;
            self.checks.begin(view, here, state);
            split_replica::follow(&self.handle, view, here)?;
            commands = later;
            written = *count;
        }
        Ok(state)
    }

    /// Returns this node's proposal if a committed entry is that. Fails proposals that it
    /// supersedes.
    fn take_proposed(&self, entry: &Committed) -> Option<Proposed> {
        let mut committed = None;
        let mut superseded = Vec::new();
        let leader = {
            let mut inner = self.inner();
            for (outcome, proposed) in inner.proposals.applied(entry.index, entry.term) {
                match outcome {
                    ProposalOutcome::Committed => committed = Some(proposed),
                    ProposalOutcome::Superseded => superseded.push(proposed),
                }
            }
            inner.role.leader.filter(|_| !inner.role.is_leader)
        };
        for Proposed { in_flight, .. } in superseded {
            in_flight.superseded(leader);
        }
        committed
    }

    /// Reports the outcome of proposals of other terms as unknown.
    fn expire_other_terms(&self, term: Option<u64>) {
        let expired = self.inner().proposals.take_others(term);
        expired
            .into_iter()
            .for_each(|proposed| proposed.in_flight.fail(CommitError::OutcomeUnknown));
    }
}

impl StateMachine for Replica {
    fn apply(&self, entries: Vec<Committed>) -> Result<(), StateMachineError> {
        let Some(last) = entries.last().map(|entry| entry.index) else {
            return Ok(());
        };
        let view = self.view()?;
        let terms: Vec<u64> = entries.iter().map(|entry| entry.term).collect();
        let (mut commands, mut ours) = (Vec::new(), Vec::new());
        // Replicas are compared and split right after an entry, whatever is applied together with
        // it.
        let mut positions = Vec::new();
        for entry in entries {
            let since = positions.last().map_or(0, |(count, _)| *count);
            let since = commands.get(since..).unwrap_or_default();
            if check::asks(since) || split_mark::is_asked_by(since) {
                positions.push((commands.len(), entry.index - 1));
            }
            if let Some(own) = self.take_proposed(&entry) {
                commands.extend(own.commands);
                ours.push((own.term, own.in_flight));
                continue;
            }
            if entry.data.is_empty() {
                continue;
            }
            let decoded: Vec<Command> = rmp_serde::from_slice(&entry.data).map_err(|failure| {
                EngineError::Damaged(format!("entry {} of the log: {failure}", entry.index))
            })?;
            index_follower::follow(&view, &decoded);
            commands.extend(decoded);
        }
        positions.push((commands.len(), last));
        let state = match self.write_at_positions(&view, &mut commands, &positions) {
            Ok(state) => state,
            Err(failure) => {
                commit::poison(&view, &failure);
                for (_, in_flight) in ours {
                    in_flight.fail(failure.clone().into());
                }
                return Err(failure.into());
            }
        };
        if !self.inner().role.is_leader {
            // Its own decisions as leader were dropped with its leadership; the engine has them
            // now.
            index_follower::follow(&view, &commands);
        }
        index_follower::follow_generations(&view, &state)?;
        let replica = self.handle.upgrade().and_then(|handle| handle.replica());
        for (term, mut in_flight) in ours {
            match &replica {
                Some(replica) if !in_flight.chunks.is_empty() => {
                    in_flight.is_untouched = false;
                    replica.propose(term, in_flight);
                }
                _ => in_flight.succeed(state),
            }
        }
        let mut inner = self.inner();
        if inner.taking_over && terms.contains(&inner.role.term) {
            inner.taking_over = false;
            // Under the lock, so that a later change of roles comes later.
            if let Some(handle) = self.handle.upgrade() {
                handle.lead(inner.role.term);
            }
        }
        Ok(())
    }

    fn now(&self) -> i64 {
        self.view().map_or(i64::MIN, |view| view.clock.now())
    }

    fn sync(&self) -> Result<(), StateMachineError> {
        let view = self.view()?;
        let applied = commit::lock(&view)?;
        let mut batch = Batch::default();
        applied.state.store(&mut batch);
        Ok(view.engine.write(batch, Durability::Synced)?)
    }

    fn snapshot_to(&self, folder: &Path) -> Result<(), StateMachineError> {
        Ok(self.view()?.engine.checkpoint(folder)?)
    }

    fn install(&self, files: &Path, index: u64) -> Result<(), StateMachineError> {
        self.expire_other_terms(None);
        if let Some(handle) = self.handle.upgrade() {
            handle.replace_engine(files)?;
        }
        self.currency.set_applied(index);
        self.initialized.store(true, Ordering::Release);
        Ok(())
    }

    fn role(&self, role: Role) {
        let mut inner = self.inner();
        let is_same = role.is_leader && role.term == inner.role.term && inner.role.is_leader;
        inner.role = role;
        if is_same {
            return;
        }
        inner.taking_over = role.is_leader;
        if let Some(handle) = self.handle.upgrade() {
            handle.follow(role.leader.filter(|_| !role.is_leader));
        }
    }

    fn halted(&self, why: &str) {
        self.halted.store(Some(Arc::new(why.to_owned())));
    }

    fn expire_proposals(&self) {
        let role = self.inner().role;
        self.expire_other_terms(role.is_leader.then_some(role.term));
    }
}

/// The commit log of a leader in one term. A follower's commit groups hold purges only.
pub struct ReplicatedLog {
    pub replica: Arc<Replica>,
    pub term: u64,
}

impl CommitLog for ReplicatedLog {
    fn submit(&self, group: Group, done: OnCommitted) {
        let (replica, term) = (Arc::clone(&self.replica), self.term);
        tokio::task::spawn_blocking(move || {
            let Group {
                number,
                commands,
                purge,
                waiting,
                ..
            } = group;
            let in_flight = InFlight {
                chunks: chunks(commands),
                number,
                waiting,
                done,
                is_untouched: true,
            };
            let view = replica.view();
            match replica.purge(purge) {
                Ok(state) if in_flight.chunks.is_empty() => in_flight.succeed(state),
                Ok(_) => replica.propose(term, in_flight),
                Err(failure) => {
                    // The view of before: the failure does not concern an engine that has replaced
                    // it.
                    if let (Ok(view), CommitError::Engine(failure)) = (view, &failure) {
                        commit::poison(&view, failure);
                    }
                    in_flight.fail(failure);
                }
            }
        });
    }
}

impl ReplicatedLogs for Replica {
    fn log(self: Arc<Self>, term: u64) -> Box<dyn CommitLog> {
        Box::new(ReplicatedLog {
            replica: self,
            term,
        })
    }
}

/// Returns the last entry that an engine has applied.
pub(super) fn applied(engine: &Engine) -> Result<u64, EngineError> {
    let Some(bytes) = engine.get(keys::APPLIED)? else {
        return Ok(0);
    };
    let damaged = |_| EngineError::Damaged("the index of the last entry".into());
    Ok(u64::from_be_bytes(
        bytes.as_ref().try_into().map_err(damaged)?,
    ))
}

/// Cuts commands into entries, in order.
fn chunks(commands: Vec<Command>) -> VecDeque<Vec<Command>> {
    let mut chunks = VecDeque::new();
    let mut bytes = 0;
    for command in commands {
        let more = command.entry_bytes();
        match chunks.back_mut() {
            Some(chunk) if bytes + more <= ENTRY_BYTES => {
                let chunk: &mut Vec<Command> = chunk;
                chunk.push(command);
                bytes += more;
            }
            _ => {
                chunks.push_back(vec![command]);
                bytes = more;
            }
        }
    }
    chunks
}
