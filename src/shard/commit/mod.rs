//! Commits: the shared state of a shard, the queue of writes, and the log that makes groups of
//! commands durable and visible.

pub mod core;
mod group;
mod log;
pub mod view;
pub mod write_queue;

pub use group::{Group, Reply, Waiting};
pub use log::{CommitLog, OnCommitted, Standalone};
#[cfg(test)]
pub(super) use log::commit;
pub(super) use log::{lock, note_purged, poison, take_over};
