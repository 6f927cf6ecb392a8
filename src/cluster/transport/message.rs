//! The messages between nodes. Raft messages have a form of our own, apart from the types of
//! raft-rs.

use bytes::Bytes;
use raft::eraftpb::{ConfState, Entry, EntryType, Message, MessageType, Snapshot};
use serde::{Deserialize, Serialize};

use crate::cluster::{FRAME_BYTES_MAX, GroupId, time::shared_time::TimeSync};

/// The longest message whose frame is not too long.
pub const MESSAGE_BYTES_MAX: usize = FRAME_BYTES_MAX - 1024;

/// Answers a request by calling back once.
pub type Reply = Box<dyn FnOnce(Bytes) + Send>;

/// A message between nodes. Variants keep their names on the wire.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum PeerMessage {
    /// Messages of Raft groups, in order, with the sender's time.
    Raft(TimeSync, Vec<RaftMessage>),
    /// A request with an id that its response carries.
    #[serde(rename = "Question")]
    Request(u64, PeerRequest),
    #[serde(rename = "Answer")]
    Response(u64, Bytes),
    /// Keeps an idle connection open.
    #[serde(rename = "Alive")]
    Heartbeat,
}

/// A request of one node to another.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum PeerRequest {
    /// A request to the gateway: one of a client that is forwarded, or one of a coordinator.
    #[serde(rename = "Request")]
    Gateway(Bytes),
    /// A chunk of a snapshot.
    #[serde(rename = "Snapshot")]
    SnapshotChunk(SnapshotChunk),
    /// The members of the node's groups.
    Members,
    /// An order of the operator, for the leader of the catalog.
    Order(Bytes),
    /// Whether the cluster is bootstrapped, as far as the node knows: whether there is anything in
    /// its catalog's log.
    #[serde(rename = "Begun")]
    IsBootstrapped,
}

/// A chunk of a snapshot.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SnapshotChunk {
    pub group: GroupId,
    pub id: u64,
    /// A file and the offset in it; `None`: the list of all files.
    pub file: Option<(String, u64)>,
}

impl PeerMessage {
    pub fn encode(&self) -> Vec<u8> {
        rmp_serde::to_vec(self).expect("a struct of numbers and bytes has a MessagePack form")
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, rmp_serde::decode::Error> {
        rmp_serde::from_slice(bytes)
    }
}

/// A message of one Raft group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RaftMessage {
    pub group: GroupId,
    kind: u8,
    from: u64,
    to: u64,
    term: u64,
    log_term: u64,
    index: u64,
    entries: Vec<WireEntry>,
    commit: u64,
    commit_term: u64,
    reject: bool,
    reject_hint: u64,
    context: Bytes,
    priority: i64,
    snapshot: Option<WireSnapshot>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct WireSnapshot {
    index: u64,
    term: u64,
    voters: Vec<u64>,
    learners: Vec<u64>,
    data: Bytes,
}

impl WireSnapshot {
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
struct WireEntry {
    changes_members: bool,
    term: u64,
    index: u64,
    data: Bytes,
    context: Bytes,
}

impl RaftMessage {
    pub fn new(group: GroupId, message: Message) -> Self {
        let kind = message.get_msg_type() as u8;
        let snapshot = WireSnapshot::new(message.get_snapshot());
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
        let entries = entries.into_iter().map(|entry| WireEntry {
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

    /// Returns its approximate size in bytes.
    pub fn bytes(&self) -> usize {
        const OVERHEAD_BYTES: usize = 64;
        let entries = self.entries.iter();
        OVERHEAD_BYTES
            + entries
                .map(|entry| OVERHEAD_BYTES + entry.data.len() + entry.context.len())
                .sum::<usize>()
    }

    /// Returns the message for raft-rs; `None` if its kind is unknown, or is not sent between
    /// nodes.
    pub fn open(self) -> Option<(GroupId, Message)> {
        let kind = KINDS.into_iter().find(|kind| *kind as u8 == self.kind)?;
        // raft-rs relies on it.
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
        let entries = self.entries.into_iter().map(|wire| {
            let mut entry = Entry::default();
            entry.set_entry_type(if wire.changes_members {
                EntryType::EntryConfChange
            } else {
                EntryType::EntryNormal
            });
            entry.term = wire.term;
            entry.index = wire.index;
            entry.data = wire.data;
            entry.context = wire.context;
            entry
        });
        message.entries = entries.collect::<Vec<_>>().into();
        if let Some(snapshot) = self.snapshot {
            message.set_snapshot(snapshot.open());
        }
        Some((self.group, message))
    }
}

/// Messages that nodes send each other; raft-rs uses all others inside a node only.
/// `MsgUnreachable` and `MsgSnapStatus` have a meaning of our own: see
/// [`crate::cluster::raft::group::Group::step`].
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
    use crate::cluster::{ENTRY_BYTES_MAX, time::shared_time::SharedTime};

    fn sync() -> TimeSync {
        let mut time = SharedTime::new(1, None);
        time.set_groups([(GroupId::META, vec![1])].into());
        time.outgoing(2, 5, 1_000)
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
        let encoded = PeerMessage::Raft(sync(), vec![RaftMessage::new(group, sample())]);
        let PeerMessage::Raft(_, messages) = PeerMessage::decode(&encoded.encode()).unwrap() else {
            panic!("another kind of message");
        };
        let opened: Vec<_> = messages.into_iter().filter_map(RaftMessage::open).collect();
        assert_eq!(opened, [(group, sample())]);
    }

    #[test]
    fn a_frame_carries_the_longest_entry() {
        let mut message = sample();
        let mut longest = message.entries[0].clone();
        longest.data = Bytes::from(vec![0xff; ENTRY_BYTES_MAX]);
        message.entries = vec![longest].into();
        let raft_message = RaftMessage::new(GroupId::META, message);
        let encoded = PeerMessage::Raft(sync(), vec![raft_message]).encode();
        assert!(encoded.len() <= MESSAGE_BYTES_MAX, "{}", encoded.len());
        let response =
            PeerMessage::Response(u64::MAX, Bytes::from(vec![0xff; ENTRY_BYTES_MAX])).encode();
        assert!(response.len() <= MESSAGE_BYTES_MAX, "{}", response.len());
    }

    #[test]
    fn a_read_index_request_without_an_entry_is_dropped() {
        let mut message = sample();
        message.set_msg_type(MessageType::MsgReadIndex);
        message.entries.truncate(1);
        assert!(
            RaftMessage::new(GroupId::META, message.clone())
                .open()
                .is_some()
        );
        message.entries = Vec::new().into();
        assert_eq!(RaftMessage::new(GroupId::META, message).open(), None);
    }

    #[test]
    fn messages_inside_of_a_node_are_not_accepted_from_others() {
        for kind in [
            MessageType::MsgHup,
            MessageType::MsgBeat,
            MessageType::MsgPropose,
            MessageType::MsgCheckQuorum,
            MessageType::MsgTransferLeader,
        ] {
            let mut message = sample();
            message.set_msg_type(kind);
            let raft_message = RaftMessage::new(GroupId::META, message);
            assert_eq!(raft_message.open(), None, "{kind:?}");
        }
    }

    proptest! {
        #[test]
        fn garbage_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = PeerMessage::decode(&bytes);
        }

        #[test]
        fn a_damaged_message_is_an_error_or_another_message(at in any::<prop::sample::Index>(), byte in any::<u8>()) {
            let mut bytes = PeerMessage::Raft(sync(), vec![RaftMessage::new(GroupId::META, sample())]).encode();
            let at = at.index(bytes.len());
            bytes[at] = byte;
            if let Ok(PeerMessage::Raft(_, messages)) = PeerMessage::decode(&bytes) {
                messages.into_iter().for_each(|message| drop(message.open()));
            }
        }
    }
}
