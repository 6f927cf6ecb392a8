//! The deterministic part of a shard: commands, the state that they change, and what is decided but
//! not committed.
//!
//! [`ShardState::apply`] is the only way a command reaches the engine. It reads no clock, no random
//! source and no configuration, and it knows no actor: a replica that applies a command needs
//! nothing but the command.

mod apply;
pub mod command;
pub mod facts;
pub mod generation;
pub mod indexing;
pub mod overlay;
pub mod split_mark;

pub use apply::ShardState;
