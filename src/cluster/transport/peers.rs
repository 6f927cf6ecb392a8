//! The other nodes, and what all connections of a node share.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use arc_swap::{ArcSwap, ArcSwapOption};
use tokio::{
    io::{AsyncReadExt, BufReader},
    net::TcpStream,
    sync::Semaphore,
    time::timeout,
};
use tracing::{debug, info, warn};

use super::{
    frame::Sealed,
    handshake::{Identity, Session},
    join::JoinHandler,
    message::{MESSAGE_BYTES_MAX, PeerMessage},
    send_queue::SendQueue,
    wire::{BUFFER_BYTES_KEPT_MAX, DisconnectReason, PEER_TIMEOUT, read_frame},
};
use crate::cluster::NodeId;

/// Frames are read together up to this size.
const READ_BYTES: usize = 64 * 1024;
/// Incoming connections that are not authenticated yet.
const UNAUTHENTICATED_MAX: usize = 64;

/// What comes from another node.
#[derive(Debug, PartialEq)]
pub enum PeerEvent {
    Message(PeerMessage),
    Disconnected,
}

/// Handles what comes from other nodes.
pub type PeerHandler = Box<dyn Fn(NodeId, PeerEvent) + Send + Sync>;

/// Another node.
pub struct Peer {
    pub address: String,
    /// Present while the node is connected.
    queue: ArcSwapOption<SendQueue>,
}

impl Peer {
    pub fn new(address: &str) -> Self {
        Self {
            address: address.to_owned(),
            queue: ArcSwapOption::empty(),
        }
    }

    pub fn is_connected(&self) -> bool {
        self.queue.load().is_some()
    }

    /// Replaces the connection, which ends.
    pub fn set_queue(&self, queue: Option<Arc<SendQueue>>) {
        if let Some(before) = self.queue.swap(queue) {
            before.closed.notify_one();
        }
    }
}

/// What happened since the start.
#[derive(Debug, Default)]
pub struct Counts {
    /// Connections closed because of a frame that was garbage, too long, cut short, of another
    /// version or of another cluster.
    pub refused_frames: AtomicU64,
    /// Connections closed because the peer could not authenticate itself.
    pub refused_nodes: AtomicU64,
    /// Connections closed at once because too many were not authenticated yet.
    pub refused_strangers: AtomicU64,
    pub connected: AtomicU64,
    /// Messages that found no connection or a full queue.
    pub dropped_messages: AtomicU64,
}

/// What all connections of a node share.
pub struct Peers {
    pub identity: Identity,
    pub nodes: ArcSwap<BTreeMap<NodeId, Arc<Peer>>>,
    pub join_handler: JoinHandler,
    /// Permits for connections that are not authenticated yet.
    pub unauthenticated: Semaphore,
    pub counts: Counts,
    handler: PeerHandler,
}

impl Peers {
    pub fn new(identity: Identity, handler: PeerHandler, join_handler: JoinHandler) -> Self {
        Self {
            identity,
            nodes: ArcSwap::default(),
            join_handler,
            unauthenticated: Semaphore::new(UNAUTHENTICATED_MAX),
            counts: Counts::default(),
            handler,
        }
    }

    pub fn peer(&self, node: NodeId) -> Option<Arc<Peer>> {
        self.nodes.load().get(&node).cloned()
    }

    /// Queues a message for a node. Returns `None` if the node is not connected or does not keep
    /// up.
    pub fn queue(&self, to: NodeId, message: &PeerMessage) -> Option<Arc<SendQueue>> {
        let queued = self.try_queue(to, &message.encode());
        if queued.is_none() {
            self.counts.dropped_messages.fetch_add(1, Ordering::Relaxed);
        }
        queued
    }

    fn try_queue(&self, to: NodeId, message: &[u8]) -> Option<Arc<SendQueue>> {
        let nodes = self.nodes.load();
        let queue = nodes.get(&to)?.queue.load_full()?;
        let bytes = message.len();
        if bytes > MESSAGE_BYTES_MAX {
            warn!(to, bytes, "message too long for a frame");
            return None;
        }
        queue.put(message).then_some(queue)
    }

    /// Sends and receives over an authenticated connection until it fails.
    pub async fn serve(&self, stream: TcpStream, session: &Session) -> DisconnectReason {
        let node = session.peer;
        let Some(peer) = self.peer(node) else {
            return DisconnectReason::NotMember(node);
        };
        let cluster = self.identity.cluster;
        let receiving = Sealed::session(cluster, &session.receive);
        let sending = Sealed::session(cluster, &session.send);
        let (reader, writer) = stream.into_split();
        let reader = BufReader::with_capacity(READ_BYTES, reader);
        let queue = Arc::new(SendQueue::new(writer, sending));
        peer.set_queue(Some(Arc::clone(&queue)));
        self.counts.connected.fetch_add(1, Ordering::Relaxed);
        info!(node, "connected");
        let reason = tokio::select! {
            reason = self.receive(node, reader, receiving) => reason,
            reason = queue.keep_sending() => reason,
            () = queue.closed.notified() => DisconnectReason::Replaced,
        };
        // Unless a newer connection is there already.
        let current = peer.queue.load_full();
        if current.is_some_and(|current| Arc::ptr_eq(&current, &queue)) {
            peer.queue.store(None);
        }
        (self.handler)(node, PeerEvent::Disconnected);
        reason
    }

    async fn receive(
        &self,
        node: NodeId,
        mut reader: impl AsyncReadExt + Unpin,
        mut opening: Sealed,
    ) -> DisconnectReason {
        let mut buffer = Vec::new();
        loop {
            let frame = read_frame(&mut reader, &opening, &mut buffer);
            let message = match timeout(PEER_TIMEOUT, frame).await {
                Ok(Ok(())) => opening
                    .open(&buffer)
                    .map_err(DisconnectReason::from)
                    .and_then(|body| PeerMessage::decode(body).map_err(DisconnectReason::Garbage)),
                Ok(Err(reason)) => Err(reason),
                Err(elapsed) => Err(elapsed.into()),
            };
            match message {
                Ok(PeerMessage::Heartbeat) => {}
                Ok(message) => (self.handler)(node, PeerEvent::Message(message)),
                Err(reason) => return reason,
            }
            if buffer.capacity() > BUFFER_BYTES_KEPT_MAX {
                buffer = Vec::new();
            }
        }
    }

    /// Counts and logs the end of a connection.
    pub fn note_disconnect(&self, node: Option<NodeId>, reason: &DisconnectReason) {
        let counts = &self.counts;
        let count = match reason {
            DisconnectReason::Frame(_) | DisconnectReason::Garbage(_) => &counts.refused_frames,
            DisconnectReason::Auth(_) | DisconnectReason::NotMember(_) => &counts.refused_nodes,
            DisconnectReason::Io(_) | DisconnectReason::Timeout | DisconnectReason::Replaced => {
                debug!(node, %reason, "disconnected");
                return;
            }
        };
        count.fetch_add(1, Ordering::Relaxed);
        warn!(node, %reason, "connection refused");
    }
}
