//! One partition-key range: its state machine, its expiry lanes, its change feed, and the actor that owns them.
//!
//! Requests enter the actor as operations. It decides them against what is committed and pending (`transaction`), turns them into
//! commands that carry their own time and identity (`command`), and hands groups of them to the commit log (`commit`). `state::apply` is the only way
//! a command reaches the engine; it reads no clock, no random source and no configuration. Reads do not pass through the actor: the `view`
//! answers them on the caller's thread from what is committed.

pub mod actor;
pub mod check;
pub mod commit;
pub mod decide;
pub mod feed;
pub mod freshness;
mod groups;
pub mod host;
pub mod index_work;
mod leadership;
mod parting;
pub mod progress;
mod purge_work;
mod recent;
mod reconcile;
pub mod replica;
pub mod select;
pub mod split;
mod split_work;
pub mod state;
mod sums;
pub mod suspect;
mod whereabouts;

pub use commit::view;
pub use decide::{answer, guard, transaction};
pub use state::{command, facts, generation, indexing, overlay};

pub use recent::set_bytes_max as set_recent_documents_bytes_max;

#[cfg(test)]
mod tests;
