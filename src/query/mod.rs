//! Queries over the items of a container: a query and a scope enter, one page of rows and a token for
//! the next one leave. The language itself is [`sql`](crate::sql).
//!
//! A page is made in slices on the blocking pool: a short query is over in its first one, long ones take
//! turns. One that looks for a value and finds few items is answered before that, on the thread that
//! took the request in, as a point read is.
//!
//! From bottom to top:
//! - [`access`]: walks over the keys and the index of one shard; [`plan`] chooses among them
//! - [`candidates`]: the items of one shard by the chosen access path; [`aggregate`]: COUNT, MIN and MAX
//!   from the index alone
//! - [`memory`], [`scheduler`], [`meter`]: what the queries of a node share, and what one of them holds
//! - [`rows`], [`position`], [`top`], [`token`]: rows, their order, and where the next page begins
//! - [`scope`]: what must be looked into; [`mode`]: the three ways to rows; [`run`]: one page

pub mod access;
mod aggregate;
mod candidates;
mod memory;
mod meter;
mod mode;
pub mod plan;
mod position;
mod rows;
mod run;
mod scheduler;
mod scope;
mod token;
mod top;

#[cfg(test)]
pub use access::RESUME_BYTES_MAX;
pub use access::{ResumePoint, ScanBudget};
pub use aggregate::aggregate_from_index;
pub use candidates::{Candidates, ScanStep};
pub use meter::QueryMeter;
#[cfg(test)]
pub use plan::planner::EAGER;
pub use plan::{IndexUse, ScanRequest};
pub use position::RowPosition;
pub use rows::Rows;
pub use run::{QueryPage, QueryRequest, QueryWork, one_page};
pub use scheduler::QueryScheduler;
pub use scope::key_ranges;
pub use token::{QueryFingerprint, QueryToken};
