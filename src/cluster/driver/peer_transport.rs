//! Sends Raft messages over the connections: batched for each node, together with this node's time.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use raft::eraftpb::Message;

use crate::cluster::{
    GroupId, NodeId,
    raft::transport::Transport,
    time::timekeeper::Timekeeper,
    transport::{
        connections::Connections,
        message::{PeerMessage, RaftMessage},
    },
};

/// Raft messages for one node are sent together up to this size.
const BATCH_BYTES_MAX: usize = 1024 * 1024;

pub struct PeerTransport {
    pub connections: Arc<Connections>,
    pub time: Arc<Timekeeper>,
    /// Messages for each node, and their size.
    batches: BTreeMap<NodeId, (Vec<RaftMessage>, usize)>,
    /// Nodes that messages did not reach.
    pub unreachable: BTreeSet<NodeId>,
}

impl PeerTransport {
    pub fn new(connections: Arc<Connections>, time: Arc<Timekeeper>) -> Self {
        Self {
            connections,
            time,
            batches: BTreeMap::new(),
            unreachable: BTreeSet::new(),
        }
    }

    fn send_batch(&mut self, to: NodeId, messages: Vec<RaftMessage>) {
        if !messages.is_empty() {
            let message = PeerMessage::Raft(self.time.outgoing(to), messages);
            if !self.connections.send(to, &message) {
                self.unreachable.insert(to);
            }
        }
    }

    /// Sends this node's time to all others: nodes that follow the same leader send each other
    /// nothing else. Also notes it here, so that time advances in a cluster of one.
    pub fn send_time(&self, own: NodeId) {
        self.time.outgoing(own);
        for node in self.connections.connected() {
            let message = PeerMessage::Raft(self.time.outgoing(node), Vec::new());
            self.connections.send(node, &message);
        }
    }
}

impl Transport for PeerTransport {
    fn send(&mut self, group: GroupId, message: Message) {
        let to = message.to;
        let message = RaftMessage::new(group, message);
        let bytes = message.bytes();
        let (messages, batch_bytes) = self.batches.entry(to).or_default();
        let full = if *batch_bytes > 0 && *batch_bytes + bytes > BATCH_BYTES_MAX {
            *batch_bytes = 0;
            std::mem::take(messages)
        } else {
            Vec::new()
        };
        messages.push(message);
        *batch_bytes += bytes;
        self.send_batch(to, full);
    }

    fn flush(&mut self) {
        for (to, (messages, _)) in std::mem::take(&mut self.batches) {
            self.send_batch(to, messages);
        }
    }
}
