//! The storage engine behind one small interface. Each shard has an engine of its own, in a folder
//! of its own, so that damage, a failed fsync or a removal touches one shard only. Keys and batches
//! enter; bytes leave. `keys` is the only place that knows how a key is laid out, `document` the
//! only one that knows a stored document's bytes.

pub mod checked_file;
pub mod damage;
pub mod descriptors;
pub mod document;
pub mod engine;
mod error;
mod expiry_filter;
pub mod identity;
pub mod index_entry;
pub mod keys;
mod log_format;
pub mod log_keys;
mod manifest;
pub mod options;
pub mod recorded_sequences;
pub mod removed;
pub mod reserve;
mod scan;
pub mod seal;
pub mod shard_id;
pub mod verify;
pub mod wal_check;

pub use engine::{Batch, Engine};
pub use error::EngineError;
pub use options::{EngineOptions, SharedResources};
