//! A whole cluster in one thread, from one seed: what one run does, every run with that seed does.
//!
//! `BOLIDE_SIMULATION_SEEDS=5000 cargo test --release --lib cluster::tests::simulation` runs more seeds than usual, `BOLIDE_SIMULATION_SEED=17` one alone.

mod disk;
mod network;
mod node;

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{DefaultHasher, Hash as _, Hasher as _},
    panic::{AssertUnwindSafe, catch_unwind},
};

use bytes::Bytes;
use network::{Network, Weather};
use node::{Node, Waiting, value_of};
use rand::{Rng as _, SeedableRng as _, rngs::StdRng};

use super::super::{GroupId, NodeId};

const SEEDS_USUALLY: u64 = 20;
/// Moments with faults.
const STORM: u64 = 6_000;
/// Moments within which a healed cluster must agree.
const CALM_MAX: u64 = 6_000;
/// Moments between two ticks.
const TICK: u64 = 10;
const GROUPS: [GroupId; 2] = [
    GroupId::META,
    GroupId {
        container: 1 << 32 | 1,
        range: 0,
    },
];

struct Simulation {
    seed: u64,
    rng: StdRng,
    now: u64,
    nodes: Vec<Node>,
    voters: Vec<NodeId>,
    network: Network,
    /// What anybody has applied at an index: everybody must apply the same.
    history: BTreeMap<(GroupId, u64), (u64, Bytes)>,
    leaders: BTreeMap<(GroupId, u64), NodeId>,
    acknowledged: BTreeMap<(GroupId, u64), u64>,
    proposed: u64,
    crashes: u64,
    trace: DefaultHasher,
}

/// What a run did, for those who want to see that it did something.
#[derive(Debug, PartialEq, Eq)]
struct Summary {
    acknowledged: usize,
    crashes: u64,
    terms: u64,
    trace: u64,
}

type Verdict = Result<Summary, String>;

impl Simulation {
    fn new(seed: u64, lies: bool) -> Self {
        let mut rng = StdRng::seed_from_u64(seed);
        let voters: Vec<NodeId> = (1..=if rng.random_bool(0.3) { 5 } else { 3 }).collect();
        let weather = Weather {
            lost_percent: rng.random_range(0..15),
            doubled_percent: rng.random_range(0..15),
            delay_max: rng.random_range(1..25),
        };
        let mut simulation = Self {
            seed,
            now: 0,
            nodes: voters.iter().map(|id| Node::new(*id, lies)).collect(),
            voters,
            network: Network::new(weather),
            history: BTreeMap::new(),
            leaders: BTreeMap::new(),
            acknowledged: BTreeMap::new(),
            proposed: 0,
            crashes: 0,
            trace: DefaultHasher::new(),
            rng,
        };
        for at in 0..simulation.nodes.len() {
            simulation.start(at);
        }
        simulation
    }

    fn start(&mut self, at: usize) {
        let seed = self.seed ^ self.crashes << 32;
        self.nodes[at].start(&GROUPS, &self.voters, seed);
    }

    fn run(mut self) -> Verdict {
        while self.now < STORM {
            self.trouble();
            self.moment()?;
        }
        self.heal();
        let deadline = self.now + CALM_MAX;
        while !self.agree() {
            if self.now > deadline {
                return Err(format!(
                    "no agreement {CALM_MAX} moments after the last fault"
                ));
            }
            self.moment()?;
        }
        self.check_everything()?;
        Ok(Summary {
            acknowledged: self.acknowledged.len(),
            crashes: self.crashes,
            terms: self
                .leaders
                .keys()
                .map(|(_, term)| *term)
                .max()
                .unwrap_or(0),
            trace: self.trace.finish(),
        })
    }

    /// Faults, each seldom.
    fn trouble(&mut self) {
        let at = self.rng.random_range(0..self.nodes.len());
        let (id, other) = (self.nodes[at].id, *self.pick_voter());
        match self.rng.random_range(0..1_500) {
            0 | 1 => self.crash(at),
            2 => self.nodes[at].disk.fail_after(self.rng.random_range(0..20)),
            3 | 4 => self.nodes[at].paused_until = self.now + self.rng.random_range(10..800),
            5 => {
                self.network.cut.insert((id, other));
            }
            6 => {
                let others = self.voters.iter().filter(|voter| **voter != id);
                let cut = others.flat_map(|voter| [(id, *voter), (*voter, id)]);
                self.network.cut.extend(cut);
            }
            7..=12 => self.network.cut.clear(),
            13..=20 if self.nodes[at].replicas.is_none() => self.start(at),
            21..=30 => {
                let group = GROUPS[self.rng.random_range(0..GROUPS.len())];
                self.nodes[at].checkpoint(group);
            }
            _ => {}
        }
    }

    fn pick_voter(&mut self) -> &NodeId {
        let at = self.rng.random_range(0..self.voters.len());
        &self.voters[at]
    }

    fn crash(&mut self, at: usize) {
        if self.nodes[at].replicas.is_some() {
            self.crashes += 1;
            self.nodes[at].crash(&mut self.rng);
        }
    }

    fn heal(&mut self) {
        self.network.cut.clear();
        self.network.weather = Weather::CALM;
        for at in 0..self.nodes.len() {
            self.nodes[at].paused_until = 0;
            if self.nodes[at].replicas.is_none() {
                self.start(at);
            }
        }
    }

    fn moment(&mut self) -> Result<(), String> {
        self.now += 1;
        for (group, message) in self.network.arrived(self.now) {
            let at = (message.to - 1) as usize;
            let node = &mut self.nodes[at];
            if node.paused_until <= self.now
                && let Some(replicas) = &mut node.replicas
            {
                replicas.step(group, message);
            }
        }
        if self.now < STORM && self.rng.random_bool(0.2) {
            self.propose();
        }
        for at in 0..self.nodes.len() {
            // Ticks of different nodes fall on different moments, and some are late.
            let due = (self.now + at as u64).is_multiple_of(TICK) && !self.rng.random_bool(0.05);
            self.work(at, due)?;
        }
        Ok(())
    }

    fn propose(&mut self) {
        let at = self.rng.random_range(0..self.nodes.len());
        let group = GROUPS[self.rng.random_range(0..GROUPS.len())];
        let node = &mut self.nodes[at];
        let (Some(replicas), Some(role)) = (&mut node.replicas, node.roles.get(&group)) else {
            return;
        };
        if !role.leads || node.paused_until > self.now {
            return;
        }
        self.proposed += 1;
        let value = self.proposed;
        let data = Bytes::copy_from_slice(&value.to_be_bytes());
        if let Ok(index) = replicas.propose(group, role.term, data) {
            let told = self.acknowledged.range((group, 0)..=(group, u64::MAX));
            node.waiting.push(Waiting {
                group,
                term: role.term,
                index,
                value,
                after: told.map(|((_, index), _)| *index).next_back().unwrap_or(0),
            });
        }
    }

    /// Lets one node do what it has to do.
    fn work(&mut self, at: usize, tick: bool) -> Result<(), String> {
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
        }
        if !replicas.is_busy() {
            return Ok(());
        }
        let round = replicas.round(&mut network.outgoing(*now, rng));
        let Ok(round) = round else {
            self.crash(at);
            return Ok(());
        };
        for (group, role) in round.roles {
            (self.now, at, role.term, role.leader, role.leads).hash(&mut self.trace);
            let node = &mut self.nodes[at];
            node.roles.insert(group, role);
            node.waiting.retain(|waiting| {
                waiting.group != group || role.leads && waiting.term == role.term
            });
            if role.leads {
                let known = *self.leaders.entry((group, role.term)).or_insert(node.id);
                if known != node.id {
                    return Err(format!(
                        "{known} and {} both lead {group} in term {}",
                        node.id, role.term
                    ));
                }
            }
        }
        for (group, entries) in round.committed {
            for entry in entries {
                self.apply(at, group, entry)?;
            }
        }
        Ok(())
    }

    fn apply(
        &mut self,
        at: usize,
        group: GroupId,
        entry: crate::cluster::group::Committed,
    ) -> Result<(), String> {
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
        let index = entry.index;
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
            self.acknowledged.insert((group, index), waiting.value);
        }
        Ok(())
    }

    fn agree(&self) -> bool {
        GROUPS.iter().all(|group| {
            let indexes = self.nodes.iter().map(|node| {
                node.machines
                    .get(group)
                    .map_or(0, |machine| machine.index())
            });
            let indexes: BTreeSet<u64> = indexes.collect();
            let led = self.nodes.iter().any(|node| {
                let role = node.roles.get(group);
                // Everything that can be committed is: the leader's own first entry is the last that could wait.
                role.is_some_and(|role| {
                    role.leads
                        && node.machines.get(group).is_some_and(|machine| {
                            machine
                                .entries
                                .last()
                                .is_some_and(|last| last.term == role.term)
                        })
                })
            });
            led && indexes.len() == 1
        })
    }

    fn check_everything(&self) -> Result<(), String> {
        for group in GROUPS {
            let machines = self
                .nodes
                .iter()
                .filter_map(|node| node.machines.get(&group));
            let checksums: BTreeSet<u64> = machines
                .clone()
                .map(|machine| {
                    let mut hasher = DefaultHasher::new();
                    machine.values().for_each(|value| value.hash(&mut hasher));
                    hasher.finish()
                })
                .collect();
            if checksums.len() != 1 {
                return Err(format!("the replicas of {group} differ"));
            }
            for machine in machines {
                let mut values: Vec<u64> = machine.values().collect();
                let count = values.len();
                values.sort_unstable();
                values.dedup();
                if values.len() != count {
                    return Err(format!("a value of {group} was applied twice"));
                }
                for ((_, index), value) in self.acknowledged.range((group, 0)..=(group, u64::MAX)) {
                    if values.binary_search(value).is_err() {
                        return Err(format!(
                            "{value}, acknowledged at {index} of {group}, is lost"
                        ));
                    }
                }
            }
        }
        Ok(())
    }
}

fn run(seed: u64, lies: bool) -> Verdict {
    Simulation::new(seed, lies).run()
}

fn seeds() -> std::ops::Range<u64> {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse().ok());
    if let Some(seed) = number("BOLIDE_SIMULATION_SEED") {
        return seed..seed + 1;
    }
    0..number("BOLIDE_SIMULATION_SEEDS").unwrap_or(SEEDS_USUALLY)
}

#[test]
fn nothing_acknowledged_is_lost_and_all_replicas_agree_whatever_happens() {
    let (mut acknowledged, mut crashes, mut terms) = (0, 0, 0);
    let seeds = seeds();
    for seed in seeds.clone() {
        match run(seed, false) {
            Ok(summary) => {
                acknowledged += summary.acknowledged;
                crashes += summary.crashes;
                terms += summary.terms;
            }
            Err(violation) => panic!("seed {seed}: {violation}"),
        }
    }
    // A storm in which nothing happens proves nothing.
    let runs = seeds.count();
    assert!(
        acknowledged > 100 * runs,
        "{acknowledged} acknowledged in {runs} runs"
    );
    assert!(crashes as usize > runs, "{crashes} crashes in {runs} runs");
    assert!(terms as usize > 2 * runs, "{terms} terms in {runs} runs");
}

#[test]
fn a_seed_tells_the_same_story_twice() {
    assert_eq!(run(3, false), run(3, false));
    assert_ne!(run(3, false), run(4, false));
}

#[test]
fn a_disk_that_acknowledges_before_it_has_synced_is_found_out() {
    let caught = (0..SEEDS_USUALLY).filter(|seed| {
        // The Raft library itself gives up when a log has forgotten what it had promised.
        let verdict = catch_unwind(AssertUnwindSafe(|| run(*seed, true)));
        verdict.is_err() || verdict.is_ok_and(|verdict| verdict.is_err())
    });
    let caught = caught.count();
    assert!(caught >= 5, "caught in {caught} of {SEEDS_USUALLY} runs");
}
