//! The state machine: `apply` turns a command into changes of the engine and of the shard's small state.

use serde::{Deserialize, Serialize};

use super::{
    command::{Change, Clearing, Command, IndexChanges, IndexSlice, NewIndex, Purge, Superseded},
    generation::IndexState,
    indexing::encode_policy,
    parting,
};
use crate::{
    expiry::{ExpiryRules, lanes::LaneCursors},
    model::{
        indexing_policy::IndexingPolicy,
        ttl::{DefaultTtl, ItemTtl},
    },
    store::{
        Batch, Engine, EngineError,
        document::{Stored, VersionRef},
        index_entry,
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
    #[serde(default)]
    pub index: IndexState,
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
            index: IndexState::default(),
        }
    }

    /// Gives a new shard its index; the policy is in the batch.
    #[must_use]
    pub fn with_index(mut self, policy: &IndexingPolicy, batch: &mut Batch) -> Self {
        self.index = IndexState::new(policy.mode.into());
        if let Some(current) = self.index.current {
            batch.put(keys::policy(current.number), encode_policy(policy));
        }
        self.store(batch);
        self
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
                    place_bytes,
                    value,
                    previous,
                    index,
                } => {
                    if let Some(previous) = previous {
                        self.remove(key, *place_bytes, previous, batch);
                    }
                    self.put(key, *place_bytes, value, position, index, batch);
                }
                Change::Delete {
                    key,
                    place_bytes,
                    previous,
                    index,
                } => {
                    self.remove(key, *place_bytes, previous, batch);
                    batch.delete(key);
                    change_index(index, None, batch);
                    if !index.generations.is_empty() {
                        batch.delete(keys::resource(index.ordinal));
                    }
                }
                Change::SetDefaultTtl(default) => {
                    self.rules = self.rules.with_default(*default, command.ts)
                }
                Change::BeginIndex(new) => self.begin_index(new, command.lsn, batch),
                Change::FillIndex(slice) => self.fill_index(slice, batch),
                Change::DropRetiredIndex => {
                    if let Some(retired) = self.index.retired {
                        drop_generation(retired, batch);
                    }
                    if self.index.generations().next().is_none() {
                        let (from, to) = keys::RESOURCES;
                        batch.delete_range(from, to);
                    }
                    self.index.forget_retired();
                }
                Change::Check(_) => {}
                Change::Split(cut) => parting::mark(cut, batch),
            }
        }
        self.lsn = command.lsn;
        self.ts = self.ts.max(command.ts);
    }

    pub fn purge(&mut self, purge: &Purge, batch: &mut Batch) {
        for expired in &purge.versions {
            self.remove(&expired.key, expired.place_bytes, &expired.version, batch);
            batch.delete(&expired.key);
        }
        if let Some(cursors) = purge.cursors {
            self.cursors = cursors;
        }
        self.dead_bytes = self.dead_bytes.saturating_sub(purge.rewritten_bytes);
        self.clear(&purge.clearing, batch);
    }

    /// Removes what belongs to the shard's sibling.
    fn clear(&mut self, clearing: &Clearing, batch: &mut Batch) {
        for foreign in &clearing.versions {
            self.remove(&foreign.key, foreign.place_bytes, &foreign.version, batch);
            batch.delete(&foreign.key);
            change_index(&foreign.index, None, batch);
            batch.delete(keys::resource(foreign.index.ordinal));
        }
        if let Some(cursor) = &clearing.cursor {
            batch.put(keys::HERITAGE, cursor);
        }
        if clearing.ends {
            batch.delete(keys::HERITAGE);
        }
    }

    fn put(
        &mut self,
        key: &[u8],
        place_bytes: u8,
        value: &[u8],
        position: Position,
        index: &IndexChanges,
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
            place_bytes,
            document_key: key,
        };
        let reference = version.encode();
        batch.put(key, value);
        batch.put(keys::feed(position), &reference);
        if let Some(due) = header.ttl.own_expiry(header.ts) {
            batch.put(keys::own_lane(due, position), &reference);
        }
        for fingerprint in stored.fingerprints() {
            batch.put(keys::unique(version.place(), fingerprint), &reference);
        }
        change_index(index, Some((header.ts, header.ttl)), batch);
        if index.generations.iter().any(|one| !one.added.is_empty()) {
            batch.put(
                keys::resource(index.ordinal),
                index_entry::encode_resource(header.ts, header.ttl, key),
            );
        }
        self.documents += 1;
        self.bytes += value.len() as u64;
        self.next_ordinal = self.next_ordinal.max(header.ordinal + 1);
    }

    fn begin_index(&mut self, new: &NewIndex, lsn: u64, batch: &mut Batch) {
        let (number, gone) = self.index.begin(new.mode, lsn);
        for gone in gone {
            drop_generation(gone, batch);
        }
        if let Some(number) = number {
            // What a number left behind 65,535 generations ago is gone; all the same, it must be.
            drop_generation(number, batch);
            batch.put(keys::policy(number), &new.policy);
        }
    }

    fn fill_index(&mut self, slice: &IndexSlice, batch: &mut Batch) {
        let mut key = Vec::new();
        for version in &slice.versions {
            let facts = index_entry::encode(version.ts, version.ttl);
            for term in version.terms.iter() {
                keys::write_index_entry(&mut key, slice.generation, term, version.ordinal);
                batch.put(&key, &facts);
            }
            batch.put(
                keys::resource(version.ordinal),
                index_entry::encode_resource(version.ts, version.ttl, &version.key),
            );
        }
        for (shape, paths) in &slice.new_shapes {
            batch.put(keys::shape(slice.generation, shape.0), paths);
        }
        self.index.advance(slice.generation, slice.cursor);
    }

    /// Takes the traces of a version out of feed, lane and unique keys.
    fn remove(&mut self, key: &[u8], place_bytes: u8, version: &Superseded, batch: &mut Batch) {
        batch.delete(keys::feed(version.position));
        if let Some(due) = version.own_due {
            batch.delete(keys::own_lane(due, version.position));
        }
        let place = key.get(1..1 + usize::from(place_bytes)).unwrap_or_default();
        for fingerprint in &version.fingerprints {
            batch.delete(keys::unique(place, fingerprint));
        }
        self.documents = self.documents.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(u64::from(version.size));
        self.dead_bytes += u64::from(version.size);
    }
}

/// Carries out what a change does to the index; `facts` are of the version that is entered.
fn change_index(changes: &IndexChanges, facts: Option<(i64, ItemTtl)>, batch: &mut Batch) {
    let mut key = Vec::new();
    let value = facts.map(|(ts, ttl)| index_entry::encode(ts, ttl));
    for generation in &changes.generations {
        for term in generation.removed.iter() {
            keys::write_index_entry(&mut key, generation.generation, term, changes.ordinal);
            batch.delete(&key);
        }
        for term in generation.added.iter() {
            keys::write_index_entry(&mut key, generation.generation, term, changes.ordinal);
            if let Some(value) = &value {
                batch.put(&key, value);
            }
        }
        if let Some((shape, paths)) = &generation.new_shape {
            batch.put(keys::shape(generation.generation, shape.0), paths);
        }
    }
}

fn drop_generation(number: u16, batch: &mut Batch) {
    for (from, to) in keys::generation_ranges(number) {
        batch.delete_range(from, to);
    }
}
