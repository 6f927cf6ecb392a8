//! What a shard knows of its container and its place in it. Fixed while the shard actor lives,
//! except for the indexing policy and the time to live, which arrive as commands.

use crate::model::{epk::EpkRange, path::PropertyPath, rid::ContainerRid};

#[derive(Clone, Debug)]
pub struct ShardFacts {
    pub container: ContainerRid,
    /// The id of the partition key range, unique in the container.
    pub range_id: u32,
    pub range: EpkRange,
    /// The ranges that it came from by splits, oldest first.
    pub parents: Vec<u32>,
    pub partition_key_paths: Vec<PropertyPath>,
    pub unique_keys: Vec<Vec<PropertyPath>>,
}

/// Ordinals of a container's items are made without asking other shards: the range id above, a
/// counter below.
const ORDINAL_COUNTER_BITS: u32 = 40;

impl ShardFacts {
    /// Returns whether it is that range, or what a split of it has left.
    pub fn descends_from(&self, range_id: u32) -> bool {
        self.range_id == range_id || self.parents.contains(&range_id)
    }

    pub fn first_ordinal(&self) -> u64 {
        (u64::from(self.range_id) << ORDINAL_COUNTER_BITS) + 1
    }
}
