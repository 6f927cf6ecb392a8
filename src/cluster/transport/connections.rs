//! The connections of a node: listens, dials, and sends.

use std::{
    collections::BTreeMap,
    io,
    net::TcpListener,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::Duration,
};

use tokio::{runtime::Handle, task::JoinSet};

use super::{
    accept, dial,
    handshake::Identity,
    join::JoinHandler,
    message::PeerMessage,
    peers::{Counts, Peer, PeerHandler, Peers},
};
use crate::cluster::NodeId;

/// How long to wait after a connection could not be accepted.
const ACCEPT_RETRY_INTERVAL: Duration = Duration::from_millis(50);

/// The connections of a node. They end when this is dropped.
pub struct Connections {
    peers: Arc<Peers>,
    tasks: Arc<Mutex<JoinSet<()>>>,
    /// The event loop that carries the connections, once it does.
    event_loop: OnceLock<Handle>,
}

impl Connections {
    pub fn new(
        identity: Identity,
        nodes: &BTreeMap<NodeId, String>,
        handler: PeerHandler,
        join_handler: JoinHandler,
    ) -> Self {
        let connections = Self {
            peers: Arc::new(Peers::new(identity, handler, join_handler)),
            tasks: Arc::default(),
            event_loop: OnceLock::new(),
        };
        connections.set_nodes(nodes);
        connections
    }

    /// Sets the other nodes and their addresses. Dials new ones, and ends the connections to those
    /// that are gone.
    pub fn set_nodes(&self, nodes: &BTreeMap<NodeId, String>) {
        let mut tasks = lock(&self.tasks);
        let before = self.peers.nodes.load_full();
        let mut new = Vec::new();
        let others = nodes
            .iter()
            .filter(|(node, _)| **node != self.peers.identity.node);
        let others = others.map(|(node, address)| {
            let known = before.get(node).filter(|peer| peer.address == *address);
            let peer = known.cloned().unwrap_or_else(|| {
                new.push(*node);
                Arc::new(Peer::new(address))
            });
            (*node, peer)
        });
        let nodes: BTreeMap<NodeId, Arc<Peer>> = others.collect();
        for (node, gone) in &*before {
            if !nodes.get(node).is_some_and(|peer| Arc::ptr_eq(peer, gone)) {
                gone.set_queue(None);
            }
        }
        self.peers.nodes.store(Arc::new(nodes));
        if let Some(event_loop) = self.event_loop.get() {
            self.dial(&mut tasks, event_loop, &new);
        }
    }

    /// Dials those of some nodes that this node is to dial.
    fn dial(&self, tasks: &mut JoinSet<()>, event_loop: &Handle, nodes: &[NodeId]) {
        let own = self.peers.identity.node;
        for &node in nodes.iter().filter(|node| **node < own) {
            let peers = Arc::clone(&self.peers);
            tasks.spawn_on(
                async move { dial::keep_dialing(&peers, node).await },
                event_loop,
            );
        }
    }

    /// Listens and dials. Must be called on an event loop, which carries the connections.
    pub fn start(&self, listener: TcpListener) -> io::Result<()> {
        listener.set_nonblocking(true)?;
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let peers = Arc::clone(&self.peers);
        let all_tasks = Arc::downgrade(&self.tasks);
        let mut tasks = lock(&self.tasks);
        let event_loop = self.event_loop.get_or_init(Handle::current);
        tasks.spawn(async move {
            loop {
                let Ok((stream, _)) = listener.accept().await else {
                    // Out of file descriptors, most likely: other connections must end first.
                    tokio::time::sleep(ACCEPT_RETRY_INTERVAL).await;
                    continue;
                };
                let Some(all_tasks) = all_tasks.upgrade() else {
                    return;
                };
                let mut tasks = lock(&all_tasks);
                while tasks.try_join_next().is_some() {}
                let peers = Arc::clone(&peers);
                tasks.spawn(async move { accept::serve(&peers, stream).await });
            }
        });
        let nodes: Vec<NodeId> = self.peers.nodes.load().keys().copied().collect();
        self.dial(&mut tasks, event_loop, &nodes);
        Ok(())
    }

    /// Sends a message. Returns `false` if it is dropped: the node is not connected or does not
    /// keep up.
    pub fn send(&self, to: NodeId, message: &PeerMessage) -> bool {
        let queue = self.peers.queue(to, message);
        queue.inspect(|queue| queue.flush()).is_some()
    }

    /// Sends a message together with those of other tasks of this thread. Returns as [`Self::send`]
    /// does.
    pub fn send_together(&self, to: NodeId, message: &PeerMessage) -> bool {
        let Some(queue) = self.peers.queue(to, message) else {
            return false;
        };
        match Handle::try_current() {
            // This task runs after those that are ready now, and sends what all of them have
            // queued.
            Ok(thread) => drop(thread.spawn(async move { queue.flush() })),
            Err(_) => queue.flush(),
        }
        true
    }

    pub fn is_connected(&self, node: NodeId) -> bool {
        let peer = self.peers.peer(node);
        peer.is_some_and(|peer| peer.is_connected())
    }

    /// Returns the nodes that are connected.
    pub fn connected(&self) -> Vec<NodeId> {
        let nodes = self.peers.nodes.load();
        let connected = nodes.iter().filter(|(_, peer)| peer.is_connected());
        connected.map(|(node, _)| *node).collect()
    }

    pub fn counts(&self) -> &Counts {
        &self.peers.counts
    }
}

fn lock(tasks: &Mutex<JoinSet<()>>) -> MutexGuard<'_, JoinSet<()>> {
    tasks.lock().unwrap_or_else(PoisonError::into_inner)
}
