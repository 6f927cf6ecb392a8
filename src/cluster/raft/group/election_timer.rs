//! When a replica campaigns. raft-rs draws a random election timeout whenever the term changes;
//! this replaces it by the replica's own turn.

use raft::{Raft, StateRole};

use crate::cluster::{
    GroupId, NodeId,
    raft::{election, group_log::GroupLog},
};

#[derive(Default)]
pub struct ElectionTimer {
    /// The term that the timeout is set for.
    term: Option<u64>,
    timeout_ticks: usize,
    /// The leader to which the connection broke, until there is news of a leader.
    disconnected_leader: Option<NodeId>,
}

impl ElectionTimer {
    /// Sets the timeout of the current term, unless it is set.
    pub fn sync(&mut self, group: GroupId, raft: &mut Raft<GroupLog>) {
        if raft.leader_id != raft::INVALID_ID {
            self.disconnected_leader = None;
        }
        let term = raft.term;
        if self.term == Some(term) && raft.randomized_election_timeout() == self.timeout_ticks {
            return;
        }
        self.timeout_ticks = election::timeout(group, term, raft.id, &voters(raft));
        self.term = Some(term);
        raft.set_randomized_election_timeout(self.timeout_ticks);
    }

    /// Notes that the connection to a node broke. If it was the leader, the replica campaigns soon.
    /// Should the leader be alive, the voters that hear it vote for nobody else.
    pub fn disconnected(&mut self, group: GroupId, raft: &mut Raft<GroupLog>, node: NodeId) {
        if raft.leader_id != node || raft.state != StateRole::Follower {
            return;
        }
        raft.leader_id = raft::INVALID_ID;
        self.disconnected_leader = Some(node);
        let voters = voters(raft);
        let ticks = election::timeout_without(group, raft.term, raft.id, &voters, node);
        self.campaign_after(raft, ticks);
    }

    /// Campaigns again soon if the replica has just campaigned without success: voters that had not
    /// noticed that the leader is gone did not vote.
    pub fn ticked(&self, raft: &mut Raft<GroupLog>) {
        let has_campaigned = raft.election_elapsed == 0;
        if self.disconnected_leader.is_some() && has_campaigned {
            let ticks = election::retry_timeout(&voters(raft));
            self.campaign_after(raft, ticks);
        }
    }

    /// Campaigns after so many ticks, unless there is news of a leader.
    fn campaign_after(&self, raft: &mut Raft<GroupLog>, ticks: usize) {
        raft.election_elapsed = self.timeout_ticks.saturating_sub(ticks);
    }
}

fn voters(raft: &Raft<GroupLog>) -> Vec<NodeId> {
    let mut voters: Vec<NodeId> = raft.prs().conf().voters().ids().iter().collect();
    voters.sort_unstable();
    voters
}
