//! What the driver runs on top of a Raft group.

use std::{fmt, io, path::Path};

use crate::{
    cluster::raft::group::{Committed, Role},
    store::EngineError,
};

/// Why a state machine cannot go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StateMachineError {
    Engine(EngineError),
    /// The state machine is gone, or is being replaced.
    Closed(&'static str),
}

impl fmt::Display for StateMachineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Engine(failure) => failure.fmt(f),
            Self::Closed(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for StateMachineError {}

impl From<EngineError> for StateMachineError {
    fn from(failure: EngineError) -> Self {
        Self::Engine(failure)
    }
}

impl From<io::Error> for StateMachineError {
    fn from(failure: io::Error) -> Self {
        Self::Engine(failure.into())
    }
}

/// What committed entries change.
pub trait StateMachine: Send + Sync {
    /// Applies entries in the order of the log. Never called concurrently, and not after a failure.
    fn apply(&self, entries: Vec<Committed>) -> Result<(), StateMachineError>;
    /// Returns the time of the group on this node; never goes back.
    fn now(&self) -> i64;
    /// Makes all applied entries durable.
    fn sync(&self) -> Result<(), StateMachineError>;
    /// Notes the node's new role in the group. What it proposed as leader may still be committed.
    fn role(&self, role: Role);
    /// Reports the outcome of proposals of other terms as unknown, unless the node leads in that
    /// term.
    fn expire_proposals(&self);
    /// Notes that this replica takes no part in the group until the node is restarted, and why.
    fn halted(&self, why: &str);
    /// Writes a snapshot of all applied entries, as files, into a folder that does not exist yet.
    fn snapshot_to(&self, folder: &Path) -> Result<(), StateMachineError>;
    /// Replaces the state by a snapshot of an index. Moves or removes the files.
    fn install(&self, files: &Path, index: u64) -> Result<(), StateMachineError>;
}
