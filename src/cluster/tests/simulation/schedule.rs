//! What happens to the world: a storm of faults, then calm.

use std::hash::Hasher as _;

use rand::Rng as _;

use super::{
    checks::Summary,
    network::Weather,
    node::Node,
    splits::PARENT,
    world::{NODES, STORM, Simulation},
};
use crate::cluster::{NodeId, raft::planner::TargetConfig};

/// Moments within which a healed cluster must agree.
const CALM_MAX: u64 = 6_000;

impl Simulation {
    pub fn run(mut self) -> Result<Summary, String> {
        while self.now < STORM {
            self.trouble();
            self.moment()?;
        }
        self.heal();
        let deadline = self.now + CALM_MAX;
        while !self.agree() {
            if self.now > deadline {
                return Err(format!(
                    "no agreement {CALM_MAX} moments after the last fault: {}",
                    self.stand()
                ));
            }
            // A disk that was about to fail may do so only now.
            self.restart_all();
            self.moment()?;
        }
        self.check_everything()?;
        Ok(Summary {
            acknowledged: self.acknowledged.len(),
            reads: self.readers.answered,
            session_reads: self.sessions.answered,
            purged: self.expiry.purged,
            judgements: self.judgements,
            crashes: self.crashes,
            wipes: self.wipes,
            moves: self.moves,
            installed: self.installed,
            left_behind: self.splitting.left_behind,
            terms: self
                .leaders
                .keys()
                .map(|(_, term)| *term)
                .max()
                .unwrap_or(0),
            trace: self.trace.finish(),
        })
    }

    /// Injects a fault, each kind seldom.
    pub fn trouble(&mut self) {
        let at = self.rng.random_range(0..self.nodes.len());
        let (id, other) = (self.nodes[at].id, self.rng.random_range(1..=NODES));
        match self.rng.random_range(0..1_500) {
            0 | 1 => self.crash(at),
            2 => self.nodes[at].disk.fail_after(self.rng.random_range(0..20)),
            3 | 4 => self.nodes[at].paused_until = self.now + self.rng.random_range(10..800),
            5 => {
                self.network.cut.insert((id, other));
            }
            6 => {
                let others = (1..=NODES).filter(|other| *other != id);
                let cut = others.flat_map(|other| [(id, other), (other, id)]);
                self.network.cut.extend(cut);
            }
            7..=12 => self.network.cut.clear(),
            13..=20 if self.nodes[at].replicas.is_none() => self.start(at),
            21..=30 => {
                let group = self.any_group();
                self.nodes[at].checkpoint(group);
            }
            31 => self.nodes[at].withdraw_snapshots(),
            32..=35 => self.change_target(),
            36..=45 => self.remove_left(at),
            46..=55 => self.wipe(at),
            56..=58 => self.nodes[at].watch.skew += self.rng.random_range(-5_000..5_000),
            _ => {}
        }
    }

    /// Changes the target configuration of a group.
    pub fn change_target(&mut self) {
        let group = self.any_group();
        if group == PARENT && self.splitting.rests(self.now) {
            return;
        }
        let mut nodes: Vec<NodeId> = (1..=NODES).collect();
        for at in 0..nodes.len() {
            nodes.swap(at, self.rng.random_range(at..NODES as usize));
        }
        let learners = nodes.split_off(3 + self.rng.random_range(0..2));
        let learners = learners
            .into_iter()
            .filter(|_| self.rng.random_bool(0.3))
            .collect();
        let target = TargetConfig {
            leader: nodes.first().copied().filter(|_| self.rng.random_bool(0.5)),
            voters: nodes,
            learners,
        };
        self.moves += 1;
        self.targets.insert(group, target);
    }

    /// Removes the replicas of a node that it should not have.
    pub fn remove_left(&mut self, at: usize) {
        for group in self.groups() {
            let Some(leader) = self.settled_leader(group) else {
                continue;
            };
            let members = leader.replicas.as_ref().and_then(|all| all.group(group));
            let id = self.nodes[at].id;
            if members.is_some_and(|group| !group.members().contains(id)) {
                // Its messages of that replica have arrived or never will, as over a connection.
                self.network.forget(id, Some(group));
                // Its log and its files are removed together, or neither is.
                self.nodes[at].disk.mend();
                if !self.nodes[at].remove(group) {
                    return self.crash(at);
                }
            }
        }
    }

    /// A node loses its disk, while all others have theirs: no more is promised.
    pub fn wipe(&mut self, at: usize) {
        if self.splitting.rests(self.now)
            || self
                .nodes
                .iter()
                .any(|node| self.splitting.named && !node.knows_parts)
        {
            return;
        }
        let whole = self.groups().iter().all(|group| {
            let has_it = |node: &Node| {
                let replica = node.replicas.as_ref().and_then(|all| all.group(*group));
                replica.is_some_and(|replica| replica.last_index() > 0)
            };
            self.members(*group).all(has_it)
                && self.settled_leader(*group).is_some_and(|leader| {
                    let led = leader.replicas.as_ref().and_then(|all| all.group(*group));
                    led.is_some_and(|led| led.match_indexes().all(|(_, matched)| matched > 0))
                })
        });
        if whole {
            self.wipes += 1;
            self.crashes += 1;
            self.nodes[at].wipe();
            let id = self.nodes[at].id;
            self.readers.forget(id);
            self.network.forget(id, None);
        }
    }

    pub fn crash(&mut self, at: usize) {
        if self.nodes[at].replicas.is_some() {
            self.crashes += 1;
            self.nodes[at].crash(&mut self.rng);
            let gone = self.nodes[at].id;
            self.readers.forget(gone);
            // A process that died is noticed soon; a machine without power is not.
            if self.rng.random_bool(0.7) {
                for other in (1..=NODES).filter(|other| *other != gone) {
                    let notices = self.now + self.rng.random_range(1..20);
                    self.breaks.insert((notices, other, gone));
                }
            }
        }
    }

    pub fn heal(&mut self) {
        self.network.cut.clear();
        self.network.weather = Weather::CALM;
        self.nodes.iter_mut().for_each(Node::withdraw_snapshots);
        self.restart_all();
    }

    pub fn restart_all(&mut self) {
        for at in 0..self.nodes.len() {
            self.nodes[at].paused_until = 0;
            self.nodes[at].disk.mend();
            if self.nodes[at].replicas.is_none() {
                self.start(at);
            }
        }
    }
}
