//! Campaigns for newly created groups: one node is chosen to lead each, so that leaders are spread
//! over the nodes and no group waits for an election timeout.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use crate::cluster::{
    GroupId, NodeId,
    raft::{planner::TargetConfig, replicas::Replicas},
};

/// How long the chosen node campaigns before elections take over.
const CAMPAIGN_TIMEOUT: Duration = Duration::from_secs(2);
const CAMPAIGN_INTERVAL: Duration = Duration::from_millis(200);

/// The newly created groups that this node is to lead: until when it campaigns, and when next.
#[derive(Default)]
pub struct Campaigns(BTreeMap<GroupId, (Instant, Instant)>);

impl Campaigns {
    /// Campaigns for a group that was just opened, if it is new and this node is to lead it.
    pub fn begin(
        &mut self,
        group: GroupId,
        node: NodeId,
        target: Option<&TargetConfig>,
        replicas: &mut Replicas,
    ) {
        let new = replicas.group(group).filter(|opened| opened.is_new());
        let leader = new.and_then(|new| first_leader(group, &new.members().voters, target));
        if leader == Some(node) {
            let now = Instant::now();
            self.0
                .insert(group, (now + CAMPAIGN_TIMEOUT, now + CAMPAIGN_INTERVAL));
            replicas.campaign(group);
        }
    }

    pub fn remove(&mut self, group: GroupId) {
        self.0.remove(&group);
    }

    /// Campaigns again for groups that have no leader yet.
    pub fn tick(&mut self, now: Instant, replicas: &mut Replicas) {
        self.0.retain(|group, (until, next)| {
            let has_leader = replicas
                .group(*group)
                .is_none_or(|group| group.role().leader.is_some());
            if !has_leader && now >= *next {
                *next = now + CAMPAIGN_INTERVAL;
                replicas.campaign(*group);
            }
            !has_leader && now < *until
        });
    }
}

/// Returns the preferred leader of a new group, or one of its voters in turn.
fn first_leader(
    group: GroupId,
    voters: &[NodeId],
    target: Option<&TargetConfig>,
) -> Option<NodeId> {
    let preferred = target.and_then(|target| target.leader);
    preferred
        .filter(|leader| voters.contains(leader))
        .or_else(|| {
            let turn = group.container.wrapping_add(u64::from(group.range));
            let at = turn % voters.len().max(1) as u64;
            voters.get(at as usize).copied()
        })
}
