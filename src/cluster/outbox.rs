//! What the groups of a node say to other nodes: gathered for each of them, and sent together with what this node knows of the time.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use raft::eraftpb::Message;

use super::{
    GroupId, NodeId,
    links::{Links, PARCEL_BYTES_MAX},
    parcel::{Letter, Parcel},
    replicas::Post,
    timekeeper::Timekeeper,
};

/// Letters for one node are sent together up to this size.
const PARCEL_BYTES: usize = 1024 * 1024;

/// Letters on their way to other nodes.
pub struct Outbox {
    pub links: Arc<Links>,
    pub time: Arc<Timekeeper>,
    letters: BTreeMap<NodeId, (Vec<Letter>, usize)>,
    /// Nodes that letters did not reach.
    pub unreachable: BTreeSet<NodeId>,
}

impl Outbox {
    pub fn new(links: Arc<Links>, time: Arc<Timekeeper>) -> Self {
        Self {
            links,
            time,
            letters: BTreeMap::new(),
            unreachable: BTreeSet::new(),
        }
    }

    fn post(&mut self, to: NodeId, letters: Vec<Letter>) {
        if !letters.is_empty() {
            let parcel = Parcel::Raft(self.time.tell(to), letters);
            if !self.links.send(to, &parcel) {
                self.unreachable.insert(to);
            }
        }
    }
}

impl Post for Outbox {
    fn send(&mut self, group: GroupId, message: Message) {
        let to = message.to;
        let letter = Letter::new(group, message);
        let bytes = letter.bytes();
        let (letters, waiting) = self.letters.entry(to).or_default();
        let full = if *waiting > 0 && *waiting + bytes > PARCEL_BYTES.min(PARCEL_BYTES_MAX) {
            *waiting = 0;
            std::mem::take(letters)
        } else {
            Vec::new()
        };
        letters.push(letter);
        *waiting += bytes;
        self.post(to, full);
    }

    fn flush(&mut self) {
        for (to, (letters, _)) in std::mem::take(&mut self.letters) {
            self.post(to, letters);
        }
    }
}
