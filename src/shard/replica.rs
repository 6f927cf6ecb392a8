//! A replica of a shard on a node of a cluster. Commands get into the engine through the log of the shard's Raft group, on the leader and on its followers alike.
//!
//! Purges do not: each replica removes what is expired at its own pace, but never by a later time than the log has reached, so that
//! no replica removes what the leader might still keep alive. What one has purged and another has not is put right when a command meets it.

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
    commit::{self, CommitLog, Group, OnCommitted, Waiting},
    commit_error::{CommitError, CommitOutcome},
    freshness::Currency,
    host::ShardHandle,
    index_work, parting,
    reconcile::{Met, still_true},
    state::ShardState,
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

/// Commands of one entry of the log; a larger group becomes several entries. A longer command has an entry of its own.
const ENTRY_BYTES: usize = 1024 * 1024;

pub struct Replica {
    pub(super) group: GroupId,
    pub(super) driver: Driver,
    pub(super) currency: Currency,
    pub(super) checks: Checks,
    /// Absent while the engine is replaced.
    view: ArcSwapOption<ShardView>,
    /// Not set while the replica has nothing and waits to be filled by the others.
    filled: AtomicBool,
    /// Why it takes no part in its group any more.
    halted: ArcSwapOption<String>,
    handle: Weak<ShardHandle>,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    role: Role,
    /// Leads, but has not applied all that earlier leaders have left.
    taking_over: bool,
    proposals: Proposals<Proposed>,
}

/// An entry that this node has proposed.
struct Proposed {
    term: u64,
    commands: Vec<Command>,
    rest: Rest,
}

/// What follows when an entry is applied.
struct Rest {
    chunks: VecDeque<Vec<Command>>,
    number: u64,
    waiting: Vec<Waiting>,
    done: OnCommitted,
    /// Whether nothing of the group is kept so far.
    untouched: bool,
}

impl Rest {
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

    /// Fails because another entry was committed in its place. If it was the first of its group, the leader
    /// may decide the whole group anew.
    fn superseded(self, leader: Option<NodeId>) {
        let failure = match self.untouched {
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
            filled: AtomicBool::new(false),
            halted: ArcSwapOption::empty(),
            handle,
            inner: Mutex::default(),
        })
    }

    /// Takes part in the group with the state in its engine.
    pub fn join(self: &Arc<Self>, engine: &Engine, begin: InitialState) -> Result<(), EngineError> {
        let applied = applied(engine)?;
        let begin = parting::beginning(engine, begin)?;
        self.currency.set_applied(applied);
        let filled = applied > 0 || begin != InitialState::Uninitialized;
        self.filled.store(filled, Ordering::Release);
        self.halted.store(None);
        let machine: Arc<dyn StateMachine> = Arc::clone(self) as _;
        self.driver.add(self.group, machine, begin, applied);
        Ok(())
    }

    /// Why it takes no part in its group; `None` while it does.
    pub fn halted(&self) -> Option<String> {
        self.halted.load().as_deref().cloned()
    }

    /// Whether the shard was split, as far as this replica knows.
    pub(super) fn is_cut(&self) -> bool {
        self.view().is_ok_and(|view| view.is_cut())
    }

    /// Whether there is something that could be read.
    pub(super) fn is_filled(&self) -> bool {
        self.filled.load(Ordering::Acquire)
    }

    pub(super) fn view(&self) -> Result<Arc<ShardView>, EngineReplaced> {
        self.view.load_full().ok_or(EngineReplaced)
    }

    /// Lets go of the engine, or takes a new one.
    pub(super) fn set_view(&self, view: Option<Arc<ShardView>>) {
        self.view.store(view);
    }

    /// Leaves the group, which is no more.
    pub fn leave(&self) {
        self.driver.remove(self.group);
        self.role(Role::default());
        self.expire_proposals();
    }

    /// The actor was built anew: it leads again when all that its predecessor has proposed is applied, or follows whom it followed.
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
            // The new actor has not heard who leads.
            handle.follow(role.leader);
        }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn propose(self: &Arc<Self>, term: u64, mut rest: Rest) {
        let Some(commands) = rest.chunks.pop_front() else {
            return;
        };
        let data = rmp_serde::to_vec(&commands).expect("commands have a MessagePack form");
        let data = Bytes::from(data);
        let replica = Arc::clone(self);
        let proposed = Box::new(move |proposed| replica.proposed(term, proposed, commands, rest));
        self.driver.propose(self.group, term, data, proposed);
    }

    fn proposed(
        &self,
        term: u64,
        proposed: Result<u64, ProposeError>,
        commands: Vec<Command>,
        rest: Rest,
    ) {
        let refused = match proposed {
            Ok(index) => {
                let proposed = Proposed {
                    term,
                    commands,
                    rest,
                };
                return self.inner().proposals.add(index, term, proposed);
            }
            Err(refused) => refused,
        };
        if !rest.untouched {
            return rest.fail(CommitError::OutcomeUnknown);
        }
        rest.fail(match refused {
            ProposeError::NotLeader => CommitError::NotLeader(self.inner().role.leader),
            ProposeError::Full => CommitError::Overloaded,
            // Transactions are bounded when they are decided, so this is a bug: the writes fail, the shard
            // goes on.
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
        let purge = still_true(&view.engine, purge)?;
        let mut batch = Batch::default();
        state.purge(&purge, &mut batch);
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

    /// Applies commands in one batch, which says how far the log is applied.
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
            state.apply(command, &mut batch);
        }
        if state != applied.state {
            state.store(&mut batch);
        }
        batch.put(keys::APPLIED, index.to_be_bytes());
        let begun = view.begin_write(commands);
        // The log has it: after a crash it is applied again.
        view.engine.write(batch, Durability::Buffered)?;
        view.settle_write(begun);
        applied.state = state;
        // Who is not behind the log brings nothing back that was expired by its time, should it lead one day.
        view.clock.raise(state.ts);
        let counter = &view.counters.commands;
        counter.fetch_add(commands.len() as u64, Ordering::Relaxed);
        view.publish(&state);
        if parting::asks(commands) {
            view.set_cut(true);
        }
        self.currency.set_applied(index);
        Ok(state)
    }

    /// Applies commands up to each of these places, given as a number of commands and an index; between two of them replicas are compared, or split.
    fn write_in_places(
        &self,
        view: &Arc<ShardView>,
        mut commands: &mut [Command],
        places: &[(usize, u64)],
    ) -> Result<ShardState, EngineError> {
        let (mut state, mut written) = (view.state(), 0);
        for (count, index) in places {
            let (here, later) = commands.split_at_mut(count - written);
            state = self.write(view, here, *index)?;
            self.checks.begin(view, here, state);
            parting::follow(&self.handle, view, here)?;
            commands = later;
            written = *count;
        }
        Ok(state)
    }

    /// An entry is committed: what this node has proposed in its place, if it is that.
    fn take_proposed(&self, entry: &Committed) -> Option<Proposed> {
        let mut kept = None;
        let mut lost = Vec::new();
        let leader = {
            let mut inner = self.inner();
            for (outcome, proposed) in inner.proposals.applied(entry.index, entry.term) {
                match outcome {
                    ProposalOutcome::Committed => kept = Some(proposed),
                    ProposalOutcome::Superseded => lost.push(proposed),
                }
            }
            inner.role.leader.filter(|_| !inner.role.is_leader)
        };
        for Proposed { rest, .. } in lost {
            rest.superseded(leader);
        }
        kept
    }

    /// Nobody waits any longer for what was proposed in other terms.
    fn abandon_others(&self, term: Option<u64>) {
        let abandoned = self.inner().proposals.take_others(term);
        abandoned
            .into_iter()
            .for_each(|proposed| proposed.rest.fail(CommitError::OutcomeUnknown));
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
        // Replicas are compared and split right after an entry, whatever is applied together with it.
        let mut places = Vec::new();
        for entry in entries {
            let since = places.last().map_or(0, |(count, _)| *count);
            let since = commands.get(since..).unwrap_or_default();
            if check::asks(since) || parting::asks(since) {
                places.push((commands.len(), entry.index - 1));
            }
            if let Some(own) = self.take_proposed(&entry) {
                commands.extend(own.commands);
                ours.push((own.term, own.rest));
                continue;
            }
            if entry.data.is_empty() {
                continue;
            }
            let decoded: Vec<Command> = rmp_serde::from_slice(&entry.data).map_err(|failure| {
                EngineError::Damaged(format!("entry {} of the log: {failure}", entry.index))
            })?;
            index_work::follow(&view, &decoded);
            commands.extend(decoded);
        }
        places.push((commands.len(), last));
        let state = match self.write_in_places(&view, &mut commands, &places) {
            Ok(state) => state,
            Err(failure) => {
                commit::poison(&view, &failure);
                for (_, rest) in ours {
                    rest.fail(failure.clone().into());
                }
                return Err(failure.into());
            }
        };
        if !self.inner().role.is_leader {
            // What it decided itself while it led was forgotten when it ceased to lead; that is in the engine now, for whoever reads it there later.
            index_work::follow(&view, &commands);
        }
        index_work::follow_generations(&view, &state)?;
        let replica = self.handle.upgrade().and_then(|handle| handle.replica());
        for (term, mut rest) in ours {
            match &replica {
                Some(replica) if !rest.chunks.is_empty() => {
                    rest.untouched = false;
                    replica.propose(term, rest);
                }
                _ => rest.succeed(state),
            }
        }
        let mut inner = self.inner();
        if inner.taking_over && terms.contains(&inner.role.term) {
            inner.taking_over = false;
            // Under the lock, so that news of a later leader come later.
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
        self.abandon_others(None);
        if let Some(handle) = self.handle.upgrade() {
            handle.replace_engine(files)?;
        }
        self.currency.set_applied(index);
        self.filled.store(true, Ordering::Release);
        Ok(())
    }

    fn role(&self, role: Role) {
        let mut inner = self.inner();
        let keeps = role.is_leader && role.term == inner.role.term && inner.role.is_leader;
        inner.role = role;
        if keeps {
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
        self.abandon_others(role.is_leader.then_some(role.term));
    }
}

/// The way of a leader's groups into the log, in one term. A follower's groups hold purges only.
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
            let rest = Rest {
                chunks: chunks(commands),
                number,
                waiting,
                done,
                untouched: true,
            };
            let view = replica.view();
            match replica.purge(purge) {
                Ok(state) if rest.chunks.is_empty() => rest.succeed(state),
                Ok(_) => replica.propose(term, rest),
                Err(failure) => {
                    // The view of before: the failure does not concern an engine that has replaced it.
                    if let (Ok(view), CommitError::Engine(failure)) = (view, &failure) {
                        commit::poison(&view, failure);
                    }
                    rest.fail(failure);
                }
            }
        });
    }
}

/// The last entry that an engine has applied.
pub(super) fn applied(engine: &Engine) -> Result<u64, EngineError> {
    let Some(bytes) = engine.get(keys::APPLIED)? else {
        return Ok(0);
    };
    let damaged = |_| EngineError::Damaged("the index of the last entry".into());
    Ok(u64::from_be_bytes(
        bytes.as_ref().try_into().map_err(damaged)?,
    ))
}

/// Commands in their order, cut into entries.
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
