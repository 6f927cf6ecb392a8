//! A node as a member of its cluster: its Raft groups, its connections, and requests to other
//! nodes.

use std::{collections::BTreeMap, io, net::TcpListener, sync::Arc, sync::Weak, time::Duration};

use arc_swap::ArcSwap;
use bytes::Bytes;

use super::{
    GroupId, NodeId,
    driver::{Driver, DriverParts},
    raft::{
        log_disk::{INITIAL_POSITION, InitialState, LogDisk},
        membership::Members,
    },
    snapshots::Snapshots,
    time::timekeeper::Timekeeper,
    transport::{
        calls::{CallError, Calls},
        connections::Connections,
        handshake::Identity,
        join::JoinHandler,
        message::{PeerMessage, PeerRequest, Reply},
        peers::{Counts, PeerEvent},
    },
};
use crate::store::EngineError;

/// Answers a request of another node by calling back once.
pub type RequestHandler = Box<dyn Fn(NodeId, Bytes, Reply) + Send + Sync>;

/// What a member is made of.
pub struct MemberConfig {
    pub identity: Identity,
    /// The nodes that bootstrap the cluster, with their addresses; none where this one joined
    /// later.
    pub founders: BTreeMap<NodeId, String>,
    /// All known nodes, this one too, with their addresses.
    pub members: BTreeMap<NodeId, String>,
    pub listener: TcpListener,
    pub disk: Arc<dyn LogDisk>,
    pub snapshots: Arc<Snapshots>,
    pub time: Arc<Timekeeper>,
}

/// Handles requests of other nodes.
pub struct RequestHandlers {
    pub requests: RequestHandler,
    pub orders: RequestHandler,
    pub join: JoinHandler,
}

/// How often the others are asked whether the cluster is bootstrapped.
const BOOTSTRAP_POLL_INTERVAL: Duration = Duration::from_millis(50);
/// How long nodes that have left stay connected, to hear of it.
const DISCONNECT_AFTER: Duration = Duration::from_secs(10);
const BOOTSTRAPPED: &[u8] = b"begun";
const NEW: &[u8] = b"new";

/// Returns the encoded members of all groups of this node.
fn encode_members(driver: &Driver) -> Bytes {
    let status = driver.status();
    let members = status.iter().map(|group| (group.group, &group.members));
    rmp_serde::to_vec(&members.collect::<Vec<_>>())
        .expect("a list of numbers has a MessagePack form")
        .into()
}

/// Returns the newest members of a group that a quorum of themselves knows of. A change that only
/// the leader knows to be committed could be lost with its disk, and the others would wait for
/// nodes that have left.
fn known_to_quorum(reported: &BTreeMap<NodeId, Members>) -> Option<Members> {
    let known = reported.values().filter(|members| {
        let knows = |voter: &&NodeId| {
            let theirs = reported.get(voter);
            theirs.is_some_and(|theirs| theirs.since >= members.since)
        };
        members.voters.iter().filter(knows).count() > members.voters.len() / 2
    });
    known.max_by_key(|members| members.since).cloned()
}

/// Returns whether anything was ever written to the catalog's log, encoded.
fn is_bootstrapped(disk: &dyn LogDisk) -> Bytes {
    let answer = match disk.load(GroupId::META) {
        Ok(None) => NEW,
        Ok(Some(persisted)) if persisted.last == INITIAL_POSITION => NEW,
        Ok(Some(persisted)) if persisted.last.index == 0 => NEW,
        Ok(Some(_)) => BOOTSTRAPPED,
        Err(_) => b"",
    };
    Bytes::from_static(answer)
}

/// Routes what comes from other nodes.
struct Dispatcher {
    driver: Driver,
    calls: Arc<Calls>,
    connections: Weak<Connections>,
    disk: Arc<dyn LogDisk>,
    snapshots: Arc<Snapshots>,
    time: Arc<Timekeeper>,
    requests: RequestHandler,
    orders: RequestHandler,
}

impl Dispatcher {
    fn handle(&self, from: NodeId, event: PeerEvent) {
        match event {
            PeerEvent::Message(PeerMessage::Raft(sync, messages)) => {
                self.time.receive(from, sync);
                self.driver.receive(messages);
            }
            PeerEvent::Message(PeerMessage::Response(id, response)) => {
                self.calls.responded(from, id, response)
            }
            PeerEvent::Message(PeerMessage::Request(id, request)) => {
                self.handle_request(from, id, request);
            }
            PeerEvent::Message(PeerMessage::Heartbeat) => {}
            PeerEvent::Disconnected => {
                self.calls.disconnected(from);
                self.driver.disconnected(from);
            }
        }
    }

    fn handle_request(&self, from: NodeId, id: u64, request: PeerRequest) {
        let connections = self.connections.clone();
        let reply = move |response| {
            if let Some(connections) = connections.upgrade() {
                connections.send_together(from, &PeerMessage::Response(id, response));
            }
        };
        match request {
            PeerRequest::Gateway(request) => (self.requests)(from, request, Box::new(reply)),
            PeerRequest::Order(order) => (self.orders)(from, order, Box::new(reply)),
            PeerRequest::Members => reply(encode_members(&self.driver)),
            // Both wait for the disk.
            PeerRequest::SnapshotChunk(chunk) => {
                let snapshots = Arc::clone(&self.snapshots);
                tokio::task::spawn_blocking(move || reply(snapshots.chunk(&chunk)));
            }
            PeerRequest::IsBootstrapped => {
                let disk = Arc::clone(&self.disk);
                tokio::task::spawn_blocking(move || reply(is_bootstrapped(&*disk)));
            }
        }
    }
}

pub struct Member {
    pub node: NodeId,
    /// The nodes that bootstrap the cluster, with their addresses; none where this one joined
    /// later.
    founders: BTreeMap<NodeId, String>,
    /// All nodes, this one too, with their addresses.
    members: ArcSwap<BTreeMap<NodeId, String>>,
    pub driver: Driver,
    connections: Arc<Connections>,
    calls: Arc<Calls>,
}

impl Member {
    /// Listens, dials, and starts to drive the groups. Must be called on an event loop, which
    /// carries the connections.
    pub fn start(config: MemberConfig, handlers: RequestHandlers) -> io::Result<Self> {
        let MemberConfig {
            identity,
            founders,
            members,
            listener,
            disk,
            snapshots,
            time,
        } = config;
        let node = identity.node;
        let (driver, unstarted) = Driver::new();
        let calls = Arc::new(Calls::default());
        let connections = Arc::new_cyclic(|connections| {
            let dispatcher = Dispatcher {
                driver: driver.clone(),
                calls: Arc::clone(&calls),
                connections: Weak::clone(connections),
                disk: Arc::clone(&disk),
                snapshots: Arc::clone(&snapshots),
                time: Arc::clone(&time),
                requests: handlers.requests,
                orders: handlers.orders,
            };
            let handler = Box::new(move |from, event| dispatcher.handle(from, event));
            Connections::new(identity, &members, handler, handlers.join)
        });
        connections.start(listener)?;
        let parts = DriverParts {
            node,
            appliers: std::thread::available_parallelism().map_or(1, usize::from),
            disk,
            snapshots,
            calls: Arc::clone(&calls),
            connections: Arc::clone(&connections),
            time,
        };
        driver.start(unstarted, parts);
        Ok(Self {
            node,
            founders,
            members: ArcSwap::from_pointee(members),
            driver,
            connections,
            calls,
        })
    }

    /// Returns all nodes, this one too, with their addresses.
    pub fn members(&self) -> Arc<BTreeMap<NodeId, String>> {
        self.members.load_full()
    }

    /// Sets the nodes. Those that are gone are disconnected a while later, so that they hear of it.
    /// Must be called on an event loop.
    pub fn set_members(self: &Arc<Self>, members: BTreeMap<NodeId, String>) {
        let before = self.members.load_full();
        if *before == members {
            return;
        }
        let mut all = BTreeMap::clone(&before);
        all.extend(members.clone());
        self.connections.set_nodes(&all);
        self.members.store(Arc::new(members));
        let member = Arc::clone(self);
        tokio::spawn(async move {
            tokio::time::sleep(DISCONNECT_AFTER).await;
            member.connections.set_nodes(&member.members());
        });
    }

    /// Sends a request to a node and waits for the response.
    pub async fn call(&self, node: NodeId, request: PeerRequest) -> Result<Bytes, CallError> {
        self.calls.call(&self.connections, node, request).await
    }

    /// Sends a request to the gateway of a node and waits for the response.
    pub async fn request(&self, node: NodeId, request: Bytes) -> Result<Bytes, CallError> {
        self.call(node, PeerRequest::Gateway(request)).await
    }

    /// Returns how this node's replica of the catalog begins. A node without data may be new like
    /// all the others, or may have lost its disk. Only in the first case may it bootstrap the
    /// cluster. So it waits until a node knows a cluster, or until a quorum knows none.
    pub async fn initial_state(&self, disk: &dyn LogDisk) -> Result<InitialState, EngineError> {
        let voters: Vec<NodeId> = self.founders.keys().copied().collect();
        if !voters.contains(&self.node) {
            return Ok(InitialState::Uninitialized);
        }
        if disk.load(GroupId::META)?.is_some() {
            return Ok(InitialState::Bootstrap(voters));
        }
        loop {
            let others = voters.iter().filter(|node| **node != self.node);
            let calls = others.map(|node| self.call(*node, PeerRequest::IsBootstrapped));
            let answers = futures_util::future::join_all(calls).await;
            let answers: Vec<Bytes> = answers.into_iter().flatten().collect();
            if answers.iter().any(|answer| answer.as_ref() == BOOTSTRAPPED) {
                return Ok(InitialState::Uninitialized);
            }
            let new = answers.iter().filter(|answer| answer.as_ref() == NEW);
            if 1 + new.count() > voters.len() / 2 {
                return Ok(InitialState::Bootstrap(voters));
            }
            tokio::time::sleep(BOOTSTRAP_POLL_INTERVAL).await;
        }
    }

    /// Returns the members of all groups, as far as a quorum of them knows it.
    pub async fn group_members(&self) -> BTreeMap<GroupId, Members> {
        let nodes: Vec<NodeId> = self.members().keys().copied().collect();
        let calls = nodes.iter().map(|&node| async move {
            match node == self.node {
                true => Ok(encode_members(&self.driver)),
                false => self.call(node, PeerRequest::Members).await,
            }
        });
        let answers = futures_util::future::join_all(calls).await;
        let mut reported: BTreeMap<GroupId, BTreeMap<NodeId, Members>> = BTreeMap::new();
        for (node, answer) in nodes.into_iter().zip(answers) {
            let answer = answer.unwrap_or_default();
            let groups = rmp_serde::from_slice::<Vec<(GroupId, Members)>>(&answer);
            for (group, members) in groups.unwrap_or_default() {
                reported.entry(group).or_default().insert(node, members);
            }
        }
        let known = reported
            .into_iter()
            .filter_map(|(group, reported)| Some((group, known_to_quorum(&reported)?)));
        known.collect()
    }

    pub fn is_connected(&self, node: NodeId) -> bool {
        self.connections.is_connected(node)
    }

    pub fn counts(&self) -> &Counts {
        self.connections.counts()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_count_when_a_quorum_of_them_knows_of_the_change() {
        let members = |since, voters: &[NodeId]| Members {
            since,
            voters: voters.to_vec(),
            learners: Vec::new(),
        };
        let (old, new) = (members(5, &[1, 2, 3, 4]), members(9, &[1, 2, 3]));
        let told = |reports: &[(NodeId, &Members)]| {
            let reports = reports.iter();
            reports
                .map(|(node, members)| (*node, (*members).clone()))
                .collect()
        };
        let one = told(&[(1, &new), (2, &old), (3, &old), (4, &old)]);
        assert_eq!(known_to_quorum(&one), Some(old.clone()));
        let two = told(&[(1, &new), (2, &new), (3, &old), (4, &old)]);
        assert_eq!(known_to_quorum(&two), Some(new.clone()));
        assert_eq!(
            known_to_quorum(&told(&[(1, &new)])),
            None,
            "one is no quorum"
        );
    }
}
