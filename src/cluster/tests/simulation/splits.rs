//! A group that is split in the middle of the storm: by an entry of its log, on every node that
//! comes to it, with crashes in between. The catalog is played by whoever knows everything; what it
//! says reaches the nodes at different times.

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
/// Moments for which a replica that does not split is waited for.
const STRAGGLERS: u64 = 200;
/// Moments within which all nodes hear of the parts.
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
    /// Who has replicas of it, when that is settled: it is to be split.
    voters: Option<Vec<NodeId>>,
    mostly_since: Option<u64>,
    /// The catalog names the parts.
    pub named: bool,
    /// Nodes that heard of the parts before they had made them.
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
    /// The groups that the catalog names.
    pub fn groups(&self) -> Vec<GroupId> {
        match self.splitting.named {
            false => GROUPS.to_vec(),
            true => vec![GROUPS[0], PARTS[0], PARTS[1]],
        }
    }

    /// One of them.
    pub fn any_group(&mut self) -> GroupId {
        let groups = self.groups();
        groups[self.rng.random_range(0..groups.len())]
    }

    /// Brings the split one step further, if it is time for that.
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

    /// Whoever leads the parent, and has applied all that was before, has its log say that it is
    /// split.
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

    /// Whether a node may decide something in a group.
    pub fn may_decide(&self, at: usize, group: GroupId) -> bool {
        let node = &self.nodes[at];
        let term = node.decides(group);
        let holds = node.is_split() || node.parting.is_some() && node.parting == term;
        group != PARENT || term.is_some() && (!holds || self.broken.heedless_splits)
    }

    /// A node has come to the entry that splits the parent.
    pub fn part(&mut self, at: usize) {
        let Some(voters) = self.splitting.voters.clone() else {
            return;
        };
        if let Some(parent) = self.nodes[at].machines.get_mut(&PARENT) {
            parent.cut = Some(InitialState::Bootstrap(voters));
        }
        for part in PARTS {
            // A crash may come before the first part is made, or between the two.
            if self.now < STORM && self.rng.random_bool(0.15) {
                return self.crash(at);
            }
            self.nodes[at].make_part(part);
        }
        if !self.nodes[at].open_parts() {
            self.crash(at);
        }
    }

    /// A node hears that the catalog names the parts: those that it has not made are filled by
    /// others.
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

    /// Everybody knows of the parts.
    pub fn is_split_everywhere(&self) -> bool {
        self.splitting.named && self.nodes.iter().all(|node| node.knows_parts)
    }

    /// What was acknowledged before the split is in both parts.
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
