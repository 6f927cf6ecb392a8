//! Replicas purge at different times. What one has purged and another has not is put right here,
//! when a command or a purge meets it.

use std::collections::HashMap;

use bytes::Bytes;

use super::state::{
    ShardState,
    command::{Change, ExpiredVersion, Purge, Superseded},
};
use crate::{
    expiry::lanes::LaneCursors,
    store::{
        Engine, EngineError,
        document::{Stored, VersionRef},
        keys,
    },
};

/// Returns what a purge may still do: an entry that was applied after the purge was drawn up may
/// have written over a version or taken its unique keys, and an engine that was installed since may
/// have been purged further.
pub(super) fn still_true(
    engine: &Engine,
    state: &ShardState,
    mut purge: Purge,
) -> Result<Purge, EngineError> {
    let is_ahead = |cursors: &LaneCursors| cursors.is_at_least(&state.cursors);
    purge.cursors = purge.cursors.filter(is_ahead);
    let mut kept = Vec::with_capacity(purge.versions.len());
    for mut expired in purge.versions {
        let ExpiredVersion {
            key,
            place_bytes,
            version,
        } = &mut expired;
        let Some(bytes) = engine.get(key)? else {
            continue;
        };
        let stored = decode(&bytes)?;
        if stored.header.position == version.position {
            let place = place_of(key, *place_bytes);
            version.fingerprints = held(engine, key, place, &stored, |_| None)?;
            kept.push(expired);
        }
    }
    purge.versions = kept;
    Ok(purge)
}

/// What the commands of a batch have made of documents and unique keys so far: the engine does not
/// have it yet.
#[derive(Default)]
pub(super) struct Met {
    /// The version of a document; `None` when it was deleted.
    documents: HashMap<Bytes, Option<Superseded>>,
    /// The document that took a unique key.
    holders: HashMap<Vec<u8>, Bytes>,
}

impl Met {
    /// Makes a change fit to what this replica has purged. The leader may have purged a version
    /// that is still here, or still have had one that is gone here; either was expired.
    pub fn reconcile(&mut self, engine: &Engine, change: &mut Change) -> Result<(), EngineError> {
        let (key, place_bytes, value, previous) = match change {
            Change::Put {
                key,
                place_bytes,
                value,
                previous,
                ..
            } => (key, *place_bytes, value, previous),
            Change::Delete { key, .. } => {
                self.documents.insert(key.clone(), None);
                return Ok(());
            }
            _ => return Ok(()),
        };
        let place = place_of(key, place_bytes);
        let taken = |unique: &Vec<u8>| {
            let holder = self.holders.get(unique);
            holder.map(|holder| holder == key)
        };
        let expected = previous.as_ref().map(|previous| previous.position);
        match self.documents.get(key) {
            Some(version) => {
                if version.as_ref().map(|version| version.position) != expected {
                    *previous = version.clone();
                    if let Some(version) = previous {
                        version
                            .fingerprints
                            .retain(|one| taken(&keys::unique(place, one)) == Some(true));
                    }
                }
            }
            None => {
                let bytes = engine.get(key)?;
                let stored = bytes.as_deref().map(decode).transpose()?;
                if stored.as_ref().map(|stored| stored.header.position) != expected {
                    *previous = match stored {
                        Some(stored) => Some(Superseded {
                            fingerprints: held(engine, key, place, &stored, taken)?,
                            ..superseded(&stored)
                        }),
                        None => None,
                    };
                }
            }
        }
        let stored = decode(value)?;
        let unique = stored.fingerprints().map(|one| keys::unique(place, one));
        self.holders.extend(unique.map(|one| (one, key.clone())));
        self.documents
            .insert(key.clone(), Some(superseded(&stored)));
        Ok(())
    }
}

/// Returns what goes when this version goes, with all the unique keys that it ever held.
fn superseded(stored: &Stored<&[u8]>) -> Superseded {
    Superseded {
        position: stored.header.position,
        own_due: stored.header.ttl.own_expiry(stored.header.ts),
        fingerprints: stored.fingerprints().copied().collect(),
        size: stored.size() as u32,
    }
}

fn place_of(key: &[u8], place_bytes: u8) -> &[u8] {
    key.get(1..1 + usize::from(place_bytes)).unwrap_or_default()
}

fn decode(bytes: &[u8]) -> Result<Stored<&[u8]>, EngineError> {
    Stored::decode(bytes).ok_or_else(|| EngineError::Damaged("a stored item".into()))
}

/// Returns the unique keys that a version still holds. `taken` knows of those that were taken
/// since: whether by this very document.
fn held(
    engine: &Engine,
    key: &[u8],
    place: &[u8],
    stored: &Stored<&[u8]>,
    taken: impl Fn(&Vec<u8>) -> Option<bool>,
) -> Result<Vec<[u8; 32]>, EngineError> {
    let mut held = Vec::new();
    for fingerprint in stored.fingerprints() {
        let unique = keys::unique(place, fingerprint);
        let holds = match taken(&unique) {
            Some(holds) => holds,
            None => {
                let holder = engine.get(&unique)?;
                let holder = holder.as_deref().and_then(VersionRef::decode);
                holder.is_some_and(|holder| holder.document_key == key)
            }
        };
        if holds {
            held.push(*fingerprint);
        }
    }
    Ok(held)
}
