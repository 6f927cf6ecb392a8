//! How far a change of the index has come over several shards.

use std::sync::Arc;

use super::ShardHandle;

/// Returns the progress of the shard that is furthest behind, in percent: of a new index, and of a
/// lazy one. Shards that are down do not count.
pub fn index_progress(shards: &[Arc<ShardHandle>]) -> (u8, Option<u8>) {
    let views = shards.iter().filter_map(|shard| shard.view().ok());
    views
        .map(|view| view.index_progress())
        .fold((100, None), |(new, lazy), (one, other)| {
            let lazy = lazy.into_iter().chain(other).min();
            (new.min(one), lazy)
        })
}
