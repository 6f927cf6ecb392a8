//! What an engine keeps of a split: in the parent where it was split, in a child which nodes begin
//! its group and how far the range of its sibling is cleaned up.

use bytes::Bytes;

use super::command::{Change, Command};
use crate::{
    model::catalog::Cut,
    store::{Batch, Engine, EngineError, keys},
};

/// Writes down that the shard is split here.
pub fn mark(cut: &Cut, batch: &mut Batch) {
    let bytes = rmp_serde::to_vec(cut).expect("a struct of numbers has a MessagePack form");
    batch.put(keys::CUT, bytes);
}

/// Returns where a shard was split.
pub fn marked(engine: &Engine) -> Result<Option<Cut>, EngineError> {
    let Some(bytes) = engine.get(keys::CUT)? else {
        return Ok(None);
    };
    let cut = rmp_serde::from_slice(&bytes);
    cut.map(Some)
        .map_err(|failure| EngineError::Damaged(format!("the mark of a split: {failure}")))
}

/// Returns whether an engine is that of a shard that was split.
pub fn is_marked(engine: &Engine) -> Result<bool, EngineError> {
    Ok(engine.get(keys::CUT)?.is_some())
}

/// Returns whether one of these commands splits the shard.
pub fn is_asked_by(commands: &[Command]) -> bool {
    let mut changes = commands.iter().flat_map(|command| &command.changes);
    changes.any(|change| matches!(change, Change::Split(_)))
}

/// Writes down which nodes begin the group of a child together, should its log be lost in a crash
/// right after the child was made.
pub fn note_origin(origin: &[u64], batch: &mut Batch) {
    if origin.is_empty() {
        batch.delete(keys::ORIGIN);
    } else {
        let bytes = rmp_serde::to_vec(origin).expect("numbers have a MessagePack form");
        batch.put(keys::ORIGIN, bytes);
    }
}

/// Returns the nodes that begin the group of a child together.
pub fn origin(engine: &Engine) -> Result<Option<Vec<u64>>, EngineError> {
    let Some(bytes) = engine.get(keys::ORIGIN)? else {
        return Ok(None);
    };
    let origin = rmp_serde::from_slice(&bytes);
    origin
        .map(Some)
        .map_err(|failure| EngineError::Damaged(format!("the origin of a child: {failure}")))
}

/// Writes down that the shard also holds the range of its sibling.
pub fn begin_cleanup(batch: &mut Batch) {
    batch.put(keys::CLEANUP, []);
}

/// Returns where the cleanup of the sibling's range goes on; `None` when there is nothing left.
pub fn cleanup_cursor(engine: &Engine) -> Result<Option<Bytes>, EngineError> {
    let cursor = engine.get(keys::CLEANUP)?;
    Ok(cursor.map(|cursor| Bytes::copy_from_slice(&cursor)))
}
