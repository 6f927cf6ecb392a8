//! The Cosmos DB SQL language, pure: a query's text and its parameters enter, with the items in
//! scope; rows leave. The room knows no storage, no index, no clock and no partition: the caller
//! says what time it is, feeds the items, and may look into the syntax tree to use an index first.
//!
//! Text → [`lexer`] → [`parser`] → [`ast`] (names and spans, printable) → [`bind`] (names become
//! slots, parameters become constants, functions are looked up) → [`program`] → [`eval`] and
//! [`execute`]. *Undefined* is `None` everywhere, never confused with null.
//!
//! Beside that way stand [`sdk_plan`] (how a client runs a query on several partitions), [`partition`]
//! (the partition keys a filter allows), [`wanted`] (the properties a query looks at),
//! [`stored_item`] (reading them) and [`computed`] (the container's computed properties).

pub mod ast;
mod bind;
pub mod compare;
mod computed;
mod error;
mod eval;
mod execute;
mod functions;
mod lexer;
pub mod like;
mod number;
mod parsed;
mod parser;
mod partition;
mod print;
mod program;
mod query;
mod sdk_plan;
mod short_lookup;
mod stored_item;
mod wanted;

pub use compare::{canonical_key, compare_ordering};
pub use computed::ComputedProperties;
pub use eval::{Flow, Guard, parsed_size};
pub use execute::{Execution, FinishedRow, Partial, TermAggregate, TermResult, compare_keys};
pub use functions::{Cap, Geometry, Vector};
pub use partition::PartitionKeys;
pub use query::{Condition, ConditionOutcome, ItemRows, OffsetLimit, Query, Row, Shape};
pub use sdk_plan::{Features, SdkPlan, sdk_plan};
pub use stored_item::ItemReader;
pub use wanted::Wanted;

#[cfg(test)]
mod tests;

/// The longest query text taken.
pub const QUERY_TEXT_BYTES_MAX: usize = 512 * 1024;
/// How deep expressions and subqueries nest; evaluation recurses no deeper than this.
pub const EXPRESSION_DEPTH_MAX: usize = 128;
/// Joins in one FROM clause.
pub const JOINS_MAX: usize = 5;
/// Items of one IN list.
pub const IN_LIST_ITEMS_MAX: usize = 16_000;
/// The greatest number of rows in TOP, OFFSET and LIMIT.
pub const COUNT_MAX: u64 = i32::MAX as u64;
/// Steps of work one input item may cause; a step is a visited row, a function call or
/// [`STEP_BYTES`] bytes copied. Guards against a join product that would stall its neighbours.
pub const STEPS_PER_ITEM_MAX: u64 = 4_000_000;
/// Steps of work that an expression without an item may cause while a query is planned.
const STEPS_PER_CONSTANT_MAX: u64 = 100_000;
/// How many bytes of copied values count as one step.
pub const STEP_BYTES: usize = 16;
