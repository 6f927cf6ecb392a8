//! The time that the nodes of a cluster agree on, for each group. The time of a group's leader is
//! never behind the time that an earlier leader has used.
//!
//! - Each node sends its wall clock with every message, and proposes the median of all clocks it
//!   knows. So one wrong clock is outvoted.
//! - A node uses a proposed time for a group once a quorum of the group's voters has acknowledged
//!   it. From then on time advances with the node's monotonic clock.
//! - Proposed times are monotonic: a node never proposes less than it has proposed or received.
//! - Quorums intersect, so a new leader knows a time no earlier than any that its predecessor used.
//!   Members change one at a time, so quorums before and after a change intersect, too.
//!
//! All times are milliseconds. An offset is the difference to this node's monotonic clock. Pure:
//! reads no clock.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::cluster::{GroupId, NodeId};

/// What one node tells another of the time, with every message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimeSync {
    wall: i64,
    /// Absent until the node has heard from a quorum.
    proposed: Option<i64>,
    /// The latest proposed time that the sender has received from the receiver.
    acknowledged: Option<i64>,
}

/// The voters of each group that a node has a replica of.
pub type Voters = BTreeMap<GroupId, Vec<NodeId>>;

#[derive(Default)]
struct PeerTime {
    /// Its wall clock, as an offset.
    wall: i64,
    /// Its latest proposed time.
    proposed: Option<i64>,
    /// Our latest proposed time that it has acknowledged, as an offset from the moment at which
    /// that was known.
    acknowledged: Option<i64>,
}

pub struct SharedTime {
    node: NodeId,
    groups: Voters,
    /// What a quorum of each set of voters has acknowledged, as an offset. Many groups have the
    /// same voters.
    agreed: BTreeMap<Vec<NodeId>, Option<i64>>,
    /// What is used for each group, as an offset.
    used: BTreeMap<GroupId, i64>,
    /// Whether an offset has changed since [`Self::take_changes`].
    changed: bool,
    peers: BTreeMap<NodeId, PeerTime>,
    /// The highest proposed time that is known of, as an offset. Never rounded up: nodes would push
    /// each other ahead, a little with every message.
    floor: Option<i64>,
    /// The highest time that another node has proposed.
    received: Option<i64>,
}

impl SharedTime {
    /// Creates the time of a node without replicas; `floor` was persisted by an earlier process.
    pub fn new(node: NodeId, floor: Option<i64>) -> Self {
        Self {
            node,
            groups: Voters::default(),
            agreed: BTreeMap::new(),
            used: BTreeMap::new(),
            changed: false,
            peers: BTreeMap::new(),
            floor,
            received: None,
        }
    }

    /// Sets the voters of the groups that the node has a replica of.
    pub fn set_groups(&mut self, groups: Voters) {
        let sets: BTreeSet<&Vec<NodeId>> = groups.values().collect();
        self.agreed.retain(|voters, _| sets.contains(voters));
        for voters in sets {
            self.agreed.entry(voters.clone()).or_default();
        }
        self.used.retain(|group, _| groups.contains_key(group));
        self.groups = groups;
        self.use_agreed();
    }

    /// Returns what a quorum of some voters has acknowledged; `proposed` is this node's own.
    /// `None`: no quorum has acknowledged anything.
    fn acknowledged_by(&self, voters: &[NodeId], proposed: Option<i64>) -> Option<i64> {
        let acknowledged = voters.iter().filter_map(|voter| match *voter == self.node {
            // This node acknowledges all that it proposes.
            true => Some(i64::MAX),
            false => self.peers.get(voter)?.acknowledged,
        });
        let mut acknowledged: Vec<i64> = acknowledged.collect();
        acknowledged.sort_unstable_by(|one, other| other.cmp(one));
        match acknowledged.get(voters.len() / 2) {
            Some(&i64::MAX) => proposed,
            acknowledged => acknowledged.copied(),
        }
    }

    /// Uses what quorums have acknowledged; `proposed` is this node's own, as an offset.
    fn agree(&mut self, proposed: Option<i64>) {
        let agreed = self.agreed.iter();
        let later: Vec<(Vec<NodeId>, Option<i64>)> = agreed
            .map(|(voters, before)| (voters, before, self.acknowledged_by(voters, proposed)))
            .filter(|(_, before, now)| now > before)
            .map(|(voters, _, now)| (voters.clone(), now))
            .collect();
        if !later.is_empty() {
            self.agreed.extend(later);
            self.use_agreed();
        }
    }

    fn use_agreed(&mut self) {
        for (group, voters) in &self.groups {
            let Some(agreed) = self.agreed.get(voters).copied().flatten() else {
                continue;
            };
            let used = self.used.entry(*group).or_insert(i64::MIN);
            self.changed |= agreed > *used;
            *used = agreed.max(*used);
        }
    }

    /// Returns what to add to the monotonic clock for a group; `None` until there is agreement.
    pub fn offset(&self, group: GroupId) -> Option<i64> {
        self.used.get(&group).copied()
    }

    /// Returns the offsets of all groups that have one, if any has changed since the last call.
    pub fn take_changes(&mut self) -> Option<&BTreeMap<GroupId, i64>> {
        std::mem::take(&mut self.changed).then_some(&self.used)
    }

    /// Returns the highest proposed time that is known of, as an offset. It must be persisted.
    pub fn floor(&self) -> Option<i64> {
        self.floor
    }

    /// Returns whether a quorum of some group was heard from.
    fn has_quorum(&self) -> bool {
        self.agreed.keys().any(|voters| {
            let known = |voter: &&NodeId| **voter == self.node || self.peers.contains_key(voter);
            voters.iter().filter(known).count() > voters.len() / 2
        })
    }

    /// Returns the median of all clocks that are known; of two the earlier.
    fn median(&self, own: i64) -> Option<i64> {
        // Without a quorum of some group this node leads nobody.
        if !self.has_quorum() {
            return None;
        }
        let voters: BTreeSet<&NodeId> = self.agreed.keys().flatten().collect();
        let members = self.peers.iter().filter(|(node, _)| voters.contains(node));
        let mut walls: Vec<i64> = members.map(|(_, peer)| peer.wall).collect();
        walls.push(own);
        walls.sort_unstable();
        walls.get((walls.len() - 1) / 2).copied()
    }

    /// Returns what to send to a node.
    pub fn outgoing(&mut self, to: NodeId, monotonic: i64, wall: i64) -> TimeSync {
        let proposed = self.median(wall - monotonic).map(|median| {
            let floor = self.floor.map_or(median, |floor| floor.max(median));
            self.floor = Some(floor);
            let proposed = floor + monotonic;
            self.received
                .map_or(proposed, |received| received.max(proposed))
        });
        self.agree(proposed.map(|proposed| proposed - monotonic));
        TimeSync {
            wall,
            proposed,
            acknowledged: self.peers.get(&to).and_then(|peer| peer.proposed),
        }
    }

    /// Handles what a node has sent.
    pub fn receive(&mut self, from: NodeId, sync: TimeSync, monotonic: i64) {
        // The millisecond has begun already: what was sent is at least this late.
        let late = monotonic + 1;
        let peer = self.peers.entry(from).or_default();
        peer.wall = sync.wall - late;
        peer.proposed = peer.proposed.max(sync.proposed);
        let acknowledged = sync.acknowledged.map(|time| time - monotonic);
        peer.acknowledged = peer.acknowledged.max(acknowledged);
        self.received = self.received.max(sync.proposed);
        self.floor = self
            .floor
            .max(sync.proposed.map(|proposed| proposed - late));
        self.agree(None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nodes whose clocks are off by so much talk to each other for some rounds of 100 ms.
    fn talk(nodes: &mut [SharedTime], walls: &[i64], from: i64, rounds: i64) -> i64 {
        let mut now = from;
        for _ in 0..rounds {
            now += 100;
            for sender in 0..nodes.len() {
                for receiver in (0..nodes.len()).filter(|one| *one != sender) {
                    let wall = now + walls[sender];
                    let sync = nodes[sender].outgoing(receiver as u64, now, wall);
                    nodes[receiver].receive(sender as u64, sync, now + 1);
                }
            }
        }
        now
    }

    const GROUP: GroupId = GroupId::META;
    const OTHER: GroupId = GroupId {
        container: 1 << 32 | 1,
        range: 0,
    };

    /// A node that has replicas of groups with these voters.
    fn node(node: NodeId, groups: &[(GroupId, &[NodeId])]) -> SharedTime {
        let mut time = SharedTime::new(node, None);
        time.set_groups(groups.iter().map(|(id, all)| (*id, all.to_vec())).collect());
        time
    }

    fn three() -> [SharedTime; 3] {
        [0, 1, 2].map(|number| node(number, &[(GROUP, &[0, 1, 2])]))
    }

    #[test]
    fn one_clock_that_is_wrong_is_outvoted() {
        for wrong in [-500_000, 500_000] {
            let mut nodes = three();
            talk(&mut nodes, &[1_000, 1_040, wrong], 0, 20);
            for node in &nodes {
                let offset = node.offset(GROUP).unwrap();
                // An answer takes a round.
                assert!((800..=1_040).contains(&offset), "{offset}");
            }
        }
    }

    #[test]
    fn time_follows_most_clocks_forward_and_is_never_taken_back() {
        let mut nodes = three();
        let now = talk(&mut nodes, &[0, 0, 0], 0, 20);
        let now = talk(&mut nodes, &[60_000, 60_000, 0], now, 20);
        assert!(nodes.iter().all(|node| node.offset(GROUP) > Some(59_000)));
        talk(&mut nodes, &[0, 0, 0], now, 300);
        assert!(nodes.iter().all(|node| node.offset(GROUP) > Some(59_000)));
    }

    #[test]
    fn a_time_is_used_only_when_a_quorum_has_acknowledged_it() {
        let mut nodes = three();
        let now = talk(&mut nodes, &[0, 0, 0], 0, 20);
        // Two clocks jump, but only one of the two is heard by the first node, and nobody hears the
        // first.
        let [first, second, _] = &mut nodes;
        let sync = second.outgoing(0, now, now + 60_000);
        first.receive(1, sync, now);
        let _ = first.outgoing(1, now, now + 60_000);
        assert!(first.offset(GROUP) < Some(1_000));
        assert!(first.floor > Some(59_000), "it proposes it");
    }

    #[test]
    fn many_quick_messages_push_nobody_ahead() {
        let mut nodes = three();
        // Milliseconds begin at a different moment on each node.
        let phases = [0, 333, 777];
        let millis = |node: usize, micros: i64| (micros + phases[node]).div_euclid(1_000);
        let mut micros = 0_i64;
        for _ in 0..20_000 {
            for (from, to) in [(0, 1), (1, 0), (1, 2), (2, 1), (0, 2), (2, 0)] {
                micros += 70;
                let wall = micros.div_euclid(1_000);
                let sync = nodes[from].outgoing(to as u64, millis(from, micros), wall);
                micros += 30;
                nodes[to].receive(from as u64, sync, millis(to, micros));
            }
        }
        for (number, node) in nodes.iter().enumerate() {
            let time = node.offset(GROUP).unwrap() + millis(number, micros);
            let ahead = time - micros.div_euclid(1_000);
            assert!((-10..=2).contains(&ahead), "{ahead} ms");
        }
    }

    #[test]
    fn without_a_quorum_there_is_no_agreement() {
        let mut alone = node(0, &[(GROUP, &[0, 1, 2])]);
        assert_eq!(alone.outgoing(1, 0, 77).proposed, None);
        assert_eq!(alone.offset(GROUP), None);
        assert_eq!(SharedTime::new(1, None).outgoing(2, 0, 77).proposed, None);
    }

    #[test]
    fn each_group_has_the_time_that_its_own_voters_have_acknowledged() {
        let (one, other) = ((GROUP, &[0, 1, 2][..]), (OTHER, &[0, 3, 4][..]));
        let mut nodes = [
            node(0, &[one, other]),
            node(1, &[one]),
            node(2, &[one]),
            node(3, &[other]),
            node(4, &[other]),
        ];
        let now = talk(&mut nodes, &[0; 5], 0, 20);
        let before = nodes[0].offset(OTHER);
        assert!(before.is_some());
        // Only the first three hear each other from now on, and their clocks jump.
        talk(&mut nodes[..3], &[60_000; 3], now, 20);
        assert!(nodes[0].offset(GROUP) > Some(59_000));
        assert!(nodes[1].offset(GROUP) > Some(59_000));
        assert_eq!(
            nodes[0].offset(OTHER),
            before,
            "the next leader of that group may not know of it"
        );
        assert_eq!(nodes[1].offset(OTHER), None);
    }

    #[test]
    fn a_group_whose_voters_change_keeps_the_time_it_has() {
        let mut nodes = three();
        talk(&mut nodes, &[60_000; 3], 0, 20);
        let used = nodes[0].offset(GROUP);
        assert!(nodes[0].take_changes().is_some());
        nodes[0].set_groups([(GROUP, vec![0, 1, 2, 3]), (OTHER, vec![0, 3])].into());
        assert_eq!(nodes[0].offset(GROUP), used);
        assert_eq!(nodes[0].offset(OTHER), None, "it is not acknowledged there");
        assert!(nodes[0].take_changes().is_none());
    }

    #[test]
    fn a_received_time_holds_after_a_restart() {
        let voters: Voters = [(GROUP, vec![0, 1, 2])].into();
        for remembers in [true, false] {
            let mut nodes = three();
            talk(&mut nodes[..2], &[5_000, 5_000], 0, 20);
            assert!(
                nodes[0].offset(GROUP) > Some(4_500),
                "it leads, and uses it"
            );
            // Only one other has heard of it. That one is killed and comes back, its clock is
            // mended meanwhile, and it elects the third.
            let kept = nodes[1].floor().filter(|_| remembers);
            nodes[1] = SharedTime::new(1, kept);
            nodes[1].set_groups(voters.clone());
            let mut now = 2_000;
            for _ in 0..20 {
                now += 100;
                for (from, to) in [(1, 2), (2, 1)] {
                    let sync = nodes[from].outgoing(to as u64, now, now);
                    nodes[to].receive(from as u64, sync, now + 1);
                }
            }
            let backwards = nodes[2].offset(GROUP) < Some(4_500);
            assert_eq!(backwards, !remembers);
        }
    }

    #[test]
    fn clocks_of_nodes_that_have_left_do_not_count() {
        let mut nodes = three();
        let now = talk(&mut nodes, &[0, 0, 0], 0, 20);
        let [first, second, third] = &mut nodes;
        for node in [&mut *first, &mut *second] {
            node.set_groups([(GROUP, vec![0, 1])].into());
        }
        let sync = third.outgoing(0, now, now + 60_000);
        first.receive(2, sync, now);
        let sync = second.outgoing(0, now, now + 60_000);
        first.receive(1, sync, now);
        assert_eq!(first.median(0), Some(0), "of two clocks the earlier");
    }

    #[test]
    fn a_cluster_of_one_agrees_with_itself() {
        let mut alone = node(1, &[(GROUP, &[1])]);
        alone.outgoing(2, 10, 77);
        assert_eq!(alone.offset(GROUP), Some(67));
    }
}
