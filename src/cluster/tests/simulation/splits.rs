//! A group that is split in the middle of the storm: by an entry of its log, on every node that
//! applies it, with crashes in between. The simulation plays the catalog, whose changes reach the
//! nodes at different times.

use bytes::Bytes;
use rand::Rng as _;

use super::world::{GROUPS, STORM, Simulation};
use crate::{
    cluster::{
        GroupId, NodeId,
        raft::{
            log_disk::{InitialState, LogBatch, LogDisk as _, LogRecord},
            planner::TargetConfig,
        },
    },
    store::engine::Durability,
};

/// The group that is split.
pub const PARENT: GroupId = GROUPS[1];
pub const PARTS: [GroupId; 2] = [part(1), part(2)];
/// The entry that splits.
const SPLIT: &[u8] = b"split";
/// Moments to wait for a replica that has not split.
const STRAGGLERS: u64 = 200;
/// Moments within which all nodes learn of the children.
const NEWS_MAX: u64 = 300;

const fn part(range: u32) -> GroupId {
    GroupId {
        container: PARENT.container,
        range,
    }
}

/// How far the split is.
#[derive(Default)]
pub struct Splitting {
    /// From this moment on the members of the parent stay as they are.
    pub from: u64,
    /// The voters of the parent, once they are settled.
    voters: Option<Vec<NodeId>>,
    mostly_since: Option<u64>,
    /// Whether the catalog names the children.
    pub named: bool,
    /// Nodes that learned of the children before they had made them.
    pub left_behind: u64,
}

impl Splitting {
    pub fn from(from: u64) -> Self {
        Self {
            from,
            ..Self::default()
        }
    }

    pub fn rests(&self, now: u64) -> bool {
        now >= self.from && !self.named
    }
}

pub fn splits(data: &Bytes) -> bool {
    data.as_ref() == SPLIT
}

impl Simulation {
    /// Returns the groups that the catalog names.
    pub fn groups(&self) -> Vec<GroupId> {
        match self.splitting.named {
            false => GROUPS.to_vec(),
            true => vec![GROUPS[0], PARTS[0], PARTS[1]],
        }
    }

    /// Returns one of them.
    pub fn any_group(&mut self) -> GroupId {
        let groups = self.groups();
        groups[self.rng.random_range(0..groups.len())]
    }

    /// Takes the next step of the split, if it is time.
    pub fn advance_split(&mut self) {
        if self.splitting.named {
            for at in 0..self.nodes.len() {
                self.hear_of_parts(at);
            }
            return;
        }
        if self.now < self.splitting.from {
            return;
        }
        let Some(voters) = self.splitting.voters.clone() else {
            if self.now == self.splitting.from
                && let Some(target) = self.targets.get_mut(&PARENT)
            {
                target.learners.clear();
            }
            if self.settled_leader(PARENT).is_some() {
                self.splitting.voters = self
                    .targets
                    .get(&PARENT)
                    .map(|target| target.voters.clone());
            }
            return;
        };
        if self.rng.random_bool(0.1) {
            self.propose_split();
        }
        let has_parts = |node: &NodeId| {
            let node = &self.nodes[(node - 1) as usize];
            let replicas = node.replicas.as_ref();
            let replicas = replicas.filter(|_| node.paused_until <= self.now);
            replicas.is_some_and(|all| PARTS.iter().all(|part| all.group(*part).is_some()))
        };
        let have = voters.iter().filter(|node| has_parts(node)).count();
        if have <= voters.len() / 2 {
            self.splitting.mostly_since = None;
            return;
        }
        let since = *self.splitting.mostly_since.get_or_insert(self.now);
        if have == voters.len() || self.now > since + STRAGGLERS {
            self.name_parts(&voters);
        }
    }

    fn name_parts(&mut self, voters: &[NodeId]) {
        self.splitting.named = true;
        self.targets.remove(&PARENT);
        for part in PARTS {
            let target = TargetConfig {
                voters: voters.to_vec(),
                ..TargetConfig::default()
            };
            self.targets.insert(part, target);
        }
        for node in &mut self.nodes {
            node.hears_at = self.now + self.rng.random_range(0..NEWS_MAX);
        }
    }

    /// Proposes the entry that splits the parent, at a leader that has applied all entries before.
    fn propose_split(&mut self) {
        let at = self.rng.random_range(0..self.nodes.len());
        let now = self.now;
        let node = &mut self.nodes[at];
        let Some(term) = node.decides(PARENT).filter(|_| node.paused_until <= now) else {
            return;
        };
        if node.is_split() || node.parting == Some(term) {
            return;
        }
        if let Some(replicas) = &mut node.replicas
            && replicas
                .propose(PARENT, term, Bytes::from_static(SPLIT))
                .is_ok()
        {
            node.parting = Some(term);
        }
    }

    /// Returns whether a node may decide something in a group.
    pub fn may_decide(&self, at: usize, group: GroupId) -> bool {
        let node = &self.nodes[at];
        let term = node.decides(group);
        let holds = node.is_split() || node.parting.is_some() && node.parting == term;
        group != PARENT || term.is_some() && (!holds || self.broken.heedless_splits)
    }

    /// Splits the parent on a node that has applied the entry.
    pub fn part(&mut self, at: usize) {
        let Some(voters) = self.splitting.voters.clone() else {
            return;
        };
        if let Some(parent) = self.nodes[at].machines.get_mut(&PARENT) {
            parent.cut = Some(InitialState::Bootstrap(voters));
        }
        for part in PARTS {
            // A crash may come before the first child is made, or between the two.
            if self.now < STORM && self.rng.random_bool(0.15) {
                return self.crash(at);
            }
            self.nodes[at].make_part(part);
        }
        if !self.nodes[at].open_parts() {
            self.crash(at);
        }
    }

    /// A node learns that the catalog names the children. It gets snapshots of those that it has
    /// not made.
    fn hear_of_parts(&mut self, at: usize) {
        let now = self.now;
        let node = &mut self.nodes[at];
        let Some(replicas) = &mut node.replicas else {
            return;
        };
        if node.knows_parts || node.hears_at > now || node.paused_until > now {
            return;
        }
        node.knows_parts = true;
        let made = PARTS.iter().all(|part| node.machines.contains_key(part));
        let voters = self.splitting.voters.as_ref();
        let has_part = voters.is_some_and(|voters| voters.contains(&node.id));
        self.splitting.left_behind += u64::from(has_part && !made);
        node.machines.remove(&PARENT);
        node.roles.remove(&PARENT);
        node.fetched.remove(&PARENT);
        node.fetches.retain(|fetch| fetch.group != PARENT);
        node.waiting.retain(|waiting| waiting.group != PARENT);
        replicas.remove(PARENT);
        let records = vec![(PARENT, LogRecord::Remove)];
        let _ = node.disk.write(LogBatch { records }, Durability::Synced);
        if !node.open_parts() {
            self.crash(at);
        }
    }

    /// Returns whether all nodes know the children.
    pub fn is_split_everywhere(&self) -> bool {
        self.splitting.named && self.nodes.iter().all(|node| node.knows_parts)
    }

    /// Checks that what was acknowledged before the split is in both children.
    pub fn check_parts(&self) -> Result<(), String> {
        let told = self.acknowledged.range((PARENT, 0)..=(PARENT, u64::MAX));
        for (part, node) in PARTS
            .map(|part| self.members(part).map(move |node| (part, node)))
            .into_iter()
            .flatten()
        {
            let machine = node.machines.get(&part);
            let values: Vec<u64> = machine
                .into_iter()
                .flat_map(|machine| machine.values())
                .collect();
            if let Some((_, lost)) = told.clone().find(|(_, value)| !values.contains(value)) {
                return Err(format!(
                    "{lost}, acknowledged before the split, is lost in {part} of node {}",
                    node.id
                ));
            }
        }
        Ok(())
    }
}
