//! All Raft groups of a node, as one plain state machine.
//!
//! Whoever drives it tells it of ticks, messages and proposals, and then calls [`Replicas::round`]: everything that the groups want to keep is written at once,
//! with one fsync for all of them; what they want to say, and what is committed, comes out.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use bytes::Bytes;
use raft::eraftpb::Message;

use super::{
    GroupId, NodeId,
    group::{Aim, Committed, Group, NotProposed, Progress, ReadAt, Role},
    group_log::{Begin, Keep, LogBatch, LogDisk, Record},
    shared_time::Voters,
};
use crate::store::{EngineError, engine::Durability};

pub struct Replicas {
    node: NodeId,
    disk: Arc<dyn LogDisk>,
    groups: BTreeMap<GroupId, Group>,
    ticks: u64,
    /// Groups that may have something to say.
    touched: BTreeSet<GroupId>,
    /// What is written with the next round; it is in no hurry.
    later: LogBatch,
    /// What groups say beside what the Raft library lets them say.
    asides: Vec<(GroupId, Message)>,
    keep: Keep,
}

/// Takes what groups want to say to other nodes.
pub trait Post {
    fn send(&mut self, group: GroupId, message: Message);
    /// What was sent so far need not wait for the disk.
    fn flush(&mut self) {}
}

/// What came out of a round, by group.
#[derive(Default)]
pub struct Round {
    /// In the order of the log.
    pub committed: Vec<(GroupId, Vec<Committed>)>,
    pub roles: Vec<(GroupId, Role)>,
    pub reads: Vec<(GroupId, ReadAt)>,
    /// Groups whose state machine must go on from a snapshot of this index, before what is committed.
    pub restored: Vec<(GroupId, u64)>,
    /// Groups of which a copy of the state machine is wanted.
    pub wanted: Vec<GroupId>,
    /// Whether some group has other members than before.
    pub members_changed: bool,
    /// Whether it waited for the disk.
    pub synced: bool,
}

impl Replicas {
    pub fn new(node: NodeId, disk: Arc<dyn LogDisk>) -> Self {
        Self {
            node,
            disk,
            groups: BTreeMap::new(),
            ticks: 0,
            touched: BTreeSet::new(),
            later: LogBatch::default(),
            asides: Vec::new(),
            keep: Keep::default(),
        }
    }

    /// Keeps so much of the logs for those who lack it.
    #[cfg(test)]
    pub fn keeping(mut self, keep: Keep) -> Self {
        self.keep = keep;
        self
    }

    /// Takes up a group where its log and its state machine stand, or begins it.
    pub fn add(&mut self, id: GroupId, begin: &Begin, applied: u64) -> Result<(), EngineError> {
        if !self.later.records.is_empty() {
            // What a group of that name has left is gone before it is looked for.
            let later = std::mem::take(&mut self.later);
            self.disk.write(later, Durability::Buffered)?;
        }
        let disk = Arc::clone(&self.disk);
        let (group, records) = Group::open(id, self.node, disk, begin, applied, self.keep)?;
        let records = records.into_iter().map(|record| (id, record));
        self.later.records.extend(records);
        self.groups.insert(id, group);
        self.touched.insert(id);
        Ok(())
    }

    /// Forgets a group and its log. What a crash has left of one that was forgotten before goes, too.
    pub fn remove(&mut self, id: GroupId) {
        if self.groups.remove(&id).is_some() || matches!(self.disk.load(id), Ok(Some(_))) {
            self.later.records.push((id, Record::Remove));
        }
    }

    pub fn group(&self, id: GroupId) -> Option<&Group> {
        self.groups.get(&id)
    }

    pub fn groups(&self) -> impl Iterator<Item = (GroupId, &Group)> {
        self.groups.iter().map(|(id, group)| (*id, group))
    }

    /// Who has a vote in each group.
    pub fn voters(&self) -> Voters {
        let groups = self.groups.iter();
        groups
            .map(|(id, group)| (*id, group.members().voters.clone()))
            .collect()
    }

    /// The group, which may have something to say after this.
    fn touch(&mut self, id: GroupId) -> Option<&mut Group> {
        let group = self.groups.get_mut(&id)?;
        self.touched.insert(id);
        Some(group)
    }

    /// Time passes for all groups.
    pub fn tick(&mut self) {
        self.ticks += 1;
        for (id, group) in &mut self.groups {
            group.tick(self.ticks);
            if group.has_ready() {
                self.touched.insert(*id);
            }
        }
    }

    pub fn step(&mut self, id: GroupId, message: Message) {
        if let Some(group) = self.touch(id) {
            let reply = group.step(message);
            self.asides.extend(reply.map(|reply| (id, reply)));
        }
    }

    /// Says to another node that the snapshot it has announced could not be had.
    pub fn decline(&mut self, id: GroupId, announced: &Message) {
        let mut message = Message::default();
        message.set_msg_type(raft::eraftpb::MessageType::MsgSnapStatus);
        message.from = announced.to;
        message.to = announced.from;
        message.term = announced.term;
        message.reject = true;
        self.asides.push((id, message));
        self.touch(id);
    }

    /// Brings the members of a group closer to what they should be, if this node leads it.
    pub fn pursue(&mut self, id: GroupId, aim: &Aim) {
        if let Some(group) = self.groups.get_mut(&id) {
            group.pursue(aim);
            if group.has_ready() {
                self.touched.insert(id);
            }
        }
    }

    /// A copy of the state machine of a group, as of an index, may be fetched under this id.
    pub fn set_offer(&mut self, id: GroupId, index: u64, copy: u64) {
        if let Some(group) = self.touch(id) {
            group.set_offer(index, copy);
        }
    }

    pub fn withdraw_offer(&mut self, id: GroupId) {
        if let Some(group) = self.touch(id) {
            group.withdraw_offer();
        }
    }

    pub fn campaign(&mut self, id: GroupId) {
        if let Some(group) = self.touch(id) {
            group.campaign();
        }
    }

    /// Nothing reaches that node.
    pub fn unreachable_everywhere(&mut self, node: NodeId) {
        for group in self.groups.values_mut() {
            group.unreachable(node);
        }
    }

    /// The connection to that node broke.
    pub fn lost(&mut self, node: NodeId) {
        for (id, group) in &mut self.groups {
            group.lost(node);
            if group.has_ready() {
                self.touched.insert(*id);
            }
        }
    }

    /// Asks a group for its last committed index; see [`Group::ask_index`].
    pub fn ask_index(&mut self, id: GroupId, number: u64, time: i64) {
        if let Some(group) = self.touch(id) {
            group.ask_index(number, time);
        }
    }

    /// Adds an entry to the log of a group, if the node leads it in this term. Its index.
    pub fn propose(&mut self, id: GroupId, term: u64, data: Bytes) -> Result<u64, NotProposed> {
        let group = self.touch(id).ok_or(NotProposed::NotLeader)?;
        group.propose(term, data)
    }

    /// The entries of a group up to this one are in its state machine.
    pub fn applied(&mut self, id: GroupId, index: u64) {
        if let Some(group) = self.touch(id) {
            group.applied(index);
        }
    }

    /// The state machine of a group holds the entries up to this one durably.
    pub fn release(&mut self, id: GroupId, durable: u64) {
        let group = self.groups.get_mut(&id);
        if let Some(record) = group.and_then(|group| group.release(durable)) {
            self.later.records.push((id, record));
        }
    }

    /// Lets all groups go on that have something to do. After a failure none may: what is on disk is not known.
    pub fn round(&mut self, post: &mut dyn Post) -> Result<Round, EngineError> {
        let mut batch = std::mem::take(&mut self.later);
        let mut pending = Vec::new();
        let mut synced = false;
        let mut round = Round::default();
        for (id, message) in self.asides.drain(..) {
            post.send(id, message);
        }
        for id in std::mem::take(&mut self.touched) {
            let Some(group) = self.groups.get_mut(&id) else {
                continue;
            };
            if group.take_snapshot_wanted() {
                round.wanted.push(id);
            }
            if group.has_ready() {
                let (collected, must_sync) = group.collect(id, &mut batch, post);
                pending.push((id, collected));
                synced |= must_sync;
            }
        }
        post.flush();
        if !batch.records.is_empty() {
            let durability = if synced {
                Durability::Synced
            } else {
                Durability::Buffered
            };
            self.disk.write(batch, durability)?;
        }
        round.synced = synced;
        for (id, collected) in pending {
            let Some(group) = self.groups.get_mut(&id) else {
                continue;
            };
            let Progress {
                committed,
                role,
                reads,
                restored,
                members,
            } = group.kept(id, collected, post);
            round.members_changed |= restored.is_some() || !members.is_empty();
            if !members.is_empty() {
                // No state machine may be further than what is known of its group's members.
                let records = members.into_iter().map(|record| (id, record)).collect();
                self.disk.write(LogBatch { records }, Durability::Synced)?;
            }
            round.restored.extend(restored.map(|index| (id, index)));
            if group.take_snapshot_wanted() {
                round.wanted.push(id);
            }
            if !committed.is_empty() {
                round.committed.push((id, committed));
            }
            round.roles.extend(role.map(|role| (id, role)));
            round.reads.extend(reads.into_iter().map(|read| (id, read)));
            if group.has_ready() {
                self.touched.insert(id);
            }
        }
        post.flush();
        Ok(round)
    }

    /// Whether another round has something to do.
    pub fn is_busy(&self) -> bool {
        !self.touched.is_empty() || !self.later.records.is_empty() || !self.asides.is_empty()
    }
}
