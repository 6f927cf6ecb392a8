//! What a shard has from the one that it came from by a split. It begins with all of its parent's files, so at first it holds its sibling's items, too. No reader sees
//! them: whoever reads bounds itself to the shard's range. They are cleared away in slices, with all their traces.

use bytes::Bytes;

use super::{
    command::{Clearing, ForeignVersion, GenerationChanges, IndexChanges, Superseded},
    indexing::{LiveIndex, parse},
    overlay::Overlay,
};
use crate::{
    index::{DraftTerms, TermList},
    model::epk::{Epk, EpkRange},
    store::{
        Batch, Engine, EngineError,
        document::{Stored, VersionRef},
        keys,
    },
};

/// Versions cleared away in one slice.
const SLICE_VERSIONS_MAX: usize = 128;
/// Bytes of items read for one slice; the first one always is.
const SLICE_BYTES_MAX: usize = 1024 * 1024;

/// Notes that the shard has more than its own.
pub fn begin(batch: &mut Batch) {
    batch.put(keys::HERITAGE, []);
}

/// Where clearing goes on; `None` when there is nothing to clear.
pub fn cursor(engine: &Engine) -> Result<Option<Bytes>, EngineError> {
    let cursor = engine.get(keys::HERITAGE)?;
    Ok(cursor.map(|cursor| Bytes::copy_from_slice(&cursor)))
}

/// Collects the next items that are not in the range. What is pending is being purged: it goes without us.
pub fn slice(
    engine: &Engine,
    overlay: &Overlay,
    range: &EpkRange,
    indexes: &[(u16, std::sync::Arc<LiveIndex>)],
    cursor: &[u8],
) -> Result<Clearing, EngineError> {
    let mut clearing = Clearing::default();
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
            if clearing.versions.len() >= SLICE_VERSIONS_MAX
                || (bytes > 0 && bytes + value.len() > SLICE_BYTES_MAX)
            {
                clearing.cursor = Some(Bytes::copy_from_slice(key));
                return Ok(clearing);
            }
            bytes += value.len();
            if overlay.pending(key).is_none() {
                clearing
                    .versions
                    .push(foreign(engine, indexes, key, value)?);
            }
            scan.advance();
        }
    }
    clearing.ends = true;
    Ok(clearing)
}

/// An item with all that it has left: in the feed, in the own lane, among the unique keys and in the index.
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
