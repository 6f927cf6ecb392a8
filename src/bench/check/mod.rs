//! The checker: a model of what must be there, and what the answers say against it.
//!
//! Writes enter as they are sent and answered; answers of readers enter with what was known when
//! they were asked; violations leave, with their evidence. What cannot be known for sure (a write
//! without an answer, the fraction of a second, another machine's clock) is never held against the
//! server.

mod default_ttl;
mod judge;
mod model;
mod seen;
mod server_clock;
mod violation;

pub use judge::{AnswerVerdict, Checker, Exchange, Lag};
pub use model::{Expectation, Lifetime, Ticket};
pub use seen::{Seen, seen_items};
pub use server_clock::ServerClock;
pub use violation::{Evidence, ViolationKind, Violations};
