//! The world of a simulation: nodes, their network, and what happens in each moment.

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{DefaultHasher, Hash as _},
};

use bytes::Bytes;
use raft::eraftpb::MessageType;
use rand::{Rng as _, SeedableRng as _, rngs::StdRng};

use super::{
    Broken,
    expiry::Expiry,
    network::{Arrived, Network, Weather},
    node::{Fetch, Node, Waiting, Watch, value_of},
    readers::{Readers, grains},
    sessions::{CLIENTS, Sessions},
    splits::{PARENT, Splitting, splits},
};
use crate::cluster::{
    GroupId, NodeId,
    raft::{
        group::{Committed, Role},
        log_disk::InitialState,
        planner::TargetConfig,
        read_index::{self, ReadIndex},
        replicas::Round,
        snapshot_meta::SnapshotData,
    },
};

/// Moments with faults.
pub const STORM: u64 = 6_000;
pub const NODES: NodeId = 5;
/// Moments between two messages with which a node sends its time to all others.
pub const TELL: u64 = 100;
/// Moments after which a node withdraws its snapshots, approximately.
pub const SNAPSHOT_LIFE: u64 = 400;
/// Milliseconds that a value lives at most.
pub const LIFE_MAX: i64 = 10_000;
/// Moments between two ticks.
pub const TICK: u64 = 10;
pub const GROUPS: [GroupId; 2] = [
    GroupId::META,
    GroupId {
        container: 1 << 32 | 1,
        range: 0,
    },
];

pub struct Simulation {
    pub broken: Broken,
    pub rng: StdRng,
    pub now: u64,
    pub nodes: Vec<Node>,
    /// The target configuration of each group.
    pub targets: BTreeMap<GroupId, TargetConfig>,
    pub network: Network,
    /// What any node has applied at an index: all must apply the same.
    pub history: BTreeMap<(GroupId, u64), (u64, Bytes)>,
    pub leaders: BTreeMap<(GroupId, u64), NodeId>,
    pub acknowledged: BTreeMap<(GroupId, u64), u64>,
    pub readers: Readers,
    pub sessions: Sessions,
    pub expiry: Expiry,
    /// The latest term and time that a leader has used.
    pub judged: BTreeMap<GroupId, (u64, i64)>,
    pub judgements: u64,
    /// The latest term of each group.
    pub terms: BTreeMap<GroupId, u64>,
    /// Broken connections: when they are noticed, by which node, to which node.
    pub breaks: BTreeSet<(u64, NodeId, NodeId)>,
    pub proposed: u64,
    pub crashes: u64,
    pub wipes: u64,
    pub moves: u64,
    pub snapshots: u64,
    pub installed: u64,
    pub splitting: Splitting,
    pub trace: DefaultHasher,
}

impl Simulation {
    pub fn new(seed: u64, broken: Broken) -> Self {
        let mut rng = StdRng::seed_from_u64(seed);
        let voters: Vec<NodeId> = (1..=if rng.random_bool(0.3) { 5 } else { 3 }).collect();
        let begin = |id| match voters.contains(&id) {
            true => InitialState::Bootstrap(voters.clone()),
            false => InitialState::Uninitialized,
        };
        let weather = Weather {
            lost_percent: rng.random_range(0..15),
            doubled_percent: rng.random_range(0..15),
            delay_max: rng.random_range(1..25),
        };
        let skew_max = if rng.random_bool(0.7) { 3_000 } else { 0 };
        let nodes = (1..=NODES).map(|id| {
            let skew = rng.random_range(-skew_max..=skew_max);
            Node::new(id, begin(id), broken.lying_disks, Watch::new(id, skew))
        });
        let nodes = nodes.collect();
        let mut simulation = Self {
            broken,
            now: 0,
            nodes,
            targets: GROUPS
                .map(|group| {
                    let voters = voters.clone();
                    let target = TargetConfig {
                        voters,
                        ..TargetConfig::default()
                    };
                    (group, target)
                })
                .into(),
            network: Network::new(weather),
            history: BTreeMap::new(),
            leaders: BTreeMap::new(),
            acknowledged: BTreeMap::new(),
            readers: Readers::new(broken.hasty_times),
            sessions: Sessions::default(),
            expiry: Expiry::default(),
            judged: BTreeMap::new(),
            judgements: 0,
            terms: BTreeMap::new(),
            breaks: BTreeSet::new(),
            proposed: 0,
            crashes: 0,
            wipes: 0,
            moves: 0,
            snapshots: 0,
            installed: 0,
            splitting: Splitting::from(rng.random_range(STORM / 4..STORM * 3 / 4)),
            trace: DefaultHasher::new(),
            rng,
        };
        for at in 0..simulation.nodes.len() {
            simulation.start(at);
        }
        simulation
    }

    pub fn start(&mut self, at: usize) {
        self.nodes[at].start();
    }

    pub fn moment(&mut self) -> Result<(), String> {
        self.now += 1;
        for arrived in self.network.arrived(self.now) {
            self.deliver(arrived);
        }
        for at in 0..self.nodes.len() {
            self.finish_fetches(at);
        }
        while let Some(&(when, by, gone)) = self.breaks.first()
            && when <= self.now
        {
            self.breaks.pop_first();
            if let Some(replicas) = &mut self.nodes[(by - 1) as usize].replicas {
                replicas.disconnected(gone);
            }
        }
        self.advance_split();
        if self.now < STORM && self.rng.random_bool(0.2) {
            self.propose();
        }
        if self.now < STORM && self.rng.random_bool(0.1) {
            self.ask();
        }
        if self.now < STORM && self.rng.random_bool(0.1) {
            self.read_in_session()?;
        }
        for at in 0..self.nodes.len() {
            // Ticks of different nodes fall on different moments, and some are late.
            let due = (self.now + at as u64).is_multiple_of(TICK) && !self.rng.random_bool(0.05);
            self.work(at, due)?;
            if self.rng.random_bool(0.1) {
                self.judge(at)?;
            }
            if self.rng.random_bool(0.02) {
                self.purge(at);
            }
        }
        Ok(())
    }

    /// A message arrives at a node. An announced snapshot is fetched before its group hears of it.
    fn deliver(&mut self, arrived: Arrived) {
        let at = (arrived.to - 1) as usize;
        let node = &mut self.nodes[at];
        if node.paused_until > self.now {
            return;
        }
        let Some(replicas) = &mut node.replicas else {
            return;
        };
        node.watch.receive(arrived.from, arrived.sync, self.now);
        let Some((group, mut message)) = arrived.message else {
            return;
        };
        let is_snapshot = message.get_msg_type() == MessageType::MsgSnapshot;
        let replica = replicas.group(group);
        if !is_snapshot || replica.is_none_or(|replica| !replica.needs_snapshot(&message)) {
            let time = || node.watch.time(group, self.now).unwrap_or(i64::MIN);
            read_index::stamp(&mut message, time);
            return replicas.step(group, message);
        }
        let known = node.fetches.iter().find(|fetch| fetch.group == group);
        let is_known = known.map(|fetch| {
            let known = &fetch.announced;
            known.from == message.from && known.get_snapshot().data == message.get_snapshot().data
        });
        match is_known {
            Some(true) => {}
            Some(false) => replicas.decline_snapshot(group, &message),
            None => node.fetches.push(Fetch {
                until: self.now + self.rng.random_range(1..100),
                group,
                announced: message,
            }),
        }
    }

    /// Purges what has expired on a node.
    pub fn purge(&mut self, at: usize) {
        let node = &mut self.nodes[at];
        if node.paused_until > self.now || node.replicas.is_none() {
            return;
        }
        for (group, machine) in &mut node.machines {
            let time = match self.broken.hasty_purges {
                true => Some(node.watch.wall(self.now)),
                false => node.watch.time(*group, self.now),
            };
            if let Some(time) = time {
                self.expiry.purge(machine, time);
            }
        }
    }

    /// Tells the groups of a node which snapshots were fetched, or could not be.
    pub fn finish_fetches(&mut self, at: usize) {
        if self.nodes[at].paused_until > self.now {
            return;
        }
        let now = self.now;
        let due: Vec<Fetch> = self.nodes[at]
            .fetches
            .extract_if(.., |fetch| fetch.until <= now)
            .collect();
        for Fetch {
            group, announced, ..
        } in due
        {
            let snapshot = announced.get_snapshot();
            let SnapshotData { id, .. } = rmp_serde::from_slice(&snapshot.data).unwrap();
            let index = snapshot.get_metadata().index;
            let source = &self.nodes[(announced.from - 1) as usize];
            let reached = !self.network.cut.contains(&(announced.from, announced.to));
            let copy = source
                .snapshots
                .get(&(group, id))
                .filter(|_| reached)
                .cloned();
            let node = &mut self.nodes[at];
            let Some(replicas) = &mut node.replicas else {
                continue;
            };
            match copy {
                Some(copy) => {
                    node.fetched.insert(group, (index, copy));
                    replicas.step(group, announced);
                }
                None => replicas.decline_snapshot(group, &announced),
            }
        }
    }

    pub fn propose(&mut self) {
        let at = self.rng.random_range(0..self.nodes.len());
        let group = self.any_group();
        if !self.may_decide(at, group) {
            return;
        }
        let node = &mut self.nodes[at];
        let decides = node.decides(group);
        let (Some(replicas), Some(term)) = (&mut node.replicas, decides) else {
            return;
        };
        if node.paused_until > self.now {
            return;
        }
        self.proposed += 1;
        let value = self.proposed;
        let data = Bytes::copy_from_slice(&value.to_be_bytes());
        if let Ok(index) = replicas.propose(group, term, data) {
            let told = self.acknowledged.range((group, 0)..=(group, u64::MAX));
            self.sessions.propose(group, value);
            let time = node.watch.time(group, self.now);
            if let Some(time) = time {
                let lives = self.rng.random_range(0..LIFE_MAX);
                self.expiry.propose(value, time + lives);
            }
            node.waiting.push(Waiting {
                group,
                term,
                index,
                value,
                after: told.map(|((_, index), _)| *index).next_back().unwrap_or(0),
                judged: grains(time.unwrap_or(i64::MIN)),
                not_before: self.readers.told_time(group),
            });
        }
    }

    /// Begins a strong read, at any node.
    pub fn ask(&mut self) {
        let at = self.rng.random_range(0..self.nodes.len());
        let group = self.any_group();
        self.ask_at(at, group);
    }

    /// Begins a strong read. Returns the id of its request, if the node is up.
    pub fn ask_at(&mut self, at: usize, group: GroupId) -> Option<u64> {
        let node = &mut self.nodes[at];
        let (Some(replicas), false) = (&mut node.replicas, node.paused_until > self.now) else {
            return None;
        };
        let told = self.acknowledged.range((group, 0)..=(group, u64::MAX));
        let told = told.map(|((_, index), _)| *index).next_back().unwrap_or(0);
        let request_id = self.readers.begin(group, node.id, told);
        let time = node.watch.time(group, self.now).unwrap_or(i64::MIN);
        if !self.broken.hasty_reads {
            replicas.request_read_index(group, request_id, time);
        } else if node.roles.get(&group).is_some_and(|role| role.is_leader) {
            let index = replicas
                .group(group)
                .map_or(0, |group| group.commit_index());
            let answer = ReadIndex {
                request_id,
                index,
                time,
                safe_time: time,
            };
            self.readers.may_read(group, node.id, answer);
        }
        Some(request_id)
    }

    /// Reads in a session, at any node.
    pub fn read_in_session(&mut self) -> Result<(), String> {
        let at = self.rng.random_range(0..self.nodes.len());
        let (group, client) = (self.any_group(), self.rng.random_range(0..CLIENTS));
        let node = &self.nodes[at];
        let answers = node.replicas.is_some() && node.paused_until <= self.now;
        match node.machines.get(&group).filter(|_| answers) {
            Some(machine) => {
                let careless = self.broken.careless_sessions;
                let place = (node.id, machine);
                self.sessions.read(client, group, place, careless)
            }
            None => Ok(()),
        }
    }

    /// Runs one node.
    pub fn work(&mut self, at: usize, tick: bool) -> Result<(), String> {
        let Self {
            nodes,
            network,
            rng,
            now,
            ..
        } = self;
        let node = &mut nodes[at];
        if node.paused_until > *now {
            return Ok(());
        }
        let Some(replicas) = &mut node.replicas else {
            return Ok(());
        };
        if tick {
            replicas.tick();
            node.reconcile(&self.targets);
            if (*now + at as u64).is_multiple_of(TELL) {
                for other in (1..=NODES).filter(|other| *other != node.id) {
                    let sync = node.watch.outgoing(other, *now);
                    network.tell(*now, node.id, other, sync, rng);
                }
            }
            if (*now + at as u64).is_multiple_of(SNAPSHOT_LIFE) {
                node.withdraw_snapshots();
            }
        }
        let Some(replicas) = node.replicas.as_mut().filter(|all| all.is_busy()) else {
            return Ok(());
        };
        node.watch.follow(replicas);
        let round = replicas.round(&mut network.outgoing(&mut node.watch, *now, rng));
        let Ok(round) = round else {
            self.crash(at);
            return Ok(());
        };
        self.follow(at, round)
    }

    /// Makes a node go on with what its round has produced.
    fn follow(&mut self, at: usize, round: Round) -> Result<(), String> {
        self.note_roles(at, round.roles)?;
        for (group, read_index) in round.read_indexes {
            let id = self.nodes[at].id;
            self.readers.may_read(group, id, read_index);
        }
        for (group, index) in round.restored {
            // The log goes on from the snapshot. Whether the state machine does so now or at the
            // next start must make no difference.
            if self.now < STORM && self.rng.random_bool(0.2) {
                self.crash(at);
                return Ok(());
            }
            self.installed += 1;
            self.nodes[at].install(group, index);
            if group == PARENT && self.nodes[at].is_split() && !self.nodes[at].knows_parts {
                self.part(at);
                if self.nodes[at].replicas.is_none() {
                    return Ok(());
                }
            }
        }
        for group in round.snapshots_wanted {
            self.snapshots += 1;
            self.nodes[at].make_snapshot(group, self.snapshots);
        }
        for (group, entries) in round.committed {
            for entry in entries {
                self.apply(at, group, entry)?;
                if self.nodes[at].replicas.is_none() {
                    return Ok(());
                }
            }
        }
        self.answer_readers(at)
    }

    fn note_roles(&mut self, at: usize, roles: Vec<(GroupId, Role)>) -> Result<(), String> {
        for (group, role) in roles {
            (self.now, at, role.term, role.leader, role.is_leader).hash(&mut self.trace);
            let newest = self.terms.entry(group).or_default();
            *newest = role.term.max(*newest);
            let node = &mut self.nodes[at];
            node.roles.insert(group, role);
            node.waiting.retain(|waiting| {
                waiting.group != group || role.is_leader && waiting.term == role.term
            });
            if role.is_leader {
                let known = *self.leaders.entry((group, role.term)).or_insert(node.id);
                if known != node.id {
                    return Err(format!(
                        "{known} and {} both lead {group} in term {}",
                        node.id, role.term
                    ));
                }
            }
        }
        Ok(())
    }

    fn answer_readers(&mut self, at: usize) -> Result<(), String> {
        for group in self.groups() {
            let node = &self.nodes[at];
            let applied = node
                .machines
                .get(&group)
                .map_or(0, |machine| machine.index());
            let time = node.watch.time(group, self.now);
            let again = self.readers.read((group, node.id), applied, time)?;
            if let Some(replicas) = &mut self.nodes[at].replicas {
                for request_id in again {
                    let time = time.unwrap_or(i64::MIN);
                    replicas.request_read_index(group, request_id, time);
                }
            }
        }
        Ok(())
    }

    pub fn apply(&mut self, at: usize, group: GroupId, entry: Committed) -> Result<(), String> {
        let node = &mut self.nodes[at];
        (self.now, at, entry.index, entry.term).hash(&mut self.trace);
        let machine = node.machines.entry(group).or_default();
        if entry.index != machine.index() + 1 {
            return Err(format!(
                "node {} applies {} of {group} after {}",
                node.id,
                entry.index,
                machine.index()
            ));
        }
        let fact = (entry.term, entry.data.clone());
        let known = self
            .history
            .entry((group, entry.index))
            .or_insert_with(|| fact.clone());
        if *known != fact {
            return Err(format!(
                "node {} applies {:?} at {} of {group}, another applied {:?}",
                node.id,
                value_of(&fact.1),
                entry.index,
                value_of(&known.1)
            ));
        }
        if machine.is_split() && value_of(&entry.data).is_some() {
            return Err(format!(
                "node {} applies {} of {group}, which was split before",
                node.id, entry.index
            ));
        }
        let index = entry.index;
        let splits = splits(&entry.data);
        machine.entries.push(entry);
        if let Some(replicas) = &mut node.replicas {
            replicas.applied(group, index);
        }
        let answered = node.waiting.extract_if(.., |waiting| {
            waiting.group == group && waiting.index == index
        });
        for waiting in answered {
            if waiting.term != fact.0 {
                continue;
            }
            if index <= waiting.after {
                return Err(format!(
                    "{} was proposed after {} was acknowledged, and stands before it",
                    waiting.value, waiting.after
                ));
            }
            if waiting.judged < waiting.not_before {
                return Err(format!(
                    "{} was decided by {}, others were told of {} before",
                    waiting.value, waiting.judged, waiting.not_before
                ));
            }
            self.readers.tell_time(group, waiting.judged);
            self.acknowledged.insert((group, index), waiting.value);
            self.sessions.wrote(group, index, waiting.value)?;
        }
        if splits && !self.nodes[at].knows_parts {
            self.part(at);
        }
        Ok(())
    }
}
