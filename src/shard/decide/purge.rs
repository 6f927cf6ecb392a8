//! The purger's reads: the expiry lanes of an engine, and what a purge must know of an expired
//! version.

use std::ops::ControlFlow;

use bytes::Bytes;

use crate::{
    expiry::{
        ExpiryRules,
        lanes::{self, Expired, InheritEntry, LaneCursors, LaneReader, OwnCursor, OwnEntry},
    },
    shard::state::{
        command::{ExpiredVersion, Purge, RangeCleanup, Superseded},
        overlay::Overlay,
    },
    store::{
        Engine, EngineError,
        document::{Stored, VersionRef},
        keys::{self, Position},
    },
};

/// The lanes of an engine.
pub struct EngineLanes<'e>(pub &'e Engine);

impl LaneReader for EngineLanes<'_> {
    type Version<'v> = VersionRef<'v>;
    type Error = EngineError;

    fn visit_inherit(
        &self,
        from: Position,
        mut visit: impl FnMut(InheritEntry, VersionRef<'_>) -> Result<ControlFlow<()>, EngineError>,
    ) -> Result<(), EngineError> {
        let mut scan = self.0.scan(&keys::feed(from), keys::FEED_END);
        while let Some((key, value)) = scan.entry()? {
            let (position, version) = keys::feed_position(key)
                .zip(VersionRef::decode(value))
                .ok_or_else(|| damaged("feed"))?;
            let entry = InheritEntry {
                position,
                ts: version.ts,
                ttl: version.ttl,
            };
            if visit(entry, version)?.is_break() {
                break;
            }
            scan.advance();
        }
        Ok(())
    }

    fn visit_own(
        &self,
        from: OwnCursor,
        mut visit: impl FnMut(OwnEntry, VersionRef<'_>) -> Result<ControlFlow<()>, EngineError>,
    ) -> Result<(), EngineError> {
        let from = keys::own_lane(from.expiry, from.position);
        let mut scan = self.0.scan(&from, keys::OWN_LANE_END);
        while let Some((key, value)) = scan.entry()? {
            let ((expiry, position), version) = keys::own_lane_parts(key)
                .zip(VersionRef::decode(value))
                .ok_or_else(|| damaged("own lane"))?;
            if visit(OwnEntry { expiry, position }, version)?.is_break() {
                break;
            }
            scan.advance();
        }
        Ok(())
    }
}

/// One slice of work.
pub struct Slice {
    pub purge: Purge,
    /// More has expired than fits into the slice.
    pub more: bool,
    /// No item expires before this second; `None`: none does, by these rules.
    pub next_expiry: Option<i64>,
    /// By how many seconds the oldest item of the slice was overdue.
    pub lag_seconds: i64,
}

/// Collects what is expired at `now`. `pending_since` is the second of the oldest command that is
/// not committed.
pub fn slice(
    engine: &Engine,
    overlay: &Overlay,
    rules: &ExpiryRules,
    cursors: LaneCursors,
    now: i64,
    pending_since: Option<i64>,
) -> Result<Slice, EngineError> {
    let collector = Collector { engine, overlay };
    let mut versions = Vec::new();
    let take = |expired, version: VersionRef<'_>| {
        let taken = collector.take(&expired, &version)?;
        let is_taken = taken.is_some();
        versions.extend(taken);
        Ok(is_taken)
    };
    let found = lanes::slice(
        &EngineLanes(engine),
        rules,
        cursors,
        now,
        pending_since,
        take,
    )?;
    Ok(Slice {
        purge: Purge {
            versions,
            expired: found.expired,
            cursors: (found.cursors != cursors).then_some(found.cursors),
            rewritten_bytes: 0,
            horizons: Some(found.horizons),
            cleanup: RangeCleanup::default(),
        },
        more: found.more,
        next_expiry: found.next_expiry,
        lag_seconds: found.lag_seconds,
    })
}

struct Collector<'a> {
    engine: &'a Engine,
    overlay: &'a Overlay,
}

impl Collector<'_> {
    /// Returns what is to be removed of an expired version; `None`: another command does it.
    fn take(
        &self,
        expired: &Expired,
        version: &VersionRef<'_>,
    ) -> Result<Option<ExpiredVersion>, EngineError> {
        if let Some(pending) = self.overlay.pending(version.document_key) {
            let stored = pending.and_then(Stored::decode);
            // A pending write over the document removes this version itself. But it may be this
            // very version that is pending: written, while the actor has not heard of it yet. Then
            // it is taken, for the cursor does not come back.
            if stored.is_none_or(|stored| stored.header.position != expired.position) {
                return Ok(None);
            }
        }
        let fingerprints = if version.has_unique_keys {
            self.held_fingerprints(version)?
        } else {
            Vec::new()
        };
        Ok(Some(ExpiredVersion {
            key: Bytes::copy_from_slice(version.document_key),
            place_bytes: version.place_bytes,
            version: Superseded {
                position: expired.position,
                own_due: expired.own_expiry,
                fingerprints,
                size: version.size,
            },
        }))
    }

    /// Returns the unique keys that the version still holds: after its expiry another item may have
    /// taken them.
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
