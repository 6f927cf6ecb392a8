//! The log of one Raft group, as the Raft library reads it: the newest entries in memory, all of them on disk.

use std::{cell::Cell, collections::VecDeque, sync::Arc};

use bytes::Bytes;

use raft::{
    GetEntriesContext, RaftState, Storage, StorageError,
    eraftpb::{ConfState, Entry, HardState, Snapshot},
};
use serde::{Deserialize, Serialize};

use super::{GroupId, NodeId, overlong};
use crate::store::{EngineError, engine::Durability};

/// What followers that keep up still ask for stays in memory.
const TAIL_BYTES_MAX: usize = 256 * 1024;
/// Entries that are kept for a replica that is away; what it lacks beyond them it gets by a snapshot.
const KEPT_ENTRIES_MAX: u64 = 20_000;
/// Bytes of them, about.
const KEPT_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// How finely bytes are counted: a place is remembered for each so many.
const MILESTONE_BYTES: u64 = 1024 * 1024;

/// A place in the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mark {
    pub index: u64,
    pub term: u64,
}

/// Where the log of a group begins on the nodes that begin it together: a replica that begins with nothing at all stands before it, so it can only be filled by a
/// snapshot, which tells it the members too.
pub const BEGINNING: Mark = Mark { index: 1, term: 1 };

/// What is known of a group that has no log yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Begin {
    /// These nodes begin it together, this one among them.
    With(Vec<NodeId>),
    /// It was begun before; this node has nothing of it, and is filled by its leader.
    Blank,
}

/// The members of a group, since an index of its log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Members {
    pub since: u64,
    /// In the order of their numbers.
    pub voters: Vec<NodeId>,
    /// Have a replica, and no say.
    pub learners: Vec<NodeId>,
}

/// One step from some members to others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Step {
    Learner(NodeId),
    Voter(NodeId),
    Remove(NodeId),
}

impl Members {
    pub fn contains(&self, node: NodeId) -> bool {
        self.voters.contains(&node) || self.learners.contains(&node)
    }

    pub fn step(&mut self, step: Step, index: u64) {
        let (Step::Learner(node) | Step::Voter(node) | Step::Remove(node)) = step;
        self.voters.retain(|one| *one != node);
        self.learners.retain(|one| *one != node);
        match step {
            Step::Learner(node) => self.learners.push(node),
            Step::Voter(node) => self.voters.push(node),
            Step::Remove(_) => {}
        }
        self.voters.sort_unstable();
        self.learners.sort_unstable();
        self.since = index;
    }

    fn conf_state(&self) -> ConfState {
        ConfState {
            voters: self.voters.clone(),
            learners: self.learners.clone(),
            ..ConfState::default()
        }
    }
}

/// A copy of the state machine at a place in the log, which followers may fetch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    pub at: Mark,
    /// They may be newer than the place: changes up to `since` are in them already.
    pub members: Members,
    pub id: u64,
}

/// What a snapshot says of itself beside what the Raft library knows of it.
#[derive(Serialize, Deserialize)]
pub struct Announced {
    pub id: u64,
    pub members: Members,
}

impl Offer {
    fn snapshot(&self) -> Snapshot {
        let announced = Announced {
            id: self.id,
            members: self.members.clone(),
        };
        let data =
            rmp_serde::to_vec(&announced).expect("a struct of numbers has a MessagePack form");
        let mut snapshot = Snapshot {
            data: Bytes::from(data),
            ..Snapshot::default()
        };
        let metadata = snapshot.mut_metadata();
        metadata.index = self.at.index;
        metadata.term = self.at.term;
        metadata.set_conf_state(self.members.conf_state());
        snapshot
    }
}

/// How much of a log is kept for replicas that lack it.
#[derive(Clone, Copy, Debug)]
pub struct Keep {
    pub entries_max: u64,
    pub bytes_max: u64,
}

impl Default for Keep {
    fn default() -> Self {
        Self {
            entries_max: KEPT_ENTRIES_MAX,
            bytes_max: KEPT_BYTES_MAX,
        }
    }
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
    /// The members of the group.
    Members(Members),
    /// The log begins behind this place; what was there up to `last` goes.
    Restart {
        at: Mark,
        last: u64,
    },
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
    /// `None` in a log of a version that did not keep them.
    pub members: Option<Members>,
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
    members: Members,
    kept: Kept,
    /// The newest entries, without gaps up to the last.
    tail: VecDeque<Entry>,
    tail_bytes: usize,
    /// Bytes appended since the log was opened, and places by how many there were.
    appended_bytes: u64,
    milestones: VecDeque<(u64, u64)>,
    offer: Option<Offer>,
    /// Somebody needs a snapshot, and there is none to offer.
    snapshot_wanted: Cell<bool>,
}

impl GroupLog {
    /// `applied` entries are in the state machine, so they were committed, whatever the log remembers of that. What is to be written before the log is used.
    pub fn open(
        group: GroupId,
        disk: Arc<dyn LogDisk>,
        begin: &Begin,
        applied: u64,
    ) -> Result<(Self, Vec<Record>), EngineError> {
        let mut records = Vec::new();
        let mut kept = match (disk.load(group)?, begin) {
            (Some(kept), _) => kept,
            (None, Begin::Blank) => Kept::default(),
            (None, Begin::With(voters)) => {
                let members = Members {
                    since: BEGINNING.index,
                    voters: voters.clone(),
                    learners: Vec::new(),
                };
                let hard_state = HardState {
                    term: BEGINNING.term,
                    commit: BEGINNING.index,
                    ..HardState::default()
                };
                let at = BEGINNING;
                records.push(Record::Restart { at, last: 0 });
                records.push(Record::Members(members.clone()));
                records.push(Record::HardState(hard_state.clone()));
                Kept {
                    hard_state,
                    truncated: BEGINNING,
                    last: BEGINNING,
                    applied: 0,
                    members: Some(members),
                }
            }
        };
        // A state machine that has applied nothing stands at the beginning.
        let applied = applied_of(&kept, applied);
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
        let members = match (&kept.members, begin) {
            (Some(members), _) => members.clone(),
            (None, Begin::With(voters)) if last.index > 0 => Members {
                voters: voters.clone(),
                ..Members::default()
            },
            (None, _) => Members::default(),
        };
        records.extend(overlong::emptied(group, &*disk, &kept, &members)?);
        let log = Self {
            group,
            disk,
            members,
            kept,
            tail: VecDeque::new(),
            tail_bytes: 0,
            appended_bytes: 0,
            milestones: VecDeque::new(),
            offer: None,
            snapshot_wanted: Cell::new(false),
        };
        Ok((log, records))
    }

    /// Whether there is nothing of the group here: not even who its members are.
    pub fn is_blank(&self) -> bool {
        self.kept.last.index == 0
    }

    pub fn applied_at_least(&self, applied: u64) -> u64 {
        applied_of(&self.kept, applied)
    }

    pub fn members(&self) -> &Members {
        &self.members
    }

    /// A change of the members is committed; what is to be written for that. `None`: it is in them already.
    pub fn step_members(&mut self, step: Step, index: u64) -> Option<Record> {
        if index <= self.members.since {
            return None;
        }
        self.members.step(step, index);
        Some(Record::Members(self.members.clone()))
    }

    pub fn offer(&self) -> Option<&Offer> {
        self.offer.as_ref()
    }

    /// A copy of the state machine as of an index may be fetched from now on.
    pub fn set_offer(&mut self, index: u64, id: u64) {
        self.offer = self.term(index).ok().map(|term| Offer {
            at: Mark { index, term },
            members: self.members.clone(),
            id,
        });
    }

    pub fn withdraw_offer(&mut self) {
        self.offer = None;
    }

    /// Whether somebody has asked for a snapshot since this was last looked at.
    pub fn take_snapshot_wanted(&self) -> bool {
        self.snapshot_wanted.take()
    }

    /// The log begins anew behind a snapshot. What is to be written for that.
    pub fn restart_records(&self, at: Mark, members: &Members) -> [Record; 2] {
        let last = self.kept.last.index;
        [
            Record::Restart { at, last },
            Record::Members(members.clone()),
        ]
    }

    /// It is written.
    pub fn restarted(&mut self, at: Mark, members: Members) {
        self.kept.truncated = at;
        self.kept.last = at;
        self.members = members;
        self.tail.clear();
        self.tail_bytes = 0;
        self.milestones.clear();
        self.offer = None;
    }

    /// The last entry that need not be kept, whoever lacks it.
    pub fn too_old(&self, keep: Keep) -> u64 {
        let by_entries = self.kept.last.index.saturating_sub(keep.entries_max);
        let oldest = self.appended_bytes.saturating_sub(keep.bytes_max);
        let old = self
            .milestones
            .partition_point(|(_, bytes)| *bytes <= oldest);
        let by_bytes = old.checked_sub(1).and_then(|at| self.milestones.get(at));
        by_entries.max(by_bytes.map_or(0, |(index, _)| *index))
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

    fn snapshot(&self, request_index: u64, to: u64) -> raft::Result<Snapshot> {
        // A copy from before a node came is refused by that node.
        let reaches = |offer: &&Offer| {
            offer.at.index >= request_index.max(self.kept.truncated.index)
                && offer.members.contains(to)
        };
        match self.offer.as_ref().filter(reaches) {
            Some(offer) => Ok(offer.snapshot()),
            None => {
                self.snapshot_wanted.set(true);
                Err(StorageError::SnapshotTemporarilyUnavailable.into())
            }
        }
    }
}

/// A state machine that has applied nothing stands at the beginning of a group that was begun here.
fn applied_of(kept: &Kept, applied: u64) -> u64 {
    if kept.truncated == BEGINNING {
        applied.max(BEGINNING.index)
    } else {
        applied
    }
}
