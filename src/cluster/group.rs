//! One Raft group of a node: what it says and keeps follows from what it is told, and from nothing else.

use std::sync::Arc;

use bytes::Bytes;
use raft::{
    Config, LightReady, RawNode, ReadState, Ready, StateRole,
    eraftpb::{Entry, Message, MessageType},
};

use super::{
    GroupId, NodeId, election,
    group_log::{GroupLog, LogBatch, LogDisk, Record},
    replicas::Post,
};
use crate::store::EngineError;

/// Ticks between two signs of life of a leader.
const HEARTBEAT_TICKS: usize = 6;
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

/// Whoever asked with this number before may read what has applied this index: nothing was committed later when they asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadAt {
    pub number: u64,
    pub index: u64,
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
    id: GroupId,
    node: RawNode<GroupLog>,
    role: Role,
    /// The term that the wait before an election is set for.
    settled: Option<u64>,
    wait: usize,
    /// The leader to which the connection broke, until there is news of one.
    orphan_of: Option<NodeId>,
    /// Whether it shows itself together with the other groups that the node leads.
    in_step: bool,
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
    /// Questions for the last committed index that are answered.
    pub reads: Vec<ReadAt>,
}

impl Group {
    pub fn open(
        id: GroupId,
        node: NodeId,
        disk: Arc<dyn LogDisk>,
        voters: &[NodeId],
        applied: u64,
    ) -> Result<Self, EngineError> {
        let log = GroupLog::open(id, disk, voters, applied)?;
        let config = Config {
            id: node,
            election_tick: election::LEASE_TICKS,
            heartbeat_tick: HEARTBEAT_TICKS,
            max_election_tick: election::TICKS_MAX,
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
            id,
            role: Role::default(),
            settled: None,
            wait: 0,
            orphan_of: None,
            in_step: false,
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

    /// The oldest entry that is still there.
    pub fn first_index(&self) -> u64 {
        self.node.store().truncated().index + 1
    }

    pub fn last_index(&self) -> u64 {
        self.node.raft.raft_log.last_index()
    }

    /// How far each replica has come, as the leader knows it.
    pub fn matched(&self) -> impl Iterator<Item = (NodeId, u64)> {
        let progress = self.node.raft.prs().iter();
        progress.map(|(node, progress)| (*node, progress.matched))
    }

    fn voters(&self) -> Vec<NodeId> {
        let voters = self.node.raft.prs().conf().voters().ids();
        let mut voters: Vec<NodeId> = voters.iter().collect();
        voters.sort_unstable();
        voters
    }

    /// The Raft library chooses a wait by chance whenever the term changes; ours is this replica's turn.
    fn settle(&mut self) {
        let raft = &self.node.raft;
        if raft.leader_id != raft::INVALID_ID {
            self.orphan_of = None;
        }
        let (term, node) = (raft.term, raft.id);
        if self.settled == Some(term) && raft.randomized_election_timeout() == self.wait {
            return;
        }
        self.wait = election::wait(self.id, term, node, &self.voters());
        self.settled = Some(term);
        let wait = self.wait;
        self.node.raft.set_randomized_election_timeout(wait);
    }

    /// Stands for election after so many ticks, unless there is news of a leader.
    fn stand_after(&mut self, ticks: usize) {
        let elapsed = self.wait.saturating_sub(ticks);
        self.node.raft.election_elapsed = elapsed;
    }

    /// The connection to a node broke. If it was the leader, nobody waits for its silence to last; should it be alive, those who hear it vote for no other.
    pub fn lost(&mut self, node: NodeId) {
        let raft = &mut self.node.raft;
        if raft.leader_id != node || raft.state != StateRole::Follower {
            return;
        }
        raft.leader_id = raft::INVALID_ID;
        let (term, own) = (raft.term, raft.id);
        self.orphan_of = Some(node);
        let ticks = election::wait_without(self.id, term, own, &self.voters(), node);
        self.stand_after(ticks);
    }

    /// `count` is the number of the tick, the same for all groups of the node.
    pub fn tick(&mut self, count: u64) {
        let leads = self.node.raft.state == StateRole::Leader;
        // Signs of life of all groups go into one parcel: a new leader, which has just shown itself, falls into step.
        self.in_step = leads && (self.in_step || count.is_multiple_of(HEARTBEAT_TICKS as u64));
        if leads && !self.in_step {
            return;
        }
        self.node.tick();
        self.settle();
        let just_stood = self.node.raft.election_elapsed == 0;
        if self.orphan_of.is_some() && just_stood {
            // Those who had not noticed yet that the leader is gone did not listen.
            self.stand_after(election::wait_again(&self.voters()));
        }
    }

    /// Asks for the last committed index, for readers who must see all that anybody was told. The answer may get lost: ask again.
    pub fn ask_index(&mut self, number: u64) {
        let mut context = Vec::with_capacity(16);
        context.extend_from_slice(&self.node.raft.id.to_be_bytes());
        context.extend_from_slice(&number.to_be_bytes());
        self.node.read_index(context);
        self.settle();
    }

    pub fn step(&mut self, message: Message) {
        let refused = message.get_msg_type() == MessageType::MsgAppendResponse && message.reject;
        let from = message.from;
        // What does not fit to what the group knows is none of its business: late, doubled, or from a node that left.
        let _ = self.node.step(message);
        // A late refusal does not take back what the replica has said since; the log may not have it any more.
        if refused && let Some(progress) = self.node.raft.mut_prs().get_mut(from) {
            progress.next_idx = progress.next_idx.max(progress.matched + 1);
        }
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
        let reads = ready.take_read_states();
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
            reads: reads.iter().filter_map(read_at).collect(),
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

fn read_at(state: &ReadState) -> Option<ReadAt> {
    let number = state.request_ctx.get(8..)?.try_into().ok()?;
    Some(ReadAt {
        number: u64::from_be_bytes(number),
        index: state.index,
    })
}
