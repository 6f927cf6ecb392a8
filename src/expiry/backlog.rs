//! How far behind the purger is: what has expired and is still stored.

use std::ops::ControlFlow;

use super::{
    earlier,
    lanes::{LaneCursors, LaneReader},
    rules::ExpiryRules,
};
use crate::model::ttl::ItemTtl;

/// Entries of a lane that are looked at; what is behind them is not counted.
pub const COUNTED_MAX: usize = 100_000;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backlog {
    /// Expired items that are not purged; those beyond [`COUNTED_MAX`] entries of a lane are left
    /// out.
    pub items: usize,
    /// When the oldest of them expired.
    pub oldest_expiry: Option<i64>,
}

impl Backlog {
    fn add(&mut self, expiry: i64) {
        self.items += 1;
        self.oldest_expiry = earlier(self.oldest_expiry, Some(expiry));
    }
}

/// Counts what has expired by `now` behind the cursors, up to so many items of each lane.
pub fn backlog<R: LaneReader>(
    lanes: &R,
    rules: &ExpiryRules,
    cursors: LaneCursors,
    now: i64,
    items_max: usize,
) -> Result<Backlog, R::Error> {
    let horizons = rules.horizons(now);
    let mut found = Backlog::default();
    let mut entries_left = COUNTED_MAX;
    lanes.visit_inherit(cursors.inherit, |entry, _| {
        if entries_left == 0 || !horizons.has_inherit_passed(entry.ts) || found.items >= items_max {
            return Ok(ControlFlow::Break(()));
        }
        entries_left -= 1;
        if entry.ttl == ItemTtl::Inherit {
            found.add(rules.expiry_of(entry.ts, entry.ttl).unwrap_or(now));
        }
        Ok(ControlFlow::Continue(()))
    })?;
    let mut entries_left = COUNTED_MAX.min(items_max);
    lanes.visit_own(cursors.own, |entry, _| {
        if entries_left == 0 || !horizons.has_own_passed(entry.expiry) {
            return Ok(ControlFlow::Break(()));
        }
        entries_left -= 1;
        found.add(entry.expiry);
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(found)
}
