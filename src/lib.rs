//! Bolide: a document database node with exact time to live that speaks the Azure Cosmos DB for
//! NoSQL REST protocol. `ARCHITECTURE.md` has the map.

// First: its macros hold in all the others.
#[macro_use]
pub mod output;

pub mod bench;
pub mod cli;
pub mod client;
pub mod clock;
pub mod cluster;
pub mod config;
pub mod coordinator;
pub mod expiry;
pub mod gateway;
pub mod index;
pub mod local_cluster;
pub mod memory;
pub mod model;
pub mod node;
pub mod operator;
pub mod query;
pub mod router;
pub mod server;
pub mod shard;
pub mod sql;
pub mod store;
pub mod telemetry;
