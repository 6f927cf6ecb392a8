//! Memory of the node: how much there is, which bound each consumer gets, and what the allocator
//! gives to a thread.
//!
//! [`detect`] finds the limit of the cgroup or the machine, [`bounds`] shares it out, [`budget`]
//! is one bound at run time, and [`allocator`] reads and tunes jemalloc. The module knows no
//! query, shard or request.

pub mod allocator;
mod bounds;
mod budget;
mod detect;

pub use bounds::MemoryBounds;
pub use budget::{MemoryBudget, Reservation};
pub use detect::{Memory, MemorySource, detect};

pub const MIB: usize = 1024 * 1024;
