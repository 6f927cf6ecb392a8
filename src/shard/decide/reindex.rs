//! Enters into a generation of the index what it lacks, a stretch of the feed at a time: a new
//! generation is filled so, and a lazy one follows the writes so.

use std::time::Duration;

use bytes::Bytes;

use crate::{
    expiry::ExpiryRules,
    index::DraftTerms,
    model::epk::EpkRange,
    shard::state::{
        command::{IndexSlice, IndexedVersion},
        generation::Generation,
        indexing::{LiveIndex, parse},
        overlay::Overlay,
    },
    store::{
        Engine, EngineError,
        document::{Stored, VersionRef},
        keys,
    },
};

/// Versions entered in one slice while users are not at work, and while they are: their writes wait
/// for it, both while it is made and in its group.
const SLICE_VERSIONS_IDLE_MAX: usize = 128;
const SLICE_VERSIONS_BUSY_MAX: usize = 24;
/// Bytes of items read for one slice; the first one always is.
const SLICE_BYTES_MAX: usize = 1024 * 1024;
/// Entries of the feed looked at in one slice, for each version that it may enter.
const SLICE_ENTRIES_PER_VERSION_MAX: usize = 4;

/// The share of time that the work may take while users are at work, and while they are not, in
/// percent.
const DUTY_PERCENT_BUSY: u32 = 20;
const DUTY_PERCENT_IDLE: u32 = 90;

/// How many transactions a lazy index may be behind before it no longer waits for users to pause.
pub const LAZY_LAG_TRANSACTIONS_MAX: u64 = 10_000;

/// Returns how much is entered in one slice.
fn versions_max(users_at_work: bool) -> usize {
    if users_at_work {
        SLICE_VERSIONS_BUSY_MAX
    } else {
        SLICE_VERSIONS_IDLE_MAX
    }
}

/// Collects the next stretch for a generation.
#[expect(clippy::too_many_arguments, reason = "all that it depends on, named")]
pub fn slice(
    engine: &Engine,
    overlay: &Overlay,
    range: &EpkRange,
    generation: &Generation,
    live: &LiveIndex,
    end: keys::Position,
    rules: &ExpiryRules,
    now: i64,
    users_at_work: bool,
) -> Result<IndexSlice, EngineError> {
    let versions_max = versions_max(users_at_work);
    let mut slice = IndexSlice {
        generation: generation.number,
        cursor: generation.cursor,
        versions: Vec::new(),
        new_shapes: Vec::new(),
    };
    let mut bytes = 0;
    let mut scan = engine.scan(&keys::feed(generation.cursor), &keys::feed(end));
    for _ in 0..SLICE_ENTRIES_PER_VERSION_MAX * versions_max {
        let Some((key, value)) = scan.entry()? else {
            slice.cursor = end;
            break;
        };
        let (position, version) = keys::feed_position(key)
            .zip(VersionRef::decode(value))
            .ok_or_else(|| damaged("feed"))?;
        if slice.versions.len() >= versions_max
            || (bytes > 0 && bytes + version.size as usize > SLICE_BYTES_MAX)
        {
            break;
        }
        slice.cursor = position.next();
        // What is being written over right now is entered with its next version, and what is dead
        // or the sibling's is not entered at all.
        if range.contains(version.place())
            && !is_written_over(overlay, &version, position)?
            && !rules.is_expired(version.ts, version.ttl, now)
            && let Some(entered) = enter(engine, live, &version, position, &mut slice)?
        {
            bytes += version.size as usize;
            slice.versions.push(entered);
        }
        scan.advance();
    }
    Ok(slice)
}

/// Returns whether another version than the one at this place is decided. This one may be, too: the
/// actor has not been told yet.
fn is_written_over(
    overlay: &Overlay,
    version: &VersionRef<'_>,
    position: keys::Position,
) -> Result<bool, EngineError> {
    match overlay.pending(version.document_key) {
        None => Ok(false),
        Some(None) => Ok(true),
        Some(Some(pending)) => {
            let pending = Stored::decode(pending).ok_or_else(|| damaged("pending document"))?;
            Ok(pending.header.position != position)
        }
    }
}

fn enter(
    engine: &Engine,
    live: &LiveIndex,
    version: &VersionRef<'_>,
    position: keys::Position,
    slice: &mut IndexSlice,
) -> Result<Option<IndexedVersion>, EngineError> {
    let Some(bytes) = engine.get(version.document_key)? else {
        return Ok(None);
    };
    let stored = Stored::decode(&*bytes).ok_or_else(|| damaged("document"))?;
    if stored.header.position != position {
        return Ok(None);
    }
    let object = parse(stored.body()).ok_or_else(|| damaged("document"))?;
    let (terms, shape) = live.terms(DraftTerms::new(&live.indexer, &object), stored.header.ts);
    if let Some((id, shape)) = shape {
        slice.new_shapes.push((id, shape.encode().into()));
        live.learn(id, &shape);
    }
    Ok(Some(IndexedVersion {
        key: Bytes::copy_from_slice(version.document_key),
        ordinal: stored.header.ordinal,
        ts: stored.header.ts,
        ttl: stored.header.ttl,
        terms,
    }))
}

fn damaged(what: &str) -> EngineError {
    EngineError::Damaged(format!("an entry of the {what} cannot be read"))
}

/// Returns how long to rest after a slice that took `worked`.
pub fn rest_after(worked: Duration, users_at_work: bool) -> Duration {
    let duty = if users_at_work {
        DUTY_PERCENT_BUSY
    } else {
        DUTY_PERCENT_IDLE
    };
    worked * (100 - duty) / duty
}
