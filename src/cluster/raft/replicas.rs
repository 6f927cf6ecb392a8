//! All Raft groups of a node, as one plain state machine.
//!
//! The driver passes in ticks, messages and proposals, then calls [`Replicas::round`]. A round
//! writes what all groups want to persist with one fsync, and returns what they have committed.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use bytes::Bytes;
use raft::eraftpb::{Message, MessageType};

use super::{
    group::{
        Committed, Group, ProposeError, Role,
        ready::{Pending, Progress},
    },
    log_disk::{InitialState, LogBatch, LogDisk, LogRecord, LogRetention},
    planner::TargetConfig,
    read_index::ReadIndex,
    transport::Transport,
};
use crate::{
    cluster::{GroupId, NodeId},
    store::{EngineError, engine::Durability},
};

pub struct Replicas {
    node: NodeId,
    disk: Arc<dyn LogDisk>,
    groups: BTreeMap<GroupId, Group>,
    ticks: u64,
    /// Groups that may have a Ready.
    touched: BTreeSet<GroupId>,
    /// Records that are not urgent; the next round writes them.
    deferred: LogBatch,
    /// Messages of our own, beside those of raft-rs.
    replies: Vec<(GroupId, Message)>,
    retention: LogRetention,
}

/// What a round has produced, by group.
#[derive(Default)]
pub struct Round {
    /// In the order of the log.
    pub committed: Vec<(GroupId, Vec<Committed>)>,
    pub roles: Vec<(GroupId, Role)>,
    pub read_indexes: Vec<(GroupId, ReadIndex)>,
    /// State machines that must be restored from a snapshot of this index, before they apply what
    /// is committed.
    pub restored: Vec<(GroupId, u64)>,
    /// Groups whose followers need a snapshot of the state machine.
    pub snapshots_wanted: Vec<GroupId>,
    pub members_changed: bool,
    /// Whether the round waited for an fsync.
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
            deferred: LogBatch::default(),
            replies: Vec::new(),
            retention: LogRetention::default(),
        }
    }

    #[cfg(test)]
    pub fn with_retention(mut self, retention: LogRetention) -> Self {
        self.retention = retention;
        self
    }

    /// Opens a group where its log and its state machine stand, or creates it.
    pub fn add(
        &mut self,
        id: GroupId,
        initial: &InitialState,
        applied: u64,
    ) -> Result<(), EngineError> {
        if !self.deferred.records.is_empty() {
            // Remains of a group of that name are removed before the log is read.
            let deferred = std::mem::take(&mut self.deferred);
            self.disk.write(deferred, Durability::Buffered)?;
        }
        let disk = Arc::clone(&self.disk);
        let (group, records) = Group::open(id, self.node, disk, initial, applied, self.retention)?;
        let records = records.into_iter().map(|record| (id, record));
        self.deferred.records.extend(records);
        self.groups.insert(id, group);
        self.touched.insert(id);
        Ok(())
    }

    /// Removes a group and its log, and what a crash has left of one that was removed before.
    pub fn remove(&mut self, id: GroupId) {
        if self.groups.remove(&id).is_some() || matches!(self.disk.load(id), Ok(Some(_))) {
            self.deferred.records.push((id, LogRecord::Remove));
        }
    }

    pub fn group(&self, id: GroupId) -> Option<&Group> {
        self.groups.get(&id)
    }

    pub fn groups(&self) -> impl Iterator<Item = (GroupId, &Group)> {
        self.groups.iter().map(|(id, group)| (*id, group))
    }

    /// Returns the voters of each group.
    pub fn voters(&self) -> BTreeMap<GroupId, Vec<NodeId>> {
        let groups = self.groups.iter();
        groups
            .map(|(id, group)| (*id, group.members().voters.clone()))
            .collect()
    }

    /// Returns a group, which may have a Ready afterwards.
    fn touch(&mut self, id: GroupId) -> Option<&mut Group> {
        let group = self.groups.get_mut(&id)?;
        self.touched.insert(id);
        Some(group)
    }

    /// Advances the time of all groups.
    pub fn tick(&mut self) {
        self.ticks += 1;
        for (id, group) in &mut self.groups {
            group.tick(self.ticks);
            if group.has_ready() {
                self.touched.insert(*id);
            }
        }
    }

    /// Handles a message of another node.
    pub fn step(&mut self, id: GroupId, message: Message) {
        if let Some(group) = self.touch(id) {
            let reply = group.step(message);
            self.replies.extend(reply.map(|reply| (id, reply)));
        }
    }

    /// Tells the leader that the snapshot it has announced could not be fetched.
    pub fn decline_snapshot(&mut self, id: GroupId, announced: &Message) {
        let mut message = Message::default();
        message.set_msg_type(MessageType::MsgSnapStatus);
        message.from = announced.to;
        message.to = announced.from;
        message.term = announced.term;
        message.reject = true;
        self.replies.push((id, message));
        self.touch(id);
    }

    /// Takes one step towards the target configuration of a group, if this node leads it.
    pub fn reconcile(&mut self, id: GroupId, target: &TargetConfig) {
        if let Some(group) = self.groups.get_mut(&id) {
            group.reconcile(target);
            if group.has_ready() {
                self.touched.insert(id);
            }
        }
    }

    /// Lets followers fetch a snapshot of a state machine as of an index.
    pub fn set_snapshot(&mut self, id: GroupId, index: u64, snapshot: u64) {
        if let Some(group) = self.touch(id) {
            group.set_snapshot(index, snapshot);
        }
    }

    pub fn withdraw_snapshot(&mut self, id: GroupId) {
        if let Some(group) = self.touch(id) {
            group.withdraw_snapshot();
        }
    }

    pub fn campaign(&mut self, id: GroupId) {
        if let Some(group) = self.touch(id) {
            group.campaign();
        }
    }

    /// Notes that no message reaches a node.
    pub fn unreachable(&mut self, node: NodeId) {
        for group in self.groups.values_mut() {
            group.unreachable(node);
        }
    }

    /// Notes that the connection to a node broke.
    pub fn disconnected(&mut self, node: NodeId) {
        for (id, group) in &mut self.groups {
            group.disconnected(node);
            if group.has_ready() {
                self.touched.insert(*id);
            }
        }
    }

    /// Requests the read index of a group; see [`Group::request_read_index`].
    pub fn request_read_index(&mut self, id: GroupId, request_id: u64, time: i64) {
        if let Some(group) = self.touch(id) {
            group.request_read_index(request_id, time);
        }
    }

    /// Appends an entry to the log of a group, if the node leads it in this term. Returns its
    /// index.
    pub fn propose(&mut self, id: GroupId, term: u64, data: Bytes) -> Result<u64, ProposeError> {
        let group = self.touch(id).ok_or(ProposeError::NotLeader)?;
        group.propose(term, data)
    }

    /// Notes that the state machine of a group has applied the entries up to this one.
    pub fn applied(&mut self, id: GroupId, index: u64) {
        if let Some(group) = self.touch(id) {
            group.applied(index);
        }
    }

    /// Notes that the state machine of a group holds the entries up to this one durably.
    pub fn release(&mut self, id: GroupId, durable: u64) {
        let group = self.groups.get_mut(&id);
        if let Some(record) = group.and_then(|group| group.release(durable)) {
            self.deferred.records.push((id, record));
        }
    }

    /// Lets all groups go on that have something to do. After a failure no round may follow: what
    /// is on disk is unknown.
    pub fn round(&mut self, transport: &mut dyn Transport) -> Result<Round, EngineError> {
        let mut round = Round::default();
        for (id, message) in self.replies.drain(..) {
            transport.send(id, message);
        }
        let pending = self.persist(&mut round, transport)?;
        for (id, pending) in pending {
            let Some(group) = self.groups.get_mut(&id) else {
                continue;
            };
            let Progress {
                committed,
                role,
                read_indexes,
                restored,
                members,
            } = group.persisted(pending, transport);
            round.members_changed |= restored.is_some() || !members.is_empty();
            if !members.is_empty() {
                // A state machine must not be ahead of the members that are on disk.
                let records = members.into_iter().map(|record| (id, record)).collect();
                self.disk.write(LogBatch { records }, Durability::Synced)?;
            }
            round.restored.extend(restored.map(|index| (id, index)));
            if group.take_snapshot_wanted() {
                round.snapshots_wanted.push(id);
            }
            if !committed.is_empty() {
                round.committed.push((id, committed));
            }
            round.roles.extend(role.map(|role| (id, role)));
            let read_indexes = read_indexes.into_iter().map(|read| (id, read));
            round.read_indexes.extend(read_indexes);
            if group.has_ready() {
                self.touched.insert(id);
            }
        }
        transport.flush();
        Ok(round)
    }

    /// Writes what all groups want to persist.
    fn persist(
        &mut self,
        round: &mut Round,
        transport: &mut dyn Transport,
    ) -> Result<Vec<(GroupId, Pending)>, EngineError> {
        let mut batch = std::mem::take(&mut self.deferred);
        let mut pending = Vec::new();
        for id in std::mem::take(&mut self.touched) {
            let Some(group) = self.groups.get_mut(&id) else {
                continue;
            };
            if group.take_snapshot_wanted() {
                round.snapshots_wanted.push(id);
            }
            if group.has_ready() {
                let (collected, must_sync) = group.collect(&mut batch, transport);
                pending.push((id, collected));
                round.synced |= must_sync;
            }
        }
        transport.flush();
        if !batch.records.is_empty() {
            let durability = match round.synced {
                true => Durability::Synced,
                false => Durability::Buffered,
            };
            self.disk.write(batch, durability)?;
        }
        Ok(pending)
    }

    /// Returns whether another round has something to do.
    pub fn is_busy(&self) -> bool {
        !self.touched.is_empty() || !self.deferred.records.is_empty() || !self.replies.is_empty()
    }
}
