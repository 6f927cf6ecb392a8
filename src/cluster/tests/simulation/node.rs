//! A simulated node: its groups, and for each a state machine that records what was applied.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use bytes::Bytes;
use raft::eraftpb::Message;
use rand::{Rng as _, rngs::StdRng};

use super::{
    disk::SimulatedDisk,
    splits::{PARENT, PARTS, splits},
    world::GROUPS,
};
use crate::{
    cluster::{
        GroupId, NodeId,
        raft::{
            group::{Committed, Role},
            log_disk::{
                INITIAL_POSITION, InitialState, LogBatch, LogDisk as _, LogRecord, LogRetention,
            },
            planner::TargetConfig,
            replicas::Replicas,
        },
        time::shared_time::{SharedTime, TimeSync},
    },
    store::{EngineError, engine::Durability},
};

/// So little that nodes which are away for a while need a snapshot.
const RETENTION: LogRetention = LogRetention {
    entries_max: 20,
    bytes_max: u64::MAX,
};

/// What was applied to a group, in order.
#[derive(Clone, Default)]
pub struct Machine {
    /// The values that a child has from its parent.
    inherited: Vec<u64>,
    /// The initial state of its children, as the entry that splits it says.
    pub cut: Option<InitialState>,
    /// The initial state of a child that was made here.
    origin: Option<InitialState>,
    pub entries: Vec<Committed>,
    /// Values that have expired and are purged.
    pub purged: BTreeSet<u64>,
    /// So many entries survive a crash for sure.
    durable: usize,
}

impl Machine {
    /// Returns the last applied entry.
    pub fn applied(&self) -> u64 {
        self.entries.last().map_or(0, |entry| entry.index)
    }

    /// Returns its position in the log; the initial one if it has applied nothing.
    pub fn index(&self) -> u64 {
        self.applied().max(INITIAL_POSITION.index)
    }

    /// Returns its index as clients see it. An uninitialized one has nothing to show, and is behind
    /// every child that was made here.
    pub fn shows(&self) -> u64 {
        let is_uninitialized = self.entries.is_empty() && self.origin.is_none();
        if is_uninitialized { 0 } else { self.index() }
    }

    pub fn values(&self) -> impl Iterator<Item = u64> {
        let applied = self.entries.iter();
        let applied = applied.filter_map(|entry| value_of(&entry.data));
        self.inherited.iter().copied().chain(applied)
    }

    /// Returns how its group begins if it has no log. A child that was made here and has applied
    /// nothing is bootstrapped.
    fn beginning(&self, otherwise: &InitialState) -> InitialState {
        let origin = self.origin.as_ref().filter(|_| self.entries.is_empty());
        origin.unwrap_or(otherwise).clone()
    }

    pub fn is_split(&self) -> bool {
        self.entries.iter().any(|entry| splits(&entry.data))
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
    /// The highest index that was acknowledged when the value was proposed.
    pub after: u64,
    /// The time by which it was decided, and the latest one of anything that was acknowledged
    /// before.
    pub judged: i64,
    pub not_before: i64,
}

/// A snapshot that was announced, and when it will have been fetched.
pub struct Fetch {
    pub until: u64,
    pub group: GroupId,
    pub announced: Message,
}

/// Milliseconds of a moment.
const MOMENT: i64 = 5;

/// A node's clocks, and the time that it agrees on with others.
pub struct Watch {
    node: NodeId,
    time: SharedTime,
    /// By how much its wall clock is wrong.
    pub skew: i64,
    /// The start of its monotonic clock.
    start: i64,
}

impl Watch {
    pub fn new(node: NodeId, skew: i64) -> Self {
        Self {
            node,
            time: SharedTime::new(node, None),
            skew,
            start: node as i64 * 1_000_003,
        }
    }

    /// Restarts the process: only the floor was persisted.
    fn restart(&mut self) {
        self.time = SharedTime::new(self.node, self.time.floor());
    }

    /// Notes the voters of the node's groups.
    pub fn follow(&mut self, replicas: &Replicas) {
        self.time.set_groups(replicas.voters());
    }

    fn monotonic(&self, now: u64) -> i64 {
        self.start + now as i64 * MOMENT
    }

    pub fn wall(&self, now: u64) -> i64 {
        now as i64 * MOMENT + self.skew
    }

    pub fn outgoing(&mut self, to: NodeId, now: u64) -> TimeSync {
        self.time.outgoing(to, self.monotonic(now), self.wall(now))
    }

    pub fn receive(&mut self, from: NodeId, sync: TimeSync, now: u64) {
        self.time.receive(from, sync, self.monotonic(now));
    }

    /// Returns the time of a group on this node.
    pub fn time(&self, group: GroupId, now: u64) -> Option<i64> {
        let offset = self.time.offset(group)?;
        Some(self.monotonic(now) + offset)
    }
}

pub struct Node {
    pub id: NodeId,
    lies: bool,
    pub initial: InitialState,
    pub watch: Watch,
    pub disk: Arc<SimulatedDisk>,
    /// Absent while the node is down.
    pub replicas: Option<Replicas>,
    pub machines: BTreeMap<GroupId, Machine>,
    pub roles: BTreeMap<GroupId, Role>,
    pub waiting: Vec<Waiting>,
    /// It neither receives nor ticks before this moment.
    pub paused_until: u64,
    /// Snapshots that followers may fetch.
    pub snapshots: BTreeMap<(GroupId, u64), Machine>,
    pub fetches: Vec<Fetch>,
    /// Snapshots that were fetched, durably, by their index.
    pub fetched: BTreeMap<GroupId, (u64, Machine)>,
    /// The term in which it has proposed to split.
    pub parting: Option<u64>,
    /// When it learns that the catalog names the children, and whether it has.
    pub hears_at: u64,
    pub knows_parts: bool,
}

/// Opens a group. Returns `false` if the disk has failed.
fn add(replicas: &mut Replicas, group: GroupId, begin: &InitialState, applied: u64) -> bool {
    match replicas.add(group, begin, applied) {
        Ok(()) => true,
        Err(EngineError::Io(_)) => false,
        Err(failure) => panic!("the log does not fit to the state machine: {failure}"),
    }
}

impl Node {
    pub fn new(id: NodeId, initial: InitialState, lies: bool, watch: Watch) -> Self {
        Self {
            id,
            lies,
            initial,
            watch,
            disk: Arc::new(SimulatedDisk::new(lies)),
            replicas: None,
            machines: BTreeMap::new(),
            roles: BTreeMap::new(),
            waiting: Vec::new(),
            paused_until: 0,
            snapshots: BTreeMap::new(),
            fetches: Vec::new(),
            fetched: BTreeMap::new(),
            parting: None,
            hears_at: 0,
            knows_parts: false,
        }
    }

    pub fn is_split(&self) -> bool {
        let parent = self.machines.get(&PARENT);
        parent.is_some_and(Machine::is_split)
    }

    /// Makes a child, durably, unless it is there.
    pub fn make_part(&mut self, part: GroupId) {
        let Some(parent) = self.machines.get(&PARENT) else {
            return;
        };
        let made = Machine {
            inherited: parent.values().collect(),
            purged: parent.purged.clone(),
            origin: parent.cut.clone(),
            ..Machine::default()
        };
        self.machines.entry(part).or_insert(made);
    }

    /// Opens the groups of the children. Returns `false` if the disk fails.
    pub fn open_parts(&mut self) -> bool {
        PARTS.into_iter().all(|part| {
            let machine = self.machines.entry(part).or_default();
            let (applied, begin) = (
                machine.applied(),
                machine.beginning(&InitialState::Uninitialized),
            );
            let replicas = self.replicas.as_mut();
            let replicas = replicas.filter(|replicas| replicas.group(part).is_none());
            replicas.is_none_or(|replicas| add(replicas, part, &begin, applied))
        })
    }

    /// Opens its groups: those of the catalog, as the node knows it, and the children that it has
    /// made ahead of it.
    pub fn start(&mut self) {
        let mut groups = GROUPS.to_vec();
        if self.knows_parts {
            groups = vec![GROUPS[0], PARTS[0], PARTS[1]];
        } else if self.is_split() {
            PARTS.into_iter().for_each(|part| self.make_part(part));
            groups.extend(PARTS);
        }
        let mut replicas = Replicas::new(self.id, self.disk.clone()).with_retention(RETENTION);
        for group in &groups {
            self.take_fetched(*group);
            let machine = self.machines.entry(*group).or_default();
            let begin = match PARTS.contains(group) {
                true => machine.beginning(&InitialState::Uninitialized),
                false => self.initial.clone(),
            };
            if !add(&mut replicas, *group, &begin, machine.applied()) {
                return;
            }
        }
        self.replicas = Some(replicas);
    }

    /// Installs a snapshot that the log has accepted before a crash and the state machine has not.
    fn take_fetched(&mut self, group: GroupId) {
        let kept = self.disk.load(group).unwrap().unwrap_or_default();
        let begins = kept.truncated.index;
        let machine = self.machines.entry(group).or_default();
        if begins > machine.index() {
            let (index, fetched) = self.fetched.remove(&group).expect("a snapshot was fetched");
            assert_eq!(index, begins, "another snapshot than the log goes on from");
            *machine = fetched;
        }
    }

    /// Installs a snapshot that was fetched.
    pub fn install(&mut self, group: GroupId, index: u64) {
        let (of, fetched) = self.fetched.remove(&group).expect("a snapshot was fetched");
        assert_eq!(of, index, "another snapshot than the log goes on from");
        self.machines.insert(group, fetched);
        if let Some(replicas) = &mut self.replicas {
            replicas.applied(group, index);
        }
    }

    /// Makes a snapshot of a state machine, which followers may fetch.
    pub fn make_snapshot(&mut self, group: GroupId, id: u64) {
        let Some(machine) = self.machines.get(&group) else {
            return;
        };
        let mut snapshot = machine.clone();
        snapshot.durable = snapshot.entries.len();
        if machine.applied() > 0
            && let Some(replicas) = &mut self.replicas
        {
            replicas.set_snapshot(group, machine.applied(), id);
            self.snapshots.insert((group, id), snapshot);
        }
    }

    pub fn withdraw_snapshots(&mut self) {
        for (group, _) in std::mem::take(&mut self.snapshots).into_keys() {
            if let Some(replicas) = &mut self.replicas {
                replicas.withdraw_snapshot(group);
            }
        }
    }

    pub fn reconcile(&mut self, targets: &BTreeMap<GroupId, TargetConfig>) {
        if let Some(replicas) = &mut self.replicas {
            for (group, target) in targets {
                replicas.reconcile(*group, target);
            }
        }
    }

    pub fn crash(&mut self, rng: &mut StdRng) {
        self.replicas = None;
        self.watch.restart();
        self.roles.clear();
        self.snapshots.clear();
        self.fetches.clear();
        // The outcome is unknown to the waiting clients.
        self.waiting.clear();
        self.disk.crash(rng.random_range(0..=self.disk.unsynced()));
        for machine in self.machines.values_mut() {
            let survivors = rng.random_range(machine.durable..=machine.entries.len());
            machine.entries.truncate(survivors);
            machine.durable = survivors;
            let values: BTreeSet<u64> = machine.values().collect();
            machine.purged.retain(|value| values.contains(value));
        }
    }

    /// Returns the term in which the node leads a group, if it has applied all entries of earlier
    /// leaders.
    pub fn decides(&self, group: GroupId) -> Option<u64> {
        let term = self.roles.get(&group).filter(|role| role.is_leader)?.term;
        let last = self.machines.get(&group)?.entries.last()?.term;
        (last == term).then_some(term)
    }

    /// Loses its disk, and with it the knowledge that it had data.
    pub fn wipe(&mut self) {
        let watch = Watch::new(self.id, self.watch.skew);
        *self = Self::new(self.id, InitialState::Uninitialized, self.lies, watch);
    }

    /// Removes its replica of a group; a later one is uninitialized. Returns `false` if the disk
    /// fails.
    pub fn remove(&mut self, group: GroupId) -> bool {
        let Some(replicas) = &mut self.replicas else {
            return true;
        };
        let records = vec![(group, LogRecord::Remove)];
        // A removed replica that comes back would be another fault than those meant here.
        if self
            .disk
            .write(LogBatch { records }, Durability::Synced)
            .is_err()
        {
            return false;
        }
        self.initial = InitialState::Uninitialized;
        self.machines.remove(&group);
        self.roles.remove(&group);
        self.fetched.remove(&group);
        self.fetches.retain(|fetch| fetch.group != group);
        self.waiting.retain(|waiting| waiting.group != group);
        replicas.remove(group);
        self.machines.entry(group).or_default();
        replicas.add(group, &InitialState::Uninitialized, 0).is_ok()
    }

    /// Makes the state machine of a group durable, and releases its log up to there.
    pub fn checkpoint(&mut self, group: GroupId) {
        if let Some(replicas) = &mut self.replicas
            && let Some(machine) = self.machines.get_mut(&group)
        {
            machine.durable = machine.entries.len();
            replicas.release(group, machine.applied());
        }
    }
}
