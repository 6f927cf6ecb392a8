//! The gateway: the Cosmos DB REST surface. Knows HTTP and nothing of storage.

pub mod auth;
pub mod keys;
pub mod resource_path;
pub mod tls;
