//! Follows a change of the index over all shards of a container, and tells the log how far it has come.

use std::{sync::Arc, time::Duration};

use tracing::info;

use crate::{
    model::rid::ContainerRid,
    shard::{host::ShardHandle, progress::index_progress},
};

/// How often the shards are asked.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);
/// A line for each so many percent.
const PERCENT_PER_LINE: u8 = 10;

/// Ends when every shard has its new index, or is gone.
pub async fn follow(container: ContainerRid, shards: Vec<Arc<ShardHandle>>) {
    let mut next_line = 0;
    loop {
        let (percent, lazy) = index_progress(&shards);
        if percent >= 100 {
            info!(container = %container, shards = shards.len(), ?lazy, "the index is complete on every shard");
            return;
        }
        if percent >= next_line {
            info!(container = %container, shards = shards.len(), percent, "the index is being built");
            next_line = percent - percent % PERCENT_PER_LINE + PERCENT_PER_LINE;
        }
        tokio::time::sleep(LOOK_INTERVAL).await;
    }
}
