//! The index in the memory of a follower, which decides nothing.

use std::sync::Arc;

use bytes::Bytes;

use super::core::ShardCore;
use crate::{
    index::{Shape, ShapeId},
    shard::state::{
        ShardState,
        command::{Change, Command},
        indexing::LiveIndex,
    },
    store::EngineError,
};

/// Makes the index in memory learn from commands that the leader has decided.
pub(in crate::shard) fn follow(core: &ShardCore, commands: &[Command]) {
    let live = core.live_indexes();
    let learn = |generation, (id, paths): &(ShapeId, Bytes)| {
        let live = live.iter().find(|live| live.number == generation);
        if let (Some(live), Some(shape)) = (live, Shape::decode(paths)) {
            live.learn(*id, &Arc::new(shape));
        }
    };
    for change in commands.iter().flat_map(|command| &command.changes) {
        match change {
            Change::Put { index, .. } | Change::Delete { index, .. } => {
                for one in &index.generations {
                    one.new_shape
                        .iter()
                        .for_each(|new| learn(one.generation, new));
                }
            }
            Change::FillIndex(slice) => slice
                .new_shapes
                .iter()
                .for_each(|new| learn(slice.generation, new)),
            Change::SetDefaultTtl(_)
            | Change::BeginIndex(_)
            | Change::DropRetiredIndex
            | Change::Check(_)
            | Change::Split(_) => {}
        }
    }
}

/// Loads the generations of the index that a state names and readers do not have yet.
pub(in crate::shard) fn follow_generations(
    core: &ShardCore,
    state: &ShardState,
) -> std::result::Result<(), EngineError> {
    let live = core.live_indexes();
    let known = |number| live.iter().any(|live| live.number == number);
    for generation in state.index.generations() {
        if !known(generation.number) {
            core.add_index(&Arc::new(LiveIndex::load(&core.engine, generation.number)?));
        }
    }
    Ok(())
}
