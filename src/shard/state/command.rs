//! Commands: changes of a shard, complete and deterministic. Applying one needs nothing else.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::generation::Mode;
use crate::{
    expiry::{Horizons, lanes::LaneCursors},
    index::{ShapeId, TermList},
    model::{
        catalog::Cut,
        ttl::{DefaultTtl, ItemTtl},
    },
    store::keys::Position,
};

/// One transaction: all of it or nothing.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Command {
    pub lsn: u64,
    pub ts: i64,
    pub changes: Vec<Change>,
}

impl Command {
    /// Returns an upper bound of the bytes that it takes in a Raft log entry.
    pub fn entry_bytes(&self) -> usize {
        self.changes.iter().map(Change::entry_bytes).sum()
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Change {
    /// Stores a version of a document, in place of `previous`.
    Put {
        key: Bytes,
        place_bytes: u8,
        value: Bytes,
        previous: Option<Superseded>,
        index: IndexChanges,
    },
    /// Removes a document.
    Delete {
        key: Bytes,
        place_bytes: u8,
        previous: Superseded,
        index: IndexChanges,
    },
    /// Changes the container's default time to live.
    SetDefaultTtl(DefaultTtl),
    /// Begins a new generation of the index.
    BeginIndex(NewIndex),
    /// Enters versions that a generation of the index lacks.
    FillIndex(IndexSlice),
    /// Removes what a retired generation of the index has left.
    DropRetiredIndex,
    /// Changes nothing: each replica says what it holds here, under this number.
    Check(u64),
    /// The last change of a replica in a cluster: from now on its parts take its place.
    Split(Cut),
}

/// Numbers and framing of a change, of a generation in it and of a version in a slice.
const FRAMING_BYTES: usize = 256;
/// A fingerprint is encoded as a list of numbers: up to two bytes each.
const FINGERPRINT_BYTES: usize = 2 * 32 + 4;

impl Change {
    /// Returns an upper bound of the bytes that it takes in a Raft log entry. A test compares it
    /// with the encoding.
    pub fn entry_bytes(&self) -> usize {
        let superseded = |version: &Superseded| version.fingerprints.len() * FINGERPRINT_BYTES;
        let carried = match self {
            Self::Put {
                key,
                value,
                previous,
                index,
                ..
            } => {
                let previous = previous.as_ref().map_or(0, superseded);
                key.len() + value.len() + previous + index.entry_bytes()
            }
            Self::Delete {
                key,
                previous,
                index,
                ..
            } => key.len() + superseded(previous) + index.entry_bytes(),
            Self::FillIndex(slice) => {
                let versions = slice.versions.iter();
                let shapes = slice.new_shapes.iter();
                versions
                    .map(|version| FRAMING_BYTES + version.key.len() + version.terms.bytes())
                    .chain(shapes.map(|(_, paths)| FRAMING_BYTES + paths.len()))
                    .sum()
            }
            Self::BeginIndex(new) => new.policy.len(),
            // A cut is a few keys and numbers of nodes.
            Self::Split(_) => FRAMING_BYTES * 16,
            Self::SetDefaultTtl(_) | Self::DropRetiredIndex | Self::Check(_) => 0,
        };
        FRAMING_BYTES + carried
    }
}

/// What a change of one item does to the index, so that applying it needs no policy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IndexChanges {
    /// Of the item.
    pub ordinal: u64,
    pub generations: Vec<GenerationChanges>,
}

impl IndexChanges {
    fn entry_bytes(&self) -> usize {
        let generations = self.generations.iter().map(|one| {
            let shape = one.new_shape.as_ref().map_or(0, |(_, paths)| paths.len());
            FRAMING_BYTES + one.added.bytes() + one.removed.bytes() + shape
        });
        generations.sum()
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GenerationChanges {
    pub generation: u16,
    pub added: TermList,
    pub removed: TermList,
    /// A shape that is seen for the first time.
    pub new_shape: Option<(ShapeId, Bytes)>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewIndex {
    pub mode: Mode,
    pub policy: Bytes,
}

/// A stretch of the feed entered into a generation of the index.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IndexSlice {
    pub generation: u16,
    /// Where the next one begins.
    pub cursor: Position,
    pub versions: Vec<IndexedVersion>,
    pub new_shapes: Vec<(ShapeId, Bytes)>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IndexedVersion {
    pub key: Bytes,
    pub ordinal: u64,
    pub ts: i64,
    pub ttl: ItemTtl,
    pub terms: TermList,
}

/// What the version that goes away had left in feed, lane and unique keys.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Superseded {
    pub position: Position,
    pub own_due: Option<i64>,
    /// Unique keys that this version still holds.
    pub fingerprints: Vec<[u8; 32]>,
    pub size: u32,
}

/// Expired versions to remove, and how far the lanes are clean after that. Not replicated: expiry
/// is a pure function of item, rules and time, so every replica purges at its own pace.
#[derive(Clone, Debug, Default)]
pub struct Purge {
    pub versions: Vec<ExpiredVersion>,
    /// How many of them expired in which second.
    pub expired: Vec<(i64, usize)>,
    pub cursors: Option<LaneCursors>,
    /// Dead bytes that left the disk because the files were compacted.
    pub rewritten_bytes: u64,
    /// The horizons at which this was found: what lies behind them is dead for ever.
    pub horizons: Option<Horizons>,
    /// Items of the sibling that a split has left.
    pub cleanup: RangeCleanup,
}

impl Purge {
    pub fn is_empty(&self) -> bool {
        self.versions.is_empty()
            && self.cursors.is_none()
            && self.rewritten_bytes == 0
            && self.cleanup.is_empty()
    }
}

/// Items of a shard's sibling to remove. Not replicated: no reader sees them, so every replica does
/// it at its own pace.
#[derive(Clone, Debug, Default)]
pub struct RangeCleanup {
    pub versions: Vec<ForeignVersion>,
    /// Where the next slice begins.
    pub cursor: Option<Bytes>,
    /// Nothing is left of the sibling after this.
    pub ends: bool,
}

impl RangeCleanup {
    pub fn is_empty(&self) -> bool {
        self.versions.is_empty() && self.cursor.is_none() && !self.ends
    }
}

#[derive(Clone, Debug)]
pub struct ForeignVersion {
    pub key: Bytes,
    pub place_bytes: u8,
    pub version: Superseded,
    pub index: IndexChanges,
}

#[derive(Clone, Debug)]
pub struct ExpiredVersion {
    pub key: Bytes,
    pub place_bytes: u8,
    pub version: Superseded,
}
