//! Drives the Raft groups of a node: one thread owns them all and waits for the disk of their log,
//! a few others apply what is committed.

mod applier;
mod campaigns;
mod event_loop;
mod input;
mod peer_transport;
mod pending_reads;
mod snapshot_fetch;
pub mod state_machine;
pub mod status;

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
        mpsc::{Receiver, Sender, channel},
    },
    thread::JoinHandle,
};

use arc_swap::ArcSwap;
use bytes::Bytes;
use tokio::sync::oneshot;
use tracing::error;

use event_loop::{EventLoop, LoopState};
use input::{Input, OnProposed};
use peer_transport::PeerTransport;
use snapshot_fetch::SnapshotFetches;
use state_machine::StateMachine;
use status::GroupStatus;

use super::{
    GroupId, NodeId,
    lease::Lease,
    raft::{
        group::ProposeError,
        log_disk::{InitialState, LogDisk},
        planner::TargetConfig,
        read_index::ReadIndex,
        replicas::Replicas,
    },
    snapshots::Snapshots,
    time::timekeeper::Timekeeper,
    transport::{calls::Calls, connections::Connections, message::RaftMessage},
};

/// Raft messages that wait for the event loop. Above it they are dropped, and repeated.
const QUEUED_BYTES_MAX: usize = 64 * 1024 * 1024;

/// A handle to the thread that owns the groups.
#[derive(Clone)]
pub struct Driver {
    inputs: Sender<Input>,
    queued_bytes: Arc<AtomicUsize>,
    status: Arc<ArcSwap<Vec<GroupStatus>>>,
    lease: Arc<Lease>,
    thread: Arc<Mutex<Option<JoinHandle<()>>>>,
}

/// What a driver needs.
pub struct DriverParts {
    pub node: NodeId,
    /// Threads that apply committed entries.
    pub appliers: usize,
    pub disk: Arc<dyn LogDisk>,
    pub snapshots: Arc<Snapshots>,
    pub calls: Arc<Calls>,
    pub connections: Arc<Connections>,
    pub time: Arc<Timekeeper>,
}

/// The inputs of a driver whose thread has not started: what arrives waits for it.
pub struct Unstarted(Receiver<Input>);

impl Driver {
    pub fn new() -> (Self, Unstarted) {
        let (inputs, waiting) = channel();
        let driver = Self {
            inputs,
            queued_bytes: Arc::default(),
            status: Arc::default(),
            lease: Arc::default(),
            thread: Arc::default(),
        };
        (driver, Unstarted(waiting))
    }

    pub fn start(&self, unstarted: Unstarted, parts: DriverParts) {
        let DriverParts {
            node,
            appliers,
            disk,
            snapshots,
            calls,
            connections,
            time,
        } = parts;
        let appliers = (0..appliers.max(1))
            .map(|_| applier::start(self.inputs.clone(), Arc::clone(&snapshots)));
        let mut event_loop = EventLoop {
            node,
            inputs: unstarted.0,
            queued_bytes: Arc::clone(&self.queued_bytes),
            status: Arc::clone(&self.status),
            appliers: appliers.collect(),
            replicas: Replicas::new(node, disk),
            transport: PeerTransport::new(Arc::clone(&connections), time),
            fetches: SnapshotFetches::new(snapshots, connections, calls, self.inputs.clone()),
            state: LoopState::default(),
        };
        let thread = std::thread::Builder::new()
            .name("raft".to_owned())
            .spawn(move || event_loop.run());
        match thread {
            Ok(thread) => *self.thread() = Some(thread),
            Err(failure) => error!(%failure, "cannot start the thread of the Raft groups"),
        }
    }

    fn thread(&self) -> MutexGuard<'_, Option<JoinHandle<()>>> {
        self.thread.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn send(&self, input: Input) {
        // After the end of the thread nothing is promised.
        let _ = self.inputs.send(input);
    }

    /// Handles Raft messages of another node.
    pub fn receive(&self, messages: Vec<RaftMessage>) {
        let bytes = messages.iter().map(RaftMessage::bytes).sum();
        let queued = self.queued_bytes.fetch_add(bytes, Ordering::Relaxed);
        if queued + bytes > QUEUED_BYTES_MAX {
            self.queued_bytes.fetch_sub(bytes, Ordering::Relaxed);
            return;
        }
        self.send(Input::Messages(messages, bytes));
    }

    /// Takes part in a group whose state machine has applied the entries up to `applied`.
    pub fn add(
        &self,
        group: GroupId,
        machine: Arc<dyn StateMachine>,
        initial: InitialState,
        applied: u64,
    ) {
        self.send(Input::Add {
            group,
            machine,
            initial,
            applied,
        });
    }

    /// Sets the target configurations. A group without one stays as it is.
    pub fn set_targets(&self, targets: BTreeMap<GroupId, TargetConfig>) {
        self.send(Input::Targets(targets));
    }

    /// Leaves a group that is gone, or has no replica here any more. Removes its log.
    pub fn remove(&self, group: GroupId) {
        self.send(Input::Remove(group));
    }

    /// Appends an entry to the log of a group, if this node leads it in this term.
    pub fn propose(&self, group: GroupId, term: u64, data: Bytes, proposed: OnProposed) {
        let input = Input::Propose {
            group,
            term,
            data,
            proposed,
        };
        if let Err(unsent) = self.inputs.send(input)
            && let Input::Propose { proposed, .. } = unsent.0
        {
            proposed(Err(ProposeError::NotLeader));
        }
    }

    /// Returns this node's lease to serve requests.
    pub fn lease(&self) -> &Lease {
        &self.lease
    }

    /// Notes that the connection to a node broke. The groups that it leads elect another leader at
    /// once.
    pub fn disconnected(&self, node: NodeId) {
        self.send(Input::Disconnected(node));
    }

    /// Returns the read index of a group: a commit index at some moment after this call, confirmed
    /// by a quorum. A replica that has applied it has all that was acknowledged before this call.
    /// Waits while there is no quorum. Returns `None` if the group is not here.
    pub async fn read_index(&self, group: GroupId) -> Option<ReadIndex> {
        let (reader, answer) = oneshot::channel();
        self.send(Input::ReadIndex(group, reader));
        answer.await.ok()
    }

    pub fn status(&self) -> Arc<Vec<GroupStatus>> {
        self.status.load_full()
    }

    /// Ends the thread. Every state machine loses its leadership.
    pub fn stop(&self) {
        self.send(Input::Stop);
        if let Some(thread) = self.thread().take() {
            let _ = thread.join();
        }
    }
}
