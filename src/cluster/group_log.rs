//! The log of one Raft group, as the Raft library reads it: the newest entries in memory, all of them on disk.

use std::{collections::VecDeque, sync::Arc};

use raft::{
    GetEntriesContext, RaftState, Storage, StorageError,
    eraftpb::{ConfState, Entry, HardState, Snapshot},
};

use super::{GroupId, NodeId};
use crate::store::{EngineError, engine::Durability};

/// What followers that keep up still ask for stays in memory.
const TAIL_BYTES_MAX: usize = 256 * 1024;

/// A place in the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mark {
    pub index: u64,
    pub term: u64,
}

/// Changes of the logs of several groups, written as one.
#[derive(Clone, Default)]
pub struct LogBatch {
    pub records: Vec<(GroupId, Record)>,
}

#[derive(Clone)]
pub enum Record {
    /// Entries without gaps; what was there from the first of them up to `last` goes.
    Append {
        entries: Vec<Entry>,
        last: u64,
    },
    HardState(HardState),
    /// Entries up to this one go.
    Truncate {
        before: Mark,
        to: Mark,
    },
    /// The state machine that is kept elsewhere has the entries up to this one.
    Applied(u64),
    /// The whole group goes.
    Remove,
}

/// What is kept of a group.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Kept {
    pub hard_state: HardState,
    /// The last entry that was removed from the front.
    pub truncated: Mark,
    pub last: Mark,
    /// What a state machine that does not keep it itself has said to have applied.
    pub applied: u64,
}

/// Where the logs of a node's groups are kept.
pub trait LogDisk: Send + Sync {
    /// `None`: the group is new.
    fn load(&self, group: GroupId) -> Result<Option<Kept>, EngineError>;
    /// Entries with `from <= index < to`, at least one, and then as many as fit into `bytes_max`.
    fn entries(
        &self,
        group: GroupId,
        from: u64,
        to: u64,
        bytes_max: u64,
    ) -> Result<Vec<Entry>, EngineError>;
    /// All of it or nothing.
    fn write(&self, batch: LogBatch, durability: Durability) -> Result<(), EngineError>;
}

pub struct GroupLog {
    group: GroupId,
    disk: Arc<dyn LogDisk>,
    voters: ConfState,
    kept: Kept,
    /// The newest entries, without gaps up to the last.
    tail: VecDeque<Entry>,
    tail_bytes: usize,
}

impl GroupLog {
    /// `applied` entries are in the state machine, so they were committed, whatever the log remembers of that.
    pub fn open(
        group: GroupId,
        disk: Arc<dyn LogDisk>,
        voters: &[NodeId],
        applied: u64,
    ) -> Result<Self, EngineError> {
        let mut kept = disk.load(group)?.unwrap_or_default();
        kept.hard_state.commit = kept.hard_state.commit.max(applied);
        let Kept {
            hard_state,
            truncated,
            last,
            ..
        } = &kept;
        if hard_state.commit > last.index || applied < truncated.index {
            return Err(EngineError::Damaged(format!(
                "the log of group {group} goes from {} to {}, but {applied} are applied and {} committed",
                truncated.index + 1,
                last.index,
                hard_state.commit
            )));
        }
        Ok(Self {
            group,
            disk,
            voters: ConfState {
                voters: voters.to_vec(),
                ..ConfState::default()
            },
            kept,
            tail: VecDeque::new(),
            tail_bytes: 0,
        })
    }

    pub fn last(&self) -> Mark {
        self.kept.last
    }

    pub fn truncated(&self) -> Mark {
        self.kept.truncated
    }

    /// These are on disk now.
    pub fn appended(&mut self, entries: Vec<Entry>) {
        let Some(first) = entries.first() else { return };
        let replaced = |entry: &Entry| entry.index >= first.index;
        while self.tail.back().is_some_and(replaced)
            && let Some(entry) = self.tail.pop_back()
        {
            self.tail_bytes -= entry_bytes(&entry);
        }
        for entry in entries {
            self.kept.last = Mark {
                index: entry.index,
                term: entry.term,
            };
            self.tail_bytes += entry_bytes(&entry);
            self.tail.push_back(entry);
        }
        while self.tail_bytes > TAIL_BYTES_MAX
            && let Some(entry) = self.tail.pop_front()
        {
            self.tail_bytes -= entry_bytes(&entry);
        }
    }

    pub fn set_hard_state(&mut self, hard_state: HardState) {
        self.kept.hard_state = hard_state;
    }

    pub fn set_commit(&mut self, commit: u64) {
        self.kept.hard_state.commit = commit;
    }

    /// Forgets the entries up to an index. What is to be written for that; `None` when there is nothing to forget.
    pub fn truncate(&mut self, through: u64) -> Option<Record> {
        let before = self.kept.truncated;
        if through <= before.index || through > self.kept.last.index {
            return None;
        }
        let term = self.term(through).ok()?;
        let to = Mark {
            index: through,
            term,
        };
        self.kept.truncated = to;
        let forgotten = |entry: &Entry| entry.index <= through;
        while self.tail.front().is_some_and(forgotten)
            && let Some(entry) = self.tail.pop_front()
        {
            self.tail_bytes -= entry_bytes(&entry);
        }
        Some(Record::Truncate { before, to })
    }

    fn read(&self, from: u64, to: u64, bytes_max: u64) -> raft::Result<Vec<Entry>> {
        let entries = self
            .disk
            .entries(self.group, from, to, bytes_max)
            .map_err(|failure| StorageError::Other(Box::new(failure)))?;
        if entries.first().map(|entry| entry.index) == Some(from) {
            Ok(entries)
        } else {
            Err(StorageError::Unavailable.into())
        }
    }
}

fn entry_bytes(entry: &Entry) -> usize {
    const OVERHEAD_BYTES: usize = 64;
    OVERHEAD_BYTES + entry.data.len() + entry.context.len()
}

impl Storage for GroupLog {
    fn initial_state(&self) -> raft::Result<RaftState> {
        Ok(RaftState::new(
            self.kept.hard_state.clone(),
            self.voters.clone(),
        ))
    }

    fn entries(
        &self,
        low: u64,
        high: u64,
        max_size: impl Into<Option<u64>>,
        _: GetEntriesContext,
    ) -> raft::Result<Vec<Entry>> {
        let bytes_max = max_size.into().unwrap_or(u64::MAX);
        if low <= self.kept.truncated.index {
            return Err(StorageError::Compacted.into());
        }
        let Some(first) = self.tail.front().map(|entry| entry.index) else {
            return self.read(low, high, bytes_max);
        };
        if low < first {
            return self.read(low, high.min(first), bytes_max);
        }
        let mut bytes = 0;
        let wanted = self.tail.iter().skip((low - first) as usize);
        let fitting = wanted.take((high - low) as usize).take_while(|entry| {
            let first = bytes == 0;
            bytes += entry_bytes(entry) as u64;
            first || bytes <= bytes_max
        });
        Ok(fitting.cloned().collect())
    }

    fn term(&self, index: u64) -> raft::Result<u64> {
        let Kept {
            truncated, last, ..
        } = self.kept;
        if index == truncated.index {
            return Ok(truncated.term);
        }
        if index < truncated.index {
            return Err(StorageError::Compacted.into());
        }
        if index == last.index {
            return Ok(last.term);
        }
        if index > last.index {
            return Err(StorageError::Unavailable.into());
        }
        match self.tail.front() {
            Some(first) if first.index <= index => {
                let at = (index - first.index) as usize;
                let entry = self.tail.get(at).ok_or(StorageError::Unavailable)?;
                Ok(entry.term)
            }
            _ => Ok(self
                .read(index, index + 1, 0)?
                .first()
                .map_or(0, |entry| entry.term)),
        }
    }

    fn first_index(&self) -> raft::Result<u64> {
        Ok(self.kept.truncated.index + 1)
    }

    fn last_index(&self) -> raft::Result<u64> {
        Ok(self.kept.last.index)
    }

    /// Entries are kept until all replicas have them, so nobody needs a snapshot.
    fn snapshot(&self, _: u64, _: u64) -> raft::Result<Snapshot> {
        Err(StorageError::SnapshotTemporarilyUnavailable.into())
    }
}
