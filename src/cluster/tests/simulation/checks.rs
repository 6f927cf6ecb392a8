//! The invariants of the world, checked in every moment and at the end.

use std::{
    collections::BTreeSet,
    hash::{DefaultHasher, Hash as _, Hasher as _},
};

use super::{
    node::Node,
    splits::PARTS,
    world::{GROUPS, Simulation},
};
use crate::cluster::{GroupId, NodeId};

/// What a run did. A run in which nothing happens proves nothing.
#[derive(Debug, PartialEq, Eq)]
pub struct Summary {
    pub acknowledged: usize,
    pub reads: u64,
    pub session_reads: u64,
    pub purged: u64,
    pub judgements: u64,
    pub crashes: u64,
    pub wipes: u64,
    pub moves: u64,
    pub installed: u64,
    pub left_behind: u64,
    pub terms: u64,
    pub trace: u64,
}

impl Simulation {
    /// Describes the state of all nodes, for people.
    pub fn stand(&self) -> String {
        let nodes = self.nodes.iter().map(|node| {
            let groups = GROUPS.into_iter().chain(PARTS).map(|group| {
                let replica = node.replicas.as_ref().and_then(|all| all.group(group));
                let applied = node
                    .machines
                    .get(&group)
                    .map_or(0, |machine| machine.index());
                let log = replica.map(|replica| {
                    (
                        replica.first_index(),
                        replica.last_index(),
                        replica.commit_index(),
                    )
                });
                let members = replica.map(|replica| replica.members());
                let role = node.roles.get(&group).copied().unwrap_or_default();
                let progress = replica.filter(|_| role.is_leader).map(|one| one.progress());
                format!(
                    "\n  {group} {role:?}, log {log:?}, applied {applied}, {members:?} {progress:?}"
                )
            });
            let groups: String = groups.collect();
            let fetches = node.fetches.iter().map(|fetch| (fetch.group, fetch.until));
            let fetches: Vec<_> = fetches.collect();
            let snapshots: Vec<_> = node.snapshots.keys().collect();
            format!(
                "\nnode {} fetches {fetches:?} snapshots {snapshots:?}: {groups}",
                node.id
            )
        });
        format!("{:?}{}", self.targets, nodes.collect::<String>())
    }

    /// Returns the leader of a group in the highest term, if the group has reached its target
    /// configuration.
    pub fn settled_leader(&self, group: GroupId) -> Option<&Node> {
        let leads = |node: &&Node| node.roles.get(&group).is_some_and(|role| role.is_leader);
        let leader = self.nodes.iter().filter(leads);
        let leader = leader.max_by_key(|node| node.roles.get(&group).map(|role| role.term))?;
        let members = leader.replicas.as_ref()?.group(group)?.members();
        // A deposed leader may not know it: all nodes must be up, and none may know later members.
        for node in &self.nodes {
            let known = node.replicas.as_ref()?.group(group)?.members();
            if known.since > members.since {
                return None;
            }
        }
        // A change that only the leader knows to be committed is lost with its disk, and the others
        // would wait for nodes that have left.
        let knows = |voter: &&NodeId| {
            let node = self.nodes.iter().find(|node| node.id == **voter);
            let replicas = node.and_then(|node| node.replicas.as_ref());
            let known = replicas.and_then(|all| all.group(group));
            known.is_some_and(|group| group.members().since == members.since)
        };
        if members.voters.iter().filter(knows).count() <= members.voters.len() / 2 {
            return None;
        }
        let target = self.targets.get(&group)?;
        let sorted = |nodes: &[NodeId]| nodes.iter().copied().collect::<BTreeSet<_>>();
        let settled = sorted(&members.voters) == sorted(&target.voters)
            && sorted(&members.learners) == sorted(&target.learners);
        settled.then_some(leader)
    }

    /// Checks the time by which a leader decides whether something is expired.
    pub fn judge(&mut self, at: usize) -> Result<(), String> {
        let node = &self.nodes[at];
        if node.paused_until > self.now || node.replicas.is_none() {
            return Ok(());
        }
        for group in self.groups() {
            let Some(term) = node.decides(group) else {
                continue;
            };
            // A deposed leader that does not know it yet may be a message delay behind or ahead.
            if self.terms.get(&group).is_some_and(|newest| *newest > term) {
                continue;
            }
            let time = if self.broken.own_clocks {
                Some(node.watch.wall(self.now))
            } else {
                node.watch.time(group, self.now)
            };
            let Some(time) = time else {
                return Err(format!("node {} leads {group} without a time", node.id));
            };
            let judged = self.judged.entry(group).or_insert((term, time));
            if term > judged.0 && time < judged.1 {
                return Err(format!(
                    "node {} judges {group} by {time} in term {term}, an earlier leader by {}",
                    node.id, judged.1
                ));
            }
            *judged = (term.max(judged.0), time.max(judged.1));
            self.judgements += 1;
            let machine = node.machines.get(&group);
            let early = machine.and_then(|machine| self.expiry.purged_early(machine, time));
            if let Some(value) = early {
                return Err(format!(
                    "node {}, which leads {group}, judges by {time} and has purged {value}, which lives",
                    node.id
                ));
            }
        }
        Ok(())
    }

    pub fn agree(&self) -> bool {
        let is_split = self.splitting.from == u64::MAX || self.is_split_everywhere();
        is_split
            && self.groups().iter().all(|group| {
                if self.settled_leader(*group).is_none() {
                    return false;
                }
                let indexes = self.members(*group).map(|node| {
                    node.machines
                        .get(group)
                        .map_or(0, |machine| machine.index())
                });
                let indexes: BTreeSet<u64> = indexes.collect();
                let led = self.nodes.iter().any(|node| {
                    let role = node.roles.get(group);
                    // All entries are committed: the leader's own first entry is the last one.
                    role.is_some_and(|role| {
                        role.is_leader
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

    /// Returns the nodes of a group's target configuration.
    pub fn members(&self, group: GroupId) -> impl Iterator<Item = &Node> + Clone {
        let target = self.targets.get(&group).cloned().unwrap_or_default();
        self.nodes.iter().filter(move |node| {
            target.voters.contains(&node.id) || target.learners.contains(&node.id)
        })
    }

    pub fn check_everything(&self) -> Result<(), String> {
        self.check_parts()?;
        for group in self.groups() {
            let machines = self
                .members(group)
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
