//! Entries that no frame carries. They are not proposed any more, but a log may have one from before: its leader could not replicate it, and
//! with it nothing that came later.

use tracing::error;

use super::{
    ENTRY_BYTES_MAX, GroupId,
    group_log::{Kept, LogDisk, Members, Record},
};
use crate::store::EngineError;

/// Empties overlong entries that are not committed; what is to be written for that. No other node can have such an entry, and nobody was told
/// that it is kept. Nothing was decided on top of it: groups are proposed one after the other.
pub fn emptied(
    group: GroupId,
    disk: &dyn LogDisk,
    kept: &Kept,
    members: &Members,
) -> Result<Vec<Record>, EngineError> {
    let (commit, last) = (kept.hard_state.commit, kept.last.index);
    // A replica that is alone commits by itself, whatever the length.
    if commit >= last || members.voters.len() < 2 {
        return Ok(Vec::new());
    }
    let entries = disk.entries(group, commit + 1, last + 1, u64::MAX)?;
    let overlong = entries
        .into_iter()
        .filter(|entry| entry.data.len() > ENTRY_BYTES_MAX);
    let records = overlong.map(|mut entry| {
        let (index, bytes) = (entry.index, entry.data.len());
        error!(%group, index, bytes, "a log entry that no frame carries is dropped; its write was never acknowledged");
        entry.data = bytes::Bytes::new();
        let entries = vec![entry];
        Record::Append { entries, last: 0 }
    });
    Ok(records.collect())
}
