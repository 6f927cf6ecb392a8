//! A leader's way to the target configuration of its group.

use std::collections::BTreeSet;

use raft::{ProgressState, StateRole, eraftpb::Message};

use super::Group;
use crate::cluster::{
    NodeId,
    raft::planner::{LeaderView, Step, TargetConfig, next_step},
};

/// A replica that lacks no more entries has caught up.
const CAUGHT_UP_ENTRIES: u64 = 256;
/// Ticks between two transfers of leadership for balance, and between an election and the first.
const REBALANCE_TICKS: u64 = 100;

impl Group {
    /// Takes one step towards the target configuration, if this node leads and no other step is in
    /// flight.
    pub fn reconcile(&mut self, target: &TargetConfig) {
        let raft = &self.node.raft;
        let is_idle = raft.pending_conf_index <= raft.raft_log.applied;
        if raft.state != StateRole::Leader || !is_idle || raft.lead_transferee.is_some() {
            return;
        }
        let voters_and_learners = raft.prs().iter().map(|(node, _)| *node);
        let caught_up: BTreeSet<NodeId> = voters_and_learners
            .filter(|node| self.has_caught_up(*node))
            .collect();
        let is_quiet = raft.raft_log.committed == self.last_index();
        let view = LeaderView {
            leader: raft.id,
            members: self.members(),
            caught_up: &caught_up,
            wiped: &self.wiped,
            may_rebalance: is_quiet && self.now >= self.leader_since + REBALANCE_TICKS,
        };
        match next_step(view, target) {
            None => {}
            Some(Step::TransferLeadership(transferee)) => {
                self.leader_since = self.now;
                self.node.transfer_leader(transferee);
            }
            Some(Step::Change(change)) => {
                let context = rmp_serde::to_vec(&change).unwrap_or_default();
                // What is refused now is proposed again.
                let _ = self.node.propose_conf_change(context, change.conf_change());
            }
        }
        self.sync_election_timer();
    }

    fn has_caught_up(&self, node: NodeId) -> bool {
        let progress = self.node.raft.prs().get(node);
        progress.is_some_and(|progress| {
            // After a snapshot nothing more is sent while nobody writes.
            progress.state != ProgressState::Snapshot
                && progress.recent_active
                // A replica that has nothing yet has no vote to give, however short the log is.
                && progress.matched > 0
                && progress.matched + CAUGHT_UP_ENTRIES >= self.last_index()
        })
    }

    /// Notes that a member has lost its disk.
    pub(super) fn note_wiped(&mut self, message: &Message) {
        let raft = &self.node.raft;
        let progress = raft.prs().get(message.from);
        // A late message is about less than the member has by now.
        let commit = raft.raft_log.committed;
        let is_current =
            progress.is_some_and(|progress| progress.matched.min(commit) <= message.index);
        if raft.state == StateRole::Leader && raft.term == message.term && is_current {
            self.wiped.insert(message.from);
        }
    }
}
