//! One Raft group of a node: what it says and keeps follows from what it is told, and from nothing else.

use std::{collections::BTreeSet, sync::Arc};

use bytes::Bytes;
use raft::{
    Config, LightReady, ProgressState, RawNode, ReadState, Ready, SnapshotStatus, StateRole,
    eraftpb::{ConfChange, ConfChangeType, Entry, EntryType, Message, MessageType},
};

use super::{
    ENTRY_BYTES_MAX, GroupId, NodeId, election,
    group_log::{Announced, Begin, GroupLog, Keep, LogBatch, LogDisk, Mark, Members, Record, Step},
    replicas::Post,
};
use crate::store::EngineError;

/// Ticks between two signs of life of a leader.
const HEARTBEAT_TICKS: usize = 6;
/// Entries for one follower are cut into messages of about this size.
const MESSAGE_BYTES_MAX: u64 = 1024 * 1024;
/// Messages with entries that may be under way to one follower.
const MESSAGES_UNDER_WAY_MAX: usize = 64;
/// Entries that are proposed but not committed; above it proposals are refused.
const UNCOMMITTED_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// Committed entries handed out at a time.
const COMMITTED_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// A learner that lacks no more than this has caught up, and may vote.
const CAUGHT_UP_ENTRIES: u64 = 256;

/// Ticks for which a node leads, and after which it tries again, before it gives the lead to the one that is to have it: what has just changed should rest.
const BALANCE_TICKS: u64 = 100;

/// Who is to have replicas of a group. Its leader changes the members, one at a time, until it is so.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Aim {
    pub voters: Vec<NodeId>,
    pub learners: Vec<NodeId>,
    /// Who should lead, when nothing else is to be done.
    pub leader: Option<NodeId>,
}

/// What a leader does next for an aim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Change(Step),
    HandOver(NodeId),
}

/// What a node is in a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Role {
    pub term: u64,
    pub leader: Option<NodeId>,
    pub leads: bool,
}

/// A committed entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Committed {
    pub index: u64,
    pub term: u64,
    /// Empty for the entry with which a leader begins its term.
    pub data: Bytes,
}

/// Whoever asked with this number before may read what has applied this index: nothing was committed later when they asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadAt {
    pub number: u64,
    pub index: u64,
    /// The leader's time after they had asked: no earlier than anybody was told of anything by then.
    pub time: i64,
    /// A time that had come for the leader and for all whose word confirmed that it leads: whoever leads next is not behind it either.
    pub sure: i64,
}

/// A proposal that was not taken; it will never be committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotProposed {
    /// The node does not lead the group in this term.
    NotLeader,
    /// Too much is under way.
    Full,
    /// No frame carries an entry of so many bytes.
    TooLong(usize),
}

pub struct Group {
    id: GroupId,
    node: RawNode<GroupLog>,
    role: Role,
    /// The term that the wait before an election is set for.
    settled: Option<u64>,
    wait: usize,
    /// The leader to which the connection broke, until there is news of one.
    orphan_of: Option<NodeId>,
    /// Whether it shows itself together with the other groups that the node leads.
    in_step: bool,
    /// All replicas have the entries up to this one, as the leader said when it proposed.
    everywhere: u64,
    keep: Keep,
    /// The number of the last tick, and of the one since which the node leads or has last tried to give the lead away.
    now: u64,
    leads_since: u64,
    /// Members that have lost all they had: they must leave before they can be filled again, so that no vote and no acknowledgement from before counts.
    lost: BTreeSet<NodeId>,
}

/// What must be kept before a group goes on.
pub struct Pending {
    ready: Ready,
    entries: Vec<Entry>,
    restart: Option<(Mark, Members)>,
}

/// What became of a step of a group.
#[derive(Default)]
pub struct Progress {
    pub committed: Vec<Committed>,
    pub role: Option<Role>,
    /// Questions for the last committed index that are answered.
    pub reads: Vec<ReadAt>,
    /// The state machine must go on from the snapshot of this index.
    pub restored: Option<u64>,
    /// New members, to be written before what is committed is given out.
    pub members: Vec<Record>,
}

impl Group {
    pub fn open(
        id: GroupId,
        node: NodeId,
        disk: Arc<dyn LogDisk>,
        begin: &Begin,
        applied: u64,
        keep: Keep,
    ) -> Result<(Self, Vec<Record>), EngineError> {
        let (log, records) = GroupLog::open(id, disk, begin, applied)?;
        let applied = log.applied_at_least(applied);
        let config = Config {
            id: node,
            election_tick: election::LEASE_TICKS,
            heartbeat_tick: HEARTBEAT_TICKS,
            max_election_tick: election::TICKS_MAX,
            applied,
            max_size_per_msg: MESSAGE_BYTES_MAX,
            max_inflight_msgs: MESSAGES_UNDER_WAY_MAX,
            check_quorum: true,
            pre_vote: true,
            max_uncommitted_size: UNCOMMITTED_BYTES_MAX,
            max_committed_size_per_ready: COMMITTED_BYTES_MAX,
            ..Config::default()
        };
        let silent = slog::Logger::root(slog::Discard, slog::o!());
        let node = RawNode::new(&config, log, &silent).map_err(|failure| {
            EngineError::Damaged(format!("the Raft log of group {id}: {failure}"))
        })?;
        let mut group = Self {
            id,
            role: Role::default(),
            settled: None,
            wait: 0,
            orphan_of: None,
            in_step: false,
            everywhere: 0,
            keep,
            now: 0,
            leads_since: 0,
            lost: BTreeSet::new(),
            node,
        };
        group.settle();
        Ok((group, records))
    }

    /// How the leader sees the others, for people.
    #[cfg(test)]
    pub fn progress(&self) -> String {
        let progress = self.node.raft.prs().iter().map(|(node, progress)| {
            let (state, pending) = (progress.state, progress.pending_snapshot);
            let (matched, next) = (progress.matched, progress.next_idx);
            format!("{node}: {state} matched {matched} next {next} snapshot {pending}")
        });
        let offer = self.node.store().offer();
        format!("{:?}, offer {offer:?}", progress.collect::<Vec<_>>())
    }

    pub fn members(&self) -> &Members {
        self.node.store().members()
    }

    /// Whether the log is where all replicas began.
    pub fn is_fresh(&self) -> bool {
        self.node.store().last() == super::group_log::BEGINNING
    }

    pub fn role(&self) -> Role {
        self.role
    }

    /// The last entry that is known to be committed.
    pub fn commit_index(&self) -> u64 {
        self.node.raft.raft_log.committed
    }

    /// The oldest entry that is still there.
    pub fn first_index(&self) -> u64 {
        self.node.store().truncated().index + 1
    }

    pub fn last_index(&self) -> u64 {
        self.node.raft.raft_log.last_index()
    }

    /// How far each replica has come, as the leader knows it.
    pub fn matched(&self) -> impl Iterator<Item = (NodeId, u64)> {
        let progress = self.node.raft.prs().iter();
        progress.map(|(node, progress)| (*node, progress.matched))
    }

    fn voters(&self) -> Vec<NodeId> {
        let voters = self.node.raft.prs().conf().voters().ids();
        let mut voters: Vec<NodeId> = voters.iter().collect();
        voters.sort_unstable();
        voters
    }

    /// The Raft library chooses a wait by chance whenever the term changes; ours is this replica's turn.
    fn settle(&mut self) {
        let raft = &self.node.raft;
        if raft.leader_id != raft::INVALID_ID {
            self.orphan_of = None;
        }
        let (term, node) = (raft.term, raft.id);
        if self.settled == Some(term) && raft.randomized_election_timeout() == self.wait {
            return;
        }
        self.wait = election::wait(self.id, term, node, &self.voters());
        self.settled = Some(term);
        let wait = self.wait;
        self.node.raft.set_randomized_election_timeout(wait);
    }

    /// Stands for election after so many ticks, unless there is news of a leader.
    fn stand_after(&mut self, ticks: usize) {
        let elapsed = self.wait.saturating_sub(ticks);
        self.node.raft.election_elapsed = elapsed;
    }

    /// The connection to a node broke. If it was the leader, nobody waits for its silence to last; should it be alive, those who hear it vote for no other.
    pub fn lost(&mut self, node: NodeId) {
        let raft = &mut self.node.raft;
        if raft.leader_id != node || raft.state != StateRole::Follower {
            return;
        }
        raft.leader_id = raft::INVALID_ID;
        let (term, own) = (raft.term, raft.id);
        self.orphan_of = Some(node);
        let ticks = election::wait_without(self.id, term, own, &self.voters(), node);
        self.stand_after(ticks);
    }

    /// Whether the state machine is not where the log begins: a copy is on its way into it. Such a replica does not stand for election, because the Raft library wants to see
    /// all that is not applied then.
    fn is_restoring(&self) -> bool {
        let log = &self.node.raft.raft_log;
        log.applied + 1 < log.first_index()
    }

    /// `count` is the number of the tick, the same for all groups of the node.
    pub fn tick(&mut self, count: u64) {
        self.now = count;
        let leads = self.node.raft.state == StateRole::Leader;
        // Signs of life of all groups go into one parcel: a new leader, which has just shown itself, falls into step.
        self.in_step = leads && (self.in_step || count.is_multiple_of(HEARTBEAT_TICKS as u64));
        if leads && !self.in_step {
            return;
        }
        if self.is_restoring() {
            self.node.raft.election_elapsed = 0;
        }
        self.node.tick();
        self.settle();
        let just_stood = self.node.raft.election_elapsed == 0;
        if self.orphan_of.is_some() && just_stood {
            // Those who had not noticed yet that the leader is gone did not listen.
            self.stand_after(election::wait_again(&self.voters()));
        }
    }

    /// Asks for the last committed index and the leader's time, for readers who must see all that anybody was told; `time` is this node's. The answer may get lost: ask
    /// again.
    pub fn ask_index(&mut self, number: u64, time: i64) {
        let raft = &self.node.raft;
        let term = if self.is_blank() { 0 } else { raft.term };
        let parts = [raft.id, number, term, time.cast_unsigned()];
        let question = parts.map(u64::to_be_bytes).concat();
        self.node.read_index(question);
        self.settle();
    }

    /// Another node asks for the last committed index. A voter that was in the leader's term when it asked says by that what is asked of all others: that nobody else
    /// leads. Where two are a majority, nobody else need be waited for. The library takes such a word for all questions before this one, too; but it was given when this one
    /// was asked, which may be before they were. So it counts only if there are none.
    fn hear_question(&mut self, question: Message) {
        let (from, asked) = (question.from, question.entries.first());
        let asked = asked.map(|entry| entry.data.clone()).unwrap_or_default();
        let is_first = self.node.raft.pending_read_count() == 0;
        self.hear(question);
        let raft = &self.node.raft;
        let votes = is_first && self.members().voters.contains(&from);
        if raft.state == StateRole::Leader && votes && part(&asked, 2) == Some(raft.term) {
            let mut word = Message::default();
            word.set_msg_type(MessageType::MsgHeartbeatResponse);
            word.from = from;
            word.to = raft.id;
            word.term = raft.term;
            word.context = asked;
            self.hear(word);
        }
    }

    /// What is to be answered at once.
    ///
    /// Two kinds of messages mean something else between nodes than inside the library: `MsgUnreachable` says that the sender has nothing of the group though the
    /// leader takes it for a member that has, and `MsgSnapStatus` that the sender could not fetch a snapshot.
    pub fn step(&mut self, message: Message) -> Option<Message> {
        match message.get_msg_type() {
            MessageType::MsgUnreachable => self.note_lost(&message),
            MessageType::MsgSnapStatus => {
                let failed = SnapshotStatus::Failure;
                self.node.report_snapshot(message.from, failed);
            }
            // Who has nothing does not know what it has promised.
            MessageType::MsgRequestVote | MessageType::MsgRequestPreVote if self.is_blank() => {}
            MessageType::MsgTimeoutNow if self.is_restoring() => {}
            MessageType::MsgReadIndex => self.hear_question(message),
            // What the leader takes for granted is not here: an acknowledgement from before it was lost came late.
            MessageType::MsgHeartbeat if message.commit > self.last_index() => {
                let mut reply = Message::default();
                reply.set_msg_type(MessageType::MsgUnreachable);
                reply.from = message.to;
                reply.to = message.from;
                reply.term = message.term;
                reply.index = message.commit;
                return Some(reply);
            }
            _ => self.hear(message),
        }
        self.settle();
        None
    }

    fn hear(&mut self, message: Message) {
        let refused = message.get_msg_type() == MessageType::MsgAppendResponse && message.reject;
        let from = message.from;
        // What does not fit to what the group knows is none of its business: late, doubled, or from a node that left.
        let _ = self.node.step(message);
        // A late refusal does not take back what the replica has said since; the log may not have it any more.
        if refused && let Some(progress) = self.node.raft.mut_prs().get_mut(from) {
            progress.next_idx = progress.next_idx.max(progress.matched + 1);
        }
    }

    fn is_blank(&self) -> bool {
        self.node.store().is_blank()
    }

    fn note_lost(&mut self, message: &Message) {
        let raft = &self.node.raft;
        let known = raft.prs().get(message.from);
        // A reply that is late is about less than the member has by now.
        let commit = raft.raft_log.committed;
        let now = known.is_some_and(|known| known.matched.min(commit) <= message.index);
        if raft.state == StateRole::Leader && raft.term == message.term && now {
            self.lost.insert(message.from);
        }
    }

    /// Whether a snapshot that is announced has something that this node lacks.
    pub fn lacks(&self, message: &Message) -> bool {
        let raft = &self.node.raft;
        let index = message.get_snapshot().get_metadata().index;
        message.term >= raft.term && index > raft.raft_log.committed
    }

    /// Brings the members one step closer to the aim, if this node leads.
    pub fn pursue(&mut self, aim: &Aim) {
        let raft = &self.node.raft;
        let settled = raft.pending_conf_index <= raft.raft_log.applied;
        if raft.state != StateRole::Leader || !settled || raft.lead_transferee.is_some() {
            return;
        }
        match self.next(aim).or_else(|| self.heir(aim)) {
            None => {}
            Some(Next::HandOver(node)) => {
                self.leads_since = self.now;
                self.node.transfer_leader(node);
            }
            Some(Next::Change(step)) => {
                let context = rmp_serde::to_vec(&step).unwrap_or_default();
                // What is not taken now is proposed again.
                let _ = self.node.propose_conf_change(context, conf_change(step));
            }
        }
        self.settle();
    }

    fn next(&self, aim: &Aim) -> Option<Next> {
        let (this, members) = (self.node.raft.id, self.members());
        let Members {
            voters, learners, ..
        } = members;
        if aim.voters.is_empty() {
            return None;
        }
        let mut lost = self.lost.iter().filter(|node| members.contains(**node));
        if let Some(lost) = lost.next()
            && voters.len() > 1
        {
            return Some(Next::Change(Step::Remove(*lost)));
        }
        let wanted = aim.voters.iter().chain(&aim.learners);
        if let Some(new) = wanted.clone().find(|node| !members.contains(**node)) {
            return Some(Next::Change(Step::Learner(*new)));
        }
        let mut waiting = aim.voters.iter().filter(|node| learners.contains(node));
        if let Some(ready) = waiting.clone().find(|node| self.has_caught_up(**node)) {
            return Some(Next::Change(Step::Voter(*ready)));
        }
        // Nobody leaves before those who come in its place have come.
        if waiting.next().is_some() {
            return None;
        }
        let surplus = voters.iter().find(|node| !aim.voters.contains(node));
        match surplus {
            Some(node) if *node == this => {
                let mut heirs = aim.voters.iter().filter(|heir| **heir != this);
                let heir = heirs.find(|heir| self.has_caught_up(**heir))?;
                Some(Next::HandOver(*heir))
            }
            Some(node) if !self.can_spare(*node) => None,
            Some(node) if aim.learners.contains(node) => Some(Next::Change(Step::Learner(*node))),
            Some(node) => Some(Next::Change(Step::Remove(*node))),
            None => {
                let mut surplus = learners.iter().filter(|node| !aim.learners.contains(node));
                surplus.next().map(|node| Next::Change(Step::Remove(*node)))
            }
        }
    }

    /// Whether the voters that remain without this one can still elect somebody: those that are being filled have no vote to give.
    fn can_spare(&self, node: NodeId) -> bool {
        let left = self.members().voters.iter().filter(|one| **one != node);
        let sound = left
            .clone()
            .filter(|one| **one == self.node.raft.id || self.has_caught_up(**one));
        2 * sound.count() > left.count()
    }

    /// To whom the lead goes for balance, at a moment at which nobody waits for anything.
    fn heir(&self, aim: &Aim) -> Option<Next> {
        let raft = &self.node.raft;
        let idle = raft.raft_log.committed == self.last_index();
        let rested = self.now >= self.leads_since + BALANCE_TICKS;
        let heir = aim.leader.filter(|heir| *heir != raft.id)?;
        let fit = self.members().voters.contains(&heir) && self.has_caught_up(heir);
        (idle && rested && fit).then_some(Next::HandOver(heir))
    }

    fn has_caught_up(&self, node: NodeId) -> bool {
        let progress = self.node.raft.prs().get(node);
        progress.is_some_and(|progress| {
            // After a snapshot nothing more is sent while nobody writes.
            progress.state != ProgressState::Snapshot
                && progress.recent_active
                // Who has nothing yet gives no vote, however short the log is.
                && progress.matched > 0
                && progress.matched + CAUGHT_UP_ENTRIES >= self.last_index()
        })
    }

    /// Whether a copy of the state machine is wanted, for somebody who lacks more than the log has.
    pub fn take_snapshot_wanted(&self) -> bool {
        self.node.store().take_snapshot_wanted()
    }

    /// The id of the copy that may be fetched.
    pub fn offer(&self) -> Option<u64> {
        self.node.store().offer().map(|offer| offer.id)
    }

    pub fn set_offer(&mut self, index: u64, id: u64) {
        self.node.mut_store().set_offer(index, id);
    }

    /// The copy goes. Whoever was to fetch it has not, or the leader does not know yet that it has.
    pub fn withdraw_offer(&mut self) {
        self.node.mut_store().withdraw_offer();
        let fetching = self.node.raft.prs().iter();
        let fetching: Vec<NodeId> = fetching
            .filter(|(_, progress)| progress.state == ProgressState::Snapshot)
            .map(|(node, _)| *node)
            .collect();
        for node in fetching {
            self.node.report_snapshot(node, SnapshotStatus::Failure);
        }
    }

    /// Stands for election at once.
    pub fn campaign(&mut self) {
        if !self.is_restoring() {
            let _ = self.node.campaign();
        }
        self.settle();
    }

    /// Nothing reaches that node.
    pub fn unreachable(&mut self, node: NodeId) {
        self.node.report_unreachable(node);
    }

    /// Adds an entry to the log, if the node leads in this term. Its index.
    pub fn propose(&mut self, term: u64, data: Bytes) -> Result<u64, NotProposed> {
        let raft = &self.node.raft;
        // Who gives the lead away takes nothing more.
        let leads = raft.state == StateRole::Leader && raft.lead_transferee.is_none();
        if !leads || raft.term != term {
            return Err(NotProposed::NotLeader);
        }
        if data.len() > ENTRY_BYTES_MAX {
            return Err(NotProposed::TooLong(data.len()));
        }
        let everywhere = self.matched().map(|(_, matched)| matched).min();
        let entry = Entry {
            data,
            context: Bytes::copy_from_slice(&everywhere.unwrap_or(0).to_be_bytes()),
            ..Entry::default()
        };
        let mut message = Message::default();
        message.set_msg_type(MessageType::MsgPropose);
        message.from = raft.id;
        message.entries = vec![entry].into();
        self.node
            .raft
            .step(message)
            .map_err(|_| NotProposed::Full)?;
        Ok(self.node.raft.raft_log.last_index())
    }

    /// The entries up to this one are in the state machine.
    pub fn applied(&mut self, index: u64) {
        self.node.advance_apply_to(index);
    }

    /// Gives entries free that the state machine holds durably and every replica has, or that are too many to keep for those who lack them.
    pub fn release(&mut self, durable: u64) -> Option<Record> {
        let log = self.node.mut_store();
        let dispensable = self.everywhere.max(log.too_old(self.keep));
        // Whoever fetches a copy goes on behind it.
        let offered = log.offer().map_or(u64::MAX, |offer| offer.at.index);
        log.truncate(durable.min(dispensable).min(offered))
    }

    pub fn has_ready(&self) -> bool {
        self.node.has_ready()
    }

    /// What the group wants to send at once, and to keep. Whether that must survive a crash before the group goes on.
    pub fn collect(
        &mut self,
        id: GroupId,
        batch: &mut LogBatch,
        post: &mut dyn Post,
    ) -> (Pending, bool) {
        let mut ready = self.node.ready();
        ready
            .take_messages()
            .into_iter()
            .for_each(|message| post.send(id, message));
        let restart = restart_of(&ready);
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
            batch.records.push((id, Record::Append { entries, last }));
        }
        if let Some(hard_state) = ready.hs() {
            let record = Record::HardState(hard_state.clone());
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

    /// What was collected is kept.
    pub fn kept(&mut self, id: GroupId, pending: Pending, post: &mut dyn Post) -> Progress {
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
        let reads = ready.take_read_states();
        let mut messages = ready.take_persisted_messages();
        let mut committed = ready.take_committed_entries();
        let mut light: LightReady = self.node.advance_append(ready);
        if let Some(commit) = light.commit_index() {
            self.node.mut_store().set_commit(commit);
        }
        messages.extend(light.take_messages());
        messages
            .into_iter()
            .for_each(|message| post.send(id, message));
        committed.extend(light.take_committed_entries());
        let mut members = Vec::new();
        let committed = committed
            .into_iter()
            .map(|entry| self.committed(entry, &mut members))
            .collect();
        self.settle();
        Progress {
            committed,
            role: self.changed_role(),
            reads: reads.iter().filter_map(read_at).collect(),
            restored,
            members,
        }
    }

    fn committed(&mut self, entry: Entry, members: &mut Vec<Record>) -> Committed {
        if entry.get_entry_type() != EntryType::EntryNormal {
            if let Ok(step) = rmp_serde::from_slice(&entry.context) {
                members.extend(self.change_members(step, entry.index));
            }
            return Committed {
                index: entry.index,
                term: entry.term,
                data: Bytes::new(),
            };
        }
        if let Ok(everywhere) = entry.context.as_ref().try_into() {
            self.everywhere = self.everywhere.max(u64::from_be_bytes(everywhere));
        }
        Committed {
            index: entry.index,
            term: entry.term,
            data: entry.data,
        }
    }

    fn change_members(&mut self, step: Step, index: u64) -> Option<Record> {
        let record = self.node.mut_store().step_members(step, index)?;
        // It was checked when it was proposed; a group without voters is refused then.
        let _ = self.node.apply_conf_change(&conf_change(step));
        if let Step::Remove(node) = step {
            self.lost.remove(&node);
        }
        let votes = self.members().voters.contains(&self.node.raft.id);
        let raft = &mut self.node.raft;
        if raft.state == StateRole::Leader && !votes {
            // The library lets it lead on, though it may propose nothing any more; the members elect one of themselves.
            raft.become_follower(raft.term, raft::INVALID_ID);
        }
        Some(record)
    }

    fn changed_role(&mut self) -> Option<Role> {
        let raft = &self.node.raft;
        let role = Role {
            term: raft.term,
            leader: (raft.leader_id != raft::INVALID_ID).then_some(raft.leader_id),
            leads: raft.state == StateRole::Leader,
        };
        if role.leads && !(self.role.leads && self.role.term == role.term) {
            self.leads_since = self.now;
        }
        (std::mem::replace(&mut self.role, role) != role).then_some(role)
    }
}

/// One of the numbers that a question is made of: who asks, the number of the question, the term and the time of who asks, the time of who answers.
fn part(question: &[u8], at: usize) -> Option<u64> {
    let (parts, _) = question.as_chunks();
    parts.get(at).copied().map(u64::from_be_bytes)
}

/// Puts a node's time behind the question of another for the last committed index. The last to do so is the leader, who answers it.
pub fn stamp(message: &mut Message, time: impl FnOnce() -> i64) {
    if message.get_msg_type() == MessageType::MsgReadIndex
        && let Some(entry) = message.entries.first_mut()
    {
        let question = [entry.data.as_ref(), &time().to_be_bytes()].concat();
        entry.data = question.into();
    }
}

fn read_at(state: &ReadState) -> Option<ReadAt> {
    let asked = &state.request_ctx;
    let time = i64::from_be_bytes(*asked.last_chunk()?);
    Some(ReadAt {
        number: part(asked, 1)?,
        index: state.index,
        time,
        sure: time.min(part(asked, 3)?.cast_signed()),
    })
}

fn conf_change(step: Step) -> ConfChange {
    let (kind, node) = match step {
        Step::Learner(node) => (ConfChangeType::AddLearnerNode, node),
        Step::Voter(node) => (ConfChangeType::AddNode, node),
        Step::Remove(node) => (ConfChangeType::RemoveNode, node),
    };
    let mut change = ConfChange::default();
    change.set_change_type(kind);
    change.node_id = node;
    change
}

/// The place and the members of a snapshot that the group has accepted.
fn restart_of(ready: &Ready) -> Option<(Mark, Members)> {
    let snapshot = ready.snapshot();
    let metadata = snapshot.get_metadata();
    let at = Mark {
        index: metadata.index,
        term: metadata.term,
    };
    if at.index == 0 {
        return None;
    }
    let announced = rmp_serde::from_slice::<Announced>(&snapshot.data);
    let members = announced.map_or_else(
        |_| Members {
            since: at.index,
            voters: metadata.get_conf_state().voters.clone(),
            learners: metadata.get_conf_state().learners.clone(),
        },
        |announced| announced.members,
    );
    Some((at, members))
}
