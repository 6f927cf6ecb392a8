//! Decisions: what a request or a slice of background work does to the shard. They read what is
//! committed and what is pending, and end in changes of a command or in a purge; they write
//! nothing.

pub mod answer;
pub mod conditions;
pub mod guard;
pub mod purge;
pub mod range_cleanup;
pub mod reindex;
pub mod transaction;
pub mod weight;
