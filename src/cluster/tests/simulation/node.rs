//! A simulated node: its groups, and a state machine for each that remembers what was applied.

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use rand::{Rng as _, rngs::StdRng};

use super::disk::SimulatedDisk;
use crate::cluster::{
    GroupId, NodeId,
    group::{Committed, Role},
    replicas::Replicas,
    shared_time::{SharedTime, Times},
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

/// Milliseconds of a moment.
const MOMENT: i64 = 5;

/// A node's clocks, and what it makes of those of others.
pub struct Watch {
    time: SharedTime,
    /// By how much its wall clock is wrong.
    pub skew: i64,
    /// Its monotonic clock began some time.
    start: i64,
}

impl Watch {
    pub fn new(nodes: usize, id: NodeId, skew: i64) -> Self {
        Self {
            time: SharedTime::new(nodes),
            skew,
            start: id as i64 * 1_000_003,
        }
    }

    fn monotonic(&self, now: u64) -> i64 {
        self.start + now as i64 * MOMENT
    }

    pub fn wall(&self, now: u64) -> i64 {
        now as i64 * MOMENT + self.skew
    }

    pub fn tell(&mut self, to: NodeId, now: u64) -> Times {
        self.time.tell(to, self.monotonic(now), self.wall(now))
    }

    pub fn hear(&mut self, from: NodeId, times: Times, now: u64) {
        self.time.hear(from, times, self.monotonic(now));
    }

    /// What the node takes for the time.
    pub fn time(&self, now: u64) -> Option<i64> {
        self.time
            .offset()
            .map(|offset| self.monotonic(now) + offset)
    }
}

pub struct Node {
    pub id: NodeId,
    /// What it has heard of the time outlasts a crash: the clock's file keeps it.
    pub watch: Watch,
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
    pub fn new(id: NodeId, lies: bool, watch: Watch) -> Self {
        Self {
            id,
            watch,
            disk: Arc::new(SimulatedDisk::new(lies)),
            replicas: None,
            machines: BTreeMap::new(),
            roles: BTreeMap::new(),
            waiting: Vec::new(),
            paused_until: 0,
        }
    }

    pub fn start(&mut self, groups: &[GroupId], voters: &[NodeId]) {
        let mut replicas = Replicas::new(self.id, self.disk.clone());
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

    /// The term in which the node leads a group and has applied all that earlier leaders have left.
    pub fn decides(&self, group: GroupId) -> Option<u64> {
        let term = self.roles.get(&group).filter(|role| role.leads)?.term;
        let last = self.machines.get(&group)?.entries.last()?.term;
        (last == term).then_some(term)
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
