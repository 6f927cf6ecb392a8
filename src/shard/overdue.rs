//! How far behind the purger is: what has expired and is still in the store. Looked up when asked for, by the same walk as the purger's.

use super::view::ShardView;
use crate::{
    model::ttl::ItemTtl,
    store::{EngineError, document::VersionRef, keys},
};

/// Entries of a lane that are looked at; what is behind them is not counted.
pub const COUNTED_MAX: usize = 100_000;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Overdue {
    /// Expired items that are not purged; those beyond [`COUNTED_MAX`] entries of a lane are left out.
    pub items: usize,
    /// When the oldest of them fell due.
    pub oldest_due: Option<i64>,
}

/// What is overdue in a shard now.
pub fn overdue(view: &ShardView) -> Result<Overdue, EngineError> {
    count(view, usize::MAX)
}

/// Returns whether anything is overdue in a shard now.
pub fn is_any(view: &ShardView) -> Result<bool, EngineError> {
    Ok(count(view, 1)?.items > 0)
}

/// Counts what is overdue, up to so many items of each lane.
fn count(view: &ShardView, items_max: usize) -> Result<Overdue, EngineError> {
    let (state, now) = (view.state(), view.clock.now());
    let rules = &state.rules;
    let mut found = Overdue::default();

    let horizon = rules.inherit_horizon(now);
    let from = keys::feed(state.cursors.inherit);
    let mut scan = view.engine.scan(&from, keys::FEED_END);
    for _ in 0..COUNTED_MAX {
        let version = scan
            .entry()?
            .and_then(|(_, value)| VersionRef::decode(value));
        let Some(version) = version.filter(|version| version.ts <= horizon) else {
            break;
        };
        if version.ttl == ItemTtl::Inherit {
            found.add(rules.next_due(Some(version.ts), None).unwrap_or(now));
            if found.items >= items_max {
                break;
            }
        }
        scan.advance();
    }

    let horizon = rules.own_horizon(now);
    let cursor = state.cursors.own;
    let from = keys::own_lane(cursor.due, cursor.position);
    let mut scan = view.engine.scan(&from, keys::OWN_LANE_END);
    for _ in 0..COUNTED_MAX.min(items_max) {
        let place = scan.entry()?.and_then(|(key, _)| keys::own_lane_parts(key));
        let Some((due, _)) = place.filter(|(due, _)| *due <= horizon) else {
            break;
        };
        found.add(due);
        scan.advance();
    }
    Ok(found)
}

impl Overdue {
    fn add(&mut self, due: i64) {
        self.items += 1;
        self.oldest_due = super::view::earlier(self.oldest_due, Some(due));
    }
}
