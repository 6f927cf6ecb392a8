//! The storage engine behind one small interface. Each shard has an engine of its own, in a folder of its own, so that damage,
//! a failed fsync or a removal touches one shard only. Keys and batches enter; bytes leave. `keys` is the only
//! place that knows how a key is laid out, `document` the only one that knows a stored document's bytes.

pub mod document;
pub mod engine;
pub mod index_entry;
pub mod journal_tail;
pub mod keys;
pub mod log_keys;
mod sweeper;

pub use engine::{Batch, Engine, EngineError, SharedResources};
