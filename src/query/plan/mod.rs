//! The planner: chooses the access path by which a query gets at the items of one shard.
//!
//! [`filter`] turns the WHERE clause into a [`condition`] on terms of the index, [`ordered_walk`] looks
//! for a walk in the order of ORDER BY, and the [`planner`] compares what each way would cost.

mod composite;
pub mod condition;
mod estimate;
pub mod filter;
mod index_use;
mod name_scope;
mod ordered_walk;
pub mod ordinals;
pub mod planner;
mod request;
pub mod terms;

pub use index_use::IndexUse;
pub use request::ScanRequest;
