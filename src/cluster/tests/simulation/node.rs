//! A simulated node: its groups, and a state machine for each that remembers what was applied.

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use rand::{Rng as _, rngs::StdRng};

use super::disk::SimulatedDisk;
use crate::cluster::{
    GroupId, NodeId,
    group::{Committed, Role},
    replicas::Replicas,
};

/// What was applied to a group, in order.
#[derive(Clone, Default)]
pub struct Machine {
    pub entries: Vec<Committed>,
    /// So many of them survive a crash for sure.
    durable: usize,
}

impl Machine {
    pub fn index(&self) -> u64 {
        self.entries.last().map_or(0, |entry| entry.index)
    }

    pub fn values(&self) -> impl Iterator<Item = u64> {
        self.entries
            .iter()
            .filter_map(|entry| value_of(&entry.data))
    }
}

pub fn value_of(data: &Bytes) -> Option<u64> {
    data.as_ref().try_into().ok().map(u64::from_be_bytes)
}

/// A client that waits for its value to be applied.
pub struct Waiting {
    pub group: GroupId,
    pub term: u64,
    pub index: u64,
    pub value: u64,
    /// The highest index that anybody had been told of when the value was proposed.
    pub after: u64,
}

pub struct Node {
    pub id: NodeId,
    pub disk: Arc<SimulatedDisk>,
    /// Absent while the node is down.
    pub replicas: Option<Replicas>,
    pub machines: BTreeMap<GroupId, Machine>,
    pub roles: BTreeMap<GroupId, Role>,
    pub waiting: Vec<Waiting>,
    /// Neither hears nor ticks before this moment.
    pub paused_until: u64,
}

impl Node {
    pub fn new(id: NodeId, lies: bool) -> Self {
        Self {
            id,
            disk: Arc::new(SimulatedDisk::new(lies)),
            replicas: None,
            machines: BTreeMap::new(),
            roles: BTreeMap::new(),
            waiting: Vec::new(),
            paused_until: 0,
        }
    }

    pub fn start(&mut self, groups: &[GroupId], voters: &[NodeId], seed: u64) {
        let mut replicas = Replicas::new(self.id, seed, self.disk.clone());
        for group in groups {
            let applied = self.machines.entry(*group).or_default().index();
            replicas
                .add(*group, voters, applied)
                .expect("the log fits to the state machine");
        }
        self.replicas = Some(replicas);
    }

    pub fn crash(&mut self, rng: &mut StdRng) {
        self.replicas = None;
        self.roles.clear();
        // Whoever waited does not know what became of the value.
        self.waiting.clear();
        self.disk.crash(rng.random_range(0..=self.disk.unsynced()));
        for machine in self.machines.values_mut() {
            let survivors = rng.random_range(machine.durable..=machine.entries.len());
            machine.entries.truncate(survivors);
            machine.durable = survivors;
        }
    }

    /// Makes the state machine of a group durable, and gives its log free up to there.
    pub fn checkpoint(&mut self, group: GroupId) {
        if let Some(replicas) = &mut self.replicas
            && let Some(machine) = self.machines.get_mut(&group)
        {
            machine.durable = machine.entries.len();
            replicas.release(group, machine.index());
        }
    }
}
