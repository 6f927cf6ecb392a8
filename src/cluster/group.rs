//! One Raft group of a node: what it says and keeps follows from what it is told, and from nothing else.

use std::{
    hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher},
    sync::Arc,
};

use bytes::Bytes;
use raft::{
    Config, LightReady, RawNode, Ready, StateRole,
    eraftpb::{Entry, Message, MessageType},
};

use super::{
    GroupId, NodeId,
    group_log::{GroupLog, LogBatch, LogDisk, Record},
    replicas::Post,
};
use crate::store::EngineError;

/// Ticks between two signs of life of a leader.
const HEARTBEAT_TICKS: usize = 2;
/// Ticks of silence after which a follower may stand for election.
pub const ELECTION_TICKS_MIN: usize = 10;
/// It stands before this many.
pub const ELECTION_TICKS_MAX: usize = 2 * ELECTION_TICKS_MIN;
/// Entries for one follower are cut into messages of about this size.
const MESSAGE_BYTES_MAX: u64 = 1024 * 1024;
/// Messages with entries that may be under way to one follower.
const MESSAGES_UNDER_WAY_MAX: usize = 64;
/// Entries that are proposed but not committed; above it proposals are refused.
const UNCOMMITTED_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// Committed entries handed out at a time.
const COMMITTED_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// What a node is in a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Role {
    pub term: u64,
    pub leader: Option<NodeId>,
    pub leads: bool,
}

/// A committed entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Committed {
    pub index: u64,
    pub term: u64,
    /// Empty for the entry with which a leader begins its term.
    pub data: Bytes,
}

/// A proposal that was not taken; it will never be committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotProposed {
    /// The node does not lead the group in this term.
    NotLeader,
    /// Too much is under way.
    Full,
}

pub struct Group {
    node: RawNode<GroupLog>,
    timeouts: u64,
    role: Role,
    /// All replicas have the entries up to this one, as the leader said when it proposed.
    everywhere: u64,
}

/// What must be kept before a group goes on.
pub struct Pending {
    ready: Ready,
    entries: Vec<Entry>,
}

/// What became of a step of a group.
#[derive(Default)]
pub struct Progress {
    pub committed: Vec<Committed>,
    pub role: Option<Role>,
}

impl Group {
    /// `seed` decides how long this node waits before it stands for election.
    pub fn open(
        id: GroupId,
        node: NodeId,
        seed: u64,
        disk: Arc<dyn LogDisk>,
        voters: &[NodeId],
        applied: u64,
    ) -> Result<Self, EngineError> {
        let log = GroupLog::open(id, disk, voters, applied)?;
        let config = Config {
            id: node,
            election_tick: ELECTION_TICKS_MIN,
            heartbeat_tick: HEARTBEAT_TICKS,
            max_election_tick: ELECTION_TICKS_MAX,
            applied,
            max_size_per_msg: MESSAGE_BYTES_MAX,
            max_inflight_msgs: MESSAGES_UNDER_WAY_MAX,
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
            timeouts: hash(&(seed, config.id, id)),
            role: Role::default(),
            everywhere: 0,
            node,
        };
        group.settle();
        Ok(group)
    }

    pub fn role(&self) -> Role {
        self.role
    }

    /// The last entry that is known to be committed.
    pub fn commit_index(&self) -> u64 {
        self.node.raft.raft_log.committed
    }

    pub fn last_index(&self) -> u64 {
        self.node.raft.raft_log.last_index()
    }

    /// How far each replica has come, as the leader knows it.
    pub fn matched(&self) -> impl Iterator<Item = (NodeId, u64)> {
        let progress = self.node.raft.prs().iter();
        progress.map(|(node, progress)| (*node, progress.matched))
    }

    /// Waits of different nodes differ, and those of different terms, without any chance in it.
    fn settle(&mut self) {
        let spread = (ELECTION_TICKS_MAX - ELECTION_TICKS_MIN) as u64;
        let wait = hash(&(self.timeouts, self.node.raft.term)) % spread;
        let wait = ELECTION_TICKS_MIN + wait as usize;
        self.node.raft.set_randomized_election_timeout(wait);
    }

    pub fn tick(&mut self) {
        self.node.tick();
        self.settle();
    }

    pub fn step(&mut self, message: Message) {
        // What does not fit to what the group knows is none of its business: late, doubled, or from a node that left.
        let _ = self.node.step(message);
        self.settle();
    }

    /// Stands for election at once.
    pub fn campaign(&mut self) {
        let _ = self.node.campaign();
        self.settle();
    }

    /// Nothing reaches that node.
    pub fn unreachable(&mut self, node: NodeId) {
        self.node.report_unreachable(node);
    }

    /// Adds an entry to the log, if the node leads in this term. Its index.
    pub fn propose(&mut self, term: u64, data: Bytes) -> Result<u64, NotProposed> {
        let raft = &self.node.raft;
        if raft.state != StateRole::Leader || raft.term != term {
            return Err(NotProposed::NotLeader);
        }
        let everywhere = self.matched().map(|(_, matched)| matched).min();
        let entry = Entry {
            data,
            context: Bytes::copy_from_slice(&everywhere.unwrap_or(0).to_be_bytes()),
            ..Entry::default()
        };
        let mut message = Message::default();
        message.set_msg_type(MessageType::MsgPropose);
        message.from = raft.id;
        message.entries = vec![entry].into();
        self.node
            .raft
            .step(message)
            .map_err(|_| NotProposed::Full)?;
        Ok(self.node.raft.raft_log.last_index())
    }

    /// The entries up to this one are in the state machine.
    pub fn applied(&mut self, index: u64) {
        self.node.advance_apply_to(index);
    }

    /// Gives entries free that the state machine holds durably and every replica has.
    pub fn release(&mut self, durable: u64) -> Option<Record> {
        let through = durable.min(self.everywhere);
        self.node.mut_store().truncate(through)
    }

    pub fn has_ready(&self) -> bool {
        self.node.has_ready()
    }

    /// What the group wants to send at once, and to keep. Whether that must survive a crash before the group goes on.
    pub fn collect(
        &mut self,
        id: GroupId,
        batch: &mut LogBatch,
        post: &mut dyn Post,
    ) -> (Pending, bool) {
        let mut ready = self.node.ready();
        ready
            .take_messages()
            .into_iter()
            .for_each(|message| post.send(id, message));
        let entries = ready.take_entries();
        if !entries.is_empty() {
            let last = self.node.store().last().index;
            let entries = entries.clone();
            batch.records.push((id, Record::Append { entries, last }));
        }
        if let Some(hard_state) = ready.hs() {
            let record = Record::HardState(hard_state.clone());
            batch.records.push((id, record));
        }
        let must_sync = ready.must_sync();
        (Pending { ready, entries }, must_sync)
    }

    /// What was collected is kept.
    pub fn kept(&mut self, id: GroupId, pending: Pending, post: &mut dyn Post) -> Progress {
        let Pending { mut ready, entries } = pending;
        let log = self.node.mut_store();
        log.appended(entries);
        if let Some(hard_state) = ready.hs() {
            log.set_hard_state(hard_state.clone());
        }
        let mut messages = ready.take_persisted_messages();
        let mut committed = ready.take_committed_entries();
        let mut light: LightReady = self.node.advance_append(ready);
        if let Some(commit) = light.commit_index() {
            self.node.mut_store().set_commit(commit);
        }
        messages.extend(light.take_messages());
        messages
            .into_iter()
            .for_each(|message| post.send(id, message));
        committed.extend(light.take_committed_entries());
        self.settle();
        Progress {
            committed: committed
                .into_iter()
                .map(|entry| self.committed(entry))
                .collect(),
            role: self.changed_role(),
        }
    }

    fn committed(&mut self, entry: Entry) -> Committed {
        if let Ok(everywhere) = entry.context.as_ref().try_into() {
            self.everywhere = self.everywhere.max(u64::from_be_bytes(everywhere));
        }
        Committed {
            index: entry.index,
            term: entry.term,
            data: entry.data,
        }
    }

    fn changed_role(&mut self) -> Option<Role> {
        let raft = &self.node.raft;
        let role = Role {
            term: raft.term,
            leader: (raft.leader_id != raft::INVALID_ID).then_some(raft.leader_id),
            leads: raft.state == StateRole::Leader,
        };
        (std::mem::replace(&mut self.role, role) != role).then_some(role)
    }
}

/// The same everywhere and always, which the standard map's hash is not.
fn hash(value: &impl std::hash::Hash) -> u64 {
    BuildHasherDefault::<DefaultHasher>::default().hash_one(value)
}
