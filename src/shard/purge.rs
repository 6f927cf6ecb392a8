//! The expiry queue's consumer: finds what has fallen due, a slice at a time, and paces itself.
//!
//! Two lanes, both in time order. Items that inherit their ttl are in the feed itself: LSN order is `_ts` order, so the feed is the inherit
//! lane and costs no entry of its own. Items with a ttl of their own have an entry in the own lane. Cursors make sure that
//! what was passed is never looked at again: the cost is in proportion to what expires, never to what is stored.

use std::time::Duration;

use bytes::Bytes;

use super::{
    command::{Clearing, ExpiredVersion, LaneCursors, OwnCursor, Purge, Superseded},
    overlay::Overlay,
};
use crate::{
    model::ttl::{ExpiryRules, ItemTtl},
    store::{
        Engine, EngineError,
        document::{Stored, VersionRef},
        keys::{self, Position},
    },
};

/// Versions removed in one slice.
pub const SLICE_VERSIONS_MAX: usize = 512;
/// Entries of the inherit lane looked at in one slice; those with a ttl of their own are passed over.
const SLICE_ENTRIES_MAX: usize = 4 * SLICE_VERSIONS_MAX;

/// One slice of work.
pub struct Slice {
    pub purge: Purge,
    /// More was due than fits into the slice.
    pub more: bool,
    /// When the next item falls due, if there is one.
    pub next_due: Option<i64>,
    /// By how many seconds the oldest item of the slice was overdue.
    pub lag_seconds: i64,
}

/// Collects what is due at `now`. `pending_since` is the second of the oldest command that is not committed.
pub fn slice(
    engine: &Engine,
    overlay: &Overlay,
    rules: &ExpiryRules,
    cursors: LaneCursors,
    now: i64,
    pending_since: Option<i64>,
) -> Result<Slice, EngineError> {
    let mut collector = Collector {
        engine,
        overlay,
        versions: Vec::new(),
        due: Vec::new(),
    };
    let (inherit, oldest_inherit_ts, inherit_more) =
        collector.inherit_lane(rules, cursors.inherit, now)?;
    // A pending entry falls due after the second in which it was decided, which may be long ago when the disk is slow: no cursor
    // may be ahead of that.
    let own_horizon = rules
        .own_horizon(now)
        .min(pending_since.unwrap_or(i64::MAX));
    let (own, first_own_due, own_more) = collector.own_lane(own_horizon, cursors.own)?;
    let Collector { versions, due, .. } = collector;
    let oldest_due = due.iter().map(|(second, _)| *second).min();
    let after = LaneCursors { inherit, own };
    Ok(Slice {
        lag_seconds: oldest_due.map_or(0, |oldest| (now - oldest).max(0)),
        purge: Purge {
            versions,
            due,
            cursors: (after != cursors).then_some(after),
            rewritten_bytes: 0,
            horizons: Some((rules.inherit_horizon(now), rules.own_horizon(now))),
            clearing: Clearing::default(),
        },
        more: inherit_more || own_more,
        next_due: rules.next_due(oldest_inherit_ts, first_own_due),
    })
}

struct Collector<'a> {
    engine: &'a Engine,
    overlay: &'a Overlay,
    versions: Vec<ExpiredVersion>,
    /// How many of them fell due in which second, in runs.
    due: Vec<(i64, usize)>,
}

impl Collector<'_> {
    /// Walks the feed from the cursor: the new cursor, the `_ts` of the first entry that is not due, and whether more is due.
    fn inherit_lane(
        &mut self,
        rules: &ExpiryRules,
        cursor: Position,
        now: i64,
    ) -> Result<(Position, Option<i64>, bool), EngineError> {
        let horizon = rules.inherit_horizon(now);
        let mut cursor = cursor;
        let mut scan = self.engine.scan(&keys::feed(cursor), keys::FEED_END);
        for _ in 0..SLICE_ENTRIES_MAX {
            let Some((key, value)) = scan.entry()? else {
                return Ok((cursor, None, false));
            };
            let (position, version) = keys::feed_position(key)
                .zip(VersionRef::decode(value))
                .ok_or_else(|| damaged("feed"))?;
            if version.ts > horizon {
                return Ok((cursor, Some(version.ts), false));
            }
            if version.ttl == ItemTtl::Inherit {
                if self.versions.len() >= SLICE_VERSIONS_MAX {
                    return Ok((cursor, Some(version.ts), true));
                }
                let due = rules.next_due(Some(version.ts), None).unwrap_or(now);
                self.take(&version, position, None, due)?;
            }
            cursor = position.next();
            scan.advance();
        }
        Ok((cursor, None, true))
    }

    /// Walks the own lane from the cursor: the new cursor, the first entry that is not due, and whether more is due.
    fn own_lane(
        &mut self,
        horizon: i64,
        cursor: OwnCursor,
    ) -> Result<(OwnCursor, Option<i64>, bool), EngineError> {
        let mut cursor = cursor;
        let mut scan = self.engine.scan(
            &keys::own_lane(cursor.due, cursor.position),
            keys::OWN_LANE_END,
        );
        loop {
            let Some((key, value)) = scan.entry()? else {
                return Ok((cursor, None, false));
            };
            let ((due, position), version) = keys::own_lane_parts(key)
                .zip(VersionRef::decode(value))
                .ok_or_else(|| damaged("own lane"))?;
            if due > horizon {
                return Ok((cursor, Some(due), false));
            }
            if self.versions.len() >= SLICE_VERSIONS_MAX {
                return Ok((cursor, Some(due), true));
            }
            self.take(&version, position, Some(due), due)?;
            cursor = OwnCursor {
                due,
                position: position.next(),
            };
            scan.advance();
        }
    }

    fn take(
        &mut self,
        version: &VersionRef<'_>,
        position: Position,
        own_due: Option<i64>,
        due: i64,
    ) -> Result<(), EngineError> {
        if let Some(pending) = self.overlay.pending(version.document_key) {
            let stored = pending.and_then(Stored::decode);
            // Whoever writes over the document right now removes this version itself. But it may be this very version that is pending:
            // written, while the actor has not heard of it yet. Then it is ours, for the cursor does not come back.
            if stored.is_none_or(|stored| stored.header.position != position) {
                return Ok(());
            }
        }
        match self.due.last_mut() {
            Some((second, items)) if *second == due => *items += 1,
            _ => self.due.push((due, 1)),
        }
        let fingerprints = if version.has_unique_keys {
            self.held_fingerprints(version)?
        } else {
            Vec::new()
        };
        self.versions.push(ExpiredVersion {
            key: Bytes::copy_from_slice(version.document_key),
            place_bytes: version.place_bytes,
            version: Superseded {
                position,
                own_due,
                fingerprints,
                size: version.size,
            },
        });
        Ok(())
    }

    /// The unique keys that the version still holds: after its expiry another item may have taken them.
    fn held_fingerprints(&self, version: &VersionRef<'_>) -> Result<Vec<[u8; 32]>, EngineError> {
        let Some(bytes) = self.engine.get(version.document_key)? else {
            return Ok(Vec::new());
        };
        let stored = Stored::decode(&*bytes).ok_or_else(|| damaged("document"))?;
        let mut held = Vec::new();
        for fingerprint in stored.fingerprints() {
            let key = keys::unique(version.place(), fingerprint);
            let holder = self.overlay.get(self.engine, &key)?;
            let holds = holder
                .as_deref()
                .and_then(VersionRef::decode)
                .is_some_and(|h| h.document_key == version.document_key);
            if holds {
                held.push(*fingerprint);
            }
        }
        Ok(held)
    }
}

fn damaged(what: &str) -> EngineError {
    EngineError::Damaged(format!("an entry of the {what} cannot be read"))
}

/// The share of time that the purger may work while it keeps up, in percent.
const DUTY_PERCENT_MIN: u64 = 25;
/// The share it may take when it has fallen far behind.
const DUTY_PERCENT_MAX: u64 = 75;
/// How many more percent each second of lag adds.
const DUTY_PERCENT_PER_LAG_SECOND: u64 = 1;

/// The share of time that the purger may work, in percent: more when expiry has fallen behind, less when users are at work.
pub fn duty_percent(lag_seconds: i64, users_waiting: bool) -> u64 {
    let lag = u64::try_from(lag_seconds).unwrap_or(0);
    let mut duty =
        (DUTY_PERCENT_MIN + lag.saturating_mul(DUTY_PERCENT_PER_LAG_SECOND)).min(DUTY_PERCENT_MAX);
    if users_waiting {
        duty /= 2;
    }
    duty
}

/// How long to rest after a slice that took `worked`.
pub fn rest_after(worked: Duration, duty_percent: u64) -> Duration {
    let duty = duty_percent.clamp(1, 100);
    worked.mul_f64((100 - duty) as f64 / duty as f64)
}
