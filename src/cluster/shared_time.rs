//! The time that the nodes of a cluster agree on, for each group: whoever leads it next is never behind what an earlier leader has judged by.
//!
//! Each node tells the others what its wall clock says, and *wishes* for the middle of all of them, so that one clock that is wrong is outvoted. A node uses a time for
//! a group when a majority of the group's voters has heard the wish for it, counting from the moment at which it knows that; from then on time runs on by itself. Whoever
//! has heard a wish never wishes for less. A new leader has spoken with a majority, one of which has heard what the old one used; when its first entry is committed, a
//! majority has heard what it wishes for since. Members change one at a time, so that majorities before and after a change have somebody in common, too.
//!
//! All times are milliseconds. An offset is what must be added to this node's monotonic clock. It knows no clock itself.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::{GroupId, NodeId};

/// What goes with everything that one node sends another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Times {
    wall: i64,
    /// Absent until the node has heard from a majority.
    wish: Option<i64>,
    /// The latest wish that the sender has heard from the receiver.
    heard: Option<i64>,
}

/// The voters of each group that a node has a replica of.
pub type Voters = BTreeMap<GroupId, Vec<NodeId>>;

#[derive(Default)]
struct Peer {
    /// Its wall clock, as an offset.
    wall: i64,
    /// Its latest wish.
    wished: Option<i64>,
    /// Our latest wish that it is known to have heard, as an offset from the moment at which that was known.
    heard: Option<i64>,
}

pub struct SharedTime {
    node: NodeId,
    groups: Voters,
    /// What a majority of each set of voters has heard of, as an offset. Many groups have the same voters.
    agreed: BTreeMap<Vec<NodeId>, Option<i64>>,
    /// What is used for each group, as an offset.
    used: BTreeMap<GroupId, i64>,
    /// Whether a group uses another time since somebody asked for it.
    is_news: bool,
    peers: BTreeMap<NodeId, Peer>,
    /// The highest wish that is known of, as an offset. Never rounded up: nodes would push each other ahead, a little with every message.
    floor: Option<i64>,
    /// The highest wish that another node has told, as a time.
    told: Option<i64>,
}

impl SharedTime {
    /// Of a node that has no replicas yet; `floor` is what it has heard of in an earlier life.
    pub fn new(node: NodeId, floor: Option<i64>) -> Self {
        Self {
            node,
            groups: Voters::default(),
            agreed: BTreeMap::new(),
            used: BTreeMap::new(),
            is_news: false,
            peers: BTreeMap::new(),
            floor,
            told: None,
        }
    }

    /// From now on these are the voters of the groups that the node has a replica of.
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

    /// What a majority of some voters has heard of; `wish` is this node's own. `None`: not enough of them have heard of anything.
    fn heard_by(&self, voters: &[NodeId], wish: Option<i64>) -> Option<i64> {
        let heard = voters.iter().filter_map(|voter| match *voter == self.node {
            // This node has heard of all that it wishes for.
            true => Some(i64::MAX),
            false => self.peers.get(voter)?.heard,
        });
        let mut heard: Vec<i64> = heard.collect();
        heard.sort_unstable_by(|one, other| other.cmp(one));
        match heard.get(voters.len() / 2) {
            Some(&i64::MAX) => wish,
            heard => heard.copied(),
        }
    }

    /// Uses what majorities have heard of; `wish` is this node's own, as an offset.
    fn agree(&mut self, wish: Option<i64>) {
        let agreed = self.agreed.iter();
        let later: Vec<(Vec<NodeId>, Option<i64>)> = agreed
            .map(|(voters, before)| (voters, before, self.heard_by(voters, wish)))
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
            self.is_news |= agreed > *used;
            *used = agreed.max(*used);
        }
    }

    /// What to add to the monotonic clock for a group; `None` until there is agreement.
    pub fn offset(&self, group: GroupId) -> Option<i64> {
        self.used.get(&group).copied()
    }

    /// The offsets of all groups that have one, if any of them is new.
    pub fn take_news(&mut self) -> Option<&BTreeMap<GroupId, i64>> {
        std::mem::take(&mut self.is_news).then_some(&self.used)
    }

    /// What must not be forgotten: as an offset, the highest wish that is known of.
    pub fn floor(&self) -> Option<i64> {
        self.floor
    }

    /// Whether a majority of the voters of some group was heard of.
    fn is_in_touch(&self) -> bool {
        self.agreed.keys().any(|voters| {
            let known = |voter: &&NodeId| **voter == self.node || self.peers.contains_key(voter);
            voters.iter().filter(known).count() > voters.len() / 2
        })
    }

    /// The middle of all clocks that are known of; of two the earlier.
    fn middle(&self, own: i64) -> Option<i64> {
        // Without a majority of some group nobody is led by this node.
        if !self.is_in_touch() {
            return None;
        }
        let voters: BTreeSet<&NodeId> = self.agreed.keys().flatten().collect();
        let members = self.peers.iter().filter(|(node, _)| voters.contains(node));
        let mut walls: Vec<i64> = members.map(|(_, peer)| peer.wall).collect();
        walls.push(own);
        walls.sort_unstable();
        walls.get((walls.len() - 1) / 2).copied()
    }

    /// What to tell a node.
    pub fn tell(&mut self, to: NodeId, monotonic: i64, wall: i64) -> Times {
        let wish = self.middle(wall - monotonic).map(|middle| {
            let floor = self.floor.map_or(middle, |floor| floor.max(middle));
            self.floor = Some(floor);
            let wish = floor + monotonic;
            self.told.map_or(wish, |told| told.max(wish))
        });
        self.agree(wish.map(|wish| wish - monotonic));
        Times {
            wall,
            wish,
            heard: self.peers.get(&to).and_then(|peer| peer.wished),
        }
    }

    /// What a node has told.
    pub fn hear(&mut self, from: NodeId, times: Times, monotonic: i64) {
        // The millisecond has begun already: what is told is this late at least.
        let late = monotonic + 1;
        let peer = self.peers.entry(from).or_default();
        peer.wall = times.wall - late;
        peer.wished = peer.wished.max(times.wish);
        peer.heard = peer.heard.max(times.heard.map(|heard| heard - monotonic));
        self.told = self.told.max(times.wish);
        self.floor = self.floor.max(times.wish.map(|wish| wish - late));
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
                    let times = nodes[sender].tell(receiver as u64, now, wall);
                    nodes[receiver].hear(sender as u64, times, now + 1);
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
    fn a_time_is_used_only_when_a_majority_has_heard_of_it() {
        let mut nodes = three();
        let now = talk(&mut nodes, &[0, 0, 0], 0, 20);
        // Two clocks jump, but only one of the two is heard by the first node, and nobody hears the first.
        let [first, second, _] = &mut nodes;
        let times = second.tell(0, now, now + 60_000);
        first.hear(1, times, now);
        let _ = first.tell(1, now, now + 60_000);
        assert!(first.offset(GROUP) < Some(1_000));
        assert!(first.floor > Some(59_000), "it wishes for it");
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
                let times = nodes[from].tell(to as u64, millis(from, micros), wall);
                micros += 30;
                nodes[to].hear(from as u64, times, millis(to, micros));
            }
        }
        for (number, node) in nodes.iter().enumerate() {
            let time = node.offset(GROUP).unwrap() + millis(number, micros);
            let ahead = time - micros.div_euclid(1_000);
            assert!((-10..=2).contains(&ahead), "{ahead} ms");
        }
    }

    #[test]
    fn without_a_majority_there_is_no_agreement() {
        let mut alone = node(0, &[(GROUP, &[0, 1, 2])]);
        assert_eq!(alone.tell(1, 0, 77).wish, None);
        assert_eq!(alone.offset(GROUP), None);
        assert_eq!(SharedTime::new(1, None).tell(2, 0, 77).wish, None);
    }

    #[test]
    fn each_group_has_the_time_that_its_own_voters_have_heard_of() {
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
        assert!(nodes[0].take_news().is_some());
        nodes[0].set_groups([(GROUP, vec![0, 1, 2, 3]), (OTHER, vec![0, 3])].into());
        assert_eq!(nodes[0].offset(GROUP), used);
        assert_eq!(nodes[0].offset(OTHER), None, "nobody has heard of it there");
        assert!(nodes[0].take_news().is_none());
    }

    #[test]
    fn what_was_heard_holds_in_the_next_life_of_a_process() {
        let voters: Voters = [(GROUP, vec![0, 1, 2])].into();
        for remembers in [true, false] {
            let mut nodes = three();
            talk(&mut nodes[..2], &[5_000, 5_000], 0, 20);
            assert!(nodes[0].offset(GROUP) > Some(4_500), "it leads, and judges");
            // Only one other has heard of it. That one is killed and comes back, its clock is mended meanwhile, and it elects the third.
            let kept = nodes[1].floor().filter(|_| remembers);
            nodes[1] = SharedTime::new(1, kept);
            nodes[1].set_groups(voters.clone());
            let mut now = 2_000;
            for _ in 0..20 {
                now += 100;
                for (from, to) in [(1, 2), (2, 1)] {
                    let times = nodes[from].tell(to as u64, now, now);
                    nodes[to].hear(from as u64, times, now + 1);
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
        let times = third.tell(0, now, now + 60_000);
        first.hear(2, times, now);
        let times = second.tell(0, now, now + 60_000);
        first.hear(1, times, now);
        assert_eq!(first.middle(0), Some(0), "of two clocks the earlier");
    }

    #[test]
    fn a_cluster_of_one_agrees_with_itself() {
        let mut alone = node(1, &[(GROUP, &[1])]);
        alone.tell(2, 10, 77);
        assert_eq!(alone.offset(GROUP), Some(67));
    }
}
