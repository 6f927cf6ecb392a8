//! Entries that are too long for a frame. They are no longer proposed, but a log of an older
//! version may have one. Its leader could replicate neither it nor anything behind it.

use tracing::error;

use super::{
    log_disk::{LogDisk, LogRecord, PersistedState},
    membership::Members,
};
use crate::{
    cluster::{ENTRY_BYTES_MAX, GroupId},
    store::EngineError,
};

/// Returns the records that empty overlong uncommitted entries. No other node can have such an
/// entry, and it was never acknowledged. Nothing was decided on top of it: commit groups are
/// proposed one after the other.
pub fn emptied(
    group: GroupId,
    disk: &dyn LogDisk,
    persisted: &PersistedState,
    members: &Members,
) -> Result<Vec<LogRecord>, EngineError> {
    let (commit, last) = (persisted.hard_state.commit, persisted.last.index);
    // A single voter commits entries of any length.
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
        LogRecord::Append { entries, last: 0 }
    });
    Ok(records.collect())
}
