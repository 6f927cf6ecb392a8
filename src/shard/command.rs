//! Commands: changes of a shard, complete and deterministic. Whoever applies one needs nothing else.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::{model::ttl::DefaultTtl, store::keys::Position};

/// One transaction: all of it or nothing.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Command {
    pub lsn: u64,
    pub ts: i64,
    pub changes: Vec<Change>,
}

impl Command {
    /// About how many bytes it adds to the engine's journal.
    pub fn bytes(&self) -> usize {
        /// Keys, feed entry and framing of one change.
        const OVERHEAD_BYTES: usize = 256;
        let values = self.changes.iter().map(|change| match change {
            Change::Put { value, .. } => value.len(),
            Change::Delete { .. } | Change::SetDefaultTtl(_) => 0,
        });
        values.map(|bytes| bytes + OVERHEAD_BYTES).sum()
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Change {
    /// Stores a version of a document, in place of `previous`.
    Put {
        key: Bytes,
        epk_bytes: u8,
        value: Bytes,
        previous: Option<Superseded>,
    },
    /// Removes a document.
    Delete {
        key: Bytes,
        epk_bytes: u8,
        previous: Superseded,
    },
    /// Changes the container's default time to live.
    SetDefaultTtl(DefaultTtl),
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

/// Expired versions to remove, and how far the lanes are clean after that. Not replicated: expiry is a pure function of item, rules and
/// time, so every replica purges at its own pace.
#[derive(Clone, Debug, Default)]
pub struct Purge {
    pub versions: Vec<ExpiredVersion>,
    pub cursors: Option<LaneCursors>,
    /// Dead bytes that left the disk because the files were rewritten.
    pub rewritten_bytes: u64,
}

impl Purge {
    pub fn is_empty(&self) -> bool {
        self.versions.is_empty() && self.cursors.is_none() && self.rewritten_bytes == 0
    }
}

#[derive(Clone, Debug)]
pub struct ExpiredVersion {
    pub key: Bytes,
    pub epk_bytes: u8,
    pub version: Superseded,
}

/// Where the purger goes on: everything expired before these is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaneCursors {
    pub inherit: Position,
    pub own: OwnCursor,
}

/// A place in the own lane. New entries always sort behind it: they fall due after the second in which they were decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnCursor {
    pub due: i64,
    pub position: Position,
}

impl LaneCursors {
    pub const START: Self = Self {
        inherit: Position::START,
        own: OwnCursor {
            due: 0,
            position: Position::START,
        },
    };
}
