//! How Raft groups send messages to other nodes, as the groups see it.

use raft::eraftpb::Message;

use crate::cluster::GroupId;

/// Sends Raft messages to other nodes. A message may be lost: Raft repeats it.
pub trait Transport {
    fn send(&mut self, group: GroupId, message: Message);
    /// Sends what is buffered; it need not wait for the disk.
    fn flush(&mut self) {}
}
