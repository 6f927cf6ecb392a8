//! Fetches announced snapshots, each on a thread of its own, before their groups hear of them.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    sync::{Arc, mpsc::Sender},
    time::Duration,
};

use bytes::Bytes;
use raft::eraftpb::Message;
use tracing::{error, warn};

use super::input::Input;
use crate::cluster::{
    GroupId, NodeId,
    raft::snapshot_meta::SnapshotData,
    snapshots::Snapshots,
    transport::{
        calls::Calls,
        connections::Connections,
        message::{PeerRequest, SnapshotChunk},
    },
};

/// Snapshots that are fetched at a time.
const FETCHES_MAX: usize = 4;
/// How long to wait after a snapshot could not be fetched.
const RETRY_INTERVAL: Duration = Duration::from_millis(500);

/// What becomes of an announced snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Announcement {
    /// It is being fetched, or is of no use.
    Taken,
    /// The sender should announce it again later.
    Declined,
}

pub struct SnapshotFetches {
    pub snapshots: Arc<Snapshots>,
    connections: Arc<Connections>,
    calls: Arc<Calls>,
    inputs: Sender<Input>,
    /// The source and the id of each snapshot that is being fetched.
    fetching: BTreeMap<GroupId, (NodeId, u64)>,
    /// Groups with a fetched snapshot, until it is known whether it is of use.
    fetched: BTreeSet<GroupId>,
}

impl SnapshotFetches {
    pub fn new(
        snapshots: Arc<Snapshots>,
        connections: Arc<Connections>,
        calls: Arc<Calls>,
        inputs: Sender<Input>,
    ) -> Self {
        Self {
            snapshots,
            connections,
            calls,
            inputs,
            fetching: BTreeMap::new(),
            fetched: BTreeSet::new(),
        }
    }

    /// Begins to fetch a snapshot that a leader has announced.
    pub fn begin(&mut self, group: GroupId, announced: &Message) -> Announcement {
        let snapshot = announced.get_snapshot();
        let index = snapshot.get_metadata().index;
        let Ok(SnapshotData { id, .. }) = rmp_serde::from_slice(&snapshot.data) else {
            return Announcement::Taken;
        };
        let source = announced.from;
        let in_flight = self.fetching.get(&group);
        if in_flight == Some(&(source, id)) {
            return Announcement::Taken;
        }
        // Another snapshot is announced meanwhile, most likely by a new leader.
        let is_busy = in_flight.is_some() || self.fetched.contains(&group);
        if is_busy || self.fetching.len() >= FETCHES_MAX {
            return Announcement::Declined;
        }
        if self.spawn(group, id, index, announced.clone()) {
            self.fetching.insert(group, (source, id));
        }
        Announcement::Taken
    }

    fn spawn(&self, group: GroupId, id: u64, index: u64, announced: Message) -> bool {
        let source = Source {
            node: announced.from,
            connections: Arc::clone(&self.connections),
            calls: Arc::clone(&self.calls),
        };
        let (snapshots, inputs) = (Arc::clone(&self.snapshots), self.inputs.clone());
        let announced = Box::new(announced);
        let thread = std::thread::Builder::new().name("fetch".to_owned());
        let started = thread.spawn(move || {
            let chunk = |file| source.chunk(SnapshotChunk { group, id, file });
            let fetched = snapshots.fetch(group, index, chunk);
            if let Err(failure) = &fetched {
                warn!(%group, node = source.node, %failure, "cannot fetch a snapshot");
                snapshots.discard(group);
                std::thread::sleep(RETRY_INTERVAL);
            }
            let _ = inputs.send(Input::SnapshotFetched {
                group,
                announced,
                is_complete: fetched.is_ok(),
            });
        });
        if let Err(failure) = &started {
            error!(%failure, "cannot start a thread that fetches a snapshot");
        }
        started.is_ok()
    }

    /// Notes that a fetch has ended.
    pub fn ended(&mut self, group: GroupId, is_complete: bool) {
        self.fetching.remove(&group);
        if is_complete {
            self.fetched.insert(group);
        }
    }

    /// Notes that a group installs its fetched snapshot.
    pub fn used(&mut self, group: GroupId) {
        self.fetched.remove(&group);
    }

    /// Removes fetched snapshots that were of no use.
    pub fn discard_unused(&mut self) {
        for group in std::mem::take(&mut self.fetched) {
            self.snapshots.discard(group);
        }
    }
}

/// The node that a snapshot is fetched from.
struct Source {
    node: NodeId,
    connections: Arc<Connections>,
    calls: Arc<Calls>,
}

impl Source {
    /// Requests a chunk and waits for it.
    fn chunk(&self, chunk: SnapshotChunk) -> io::Result<Bytes> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()?;
        let request = PeerRequest::SnapshotChunk(chunk);
        let called = runtime.block_on(self.calls.call(&self.connections, self.node, request));
        let response = called.map_err(|_| io::Error::other("the node does not answer"))?;
        if response.is_empty() {
            return Err(io::Error::other(
                "the node does not offer the snapshot any more",
            ));
        }
        Ok(response)
    }
}
