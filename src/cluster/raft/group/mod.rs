//! One Raft group of a node: raft-rs with deterministic elections, ReadIndex with the leader's
//! time, and snapshots that are fetched apart from the messages.

mod election_timer;
pub mod ready;
mod reconfigure;

use std::{collections::BTreeSet, sync::Arc};

use bytes::Bytes;
use raft::{
    Config, ProgressState, RawNode, SnapshotStatus, StateRole,
    eraftpb::{Entry, Message, MessageType},
};

use election_timer::ElectionTimer;

use super::{
    election,
    group_log::GroupLog,
    log_disk::{INITIAL_POSITION, InitialState, LogDisk, LogRecord, LogRetention},
    membership::Members,
    read_index,
};
use crate::{
    cluster::{ENTRY_BYTES_MAX, GroupId, NodeId},
    store::EngineError,
};

/// Ticks between two heartbeats of a leader.
const HEARTBEAT_TICKS: usize = 6;
/// Entries for one follower are cut into messages of about this size.
const MESSAGE_BYTES_MAX: u64 = 1024 * 1024;
/// Messages with entries that may be in flight to one follower.
const MESSAGES_IN_FLIGHT_MAX: usize = 64;
/// Entries that are proposed but not committed. Above it proposals are refused.
const UNCOMMITTED_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// Committed entries handed out at a time.
const COMMITTED_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// The role of a node in a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Role {
    pub term: u64,
    pub leader: Option<NodeId>,
    pub is_leader: bool,
}

/// A committed entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Committed {
    pub index: u64,
    pub term: u64,
    /// Empty for the entry with which a leader begins its term.
    pub data: Bytes,
}

/// Why a proposal was refused. It will never be committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProposeError {
    /// The node does not lead the group in this term.
    NotLeader,
    /// Too many uncommitted bytes are in flight.
    Full,
    /// No frame carries an entry of so many bytes.
    TooLong(usize),
}

pub struct Group {
    id: GroupId,
    node: RawNode<GroupLog>,
    role: Role,
    election_timer: ElectionTimer,
    /// Whether it sends heartbeats at the same ticks as the other groups that the node leads.
    in_step: bool,
    /// The lowest match index of all replicas, as the leader knew it when it proposed.
    min_match: u64,
    retention: LogRetention,
    /// The number of the last tick.
    now: u64,
    /// The tick at which the node became leader, or last tried to transfer its leadership.
    leader_since: u64,
    /// Members that have lost their disk.
    wiped: BTreeSet<NodeId>,
}

impl Group {
    pub fn open(
        id: GroupId,
        node: NodeId,
        disk: Arc<dyn LogDisk>,
        initial: &InitialState,
        applied: u64,
        retention: LogRetention,
    ) -> Result<(Self, Vec<LogRecord>), EngineError> {
        let (log, records) = GroupLog::open(id, disk, initial, applied)?;
        let applied = log.applied_at_least(applied);
        let config = Config {
            id: node,
            election_tick: election::LEASE_TICKS,
            heartbeat_tick: HEARTBEAT_TICKS,
            max_election_tick: election::TICKS_MAX,
            applied,
            max_size_per_msg: MESSAGE_BYTES_MAX,
            max_inflight_msgs: MESSAGES_IN_FLIGHT_MAX,
            check_quorum: true,
            pre_vote: true,
            max_uncommitted_size: UNCOMMITTED_BYTES_MAX,
            max_committed_size_per_ready: COMMITTED_BYTES_MAX,
            ..Config::default()
        };
        let silent = slog::Logger::root(slog::Discard, slog::o!());
        let node = RawNode::new(&config, log, &silent).map_err(|failure| {
            EngineError::Damaged(format!("the Raft log of group {id}: {failure}"))
        })?;
        let mut group = Self {
            id,
            role: Role::default(),
            election_timer: ElectionTimer::default(),
            in_step: false,
            min_match: 0,
            retention,
            now: 0,
            leader_since: 0,
            wiped: BTreeSet::new(),
            node,
        };
        group.sync_election_timer();
        Ok((group, records))
    }

    /// Describes how the leader sees the other replicas, for people.
    #[cfg(test)]
    pub fn progress(&self) -> String {
        let progress = self.node.raft.prs().iter().map(|(node, progress)| {
            let (state, pending) = (progress.state, progress.pending_snapshot);
            let (matched, next) = (progress.matched, progress.next_idx);
            format!("{node}: {state} matched {matched} next {next} snapshot {pending}")
        });
        let snapshot = self.node.store().current_snapshot();
        format!("{:?}, snapshot {snapshot:?}", progress.collect::<Vec<_>>())
    }

    pub fn members(&self) -> &Members {
        self.node.store().members()
    }

    /// Returns whether the log is as it was when the group was bootstrapped.
    pub fn is_new(&self) -> bool {
        self.node.store().last() == INITIAL_POSITION
    }

    pub fn role(&self) -> Role {
        self.role
    }

    /// Returns the index of the last entry that is known to be committed.
    pub fn commit_index(&self) -> u64 {
        self.node.raft.raft_log.committed
    }

    /// Returns the index of the first entry that is still in the log.
    pub fn first_index(&self) -> u64 {
        self.node.store().truncated().index + 1
    }

    pub fn last_index(&self) -> u64 {
        self.node.raft.raft_log.last_index()
    }

    /// Returns the match index of each replica, as the leader knows it.
    pub fn match_indexes(&self) -> impl Iterator<Item = (NodeId, u64)> {
        let progress = self.node.raft.prs().iter();
        progress.map(|(node, progress)| (*node, progress.matched))
    }

    fn sync_election_timer(&mut self) {
        self.election_timer.sync(self.id, &mut self.node.raft);
    }

    /// Notes that the connection to a node broke.
    pub fn disconnected(&mut self, node: NodeId) {
        self.election_timer
            .disconnected(self.id, &mut self.node.raft, node);
    }

    /// Returns whether the state machine stands before the log: a snapshot is being installed. Such
    /// a replica does not campaign, because raft-rs then reads all entries that are not applied.
    fn is_restoring(&self) -> bool {
        let log = &self.node.raft.raft_log;
        log.applied + 1 < log.first_index()
    }

    fn is_uninitialized(&self) -> bool {
        self.node.store().is_uninitialized()
    }

    /// Advances the group's time. `now` is the number of the tick, the same for all groups.
    pub fn tick(&mut self, now: u64) {
        self.now = now;
        let is_leader = self.node.raft.state == StateRole::Leader;
        // Heartbeats of all groups go into one message: a new leader, which has just sent one,
        // waits for the others.
        self.in_step = is_leader && (self.in_step || now.is_multiple_of(HEARTBEAT_TICKS as u64));
        if is_leader && !self.in_step {
            return;
        }
        if self.is_restoring() {
            self.node.raft.election_elapsed = 0;
        }
        self.node.tick();
        self.sync_election_timer();
        self.election_timer.ticked(&mut self.node.raft);
    }

    /// Requests the read index; `time` is this node's. The answer may get lost: request it again.
    pub fn request_read_index(&mut self, request_id: u64, time: i64) {
        let raft = &self.node.raft;
        let term = if self.is_uninitialized() {
            0
        } else {
            raft.term
        };
        let request = read_index::encode(raft.id, request_id, term, time);
        self.node.read_index(request);
        self.sync_election_timer();
    }

    /// Handles a ReadIndex request of another node.
    ///
    /// A request from a voter in the current term doubles as its heartbeat acknowledgement, so in a
    /// group of three the leader can answer without another round trip. raft-rs applies an
    /// acknowledgement to all earlier pending reads as well, but this one may predate them. So it
    /// counts only if no other read is pending.
    fn step_read_index(&mut self, message: Message) {
        let (from, request) = (message.from, message.entries.first());
        let request = request.map(|entry| entry.data.clone()).unwrap_or_default();
        let is_first = self.node.raft.pending_read_count() == 0;
        self.step_raft(message);
        let raft = &self.node.raft;
        let is_quorum_ack = is_first && self.members().voters.contains(&from);
        if raft.state == StateRole::Leader
            && is_quorum_ack
            && read_index::term_of(&request) == Some(raft.term)
        {
            let mut ack = Message::default();
            ack.set_msg_type(MessageType::MsgHeartbeatResponse);
            ack.from = from;
            ack.to = raft.id;
            ack.term = raft.term;
            ack.context = request;
            self.step_raft(ack);
        }
    }

    /// Handles a message of another node. Returns an immediate reply, if there is one.
    ///
    /// Between nodes two kinds of messages mean something else than inside raft-rs:
    /// `MsgUnreachable` says that the sender has lost its data though the leader takes it for
    /// replicated there, and `MsgSnapStatus` that the sender could not fetch a snapshot.
    pub fn step(&mut self, message: Message) -> Option<Message> {
        match message.get_msg_type() {
            MessageType::MsgUnreachable => self.note_wiped(&message),
            MessageType::MsgSnapStatus => {
                let failed = SnapshotStatus::Failure;
                self.node.report_snapshot(message.from, failed);
            }
            // An uninitialized replica does not know how it has voted.
            MessageType::MsgRequestVote | MessageType::MsgRequestPreVote
                if self.is_uninitialized() => {}
            MessageType::MsgTimeoutNow if self.is_restoring() => {}
            MessageType::MsgReadIndex => self.step_read_index(message),
            // The leader counts on entries that are lost: an acknowledgement from before was late.
            MessageType::MsgHeartbeat if message.commit > self.last_index() => {
                let mut reply = Message::default();
                reply.set_msg_type(MessageType::MsgUnreachable);
                reply.from = message.to;
                reply.to = message.from;
                reply.term = message.term;
                reply.index = message.commit;
                return Some(reply);
            }
            _ => self.step_raft(message),
        }
        self.sync_election_timer();
        None
    }

    fn step_raft(&mut self, message: Message) {
        let is_reject = message.get_msg_type() == MessageType::MsgAppendResponse && message.reject;
        let from = message.from;
        // An error means that the message is late, duplicated, or from a node that has left.
        let _ = self.node.step(message);
        // A late reject does not take back what the replica has acknowledged since: the log may not
        // have those entries any more.
        if is_reject && let Some(progress) = self.node.raft.mut_prs().get_mut(from) {
            progress.next_idx = progress.next_idx.max(progress.matched + 1);
        }
    }

    /// Returns whether an announced snapshot has entries that this replica lacks.
    pub fn needs_snapshot(&self, message: &Message) -> bool {
        let raft = &self.node.raft;
        let index = message.get_snapshot().get_metadata().index;
        message.term >= raft.term && index > raft.raft_log.committed
    }

    /// Returns whether a follower has needed a snapshot since the last call, and there was none.
    pub fn take_snapshot_wanted(&self) -> bool {
        self.node.store().take_snapshot_wanted()
    }

    /// Returns the id of the snapshot that followers may fetch.
    pub fn snapshot_id(&self) -> Option<u64> {
        self.node
            .store()
            .current_snapshot()
            .map(|snapshot| snapshot.id)
    }

    /// Lets followers fetch a snapshot of the state machine as of an index.
    pub fn set_snapshot(&mut self, index: u64, id: u64) {
        self.node.mut_store().set_snapshot(index, id);
    }

    /// Withdraws the snapshot. A follower that was to fetch it has not, or the leader does not know
    /// yet that it has.
    pub fn withdraw_snapshot(&mut self) {
        self.node.mut_store().withdraw_snapshot();
        let fetching = self.node.raft.prs().iter();
        let fetching: Vec<NodeId> = fetching
            .filter(|(_, progress)| progress.state == ProgressState::Snapshot)
            .map(|(node, _)| *node)
            .collect();
        for node in fetching {
            self.node.report_snapshot(node, SnapshotStatus::Failure);
        }
    }

    /// Campaigns at once.
    pub fn campaign(&mut self) {
        if !self.is_restoring() {
            let _ = self.node.campaign();
        }
        self.sync_election_timer();
    }

    /// Notes that no message reaches a node.
    pub fn unreachable(&mut self, node: NodeId) {
        self.node.report_unreachable(node);
    }

    /// Appends an entry to the log, if the node leads in this term. Returns its index.
    pub fn propose(&mut self, term: u64, data: Bytes) -> Result<u64, ProposeError> {
        let raft = &self.node.raft;
        // A leader that transfers its leadership takes no more proposals.
        let is_leader = raft.state == StateRole::Leader && raft.lead_transferee.is_none();
        if !is_leader || raft.term != term {
            return Err(ProposeError::NotLeader);
        }
        if data.len() > ENTRY_BYTES_MAX {
            return Err(ProposeError::TooLong(data.len()));
        }
        let min_match = self.match_indexes().map(|(_, index)| index).min();
        let entry = Entry {
            data,
            context: Bytes::copy_from_slice(&min_match.unwrap_or(0).to_be_bytes()),
            ..Entry::default()
        };
        let mut message = Message::default();
        message.set_msg_type(MessageType::MsgPropose);
        message.from = raft.id;
        message.entries = vec![entry].into();
        self.node
            .raft
            .step(message)
            .map_err(|_| ProposeError::Full)?;
        Ok(self.node.raft.raft_log.last_index())
    }

    /// Notes that the state machine has applied the entries up to this one.
    pub fn applied(&mut self, index: u64) {
        self.node.advance_apply_to(index);
    }

    /// Truncates the log up to entries that the state machine holds durably and that every replica
    /// has, or that are too many to retain.
    pub fn release(&mut self, durable: u64) -> Option<LogRecord> {
        let log = self.node.mut_store();
        let expendable = self.min_match.max(log.last_expendable(self.retention));
        // A follower that fetches the snapshot goes on behind it.
        let snapshot = log.current_snapshot();
        let snapshot_index = snapshot.map_or(u64::MAX, |snapshot| snapshot.at.index);
        log.truncate(durable.min(expendable).min(snapshot_index))
    }
}
