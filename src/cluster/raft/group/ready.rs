//! The Ready cycle of a group: what it wants to persist, and what follows when that is on disk.

use bytes::Bytes;
use raft::{
    LightReady, Ready, StateRole,
    eraftpb::{Entry, EntryType},
};

use super::{Committed, Group, Role};
use crate::cluster::raft::{
    log_disk::{LogBatch, LogPosition, LogRecord},
    membership::{MemberChange, Members},
    read_index::{self, ReadIndex},
    snapshot_meta::SnapshotMeta,
    transport::Transport,
};

/// What must be persisted before a group goes on.
pub struct Pending {
    ready: Ready,
    entries: Vec<Entry>,
    restart: Option<(LogPosition, Members)>,
}

/// What follows when it is.
#[derive(Default)]
pub struct Progress {
    pub committed: Vec<Committed>,
    /// The new role, if it has changed.
    pub role: Option<Role>,
    pub read_indexes: Vec<ReadIndex>,
    /// The state machine must be restored from the snapshot of this index.
    pub restored: Option<u64>,
    /// Member changes, to be written before the committed entries are given out.
    pub members: Vec<LogRecord>,
}

impl Group {
    pub fn has_ready(&self) -> bool {
        self.node.has_ready()
    }

    /// Sends what may be sent at once, and adds what must be persisted to the batch. Also returns
    /// whether that must survive a crash before the group goes on.
    pub fn collect(
        &mut self,
        batch: &mut LogBatch,
        transport: &mut dyn Transport,
    ) -> (Pending, bool) {
        let id = self.id;
        let mut ready = self.node.ready();
        for message in ready.take_messages() {
            transport.send(id, message);
        }
        let restart = SnapshotMeta::accepted(ready.snapshot());
        if let Some((at, members)) = &restart {
            let records = self.node.store().restart_records(*at, members);
            batch.records.extend(records.map(|record| (id, record)));
        }
        let entries = ready.take_entries();
        if !entries.is_empty() {
            let last = match &restart {
                Some((at, _)) => at.index,
                None => self.node.store().last().index,
            };
            let entries = entries.clone();
            batch
                .records
                .push((id, LogRecord::Append { entries, last }));
        }
        if let Some(hard_state) = ready.hs() {
            let record = LogRecord::HardState(hard_state.clone());
            batch.records.push((id, record));
        }
        let must_sync = ready.must_sync();
        let pending = Pending {
            ready,
            entries,
            restart,
        };
        (pending, must_sync)
    }

    /// Goes on after what was collected is persisted.
    pub fn persisted(&mut self, pending: Pending, transport: &mut dyn Transport) -> Progress {
        let Pending {
            mut ready,
            entries,
            restart,
        } = pending;
        let log = self.node.mut_store();
        let restored = restart.as_ref().map(|(at, _)| at.index);
        if let Some((at, members)) = restart {
            log.restarted(at, members);
        }
        log.appended(entries);
        if let Some(hard_state) = ready.hs() {
            log.set_hard_state(hard_state.clone());
        }
        let read_states = ready.take_read_states();
        let mut messages = ready.take_persisted_messages();
        let mut committed = ready.take_committed_entries();
        let mut light: LightReady = self.node.advance_append(ready);
        if let Some(commit) = light.commit_index() {
            self.node.mut_store().set_commit(commit);
        }
        messages.extend(light.take_messages());
        for message in messages {
            transport.send(self.id, message);
        }
        committed.extend(light.take_committed_entries());
        let mut members = Vec::new();
        let committed = committed
            .into_iter()
            .map(|entry| self.committed(entry, &mut members))
            .collect();
        self.sync_election_timer();
        Progress {
            committed,
            role: self.changed_role(),
            read_indexes: read_states.iter().filter_map(read_index::decode).collect(),
            restored,
            members,
        }
    }

    fn committed(&mut self, entry: Entry, members: &mut Vec<LogRecord>) -> Committed {
        let mut committed = Committed {
            index: entry.index,
            term: entry.term,
            data: Bytes::new(),
        };
        if entry.get_entry_type() != EntryType::EntryNormal {
            if let Ok(change) = rmp_serde::from_slice(&entry.context) {
                members.extend(self.change_members(change, entry.index));
            }
            return committed;
        }
        if let Ok(min_match) = entry.context.as_ref().try_into() {
            self.min_match = self.min_match.max(u64::from_be_bytes(min_match));
        }
        committed.data = entry.data;
        committed
    }

    fn change_members(&mut self, change: MemberChange, index: u64) -> Option<LogRecord> {
        let record = self.node.mut_store().change_members(change, index)?;
        // raft-rs refuses only a change that leaves no voter; the planner proposes none.
        let _ = self.node.apply_conf_change(&change.conf_change());
        if let MemberChange::Remove(node) = change {
            self.wiped.remove(&node);
        }
        let is_voter = self.members().voters.contains(&self.node.raft.id);
        let raft = &mut self.node.raft;
        if raft.state == StateRole::Leader && !is_voter {
            // raft-rs lets it lead on without the right to propose; the voters elect one of them.
            raft.become_follower(raft.term, raft::INVALID_ID);
        }
        Some(record)
    }

    /// Returns the role if it has changed since the last call.
    fn changed_role(&mut self) -> Option<Role> {
        let raft = &self.node.raft;
        let role = Role {
            term: raft.term,
            leader: (raft.leader_id != raft::INVALID_ID).then_some(raft.leader_id),
            is_leader: raft.state == StateRole::Leader,
        };
        if role.is_leader && !(self.role.is_leader && self.role.term == role.term) {
            self.leader_since = self.now;
        }
        (std::mem::replace(&mut self.role, role) != role).then_some(role)
    }
}
