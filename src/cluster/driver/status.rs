//! The status of a group, for people and for the coordinator.

use crate::cluster::{
    GroupId, NodeId,
    raft::{
        group::{Group, Role},
        membership::Members,
    },
};

/// The status of a group, as this node knows it.
#[derive(Clone, Debug)]
pub struct GroupStatus {
    pub group: GroupId,
    pub role: Role,
    pub commit: u64,
    pub members: Members,
    /// How many entries each replica lacks; only the leader knows.
    pub lag: Vec<(NodeId, u64)>,
}

impl GroupStatus {
    pub fn of(id: GroupId, group: &Group) -> Self {
        let role = group.role();
        let last = group.last_index();
        let lag = group
            .match_indexes()
            .filter(|_| role.is_leader)
            .map(|(node, index)| (node, last.saturating_sub(index)));
        Self {
            group: id,
            role,
            commit: group.commit_index(),
            members: group.members().clone(),
            lag: lag.collect(),
        }
    }
}
