//! One partition key range: its state machine, its change feed, and the actor that owns them.
//!
//! Layers; each knows only those above it:
//!
//! | layer | what it does |
//! | --- | --- |
//! | [`state`] | commands, and `apply`, the only way they reach the engine: deterministic |
//! | [`decide`] | decides requests and slices of background work against what is committed and pending |
//! | [`commit`] | the write queue, groups, the commit log, shared state and its reader |
//! | [`actor`] | the only writer: takes requests, decides, hands groups to the log |
//! | [`host`] | the shards of a node: opens, rebuilds, splits and replicates them |
//!
//! Reads do not pass through the actor: [`commit::view`] answers them on the caller's thread.

pub mod actor;
pub mod aggregate_cache;
pub mod check;
pub mod commit;
pub mod commit_error;
pub mod decide;
pub mod document_cache;
pub mod feed;
pub mod freshness;
pub mod host;
pub mod key_cache;
mod reconcile;
pub mod replica;
pub mod state;

pub use actor::suspect;
pub use commit::view;
pub use decide::{answer, guard, transaction};
pub use host::{progress, split};
pub use state::{command, facts, generation, indexing, overlay};

pub use document_cache::set_bytes_max as set_document_cache_bytes_max;

#[cfg(test)]
mod tests;
