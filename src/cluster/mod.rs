//! Several nodes as one: Raft groups and the way between nodes.
//!
//! `replicas` holds the Raft groups of a node as one plain state machine: messages, ticks and proposals enter; messages to others and committed entries leave.
//! What all groups want to keep in a round goes to the log in one write with one fsync. It knows no socket, no clock and no thread, so a test
//! can run a whole cluster of them from one seed. `links` carries messages between nodes: authenticated by `handshake`, in the frames of `frame`, with the contents of `parcel`.

mod applier;
pub mod calls;
pub mod driver;
pub mod election;
pub mod frame;
pub mod group;
pub mod group_log;
pub mod handshake;
pub mod join;
pub mod lease;
pub mod links;
pub mod log_store;
pub mod member;
mod outbox;
mod overlong;
pub mod parcel;
pub mod proposals;
mod queue;
pub mod reads;
pub mod replicas;
pub mod shared_time;
pub mod snapshots;
pub mod timekeeper;

#[cfg(test)]
mod tests;

use std::fmt;

use serde::{Deserialize, Serialize};

/// The longest entry of a Raft log: with all that a message has around it, one frame carries it. Longer ones are not proposed.
pub const ENTRY_BYTES_MAX: usize = frame::FRAME_BYTES_MAX - 64 * 1024;

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
