//! Commits: the shared state of a shard, the queue of writes, and the log that makes groups of
//! commands durable and visible.

pub mod core;
mod group;
pub(super) mod index_follower;
mod log;
pub mod view;
pub mod write_queue;

pub use group::{Group, Reply, Waiting};
#[cfg(test)]
pub(super) use log::commit;
pub use log::{CommitLog, OnCommitted, ReplicatedLogs, Standalone};
pub(super) use log::{lock, note_purged, poison, take_over};
