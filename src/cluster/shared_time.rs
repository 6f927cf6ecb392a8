//! The time that the nodes of a cluster agree on: whoever leads next is never behind what an earlier leader has judged by.
//!
//! Each node tells the others what its wall clock says, and *wishes* for the middle of all of them, so that one clock that is wrong is outvoted. A node uses a time
//! when a majority of the voters of each group that it leads has heard the wish for it (of any of its groups, if it leads none), counting from the moment at which it
//! knows that; from then on time runs on by itself. Whoever has heard a wish never wishes for less. A new leader has spoken with a majority, one of which has heard what
//! the old one used. Nodes whose groups all have the same voters are exact in that; where voters differ, a node that cannot reach a majority of one of its groups goes on
//! by an older agreement until it leads that group no more.
//!
//! All times are milliseconds. An offset is what must be added to this node's monotonic clock. It knows no clock itself.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::NodeId;

/// What goes with everything that one node sends another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Times {
    wall: i64,
    /// Absent until the node has heard from a majority.
    wish: Option<i64>,
    /// The latest wish that the sender has heard from the receiver.
    heard: Option<i64>,
}

/// Sets of voters, each of them once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Voters {
    /// Of groups that the node leads.
    pub led: BTreeSet<Vec<NodeId>>,
    /// Of all others that it has a replica of.
    pub others: BTreeSet<Vec<NodeId>>,
}

impl Voters {
    fn all(&self) -> impl Iterator<Item = &Vec<NodeId>> {
        self.led.iter().chain(&self.others)
    }
}

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
    /// The voters of the groups that the node has a replica of.
    groups: Voters,
    peers: BTreeMap<NodeId, Peer>,
    /// The highest wish that is known of, as an offset. Never rounded up: nodes would push each other ahead, a little with every message.
    floor: Option<i64>,
    /// The highest wish that another node has told, as a time.
    told: Option<i64>,
    used: Option<i64>,
}

impl SharedTime {
    /// Of a node that has no replicas yet.
    pub fn new(node: NodeId) -> Self {
        Self {
            node,
            groups: Voters::default(),
            peers: BTreeMap::new(),
            floor: None,
            told: None,
            used: None,
        }
    }

    /// From now on these are the voters of the groups that the node has a replica of.
    pub fn set_groups(&mut self, groups: Voters) {
        self.groups = groups;
    }

    /// Whether a majority of the voters of some group was heard of.
    fn is_in_touch(&self) -> bool {
        self.groups.all().any(|voters| {
            let known = |voter: &&NodeId| **voter == self.node || self.peers.contains_key(voter);
            voters.iter().filter(known).count() > voters.len() / 2
        })
    }

    /// What a majority of the voters of a group has heard of, as an offset. `None`: not enough of them have heard of anything.
    fn heard_by(&self, voters: &[NodeId]) -> Option<i64> {
        let others = voters.iter().filter(|voter| **voter != self.node);
        let mut heard: Vec<i64> = others
            .filter_map(|voter| self.peers.get(voter)?.heard)
            .collect();
        heard.sort_unstable_by(|one, other| other.cmp(one));
        let majority = voters.len() / 2 + 1;
        // This node has heard of all that it wishes for.
        match majority - usize::from(voters.contains(&self.node)) {
            0 => Some(i64::MAX),
            others => heard.get(others - 1).copied(),
        }
    }

    /// Uses the time that all groups which this node leads have heard of; `wish` is this node's own, as an offset.
    fn agree(&mut self, wish: Option<i64>) {
        let heard = |voters: &Vec<NodeId>| match voters.is_empty() {
            true => None,
            false => self.heard_by(voters),
        };
        let led = self.groups.led.iter().filter_map(heard).min();
        let heard = led.or_else(|| self.groups.others.iter().filter_map(heard).max());
        let agreed = match heard {
            Some(i64::MAX) => wish,
            agreed => agreed,
        };
        self.used = self.used.max(agreed);
    }

    /// What to add to the monotonic clock; `None` until there is agreement.
    pub fn offset(&self) -> Option<i64> {
        self.used
    }

    /// The middle of all clocks that are known of; of two the earlier.
    fn middle(&self, own: i64) -> Option<i64> {
        // Without a majority of some group nobody is led by this node.
        if !self.is_in_touch() {
            return None;
        }
        let voters: BTreeSet<&NodeId> = self.groups.all().flatten().collect();
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

    fn led(groups: &[&[NodeId]]) -> Voters {
        Voters {
            led: groups.iter().map(|voters| voters.to_vec()).collect(),
            others: BTreeSet::new(),
        }
    }

    /// A node that leads groups with these voters.
    fn node(node: NodeId, groups: &[&[NodeId]]) -> SharedTime {
        let mut time = SharedTime::new(node);
        time.set_groups(led(groups));
        time
    }

    fn three() -> [SharedTime; 3] {
        [0, 1, 2].map(|number| node(number, &[&[0, 1, 2]]))
    }

    #[test]
    fn one_clock_that_is_wrong_is_outvoted() {
        for wrong in [-500_000, 500_000] {
            let mut nodes = three();
            talk(&mut nodes, &[1_000, 1_040, wrong], 0, 20);
            for node in &nodes {
                let offset = node.offset().unwrap();
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
        assert!(nodes.iter().all(|node| node.offset() > Some(59_000)));
        talk(&mut nodes, &[0, 0, 0], now, 300);
        assert!(nodes.iter().all(|node| node.offset() > Some(59_000)));
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
        assert!(first.offset() < Some(1_000));
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
            let time = node.offset().unwrap() + millis(number, micros);
            let ahead = time - micros.div_euclid(1_000);
            assert!((-10..=2).contains(&ahead), "{ahead} ms");
        }
    }

    #[test]
    fn without_a_majority_there_is_no_agreement() {
        let mut alone = node(0, &[&[0, 1, 2]]);
        assert_eq!(alone.tell(1, 0, 77).wish, None);
        assert_eq!(alone.offset(), None);
        assert_eq!(SharedTime::new(1).tell(2, 0, 77).wish, None);
    }

    #[test]
    fn a_time_is_used_only_when_every_group_that_is_led_has_heard_of_it() {
        let (one, other) = ([0, 1, 2], [0, 3, 4]);
        let mut nodes = [
            node(0, &[&one, &other]),
            node(1, &[&one]),
            node(2, &[&one]),
            node(3, &[&other]),
            node(4, &[&other]),
        ];
        let now = talk(&mut nodes, &[0; 5], 0, 20);
        let before = nodes[0].offset();
        // Only the first three hear each other from now on, and their clocks jump.
        talk(&mut nodes[..3], &[60_000; 3], now, 20);
        assert_eq!(
            nodes[0].offset(),
            before,
            "a leader of the other group may not know of it"
        );
        assert!(nodes[1].offset() > Some(59_000));
        // Who leads neither of them follows either.
        nodes[0].set_groups(Voters {
            led: BTreeSet::new(),
            others: [one.to_vec(), other.to_vec()].into(),
        });
        talk(&mut nodes[..3], &[60_000; 3], now + 2_000, 20);
        assert!(nodes[0].offset() > Some(57_000));
        // Who has never been heard of in the other group need not wait for it.
        let mut fresh = [node(0, &[&one, &other]), node(1, &[&one]), node(2, &[&one])];
        talk(&mut fresh, &[0; 3], 0, 20);
        assert!(fresh[0].offset().is_some());
    }

    #[test]
    fn clocks_of_nodes_that_have_left_do_not_count() {
        let mut nodes = three();
        let now = talk(&mut nodes, &[0, 0, 0], 0, 20);
        let [first, second, third] = &mut nodes;
        for node in [&mut *first, &mut *second] {
            node.set_groups(led(&[&[0, 1]]));
        }
        let times = third.tell(0, now, now + 60_000);
        first.hear(2, times, now);
        let times = second.tell(0, now, now + 60_000);
        first.hear(1, times, now);
        assert_eq!(first.middle(0), Some(0), "of two clocks the earlier");
    }

    #[test]
    fn a_cluster_of_one_agrees_with_itself() {
        let mut alone = node(1, &[&[1]]);
        alone.tell(2, 10, 77);
        assert_eq!(alone.offset(), Some(67));
    }
}
