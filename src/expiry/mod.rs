//! Expiry: when an item is gone, and what is done about it. Pure: no disk, no actor, no clock of
//! its own.
//!
//! [`Horizons::is_expired`] is the only formulation of "is it expired", and the place to change
//! it. Readers reach it through an [`ExpiryCheck`], decisions and the purger through
//! [`ExpiryRules`], the compaction filter of the storage engine through an [`ExpiryHorizon`].
//!
//! | file | what it holds |
//! | --- | --- |
//! | `rules` | the rules of one shard: a default and the watermarks that make expiry final |
//! | `visibility` | which rules readers use while the default changes |
//! | `horizon` | what the compaction filter may drop |
//! | `lanes` | the expiry queue: two lanes in time order, cursors, slices of purging |
//! | `backlog` | what has expired and is not purged |
//! | `purge_time` | up to which time a standalone shard, a leader and a follower may purge |
//! | `pacer` | how much of its time the purger may take |

mod backlog;
mod horizon;
pub mod lanes;
pub mod pacer;
mod purge_time;
mod rules;
mod visibility;

pub use backlog::{Backlog, backlog};
pub use horizon::ExpiryHorizon;
pub use purge_time::{PurgeClock, PurgeStep, purge_rules};
pub use rules::{ExpiryRules, Horizons};
pub use visibility::{EffectiveRules, ExpiryCheck};

/// Returns the earlier of two seconds, if there are any.
pub fn earlier(one: Option<i64>, other: Option<i64>) -> Option<i64> {
    one.into_iter().chain(other).min()
}
