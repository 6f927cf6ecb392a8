//! The members of a Raft group, and single changes of them.

use raft::eraftpb::{ConfChange, ConfChangeType, ConfState};
use serde::{Deserialize, Serialize};

use crate::cluster::NodeId;

/// The members of a group, as of an index of its log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Members {
    /// The index of the entry that made the last change.
    pub since: u64,
    /// In ascending order.
    pub voters: Vec<NodeId>,
    /// Replicas that do not vote, in ascending order.
    pub learners: Vec<NodeId>,
}

/// A change of one member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MemberChange {
    /// The node becomes a learner.
    Learner(NodeId),
    /// The node becomes a voter.
    Voter(NodeId),
    Remove(NodeId),
}

impl Members {
    pub fn contains(&self, node: NodeId) -> bool {
        self.voters.contains(&node) || self.learners.contains(&node)
    }

    /// Applies a change that was committed at an index.
    pub fn apply(&mut self, change: MemberChange, index: u64) {
        let (MemberChange::Learner(node) | MemberChange::Voter(node) | MemberChange::Remove(node)) =
            change;
        self.voters.retain(|one| *one != node);
        self.learners.retain(|one| *one != node);
        match change {
            MemberChange::Learner(node) => self.learners.push(node),
            MemberChange::Voter(node) => self.voters.push(node),
            MemberChange::Remove(_) => {}
        }
        self.voters.sort_unstable();
        self.learners.sort_unstable();
        self.since = index;
    }

    /// Returns the members as the Raft library has them.
    pub fn conf_state(&self) -> ConfState {
        ConfState {
            voters: self.voters.clone(),
            learners: self.learners.clone(),
            ..ConfState::default()
        }
    }
}

impl MemberChange {
    /// Returns the change as the Raft library has it.
    pub fn conf_change(self) -> ConfChange {
        let (kind, node) = match self {
            Self::Learner(node) => (ConfChangeType::AddLearnerNode, node),
            Self::Voter(node) => (ConfChangeType::AddNode, node),
            Self::Remove(node) => (ConfChangeType::RemoveNode, node),
        };
        let mut change = ConfChange::default();
        change.set_change_type(kind);
        change.node_id = node;
        change
    }
}
