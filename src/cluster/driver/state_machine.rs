//! What the driver runs on top of a Raft group.

use std::path::Path;

use crate::{
    cluster::raft::group::{Committed, Role},
    store::EngineError,
};

/// What committed entries change.
pub trait StateMachine: Send + Sync {
    /// Applies entries in the order of the log. Never called concurrently, and not after a failure.
    fn apply(&self, entries: Vec<Committed>) -> Result<(), EngineError>;
    /// Returns the time of the group on this node; never goes back.
    fn now(&self) -> i64;
    /// Makes all applied entries durable.
    fn sync(&self) -> Result<(), EngineError>;
    /// Notes the node's new role in the group. What it proposed as leader may still be committed.
    fn role(&self, role: Role);
    /// Reports the outcome of proposals of other terms as unknown, unless the node leads in that
    /// term.
    fn expire_proposals(&self);
    /// Notes that this replica takes no part in the group until the node is restarted, and why.
    fn halted(&self, why: &str);
    /// Writes a snapshot of all applied entries, as files, into a folder that does not exist yet.
    fn snapshot_to(&self, folder: &Path) -> Result<(), EngineError>;
    /// Replaces the state by a snapshot of an index. Moves or removes the files.
    fn install(&self, files: &Path, index: u64) -> Result<(), EngineError>;
}
