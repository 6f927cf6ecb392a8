//! Why a commit group was not committed.

use std::fmt;

use crate::{
    cluster::{ENTRY_BYTES_MAX, NodeId},
    model::error::{Error, ErrorKind},
    store::EngineError,
};

use super::state::ShardState;

/// The state after a commit group, or why it was not committed.
pub type CommitOutcome = Result<ShardState, CommitError>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommitError {
    /// This node does not lead the shard any more; the leader, if it is known. Nothing of the group
    /// is committed, so the leader may decide it anew.
    NotLeader(Option<NodeId>),
    /// Leadership was lost while the group was in flight. Whether it will be committed is unknown.
    OutcomeUnknown,
    /// Too many bytes wait for the other replicas.
    Overloaded,
    /// No log entry carries so many bytes.
    TooLong(usize),
    /// Another owner has taken over the shard, or its engine is being replaced. Nothing was
    /// written.
    Superseded,
    /// The commit panicked. The shard is poisoned.
    Panicked,
    /// The engine failed. Unless that heals, the shard is poisoned.
    Engine(EngineError),
}

impl fmt::Display for CommitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotLeader(_) => f.write_str("this node does not lead the shard any more"),
            Self::OutcomeUnknown => f.write_str(
                "the leader of the partition key range has changed; whether the write was kept is not known",
            ),
            Self::Overloaded => f.write_str(
                "too much waits for the other replicas of the partition key range",
            ),
            Self::TooLong(bytes) => write!(
                f,
                "Request size is too large: the log entry has {bytes} bytes, the limit is {ENTRY_BYTES_MAX}"
            ),
            Self::Superseded => f.write_str("the shard was rebuilt before this could be written"),
            Self::Panicked => f.write_str("the commit panicked"),
            Self::Engine(failure) => failure.fmt(f),
        }
    }
}

impl std::error::Error for CommitError {}

impl From<EngineError> for CommitError {
    fn from(failure: EngineError) -> Self {
        Self::Engine(failure)
    }
}

impl From<CommitError> for Error {
    fn from(error: CommitError) -> Self {
        let kind = match error {
            CommitError::NotLeader(leader) => return Self::not_leader(leader),
            CommitError::Engine(failure) => return failure.into(),
            CommitError::Overloaded => ErrorKind::Overloaded,
            CommitError::TooLong(_) => ErrorKind::TooLarge,
            CommitError::OutcomeUnknown | CommitError::Superseded | CommitError::Panicked => {
                ErrorKind::Unavailable
            }
        };
        Self::new(kind, error.to_string())
    }
}
