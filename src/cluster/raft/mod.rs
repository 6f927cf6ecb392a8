//! The Raft groups of a node as one plain state machine: messages, ticks and proposals in; messages
//! and committed entries out. Knows no socket, no clock and no thread, so a test can run a whole
//! cluster from one seed.

pub mod election;
pub mod group;
pub mod group_log;
pub mod log_disk;
pub mod log_store;
pub mod membership;
mod overlong;
pub mod planner;
pub mod proposals;
pub mod read_index;
pub mod replicas;
pub mod snapshot_meta;
pub mod transport;
