//! What frames carry: the messages of Raft groups in a form of our own, apart from the types of the Raft library.

use bytes::Bytes;
use raft::eraftpb::{ConfState, Entry, EntryType, Message, MessageType, Snapshot};
use serde::{Deserialize, Serialize};

use super::{GroupId, shared_time::Times};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Parcel {
    /// Messages of Raft groups, in order, and what the sender knows of the time.
    Raft(Times, Vec<Letter>),
    /// Something that the other node is asked to do, with a number that its answer carries.
    Question(u64, Question),
    Answer(u64, Bytes),
    /// The sender is there.
    Alive,
}

/// What one node asks another.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Question {
    /// A request of a client, which the gateway answers.
    Request(Bytes),
    /// A piece of a snapshot.
    Snapshot(Piece),
    /// Who the members of its groups are.
    Members,
    /// An order of the operator, for the node that leads the catalog.
    Order(Bytes),
    /// Whether the cluster has been begun, as far as the node knows: whether there is anything in its catalog's log.
    Begun,
}

/// A piece of a copy that a node offers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Piece {
    pub group: GroupId,
    pub id: u64,
    /// A file and the place in it; `None`: the list of all files.
    pub file: Option<(String, u64)>,
}

impl Parcel {
    pub fn encode(&self) -> Vec<u8> {
        rmp_serde::to_vec(self).expect("a struct of numbers and bytes has a MessagePack form")
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, rmp_serde::decode::Error> {
        rmp_serde::from_slice(bytes)
    }
}

/// A message of one group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Letter {
    pub group: GroupId,
    kind: u8,
    from: u64,
    to: u64,
    term: u64,
    log_term: u64,
    index: u64,
    entries: Vec<LetterEntry>,
    commit: u64,
    commit_term: u64,
    reject: bool,
    reject_hint: u64,
    context: Bytes,
    priority: i64,
    snapshot: Option<LetterSnapshot>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct LetterSnapshot {
    index: u64,
    term: u64,
    voters: Vec<u64>,
    learners: Vec<u64>,
    data: Bytes,
}

impl LetterSnapshot {
    fn new(snapshot: &Snapshot) -> Option<Self> {
        let metadata = snapshot.get_metadata();
        let members = metadata.get_conf_state();
        (metadata.index > 0).then(|| Self {
            index: metadata.index,
            term: metadata.term,
            voters: members.voters.clone(),
            learners: members.learners.clone(),
            data: snapshot.data.clone(),
        })
    }

    fn open(self) -> Snapshot {
        let mut snapshot = Snapshot {
            data: self.data,
            ..Snapshot::default()
        };
        let metadata = snapshot.mut_metadata();
        metadata.index = self.index;
        metadata.term = self.term;
        metadata.set_conf_state(ConfState {
            voters: self.voters,
            learners: self.learners,
            ..ConfState::default()
        });
        snapshot
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct LetterEntry {
    changes_members: bool,
    term: u64,
    index: u64,
    data: Bytes,
    context: Bytes,
}

impl Letter {
    pub fn new(group: GroupId, message: Message) -> Self {
        let kind = message.get_msg_type() as u8;
        let snapshot = LetterSnapshot::new(message.get_snapshot());
        let Message {
            to,
            from,
            term,
            log_term,
            index,
            entries,
            commit,
            commit_term,
            reject,
            reject_hint,
            context,
            priority,
            ..
        } = message;
        let entries = entries.into_iter().map(|entry| LetterEntry {
            changes_members: entry.get_entry_type() != EntryType::EntryNormal,
            term: entry.term,
            index: entry.index,
            data: entry.data,
            context: entry.context,
        });
        Self {
            group,
            kind,
            from,
            to,
            term,
            log_term,
            index,
            entries: entries.collect(),
            commit,
            commit_term,
            reject,
            reject_hint,
            context,
            priority,
            snapshot,
        }
    }

    /// About how many bytes it takes.
    pub fn bytes(&self) -> usize {
        const OVERHEAD_BYTES: usize = 64;
        let entries = self.entries.iter();
        OVERHEAD_BYTES
            + entries
                .map(|entry| OVERHEAD_BYTES + entry.data.len() + entry.context.len())
                .sum::<usize>()
    }

    /// The message for the Raft library; `None` when its kind is not known, or not one that comes from another node.
    pub fn open(self) -> Option<(GroupId, Message)> {
        let kind = KINDS.into_iter().find(|kind| *kind as u8 == self.kind)?;
        // The Raft library relies on it.
        if kind == MessageType::MsgReadIndex && self.entries.len() != 1 {
            return None;
        }
        let mut message = Message::default();
        message.set_msg_type(kind);
        message.to = self.to;
        message.from = self.from;
        message.term = self.term;
        message.log_term = self.log_term;
        message.index = self.index;
        message.commit = self.commit;
        message.commit_term = self.commit_term;
        message.reject = self.reject;
        message.reject_hint = self.reject_hint;
        message.context = self.context;
        message.priority = self.priority;
        let entries = self.entries.into_iter().map(|letter| {
            let mut entry = Entry::default();
            entry.set_entry_type(if letter.changes_members {
                EntryType::EntryConfChange
            } else {
                EntryType::EntryNormal
            });
            entry.term = letter.term;
            entry.index = letter.index;
            entry.data = letter.data;
            entry.context = letter.context;
            entry
        });
        message.entries = entries.collect::<Vec<_>>().into();
        if let Some(snapshot) = self.snapshot {
            message.set_snapshot(snapshot.open());
        }
        Some((self.group, message))
    }
}

/// What nodes say to each other; everything else a group says to itself only. Of what the library tells itself, two are said between nodes too, in a sense of our own:
/// see [`super::group::Group::step`].
const KINDS: [MessageType; 14] = [
    MessageType::MsgSnapshot,
    MessageType::MsgSnapStatus,
    MessageType::MsgUnreachable,
    MessageType::MsgAppend,
    MessageType::MsgAppendResponse,
    MessageType::MsgRequestVote,
    MessageType::MsgRequestVoteResponse,
    MessageType::MsgHeartbeat,
    MessageType::MsgHeartbeatResponse,
    MessageType::MsgTimeoutNow,
    MessageType::MsgRequestPreVote,
    MessageType::MsgRequestPreVoteResponse,
    MessageType::MsgReadIndex,
    MessageType::MsgReadIndexResp,
];

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::cluster::{ENTRY_BYTES_MAX, links::PARCEL_BYTES_MAX};

    fn times() -> Times {
        let mut time = crate::cluster::shared_time::SharedTime::new(1, None);
        time.set_groups([(GroupId::META, vec![1])].into());
        time.tell(2, 5, 1_000)
    }

    fn sample() -> Message {
        let entry = Entry {
            term: 3,
            index: 12,
            data: Bytes::from_static(b"data"),
            context: Bytes::from_static(b"context"),
            ..Entry::default()
        };
        let mut message = Message::default();
        message.set_msg_type(MessageType::MsgAppend);
        message.to = 2;
        message.from = 1;
        message.term = 4;
        message.log_term = 3;
        message.index = 11;
        message.commit = 10;
        message.commit_term = 3;
        message.reject = true;
        message.reject_hint = 9;
        message.priority = -1;
        message.context = Bytes::from_static(b"lease");
        let mut change = entry.clone();
        change.set_entry_type(EntryType::EntryConfChange);
        message.entries = vec![entry, change].into();
        let mut snapshot = Snapshot {
            data: Bytes::from_static(b"id"),
            ..Snapshot::default()
        };
        snapshot.mut_metadata().index = 8;
        snapshot.mut_metadata().term = 2;
        snapshot.mut_metadata().set_conf_state(ConfState {
            voters: vec![1, 2],
            learners: vec![3],
            ..ConfState::default()
        });
        message.set_snapshot(snapshot);
        message
    }

    #[test]
    fn messages_arrive_as_they_were_sent() {
        let group = GroupId {
            container: 7 << 32 | 1,
            range: 3,
        };
        let parcel = Parcel::Raft(times(), vec![Letter::new(group, sample())]);
        let Parcel::Raft(_, letters) = Parcel::decode(&parcel.encode()).unwrap() else {
            panic!("another kind of parcel");
        };
        let opened: Vec<_> = letters.into_iter().filter_map(Letter::open).collect();
        assert_eq!(opened, [(group, sample())]);
    }

    #[test]
    fn a_frame_carries_the_longest_entry() {
        let mut message = sample();
        let mut longest = message.entries[0].clone();
        longest.data = Bytes::from(vec![0xff; ENTRY_BYTES_MAX]);
        message.entries = vec![longest].into();
        let letter = Letter::new(GroupId::META, message);
        let parcel = Parcel::Raft(times(), vec![letter]).encode();
        assert!(parcel.len() <= PARCEL_BYTES_MAX, "{}", parcel.len());
        let answer = Parcel::Answer(u64::MAX, Bytes::from(vec![0xff; ENTRY_BYTES_MAX])).encode();
        assert!(answer.len() <= PARCEL_BYTES_MAX, "{}", answer.len());
    }

    #[test]
    fn a_question_without_a_number_is_not_taken() {
        let mut message = sample();
        message.set_msg_type(MessageType::MsgReadIndex);
        message.entries.truncate(1);
        assert!(Letter::new(GroupId::META, message.clone()).open().is_some());
        message.entries = Vec::new().into();
        assert_eq!(Letter::new(GroupId::META, message).open(), None);
    }

    #[test]
    fn what_a_group_says_to_itself_is_not_taken_from_others() {
        for kind in [
            MessageType::MsgHup,
            MessageType::MsgBeat,
            MessageType::MsgPropose,
            MessageType::MsgCheckQuorum,
            MessageType::MsgTransferLeader,
        ] {
            let mut message = sample();
            message.set_msg_type(kind);
            let letter = Letter::new(GroupId::META, message);
            assert_eq!(letter.open(), None, "{kind:?}");
        }
    }

    proptest! {
        #[test]
        fn garbage_is_an_error_and_nothing_else(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Parcel::decode(&bytes);
        }

        #[test]
        fn a_damaged_parcel_is_an_error_or_another_parcel(at in any::<prop::sample::Index>(), byte in any::<u8>()) {
            let mut bytes = Parcel::Raft(times(), vec![Letter::new(GroupId::META, sample())]).encode();
            let at = at.index(bytes.len());
            bytes[at] = byte;
            if let Ok(Parcel::Raft(_, letters)) = Parcel::decode(&bytes) {
                letters.into_iter().for_each(|letter| drop(letter.open()));
            }
        }
    }
}
