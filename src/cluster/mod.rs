//! Several nodes as one: Raft groups, and the connections between nodes.
//!
//! - [`raft`] holds the Raft groups of a node as a pure state machine.
//! - [`transport`] carries messages between nodes: authenticated, in frames, with bounded queues.
//! - [`time`] is the time that nodes agree on.
//! - [`driver`] runs the groups on threads, over the transport.
//! - [`snapshots`] holds snapshot files while they travel between nodes.
//! - [`member`] puts all of it together.

pub mod driver;
pub mod lease;
pub mod member;
pub mod raft;
pub mod snapshots;
pub mod time;
pub mod transport;

#[cfg(test)]
mod tests;

use std::fmt;

use serde::{Deserialize, Serialize};

/// The longest frame between nodes: a batch of items of the largest size, with their index terms.
pub const FRAME_BYTES_MAX: usize = 32 * 1024 * 1024;
/// The longest entry of a Raft log: one frame carries it with all that a message has around it.
/// Longer ones are not proposed.
pub const ENTRY_BYTES_MAX: usize = FRAME_BYTES_MAX - 64 * 1024;

/// A node of the cluster; never 0.
pub type NodeId = u64;

/// A Raft group: the catalog, or one shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct GroupId {
    /// The database in the upper half, the container in the lower; no database has the number 0.
    pub container: u64,
    pub range: u32,
}

impl GroupId {
    /// The group that holds the catalog.
    pub const META: Self = Self {
        container: 0,
        range: 0,
    };
}

impl fmt::Display for GroupId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::META => f.write_str("meta"),
            Self { container, range } => write!(f, "{container:x}-{range}"),
        }
    }
}
