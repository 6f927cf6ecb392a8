//! The interface to the disk that holds the Raft logs of a node, and what it stores.

use raft::eraftpb::{Entry, HardState};

use super::membership::Members;
use crate::{
    cluster::{GroupId, NodeId},
    store::{EngineError, engine::Durability},
};

/// Entries that are retained for a replica that is away. It gets what it lacks beyond them by a
/// snapshot.
const RETAINED_ENTRIES_MAX: u64 = 20_000;
/// Bytes of them, approximately.
const RETAINED_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// A position in the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogPosition {
    pub index: u64,
    pub term: u64,
}

/// Where the log begins on the nodes that bootstrap a group. An uninitialized replica stands before
/// it, so only a snapshot can initialize it, which also tells it the members.
pub const INITIAL_POSITION: LogPosition = LogPosition { index: 1, term: 1 };

/// How a replica that has no log begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InitialState {
    /// These voters bootstrap the group, this node among them.
    Bootstrap(Vec<NodeId>),
    /// The group exists. This replica has nothing of it, and waits for a snapshot of the leader.
    Uninitialized,
}

/// How much of a log is retained for replicas that lack it.
#[derive(Clone, Copy, Debug)]
pub struct LogRetention {
    pub entries_max: u64,
    pub bytes_max: u64,
}

impl Default for LogRetention {
    fn default() -> Self {
        Self {
            entries_max: RETAINED_ENTRIES_MAX,
            bytes_max: RETAINED_BYTES_MAX,
        }
    }
}

/// Changes of the logs of several groups, written atomically.
#[derive(Clone, Default)]
pub struct LogBatch {
    pub records: Vec<(GroupId, LogRecord)>,
}

#[derive(Clone)]
pub enum LogRecord {
    /// Appends entries without gaps. Removes the old entries from the first of them up to `last`.
    Append {
        entries: Vec<Entry>,
        last: u64,
    },
    HardState(HardState),
    /// Removes entries up to this one.
    Truncate {
        before: LogPosition,
        to: LogPosition,
    },
    /// The last entry that a state machine outside of the log has applied.
    Applied(u64),
    Members(Members),
    /// Begins the log behind this position. Removes the old entries up to `last`.
    Restart {
        at: LogPosition,
        last: u64,
    },
    /// Removes the whole group.
    Remove,
}

/// What is on disk of a group, apart from its entries.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PersistedState {
    pub hard_state: HardState,
    /// The last entry that was removed from the front.
    pub truncated: LogPosition,
    pub last: LogPosition,
    /// The last applied entry, as a state machine that does not store it itself has recorded.
    pub applied: u64,
    /// `None` in a log of a version that did not store them.
    pub members: Option<Members>,
}

impl PersistedState {
    /// Returns how far the state machine has come. One that has applied nothing stands at the
    /// initial position of a group that was bootstrapped here.
    pub fn applied_at_least(&self, applied: u64) -> u64 {
        if self.truncated == INITIAL_POSITION {
            applied.max(INITIAL_POSITION.index)
        } else {
            applied
        }
    }
}

/// Stores the logs of a node's groups.
pub trait LogDisk: Send + Sync {
    /// Returns `None` for a group that is not there.
    fn load(&self, group: GroupId) -> Result<Option<PersistedState>, EngineError>;
    /// Returns entries with `from <= index < to`: at least one, then as many as fit into
    /// `bytes_max`.
    fn entries(
        &self,
        group: GroupId,
        from: u64,
        to: u64,
        bytes_max: u64,
    ) -> Result<Vec<Entry>, EngineError>;
    /// Writes all of a batch or nothing.
    fn write(&self, batch: LogBatch, durability: Durability) -> Result<(), EngineError>;
}
