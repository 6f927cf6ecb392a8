//! The log of one Raft group as `raft::Storage`: the newest entries in memory, all of them on disk.

use std::{cell::Cell, collections::VecDeque, sync::Arc};

use raft::{
    GetEntriesContext, RaftState, Storage, StorageError,
    eraftpb::{Entry, HardState, Snapshot},
};

use super::{
    log_disk::{
        INITIAL_POSITION, InitialState, LogDisk, LogPosition, LogRecord, LogRetention,
        PersistedState,
    },
    membership::{MemberChange, Members},
    overlong,
    snapshot_meta::SnapshotMeta,
};
use crate::{
    cluster::{GroupId, NodeId},
    store::EngineError,
};

/// Entries that followers still ask for stay in memory up to this size.
const TAIL_BYTES_MAX: usize = 256 * 1024;
/// How finely bytes are counted: a position is remembered for each so many.
const MILESTONE_BYTES: u64 = 1024 * 1024;

pub struct GroupLog {
    group: GroupId,
    disk: Arc<dyn LogDisk>,
    members: Members,
    persisted: PersistedState,
    /// The newest entries, without gaps up to the last.
    tail: VecDeque<Entry>,
    tail_bytes: usize,
    /// Bytes appended since the log was opened, and indexes by how many there were.
    appended_bytes: u64,
    milestones: VecDeque<(u64, u64)>,
    snapshot: Option<SnapshotMeta>,
    /// A follower needs a snapshot, and there is none.
    snapshot_wanted: Cell<bool>,
}

impl GroupLog {
    /// Opens the log of a group whose state machine has applied the entries up to `applied`. Those
    /// were committed, whatever the log knows of it. Also returns the records to write before the
    /// log is used.
    pub fn open(
        group: GroupId,
        disk: Arc<dyn LogDisk>,
        initial: &InitialState,
        applied: u64,
    ) -> Result<(Self, Vec<LogRecord>), EngineError> {
        let (mut persisted, mut records) = match (disk.load(group)?, initial) {
            (Some(persisted), _) => (persisted, Vec::new()),
            (None, InitialState::Uninitialized) => (PersistedState::default(), Vec::new()),
            (None, InitialState::Bootstrap(voters)) => bootstrap(voters),
        };
        let applied = persisted.applied_at_least(applied);
        persisted.hard_state.commit = persisted.hard_state.commit.max(applied);
        let PersistedState {
            hard_state,
            truncated,
            last,
            ..
        } = &persisted;
        if hard_state.commit > last.index || applied < truncated.index {
            return Err(EngineError::Damaged(format!(
                "the log of group {group} goes from {} to {}, but {applied} are applied and {} committed",
                truncated.index + 1,
                last.index,
                hard_state.commit
            )));
        }
        let members = match (&persisted.members, initial) {
            (Some(members), _) => members.clone(),
            (None, InitialState::Bootstrap(voters)) if last.index > 0 => Members {
                voters: voters.clone(),
                ..Members::default()
            },
            (None, _) => Members::default(),
        };
        records.extend(overlong::emptied(group, &*disk, &persisted, &members)?);
        let log = Self {
            group,
            disk,
            members,
            persisted,
            tail: VecDeque::new(),
            tail_bytes: 0,
            appended_bytes: 0,
            milestones: VecDeque::new(),
            snapshot: None,
            snapshot_wanted: Cell::new(false),
        };
        Ok((log, records))
    }

    /// Returns whether the replica has nothing of the group, not even its members.
    pub fn is_uninitialized(&self) -> bool {
        self.persisted.last.index == 0
    }

    /// Returns how far a state machine has come that has applied the entries up to `applied`.
    pub fn applied_at_least(&self, applied: u64) -> u64 {
        self.persisted.applied_at_least(applied)
    }

    pub fn members(&self) -> &Members {
        &self.members
    }

    /// Applies a committed change of the members. Returns the record to write, or `None` if the
    /// members have the change already.
    pub fn change_members(&mut self, change: MemberChange, index: u64) -> Option<LogRecord> {
        if index <= self.members.since {
            return None;
        }
        self.members.apply(change, index);
        Some(LogRecord::Members(self.members.clone()))
    }

    /// Returns the snapshot that followers may fetch.
    pub fn current_snapshot(&self) -> Option<&SnapshotMeta> {
        self.snapshot.as_ref()
    }

    /// Lets followers fetch a snapshot of the state machine as of an index.
    pub fn set_snapshot(&mut self, index: u64, id: u64) {
        self.snapshot = self.term(index).ok().map(|term| SnapshotMeta {
            at: LogPosition { index, term },
            members: self.members.clone(),
            id,
        });
    }

    pub fn withdraw_snapshot(&mut self) {
        self.snapshot = None;
    }

    /// Returns whether a follower has needed a snapshot since the last call.
    pub fn take_snapshot_wanted(&self) -> bool {
        self.snapshot_wanted.take()
    }

    /// Returns the records that restart the log behind a snapshot.
    pub fn restart_records(&self, at: LogPosition, members: &Members) -> [LogRecord; 2] {
        let last = self.persisted.last.index;
        [
            LogRecord::Restart { at, last },
            LogRecord::Members(members.clone()),
        ]
    }

    /// Notes that these records are written.
    pub fn restarted(&mut self, at: LogPosition, members: Members) {
        self.persisted.truncated = at;
        self.persisted.last = at;
        self.members = members;
        self.tail.clear();
        self.tail_bytes = 0;
        self.milestones.clear();
        self.snapshot = None;
    }

    /// Returns the last entry that is not retained, even if a replica lacks it.
    pub fn last_expendable(&self, retention: LogRetention) -> u64 {
        let by_entries = self
            .persisted
            .last
            .index
            .saturating_sub(retention.entries_max);
        let oldest = self.appended_bytes.saturating_sub(retention.bytes_max);
        let old = self
            .milestones
            .partition_point(|(_, bytes)| *bytes <= oldest);
        let by_bytes = old.checked_sub(1).and_then(|at| self.milestones.get(at));
        by_entries.max(by_bytes.map_or(0, |(index, _)| *index))
    }

    pub fn last(&self) -> LogPosition {
        self.persisted.last
    }

    pub fn truncated(&self) -> LogPosition {
        self.persisted.truncated
    }

    /// Notes that entries are on disk.
    pub fn appended(&mut self, entries: Vec<Entry>) {
        let Some(first) = entries.first() else { return };
        let replaced = |entry: &Entry| entry.index >= first.index;
        while self.tail.back().is_some_and(replaced)
            && let Some(entry) = self.tail.pop_back()
        {
            self.tail_bytes -= entry_bytes(&entry);
        }
        for entry in entries {
            self.persisted.last = LogPosition {
                index: entry.index,
                term: entry.term,
            };
            self.tail_bytes += entry_bytes(&entry);
            self.appended_bytes += entry_bytes(&entry) as u64;
            let counted = self.milestones.back().map_or(0, |(_, bytes)| *bytes);
            if self.appended_bytes >= counted + MILESTONE_BYTES {
                self.milestones
                    .push_back((entry.index, self.appended_bytes));
            }
            self.tail.push_back(entry);
        }
        while self.tail_bytes > TAIL_BYTES_MAX
            && let Some(entry) = self.tail.pop_front()
        {
            self.tail_bytes -= entry_bytes(&entry);
        }
    }

    pub fn set_hard_state(&mut self, hard_state: HardState) {
        self.persisted.hard_state = hard_state;
    }

    pub fn set_commit(&mut self, commit: u64) {
        self.persisted.hard_state.commit = commit;
    }

    /// Removes the entries up to an index. Returns the record to write, or `None` if there is
    /// nothing to remove.
    pub fn truncate(&mut self, through: u64) -> Option<LogRecord> {
        let before = self.persisted.truncated;
        if through <= before.index || through > self.persisted.last.index {
            return None;
        }
        let term = self.term(through).ok()?;
        let to = LogPosition {
            index: through,
            term,
        };
        self.persisted.truncated = to;
        while self
            .milestones
            .front()
            .is_some_and(|(index, _)| *index <= through)
        {
            self.milestones.pop_front();
        }
        let forgotten = |entry: &Entry| entry.index <= through;
        while self.tail.front().is_some_and(forgotten)
            && let Some(entry) = self.tail.pop_front()
        {
            self.tail_bytes -= entry_bytes(&entry);
        }
        Some(LogRecord::Truncate { before, to })
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
            self.persisted.hard_state.clone(),
            self.members.conf_state(),
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
        if low <= self.persisted.truncated.index {
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
        let PersistedState {
            truncated, last, ..
        } = self.persisted;
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
        Ok(self.persisted.truncated.index + 1)
    }

    fn last_index(&self) -> raft::Result<u64> {
        Ok(self.persisted.last.index)
    }

    fn snapshot(&self, request_index: u64, to: u64) -> raft::Result<Snapshot> {
        // A node refuses a snapshot from before it joined.
        let reaches = |snapshot: &&SnapshotMeta| {
            snapshot.at.index >= request_index.max(self.persisted.truncated.index)
                && snapshot.members.contains(to)
        };
        match self.snapshot.as_ref().filter(reaches) {
            Some(snapshot) => Ok(snapshot.message()),
            None => {
                self.snapshot_wanted.set(true);
                Err(StorageError::SnapshotTemporarilyUnavailable.into())
            }
        }
    }
}

/// Returns the state of a replica that bootstraps its group, and the records that store it.
fn bootstrap(voters: &[NodeId]) -> (PersistedState, Vec<LogRecord>) {
    let at = INITIAL_POSITION;
    let members = Members {
        since: at.index,
        voters: voters.to_vec(),
        learners: Vec::new(),
    };
    let hard_state = HardState {
        term: at.term,
        commit: at.index,
        ..HardState::default()
    };
    let records = vec![
        LogRecord::Restart { at, last: 0 },
        LogRecord::Members(members.clone()),
        LogRecord::HardState(hard_state.clone()),
    ];
    let persisted = PersistedState {
        hard_state,
        truncated: at,
        last: at,
        applied: 0,
        members: Some(members),
    };
    (persisted, records)
}
