//! The coordinator: owns the catalog, stores it, opens and removes shards, and broadcasts changes to every shard of a container. Requests
//! for change enter; a new routing table leaves once the change is stored and every shard has answered.

pub mod actor;
pub mod catalog_file;
pub mod check;
pub mod close;
mod cluster_split;
pub mod meta;
pub mod moves;
mod progress;
mod publish;
pub mod questions;
pub mod shared;
pub mod split;

pub use actor::Coordinator;
