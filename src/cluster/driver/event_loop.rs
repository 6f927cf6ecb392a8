//! The thread that owns the Raft groups of a node, and waits for the disk of their log.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc::{Receiver, RecvTimeoutError, Sender},
    },
    time::{Duration, Instant},
};

use arc_swap::ArcSwap;
use raft::eraftpb::{Message, MessageType};
use tracing::error;

use super::{
    applier::{Job, Task},
    campaigns::Campaigns,
    input::Input,
    peer_transport::PeerTransport,
    pending_reads::PendingReads,
    snapshot_fetch::{Announcement, SnapshotFetches},
    state_machine::StateMachine,
    status::GroupStatus,
};
use crate::{
    cluster::{
        GroupId, NodeId,
        raft::{
            group::{ProposeError, Role},
            log_disk::InitialState,
            planner::TargetConfig,
            read_index,
            replicas::{Replicas, Round},
        },
        transport::message::RaftMessage,
    },
    store::EngineError,
};

/// The tick of the groups: a leader sends a heartbeat every sixth tick, and is missed after twenty.
const TICK: Duration = Duration::from_millis(50);
/// Ticks that are made up for at once after a slow disk. More are skipped, so that a node that was
/// suspended starts no election.
const TICKS_AT_ONCE_MAX: u32 = 2;
/// Inputs that are taken in before a round.
const INPUTS_PER_ROUND_MAX: usize = 4096;
/// Ticks between two steps towards the target configurations.
const RECONCILE_TICKS: u64 = 2;
/// After a loss of leadership, ticks to wait for the outcome of in-flight proposals before it is
/// reported as unknown.
const OUTCOME_TIMEOUT_TICKS: u64 = 60;
const STATUS_INTERVAL: Duration = Duration::from_millis(500);

pub struct EventLoop {
    pub node: NodeId,
    pub inputs: Receiver<Input>,
    /// Bytes of Raft messages that wait in `inputs`.
    pub queued_bytes: Arc<AtomicUsize>,
    pub status: Arc<ArcSwap<Vec<GroupStatus>>>,
    pub appliers: Vec<Sender<Job>>,
    pub replicas: Replicas,
    pub transport: PeerTransport,
    pub fetches: SnapshotFetches,
    pub state: LoopState,
}

/// What the event loop keeps of its groups.
#[derive(Default)]
pub struct LoopState {
    machines: BTreeMap<GroupId, Arc<dyn StateMachine>>,
    campaigns: Campaigns,
    reads: PendingReads,
    targets: BTreeMap<GroupId, TargetConfig>,
    ticks: u64,
    /// Groups whose leader has changed, and the tick at which the outcome of proposals is unknown.
    outcome_deadlines: BTreeMap<GroupId, u64>,
    /// The id of the last snapshot.
    last_snapshot: u64,
    /// Groups of which a snapshot is being made.
    making_snapshots: BTreeSet<GroupId>,
}

impl EventLoop {
    pub fn run(&mut self) {
        let mut next_tick = Instant::now() + TICK;
        let mut next_status = Instant::now();
        while self.take_inputs(next_tick) {
            let now = Instant::now();
            for _ in 0..TICKS_AT_ONCE_MAX {
                if now >= next_tick {
                    next_tick += TICK;
                    self.tick(now);
                }
            }
            next_tick = next_tick.max(now);
            if now >= next_status {
                next_status = now + STATUS_INTERVAL;
                self.transport.send_time(self.node);
                let groups = self.replicas.groups();
                let status = groups.map(|(id, group)| GroupStatus::of(id, group));
                self.status.store(Arc::new(status.collect()));
            }
            if self.replicas.is_busy()
                && let Err(failure) = self.round()
            {
                error!(%failure, "the Raft log takes no writes until the node is restarted");
                break;
            }
        }
        self.stop();
    }

    /// Ends all leaderships, and refuses what is still queued.
    fn stop(&mut self) {
        for machine in self.state.machines.values() {
            machine.role(Role::default());
            machine.expire_proposals();
        }
        while let Ok(input) = self.inputs.try_recv() {
            if let Input::Propose { proposed, .. } = input {
                proposed(Err(ProposeError::NotLeader));
            }
        }
        self.status.store(Arc::default());
    }

    /// Waits until there is something to do. Returns `false` at the end.
    fn take_inputs(&mut self, until: Instant) -> bool {
        let timeout = if self.replicas.is_busy() {
            Duration::ZERO
        } else {
            until.saturating_duration_since(Instant::now())
        };
        let mut input = match self.inputs.recv_timeout(timeout) {
            Ok(input) => Some(input),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => return false,
        };
        for _ in 0..INPUTS_PER_ROUND_MAX {
            match input.take() {
                None => break,
                Some(Input::Stop) => return false,
                Some(input) => self.take(input),
            }
            input = self.inputs.try_recv().ok();
        }
        // The last one that was received must not be dropped.
        match input {
            Some(Input::Stop) => return false,
            Some(input) => self.take(input),
            None => {}
        }
        true
    }

    fn take(&mut self, input: Input) {
        match input {
            Input::Messages(messages, bytes) => {
                self.queued_bytes.fetch_sub(bytes, Ordering::Relaxed);
                for (group, message) in messages.into_iter().filter_map(RaftMessage::open) {
                    self.receive(group, message);
                }
            }
            Input::Propose {
                group,
                term,
                data,
                proposed,
            } => proposed(self.replicas.propose(group, term, data)),
            Input::Add {
                group,
                machine,
                initial,
                applied,
            } => self.add(group, machine, &initial, applied),
            Input::Remove(group) => self.remove(group),
            Input::Targets(targets) => self.state.targets = targets,
            Input::SnapshotMade { group, made } => {
                self.state.making_snapshots.remove(&group);
                if let Some(made) = made {
                    self.replicas.set_snapshot(group, made.index, made.id);
                }
            }
            Input::SnapshotFetched {
                group,
                announced,
                is_complete,
            } => {
                self.fetches.ended(group, is_complete);
                match is_complete {
                    true => self.replicas.step(group, *announced),
                    false => self.replicas.decline_snapshot(group, &announced),
                }
            }
            Input::Disconnected(node) => self.replicas.disconnected(node),
            Input::ReadIndex(group, reader) => {
                if self.replicas.group(group).is_some()
                    && let Some(request_id) = self.state.reads.add(group, reader)
                {
                    self.request_read_index(group, request_id);
                }
            }
            Input::Applied(group, index) => self.replicas.applied(group, index),
            Input::Durable(group, index) => self.replicas.release(group, index),
            // `take_inputs` has handled it.
            Input::Stop => {}
        }
    }

    fn add(
        &mut self,
        group: GroupId,
        machine: Arc<dyn StateMachine>,
        initial: &InitialState,
        applied: u64,
    ) {
        if let Err(failure) = self.replicas.add(group, initial, applied) {
            error!(%group, %failure, "replica cannot take part");
            machine.halted(&format!("this node's replica cannot take part: {failure}"));
            return;
        }
        self.state.machines.insert(group, machine);
        self.transport.time.set_groups(self.replicas.voters());
        let target = self.state.targets.get(&group);
        let campaigns = &mut self.state.campaigns;
        campaigns.begin(group, self.node, target, &mut self.replicas);
    }

    fn remove(&mut self, group: GroupId) {
        self.dispatch(group, Task::Forget);
        if let Some(machine) = self.state.machines.remove(&group) {
            // Also for what was proposed since the node decided to leave.
            machine.role(Role::default());
            machine.expire_proposals();
        }
        self.state.campaigns.remove(group);
        self.state.reads.remove(group);
        self.replicas.remove(group);
        self.transport.time.set_groups(self.replicas.voters());
        self.fetches.snapshots.discard(group);
    }

    /// Returns the time of a group on this node.
    fn time(&self, group: GroupId) -> i64 {
        let machine = self.state.machines.get(&group);
        machine.map_or(i64::MIN, |machine| machine.now())
    }

    fn request_read_index(&mut self, group: GroupId, request_id: u64) {
        let time = self.time(group);
        self.replicas.request_read_index(group, request_id, time);
    }

    /// Handles a message of another node. A snapshot is fetched before its group hears of it.
    fn receive(&mut self, group: GroupId, mut message: Message) {
        read_index::stamp(&mut message, || self.time(group));
        let is_needed = message.get_msg_type() == MessageType::MsgSnapshot
            && self
                .replicas
                .group(group)
                .is_some_and(|group| group.needs_snapshot(&message));
        if !is_needed {
            return self.replicas.step(group, message);
        }
        if self.fetches.begin(group, &message) == Announcement::Declined {
            self.replicas.decline_snapshot(group, &message);
        }
    }

    fn tick(&mut self, now: Instant) {
        self.replicas.tick();
        for (group, request_id) in self.state.reads.tick() {
            self.request_read_index(group, request_id);
        }
        self.state.ticks += 1;
        self.expire_proposals();
        if self.state.ticks.is_multiple_of(RECONCILE_TICKS) {
            for (group, target) in &self.state.targets {
                self.replicas.reconcile(*group, target);
            }
            for (group, id) in self.fetches.snapshots.remove_idle() {
                let current = self.replicas.group(group);
                if current.and_then(|group| group.snapshot_id()) == Some(id) {
                    self.replicas.withdraw_snapshot(group);
                }
            }
        }
        self.state.campaigns.tick(now, &mut self.replicas);
    }

    fn expire_proposals(&mut self) {
        let LoopState {
            ticks,
            machines,
            outcome_deadlines,
            ..
        } = &mut self.state;
        outcome_deadlines.retain(|group, deadline| {
            let is_waiting = *deadline > *ticks;
            if let Some(machine) = machines.get(group).filter(|_| !is_waiting) {
                machine.expire_proposals();
            }
            is_waiting
        });
    }

    fn round(&mut self) -> Result<(), EngineError> {
        let round = self.replicas.round(&mut self.transport)?;
        for node in std::mem::take(&mut self.transport.unreachable) {
            self.replicas.unreachable(node);
        }
        if round.members_changed {
            self.transport.time.set_groups(self.replicas.voters());
        }
        self.dispatch_round(round);
        Ok(())
    }

    fn dispatch_round(&mut self, round: Round) {
        // A new leader waits for entries of its term: it must know the term before they are
        // applied.
        for (group, role) in round.roles {
            if let Some(machine) = self.state.machines.get(&group) {
                machine.role(role);
                if !role.is_leader {
                    let deadline = self.state.ticks + OUTCOME_TIMEOUT_TICKS;
                    let deadlines = &mut self.state.outcome_deadlines;
                    deadlines.entry(group).or_insert(deadline);
                }
            }
        }
        for (group, read_index) in round.read_indexes {
            if let Some(request_id) = self.state.reads.answered(group, read_index) {
                self.request_read_index(group, request_id);
            }
        }
        for (group, index) in round.restored {
            self.fetches.used(group);
            self.dispatch(group, Task::Install(index));
        }
        self.fetches.discard_unused();
        for (group, entries) in round.committed {
            self.dispatch(group, Task::Apply(entries));
        }
        for group in round.snapshots_wanted {
            if self.state.making_snapshots.insert(group) {
                self.state.last_snapshot += 1;
                self.dispatch(group, Task::MakeSnapshot(self.state.last_snapshot));
            }
        }
    }

    /// Passes a task to the thread that works for the group's state machine.
    fn dispatch(&self, group: GroupId, task: Task) {
        let Some(machine) = self.state.machines.get(&group) else {
            return;
        };
        let turn = group.container.wrapping_add(u64::from(group.range)) as usize;
        let job = Job {
            group,
            machine: Arc::clone(machine),
            task,
        };
        if let Some(applier) = self.appliers.get(turn % self.appliers.len().max(1)) {
            let _ = applier.send(job);
        }
    }
}
