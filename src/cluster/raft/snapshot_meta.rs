//! What Raft says of a snapshot. Its files are fetched apart from the messages.

use bytes::Bytes;
use raft::eraftpb::Snapshot;
use serde::{Deserialize, Serialize};

use super::{log_disk::LogPosition, membership::Members};

/// A snapshot of the state machine that followers may fetch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotMeta {
    pub at: LogPosition,
    /// May be newer than the position: changes up to `since` are in them already.
    pub members: Members,
    pub id: u64,
}

/// What a snapshot message carries beside what the Raft library knows of it.
#[derive(Serialize, Deserialize)]
pub struct SnapshotData {
    pub id: u64,
    pub members: Members,
}

impl SnapshotMeta {
    /// Returns the snapshot as the Raft library sends it.
    pub fn message(&self) -> Snapshot {
        let data = SnapshotData {
            id: self.id,
            members: self.members.clone(),
        };
        let data = rmp_serde::to_vec(&data).expect("a struct of numbers has a MessagePack form");
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

    /// Returns the position and the members of a snapshot that a group has accepted; `None` if
    /// there is none.
    pub fn accepted(snapshot: &Snapshot) -> Option<(LogPosition, Members)> {
        let metadata = snapshot.get_metadata();
        let at = LogPosition {
            index: metadata.index,
            term: metadata.term,
        };
        if at.index == 0 {
            return None;
        }
        let data = rmp_serde::from_slice::<SnapshotData>(&snapshot.data);
        let members = data.map_or_else(
            |_| Members {
                since: at.index,
                voters: metadata.get_conf_state().voters.clone(),
                learners: metadata.get_conf_state().learners.clone(),
            },
            |data| data.members,
        );
        Some((at, members))
    }
}
