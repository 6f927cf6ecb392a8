//! A simulated network: loses, doubles, delays and reorders; links can be cut one way.

use std::collections::{BTreeMap, BTreeSet};

use raft::eraftpb::Message;
use rand::{Rng as _, rngs::StdRng};

use super::node::Watch;
use crate::cluster::{GroupId, NodeId, parcel::Letter, replicas::Post, shared_time::Times};

/// How bad the network is, in percent of messages and in moments.
#[derive(Clone, Copy, Debug)]
pub struct Weather {
    pub lost_percent: u32,
    pub doubled_percent: u32,
    pub delay_max: u64,
}

impl Weather {
    pub const CALM: Self = Self {
        lost_percent: 0,
        doubled_percent: 0,
        delay_max: 2,
    };
}

pub struct Network {
    pub weather: Weather,
    /// Links that carry nothing, by sender and receiver.
    pub cut: BTreeSet<(NodeId, NodeId)>,
    under_way: BTreeMap<(u64, u64), Sent>,
    sent: u64,
}

/// A message under way; without a letter it tells the time.
struct Sent {
    from: NodeId,
    to: NodeId,
    times: Times,
    letter: Option<Letter>,
}

/// What has arrived.
pub struct Arrived {
    pub from: NodeId,
    pub to: NodeId,
    pub times: Times,
    pub message: Option<(GroupId, Message)>,
}

impl Network {
    pub fn new(weather: Weather) -> Self {
        Self {
            weather,
            cut: BTreeSet::new(),
            under_way: BTreeMap::new(),
            sent: 0,
        }
    }

    pub fn outgoing<'a>(
        &'a mut self,
        watch: &'a mut Watch,
        now: u64,
        rng: &'a mut StdRng,
    ) -> Outgoing<'a> {
        Outgoing {
            network: self,
            watch,
            now,
            rng,
        }
    }

    /// Tells a node the time, and nothing else.
    pub fn tell(&mut self, now: u64, from: NodeId, to: NodeId, times: Times, rng: &mut StdRng) {
        self.send(now, (from, to), times, None, rng);
    }

    fn send(
        &mut self,
        now: u64,
        (from, to): (NodeId, NodeId),
        times: Times,
        message: Option<(GroupId, Message)>,
        rng: &mut StdRng,
    ) {
        let copies = if rng.random_range(0..100) < self.weather.lost_percent {
            0
        } else {
            1 + usize::from(rng.random_range(0..100) < self.weather.doubled_percent)
        };
        for _ in 0..copies {
            self.sent += 1;
            let arrives = now + rng.random_range(1..=self.weather.delay_max);
            // Through the same form as between real nodes.
            let letter = message.clone();
            let sent = Sent {
                from,
                to,
                times,
                letter: letter.map(|(group, message)| Letter::new(group, message)),
            };
            self.under_way.insert((arrives, self.sent), sent);
        }
    }

    /// What a node has said, or one of its replicas has, does not arrive any more.
    pub fn forget(&mut self, node: NodeId, group: Option<GroupId>) {
        self.under_way.retain(|_, sent| {
            let of = sent.letter.as_ref().map(|letter| letter.group);
            sent.from != node || group.is_some() && group != of
        });
    }

    /// What arrives by now.
    pub fn arrived(&mut self, now: u64) -> Vec<Arrived> {
        let later = self.under_way.split_off(&(now + 1, 0));
        let arrived = std::mem::replace(&mut self.under_way, later);
        let through = arrived
            .into_values()
            .filter(|sent| !self.cut.contains(&(sent.from, sent.to)));
        let opened = through.map(|sent| Arrived {
            from: sent.from,
            to: sent.to,
            times: sent.times,
            message: sent.letter.and_then(Letter::open),
        });
        opened.collect()
    }
}

/// What nodes say at one moment.
pub struct Outgoing<'a> {
    network: &'a mut Network,
    watch: &'a mut Watch,
    now: u64,
    rng: &'a mut StdRng,
}

impl Post for Outgoing<'_> {
    fn send(&mut self, group: GroupId, message: Message) {
        let times = self.watch.tell(message.to, self.now);
        let between = (message.from, message.to);
        let message = Some((group, message));
        self.network
            .send(self.now, between, times, message, self.rng);
    }
}
