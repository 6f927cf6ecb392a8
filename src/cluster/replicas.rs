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
    group::{Committed, Group, NotProposed, Progress, ReadAt, Role},
    group_log::{LogBatch, LogDisk, Record},
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
        }
    }

    /// Takes up a group where its log and its state machine stand, or begins it.
    pub fn add(&mut self, id: GroupId, voters: &[NodeId], applied: u64) -> Result<(), EngineError> {
        let disk = Arc::clone(&self.disk);
        let group = Group::open(id, self.node, disk, voters, applied)?;
        self.groups.insert(id, group);
        self.touched.insert(id);
        Ok(())
    }

    /// Forgets a group and its log.
    pub fn remove(&mut self, id: GroupId) {
        if self.groups.remove(&id).is_some() {
            self.later.records.push((id, Record::Remove));
        }
    }

    pub fn group(&self, id: GroupId) -> Option<&Group> {
        self.groups.get(&id)
    }

    pub fn groups(&self) -> impl Iterator<Item = (GroupId, &Group)> {
        self.groups.iter().map(|(id, group)| (*id, group))
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
            group.step(message);
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
    pub fn ask_index(&mut self, id: GroupId, number: u64) {
        if let Some(group) = self.touch(id) {
            group.ask_index(number);
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
        for id in std::mem::take(&mut self.touched) {
            if let Some(group) = self.groups.get_mut(&id)
                && group.has_ready()
            {
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
        let mut round = Round {
            synced,
            ..Round::default()
        };
        for (id, collected) in pending {
            let Some(group) = self.groups.get_mut(&id) else {
                continue;
            };
            let Progress {
                committed,
                role,
                reads,
            } = group.kept(id, collected, post);
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
        !self.touched.is_empty() || !self.later.records.is_empty()
    }
}
