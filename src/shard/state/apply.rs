//! The state machine: `apply` turns a command into changes of the engine and of the shard's small
//! state.

use serde::{Deserialize, Serialize};

use super::{
    command::{
        Change, Command, IndexChanges, IndexSlice, NewIndex, Purge, RangeCleanup, Superseded,
    },
    generation::IndexState,
    indexing::encode_policy,
    split_mark,
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

/// The state of a shard besides its documents; stored with every group of commands.
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
    /// Bytes that were deleted or superseded since the files were last compacted as a whole.
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

    /// Returns the state that the engine holds; `None` when the shard is new.
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

    /// Applies a command. An error means that going on would corrupt data: the batch must not be
    /// written, and the shard must stop.
    pub fn apply(&mut self, command: &Command, batch: &mut Batch) -> Result<(), EngineError> {
        self.check_order(command)?;
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
                    self.put(key, *place_bytes, value, position, index, batch)?;
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
                Change::SetDefaultTtl(default) => self.set_default(*default, command.ts)?,
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
                Change::Split(cut) => split_mark::mark(cut, batch),
            }
        }
        self.lsn = command.lsn;
        self.ts = command.ts;
        Ok(())
    }

    /// Fails unless a command comes after all before it: the feed and the inherit lane rest on
    /// that order.
    fn check_order(&self, command: &Command) -> Result<(), EngineError> {
        match command.lsn > self.lsn && command.ts >= self.ts {
            true => Ok(()),
            false => Err(EngineError::Damaged(format!(
                "transaction {} of second {} comes after {} of second {}",
                command.lsn, command.ts, self.lsn, self.ts
            ))),
        }
    }

    /// Changes the default. A watermark that goes back would bring expired items back.
    fn set_default(&mut self, default: DefaultTtl, ts: i64) -> Result<(), EngineError> {
        let rules = self.rules.with_default(default, ts);
        if !rules.watermarks().is_at_least(&self.rules.watermarks()) {
            return Err(EngineError::Damaged(format!(
                "expiry watermarks go back from {:?} to {rules:?}",
                self.rules
            )));
        }
        self.rules = rules;
        Ok(())
    }

    /// Applies a purge. An error means as much as one of [`Self::apply`].
    pub fn purge(&mut self, purge: &Purge, batch: &mut Batch) -> Result<(), EngineError> {
        for expired in &purge.versions {
            self.remove(&expired.key, expired.place_bytes, &expired.version, batch);
            batch.delete(&expired.key);
        }
        if let Some(cursors) = purge.cursors {
            if !cursors.is_at_least(&self.cursors) {
                return Err(EngineError::Damaged(format!(
                    "purge cursors go back from {:?} to {cursors:?}",
                    self.cursors
                )));
            }
            self.cursors = cursors;
        }
        self.dead_bytes = self.dead_bytes.saturating_sub(purge.rewritten_bytes);
        self.clean_up(&purge.cleanup, batch);
        Ok(())
    }

    /// Removes what belongs to the shard's sibling.
    fn clean_up(&mut self, cleanup: &RangeCleanup, batch: &mut Batch) {
        for foreign in &cleanup.versions {
            self.remove(&foreign.key, foreign.place_bytes, &foreign.version, batch);
            batch.delete(&foreign.key);
            change_index(&foreign.index, None, batch);
            batch.delete(keys::resource(foreign.index.ordinal));
        }
        if let Some(cursor) = &cleanup.cursor {
            batch.put(keys::CLEANUP, cursor);
        }
        if cleanup.ends {
            batch.delete(keys::CLEANUP);
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
    ) -> Result<(), EngineError> {
        let undecodable = || {
            let lsn = position.lsn;
            EngineError::Damaged(format!("transaction {lsn} carries no stored document"))
        };
        let stored = Stored::decode(value).ok_or_else(undecodable)?;
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
        Ok(())
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

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::{
        model::item::Etag,
        store::document::{self, Header},
    };

    fn state() -> ShardState {
        ShardState {
            lsn: 7,
            ts: 100,
            ..ShardState::new(1, DefaultTtl::Off)
        }
    }

    fn command(lsn: u64, ts: i64, changes: Vec<Change>) -> Command {
        Command { lsn, ts, changes }
    }

    /// Applies a command; what is wrong with it, and whether the state is as before.
    fn refusal(command: &Command) -> (String, bool) {
        let (mut after, mut batch) = (state(), Batch::default());
        let failure = after.apply(command, &mut batch).expect_err("refused");
        assert!(matches!(failure, EngineError::Damaged(_)), "{failure:?}");
        (failure.to_string(), after == state())
    }

    #[test]
    fn transactions_and_their_seconds_never_go_back() {
        for (lsn, ts) in [(7, 100), (6, 101), (8, 99)] {
            let (failure, is_unchanged) = refusal(&command(lsn, ts, Vec::new()));
            assert!(failure.contains("comes after 7 of second 100"), "{failure}");
            assert!(is_unchanged);
        }
        let mut after = state();
        let next = command(8, 100, Vec::new());
        after.apply(&next, &mut Batch::default()).expect("applied");
        assert_eq!((after.lsn, after.ts), (8, 100));
    }

    #[test]
    fn a_document_that_does_not_decode_is_no_silently_lost_write() {
        let put = |value: Vec<u8>| Change::Put {
            key: Bytes::from_static(b"dplace-id"),
            place_bytes: 5,
            value: value.into(),
            previous: None,
            index: IndexChanges::default(),
        };
        let (failure, is_unchanged) = refusal(&command(8, 100, vec![put(b"garbage".to_vec())]));
        assert!(failure.contains("transaction 8"), "{failure}");
        assert!(is_unchanged);

        let mut whole = Vec::new();
        let header = Header {
            ts: 100,
            ttl: ItemTtl::Inherit,
            position: Position { lsn: 8, index: 0 },
            ordinal: 1,
            etag: Etag::from_bytes([7; 16]),
        };
        document::begin(&mut whole, &header, &[]);
        let mut after = state();
        let create = command(8, 100, vec![put(whole)]);
        after
            .apply(&create, &mut Batch::default())
            .expect("applied");
        assert_eq!(after.documents, 1);
    }

    #[test]
    fn purge_cursors_never_go_back() {
        let at = |lsn| LaneCursors {
            inherit: Position { lsn, index: 0 },
            ..LaneCursors::START
        };
        let purge = |lsn| Purge {
            cursors: Some(at(lsn)),
            ..Purge::default()
        };
        let (mut state, mut batch) = (state(), Batch::default());
        state.purge(&purge(5), &mut batch).expect("forward");
        state.purge(&purge(5), &mut batch).expect("no step");
        let failure = state.purge(&purge(4), &mut batch).expect_err("back");
        assert!(failure.to_string().contains("cursors go back"), "{failure}");
        assert_eq!(state.cursors, at(5));
    }
}
