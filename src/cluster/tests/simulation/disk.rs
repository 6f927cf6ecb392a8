//! A simulated disk: a crash may lose writes that were not synced, from some write on.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard},
};

use raft::eraftpb::{Entry, HardState};

use crate::{
    cluster::{
        GroupId,
        raft::{
            log_disk::{LogBatch, LogDisk, LogPosition, LogRecord, PersistedState},
            membership::Members,
        },
    },
    store::{EngineError, engine::Durability},
};

#[derive(Clone, Default)]
struct Logs(BTreeMap<GroupId, Log>);

#[derive(Clone, Default)]
struct Log {
    hard_state: HardState,
    truncated: LogPosition,
    applied: u64,
    members: Option<Members>,
    entries: BTreeMap<u64, Entry>,
}

impl Logs {
    fn write(&mut self, batch: &LogBatch) {
        for (group, record) in &batch.records {
            let log = self.0.entry(*group).or_default();
            match record {
                LogRecord::Append { entries, .. } => {
                    if let Some(first) = entries.first() {
                        log.entries.split_off(&first.index);
                    }
                    let entries = entries.iter().map(|entry| (entry.index, entry.clone()));
                    log.entries.extend(entries);
                }
                LogRecord::HardState(hard_state) => log.hard_state = hard_state.clone(),
                LogRecord::Truncate { to, .. } => {
                    log.entries = log.entries.split_off(&(to.index + 1));
                    log.truncated = *to;
                }
                LogRecord::Applied(index) => log.applied = *index,
                LogRecord::Members(members) => log.members = Some(members.clone()),
                LogRecord::Restart { at, .. } => {
                    log.entries.clear();
                    log.truncated = *at;
                }
                LogRecord::Remove => {
                    self.0.remove(group);
                }
            }
        }
    }
}

#[derive(Default)]
struct Contents {
    durable: Logs,
    /// Includes what is not synced.
    visible: Logs,
    unsynced: Vec<LogBatch>,
    fails_after: Option<u64>,
}

#[derive(Default)]
pub struct SimulatedDisk {
    contents: Mutex<Contents>,
    /// Acknowledges an fsync that it has not done.
    lies: bool,
}

impl SimulatedDisk {
    pub fn new(lies: bool) -> Self {
        Self {
            lies,
            ..Self::default()
        }
    }

    fn contents(&self) -> MutexGuard<'_, Contents> {
        self.contents.lock().unwrap()
    }

    /// Fails in the middle of the write after so many.
    pub fn fail_after(&self, writes: u64) {
        self.contents().fails_after = Some(writes);
    }

    /// Cancels the failure that is to come.
    pub fn mend(&self) {
        self.contents().fails_after = None;
    }

    /// Returns how many writes a crash may lose.
    pub fn unsynced(&self) -> usize {
        self.contents().unsynced.len()
    }

    /// Cuts the power. So many of the writes that were not synced survive.
    pub fn crash(&self, survivors: usize) {
        let mut contents = self.contents();
        let Contents {
            durable,
            visible,
            unsynced,
            fails_after,
        } = &mut *contents;
        unsynced
            .drain(..)
            .take(survivors)
            .for_each(|batch| durable.write(&batch));
        *visible = durable.clone();
        *fails_after = None;
    }
}

impl LogDisk for SimulatedDisk {
    fn load(&self, group: GroupId) -> Result<Option<PersistedState>, EngineError> {
        let contents = self.contents();
        Ok(contents.visible.0.get(&group).map(|log| PersistedState {
            hard_state: log.hard_state.clone(),
            truncated: log.truncated,
            applied: log.applied,
            members: log.members.clone(),
            last: log
                .entries
                .values()
                .next_back()
                .map_or(log.truncated, |entry| LogPosition {
                    index: entry.index,
                    term: entry.term,
                }),
        }))
    }

    fn entries(
        &self,
        group: GroupId,
        from: u64,
        to: u64,
        bytes_max: u64,
    ) -> Result<Vec<Entry>, EngineError> {
        let contents = self.contents();
        let log = contents
            .visible
            .0
            .get(&group)
            .expect("a group that was written");
        let mut bytes = 0;
        let fitting = log.entries.range(from..to).take_while(|(_, entry)| {
            let first = bytes == 0;
            bytes += 64 + entry.data.len() as u64;
            first || bytes <= bytes_max
        });
        Ok(fitting.map(|(_, entry)| entry.clone()).collect())
    }

    fn write(&self, batch: LogBatch, durability: Durability) -> Result<(), EngineError> {
        let mut contents = self.contents();
        contents.visible.write(&batch);
        contents.unsynced.push(batch);
        if let Some(writes) = &mut contents.fails_after {
            if *writes == 0 {
                return Err(EngineError::Io("power was cut".into()));
            }
            *writes -= 1;
        }
        if durability == Durability::Synced && !self.lies {
            let batches = std::mem::take(&mut contents.unsynced);
            batches
                .iter()
                .for_each(|batch| contents.durable.write(batch));
        }
        Ok(())
    }
}
