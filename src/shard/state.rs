//! The state machine: `apply` turns a command into changes of the engine and of the shard's small state.

use serde::{Deserialize, Serialize};

use super::command::{Change, Command, LaneCursors, Purge, Superseded};
use crate::{
    model::ttl::{DefaultTtl, ExpiryRules},
    store::{
        Batch, Engine, EngineError,
        document::{Stored, VersionRef},
        keys::{self, Position},
    },
};

/// What a shard remembers besides its documents; stored with every group of commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShardState {
    /// Of the last transaction.
    pub lsn: u64,
    /// The highest `_ts` given out; feed order and time order agree because it never goes down.
    pub ts: i64,
    pub next_ordinal: u64,
    /// Stored documents, expired ones that are not purged yet included.
    pub documents: u64,
    pub bytes: u64,
    /// Bytes that were deleted or superseded since the files were last rewritten as a whole.
    pub dead_bytes: u64,
    pub rules: ExpiryRules,
    pub cursors: LaneCursors,
}

impl ShardState {
    pub fn new(first_ordinal: u64, default: DefaultTtl) -> Self {
        Self {
            lsn: 0,
            ts: 0,
            next_ordinal: first_ordinal,
            documents: 0,
            bytes: 0,
            dead_bytes: 0,
            rules: ExpiryRules::new(default),
            cursors: LaneCursors::START,
        }
    }

    /// What the engine holds; `None` when the shard is new.
    pub fn load(engine: &Engine) -> Result<Option<Self>, EngineError> {
        let Some(bytes) = engine.get(keys::STATE)? else {
            return Ok(None);
        };
        rmp_serde::from_slice(&bytes)
            .map(Some)
            .map_err(|error| EngineError::Damaged(format!("shard state: {error}")))
    }

    pub fn store(&self, batch: &mut Batch) {
        let bytes = rmp_serde::to_vec(self).expect("a struct of integers has a MessagePack form");
        batch.put(keys::STATE, bytes);
    }

    pub fn apply(&mut self, command: &Command, batch: &mut Batch) {
        for (index, change) in command.changes.iter().enumerate() {
            // A transaction has at most a hundred operations.
            let position = Position {
                lsn: command.lsn,
                index: index as u16,
            };
            match change {
                Change::Put {
                    key,
                    epk_bytes,
                    value,
                    previous,
                } => {
                    if let Some(previous) = previous {
                        self.remove(key, *epk_bytes, previous, batch);
                    }
                    self.put(key, *epk_bytes, value, position, batch);
                }
                Change::Delete {
                    key,
                    epk_bytes,
                    previous,
                } => {
                    self.remove(key, *epk_bytes, previous, batch);
                    batch.delete(key);
                }
                Change::SetDefaultTtl(default) => {
                    self.rules = self.rules.with_default(*default, command.ts)
                }
            }
        }
        self.lsn = command.lsn;
        self.ts = self.ts.max(command.ts);
    }

    pub fn purge(&mut self, purge: &Purge, batch: &mut Batch) {
        for expired in &purge.versions {
            self.remove(&expired.key, expired.epk_bytes, &expired.version, batch);
            batch.delete(&expired.key);
        }
        if let Some(cursors) = purge.cursors {
            self.cursors = cursors;
        }
        self.dead_bytes = self.dead_bytes.saturating_sub(purge.rewritten_bytes);
    }

    fn put(
        &mut self,
        key: &[u8],
        epk_bytes: u8,
        value: &[u8],
        position: Position,
        batch: &mut Batch,
    ) {
        let Some(stored) = Stored::decode(value) else {
            debug_assert!(false, "a command carries a document that we encoded");
            return;
        };
        let header = &stored.header;
        let version = VersionRef {
            ts: header.ts,
            ttl: header.ttl,
            size: value.len() as u32,
            has_unique_keys: stored.fingerprints().next().is_some(),
            epk_bytes,
            document_key: key,
        };
        let reference = version.encode();
        batch.put(key, value);
        batch.put(keys::feed(position), &reference);
        if let Some(due) = header.ttl.own_due(header.ts) {
            batch.put(keys::own_lane(due, position), &reference);
        }
        for fingerprint in stored.fingerprints() {
            batch.put(keys::unique(version.epk(), fingerprint), &reference);
        }
        self.documents += 1;
        self.bytes += value.len() as u64;
        self.next_ordinal = self.next_ordinal.max(header.ordinal + 1);
    }

    /// Takes the traces of a version out of feed, lane and unique keys.
    fn remove(&mut self, key: &[u8], epk_bytes: u8, version: &Superseded, batch: &mut Batch) {
        batch.delete(keys::feed(version.position));
        if let Some(due) = version.own_due {
            batch.delete(keys::own_lane(due, version.position));
        }
        let epk = key.get(1..1 + usize::from(epk_bytes)).unwrap_or_default();
        for fingerprint in &version.fingerprints {
            batch.delete(keys::unique(epk, fingerprint));
        }
        self.documents = self.documents.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(u64::from(version.size));
        self.dead_bytes += u64::from(version.size);
    }
}
