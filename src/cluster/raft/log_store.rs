//! The Raft logs of a node on disk: one engine for all groups, so that one fsync serves all of
//! them.

use std::{
    path::Path,
    sync::{Arc, atomic::AtomicU64},
};

use bytes::Bytes;
use raft::eraftpb::{Entry, EntryType, HardState};

use super::{
    log_disk::{LogBatch, LogDisk, LogPosition, LogRecord, PersistedState},
    membership::Members,
};
use crate::{
    cluster::GroupId,
    store::{
        Batch, Engine, EngineError, SharedResources,
        engine::Durability,
        log_keys::{self, GroupBytes},
        wal_check::Expected,
    },
};

pub struct LogStore(Engine);

impl LogStore {
    pub fn open(folder: &Path, shared: &SharedResources) -> Result<Self, EngineError> {
        Engine::open(folder, shared).map(Self)
    }

    /// Opens an existing log. Fails if it lacks what is expected of it.
    pub fn open_existing(
        folder: &Path,
        shared: &SharedResources,
        expected: Expected,
    ) -> Result<Self, EngineError> {
        Engine::open_existing(folder, shared, expected).map(Self)
    }

    /// Returns the last durable sequence number of the engine, which never decreases.
    pub fn durable(&self) -> Arc<AtomicU64> {
        self.0.durable()
    }

    /// Returns the bytes of an unfinished record that a crash has left at the end of the WAL.
    pub fn torn_bytes(&self) -> u64 {
        self.0.torn_bytes()
    }

    /// Flushes everything. Nothing may be written afterwards.
    pub fn seal(&self) -> Result<(), EngineError> {
        self.0.seal()
    }

    fn last_entry(&self, group: GroupId) -> Result<Option<LogPosition>, EngineError> {
        let bytes = group_bytes(group);
        let snapshot = self.0.snapshot();
        let end = log_keys::entry(&bytes, u64::MAX);
        let mut cursor = snapshot.cursor(&log_keys::entry(&bytes, 0), &end);
        cursor.seek_to_last();
        let Some((key, value)) = cursor.entry()? else {
            return Ok(None);
        };
        let entry = decode(group, key, value)?;
        Ok(Some(LogPosition {
            index: entry.index,
            term: entry.term,
        }))
    }
}

impl LogDisk for LogStore {
    fn load(&self, group: GroupId) -> Result<Option<PersistedState>, EngineError> {
        let bytes = group_bytes(group);
        let truncated = match self.0.get(&log_keys::truncated(&bytes))? {
            Some(value) => {
                let [index, term] = log_keys::decode_numbers(&value)
                    .ok_or_else(|| damaged(group, "its beginning cannot be read"))?;
                LogPosition { index, term }
            }
            None => LogPosition::default(),
        };
        let last = self.last_entry(group)?;
        let hard_state = self.0.get(&log_keys::hard_state(&bytes))?;
        let Some(hard_state) = hard_state else {
            return match last {
                None => Ok(None),
                Some(_) => Err(damaged(group, "it has entries but no hard state")),
            };
        };
        let [term, vote, commit] = log_keys::decode_numbers(&hard_state)
            .ok_or_else(|| damaged(group, "its hard state cannot be read"))?;
        let applied = match self.0.get(&log_keys::applied(&bytes))? {
            Some(value) => {
                let [index] = log_keys::decode_numbers(&value)
                    .ok_or_else(|| damaged(group, "how far it is applied cannot be read"))?;
                index
            }
            None => 0,
        };
        let members: Option<Members> = match self.0.get(&log_keys::members(&bytes))? {
            Some(value) => {
                let decoded = rmp_serde::from_slice(&value);
                Some(decoded.map_err(|_| damaged(group, "its members cannot be read"))?)
            }
            None => None,
        };
        Ok(Some(PersistedState {
            applied,
            members,
            hard_state: HardState {
                term,
                vote,
                commit,
                ..HardState::default()
            },
            truncated,
            last: last.unwrap_or(truncated),
        }))
    }

    fn entries(
        &self,
        group: GroupId,
        from: u64,
        to: u64,
        bytes_max: u64,
    ) -> Result<Vec<Entry>, EngineError> {
        let bytes = group_bytes(group);
        let mut scan = self
            .0
            .scan(&log_keys::entry(&bytes, from), &log_keys::entry(&bytes, to));
        let (mut entries, mut size) = (Vec::new(), 0);
        while let Some((key, value)) = scan.entry()? {
            size += value.len() as u64;
            if !entries.is_empty() && size > bytes_max {
                break;
            }
            let entry = decode(group, key, value)?;
            if entry.index != from + entries.len() as u64 {
                return Err(damaged(
                    group,
                    &format!("an entry before {} is missing", entry.index),
                ));
            }
            entries.push(entry);
            scan.advance();
        }
        Ok(entries)
    }

    fn write(&self, batch: LogBatch, durability: Durability) -> Result<(), EngineError> {
        let mut out = Batch::default();
        for (group, record) in batch.records {
            record_into(&group_bytes(group), record, &mut out);
        }
        self.0.write(out, durability)
    }
}

fn record_into(group: &GroupBytes, record: LogRecord, out: &mut Batch) {
    match record {
        LogRecord::Append { entries, last } => {
            let mut next = 0;
            for entry in entries {
                next = entry.index + 1;
                let changes = entry.get_entry_type() != EntryType::EntryNormal;
                let value =
                    log_keys::encode_entry(changes, entry.term, &entry.context, &entry.data);
                out.put(log_keys::entry(group, entry.index), value);
            }
            if next <= last {
                out.delete_range(
                    log_keys::entry(group, next),
                    log_keys::entry(group, last + 1),
                );
            }
        }
        LogRecord::HardState(HardState {
            term, vote, commit, ..
        }) => {
            out.put(
                log_keys::hard_state(group),
                log_keys::encode_numbers([term, vote, commit]),
            );
        }
        LogRecord::Truncate { before, to } => {
            out.delete_range(
                log_keys::entry(group, before.index),
                log_keys::entry(group, to.index + 1),
            );
            out.put(
                log_keys::truncated(group),
                log_keys::encode_numbers([to.index, to.term]),
            );
        }
        LogRecord::Applied(index) => {
            out.put(log_keys::applied(group), log_keys::encode_numbers([index]));
        }
        LogRecord::Members(members) => {
            let value =
                rmp_serde::to_vec(&members).expect("a struct of numbers has a MessagePack form");
            out.put(log_keys::members(group), value);
        }
        LogRecord::Restart { at, last } => {
            out.delete_range(log_keys::entry(group, 0), log_keys::entry(group, last + 1));
            out.put(
                log_keys::truncated(group),
                log_keys::encode_numbers([at.index, at.term]),
            );
        }
        LogRecord::Remove => {
            out.delete(log_keys::members(group));
            out.delete_range(log_keys::entry(group, 0), log_keys::entry(group, u64::MAX));
            out.delete(log_keys::hard_state(group));
            out.delete(log_keys::truncated(group));
            out.delete(log_keys::applied(group));
        }
    }
}

fn group_bytes(group: GroupId) -> GroupBytes {
    let mut bytes = GroupBytes::default();
    let (container, range) = bytes.split_at_mut(size_of::<u64>());
    container.copy_from_slice(&group.container.to_be_bytes());
    range.copy_from_slice(&group.range.to_be_bytes());
    bytes
}

fn decode(group: GroupId, key: &[u8], value: &[u8]) -> Result<Entry, EngineError> {
    let (index, (changes, term, context, data)) = log_keys::entry_index(key)
        .zip(log_keys::decode_entry(value))
        .ok_or_else(|| damaged(group, "an entry cannot be read"))?;
    let mut entry = Entry {
        index,
        term,
        context: Bytes::copy_from_slice(context),
        data: Bytes::copy_from_slice(data),
        ..Entry::default()
    };
    if changes {
        entry.set_entry_type(EntryType::EntryConfChange);
    }
    Ok(entry)
}

fn damaged(group: GroupId, what: &str) -> EngineError {
    EngineError::Damaged(format!("the Raft log of group {group}: {what}"))
}
