//! The range that a split has left to the sibling. A child begins with all of its parent's files,
//! so at first it holds its sibling's items, too. No reader sees them: reads are bounded to the
//! shard's range. They are removed in slices, with all their traces.

use bytes::Bytes;

use crate::{
    index::{DraftTerms, TermList},
    model::epk::{Epk, EpkRange},
    shard::state::{
        command::{ForeignVersion, GenerationChanges, IndexChanges, RangeCleanup, Superseded},
        indexing::{LiveIndex, parse},
        overlay::Overlay,
    },
    store::{
        Engine, EngineError,
        document::{Stored, VersionRef},
        keys,
    },
};

/// Versions removed in one slice.
const SLICE_VERSIONS_MAX: usize = 128;
/// Bytes of items read for one slice; the first one always is.
const SLICE_BYTES_MAX: usize = 1024 * 1024;

/// Collects the next items that are not in the range. What is pending is being
/// purged: it needs no cleanup.
pub fn slice(
    engine: &Engine,
    overlay: &Overlay,
    range: &EpkRange,
    indexes: &[(u16, std::sync::Arc<LiveIndex>)],
    cursor: &[u8],
) -> Result<RangeCleanup, EngineError> {
    let mut cleanup = RangeCleanup::default();
    let mut bytes = 0;
    let stretches = [
        keys::document_range(&[], &range.min),
        keys::document_range(&range.max, Epk::max().as_bytes()),
    ];
    for (from, to) in stretches {
        if to.as_slice() <= cursor {
            continue;
        }
        let mut scan = engine.scan(from.as_slice().max(cursor), &to);
        while let Some((key, value)) = scan.entry()? {
            if cleanup.versions.len() >= SLICE_VERSIONS_MAX
                || (bytes > 0 && bytes + value.len() > SLICE_BYTES_MAX)
            {
                cleanup.cursor = Some(Bytes::copy_from_slice(key));
                return Ok(cleanup);
            }
            bytes += value.len();
            if overlay.pending(key).is_none() {
                cleanup.versions.push(foreign(engine, indexes, key, value)?);
            }
            scan.advance();
        }
    }
    cleanup.ends = true;
    Ok(cleanup)
}

/// Returns an item with all that it has left: in the feed, in the own lane, among the unique keys
/// and in the index.
fn foreign(
    engine: &Engine,
    indexes: &[(u16, std::sync::Arc<LiveIndex>)],
    key: &[u8],
    value: &[u8],
) -> Result<ForeignVersion, EngineError> {
    let stored = Stored::decode(value).ok_or_else(|| damaged("document"))?;
    let header = stored.header;
    let fingerprints: Vec<[u8; 32]> = stored.fingerprints().copied().collect();
    let place_bytes = if fingerprints.is_empty() {
        0
    } else {
        let entry = engine.get(&keys::feed(header.position))?;
        let version = entry.as_deref().and_then(VersionRef::decode);
        version.ok_or_else(|| damaged("feed"))?.place_bytes
    };
    let object = if indexes.is_empty() {
        None
    } else {
        Some(parse(stored.body()).ok_or_else(|| damaged("document"))?)
    };
    let generations = indexes.iter().zip(object.iter().cycle());
    let generations = generations.map(|((number, live), object)| GenerationChanges {
        generation: *number,
        added: TermList::default(),
        removed: live
            .terms(DraftTerms::new(&live.indexer, object), header.ts)
            .0,
        new_shape: None,
    });
    Ok(ForeignVersion {
        index: IndexChanges {
            ordinal: header.ordinal,
            generations: generations.collect(),
        },
        key: Bytes::copy_from_slice(key),
        place_bytes,
        version: Superseded {
            position: header.position,
            own_due: header.ttl.own_expiry(header.ts),
            fingerprints,
            size: value.len() as u32,
        },
    })
}

fn damaged(what: &str) -> EngineError {
    EngineError::Damaged(format!("an entry of the {what} cannot be read"))
}
