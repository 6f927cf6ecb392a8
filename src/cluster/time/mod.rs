//! The time that the nodes of a cluster agree on.

pub mod shared_time;
pub mod timekeeper;
