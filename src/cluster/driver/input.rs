//! What the event loop takes in.

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use raft::eraftpb::Message;

use super::{pending_reads::Reader, state_machine::StateMachine};
use crate::cluster::{
    GroupId, NodeId,
    raft::{group::ProposeError, log_disk::InitialState, planner::TargetConfig},
    transport::message::RaftMessage,
};

/// Receives the index of a proposal before it can be committed, or why it was refused.
pub type OnProposed = Box<dyn FnOnce(Result<u64, ProposeError>) + Send>;

pub enum Input {
    /// Raft messages of other nodes, and their size.
    Messages(Vec<RaftMessage>, usize),
    Propose {
        group: GroupId,
        term: u64,
        data: Bytes,
        proposed: OnProposed,
    },
    Add {
        group: GroupId,
        machine: Arc<dyn StateMachine>,
        initial: InitialState,
        applied: u64,
    },
    Remove(GroupId),
    /// The connection to a node broke.
    Disconnected(NodeId),
    ReadIndex(GroupId, Reader),
    Targets(BTreeMap<GroupId, TargetConfig>),
    /// A snapshot of a state machine was made as of an index, or could not be made.
    SnapshotMade {
        group: GroupId,
        made: Option<MadeSnapshot>,
    },
    /// An announced snapshot was fetched, or could not be.
    SnapshotFetched {
        group: GroupId,
        announced: Box<Message>,
        is_complete: bool,
    },
    Applied(GroupId, u64),
    Durable(GroupId, u64),
    Stop,
}

/// A snapshot that followers may fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MadeSnapshot {
    pub index: u64,
    pub id: u64,
}
