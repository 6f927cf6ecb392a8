//! A simulated network: drops, duplicates, delays and reorders messages; links can be cut one way.

use std::collections::{BTreeMap, BTreeSet};

use raft::eraftpb::Message;
use rand::{Rng as _, rngs::StdRng};

use super::node::Watch;
use crate::cluster::{
    GroupId, NodeId, raft::transport::Transport, time::shared_time::TimeSync,
    transport::message::RaftMessage,
};

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
    in_flight: BTreeMap<(u64, u64), Sent>,
    sent: u64,
}

/// A message in flight; without a Raft message it carries the time only.
struct Sent {
    from: NodeId,
    to: NodeId,
    sync: TimeSync,
    message: Option<RaftMessage>,
}

/// A message that has arrived.
pub struct Arrived {
    pub from: NodeId,
    pub to: NodeId,
    pub sync: TimeSync,
    pub message: Option<(GroupId, Message)>,
}

impl Network {
    pub fn new(weather: Weather) -> Self {
        Self {
            weather,
            cut: BTreeSet::new(),
            in_flight: BTreeMap::new(),
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

    /// Sends the time, and nothing else.
    pub fn tell(&mut self, now: u64, from: NodeId, to: NodeId, sync: TimeSync, rng: &mut StdRng) {
        self.send(now, (from, to), sync, None, rng);
    }

    fn send(
        &mut self,
        now: u64,
        (from, to): (NodeId, NodeId),
        sync: TimeSync,
        message: Option<(GroupId, Message)>,
        rng: &mut StdRng,
    ) {
        let count = if rng.random_range(0..100) < self.weather.lost_percent {
            0
        } else {
            1 + usize::from(rng.random_range(0..100) < self.weather.doubled_percent)
        };
        for _ in 0..count {
            self.sent += 1;
            let arrives = now + rng.random_range(1..=self.weather.delay_max);
            // In the form that it has between real nodes.
            let message = message.clone();
            let sent = Sent {
                from,
                to,
                sync,
                message: message.map(|(group, message)| RaftMessage::new(group, message)),
            };
            self.in_flight.insert((arrives, self.sent), sent);
        }
    }

    /// Drops what is in flight from a node, or from one of its replicas.
    pub fn forget(&mut self, node: NodeId, group: Option<GroupId>) {
        self.in_flight.retain(|_, sent| {
            let of = sent.message.as_ref().map(|message| message.group);
            sent.from != node || group.is_some() && group != of
        });
    }

    /// Returns what has arrived by now.
    pub fn arrived(&mut self, now: u64) -> Vec<Arrived> {
        let later = self.in_flight.split_off(&(now + 1, 0));
        let arrived = std::mem::replace(&mut self.in_flight, later);
        let through = arrived
            .into_values()
            .filter(|sent| !self.cut.contains(&(sent.from, sent.to)));
        let opened = through.map(|sent| Arrived {
            from: sent.from,
            to: sent.to,
            sync: sent.sync,
            message: sent.message.and_then(RaftMessage::open),
        });
        opened.collect()
    }
}

/// Sends the messages of one node at one moment.
pub struct Outgoing<'a> {
    network: &'a mut Network,
    watch: &'a mut Watch,
    now: u64,
    rng: &'a mut StdRng,
}

impl Transport for Outgoing<'_> {
    fn send(&mut self, group: GroupId, message: Message) {
        let sync = self.watch.outgoing(message.to, self.now);
        let between = (message.from, message.to);
        let message = Some((group, message));
        self.network
            .send(self.now, between, sync, message, self.rng);
    }
}
