//! One partition-key range: its state machine, its expiry lanes, its change feed, and the actor that owns them.
//!
//! Requests enter the actor as operations. It decides them against what is committed and pending (`transaction`), turns them into
//! commands that carry their own time and identity (`command`), and hands groups of them to the commit log (`commit`). `state::apply` is the only way
//! a command reaches the engine; it reads no clock, no random source and no configuration. Reads do not pass through the actor: the `view`
//! answers them on the caller's thread from what is committed.

pub mod actor;
pub mod answer;
pub mod check;
pub mod command;
pub mod commit;
pub mod commit_error;
pub mod facts;
pub mod feed;
pub mod freshness;
pub mod generation;
mod groups;
pub mod guard;
pub mod heritage;
pub mod host;
pub mod index_work;
pub mod indexing;
mod intake;
mod leadership;
pub mod overdue;
pub mod overlay;
mod parting;
pub mod progress;
pub mod purge;
mod purge_work;
mod recent;
mod reconcile;
pub mod reindex;
pub mod replica;
pub mod select;
pub mod split;
mod split_work;
pub mod state;
mod sums;
pub mod suspect;
pub mod transaction;
pub mod view;
mod weight;
mod whereabouts;

pub use recent::set_bytes_max as set_recent_documents_bytes_max;

#[cfg(test)]
mod tests;
