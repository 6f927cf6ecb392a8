//! The parts of a container that a query must look into: its scope, cut by the partition keys that its filter allows.

use std::sync::Arc;

use crate::{
    model::{
        epk::{Epk, EpkRange},
        partition_key::{KeyComponent, PartitionKey, PartitionKeyDefinition},
        path::PropertyPath,
    },
    router::{ContainerRoute, actor::ContainerScope},
    shard::host::ShardHandle,
    sql::{PartitionKeys, Query},
};

/// Keys of one shard.
pub struct ScopePart {
    pub shard: Arc<ShardHandle>,
    pub keys: EpkRange,
}

/// The parts in key order. Where the filter allows none, one empty part remains, so that there is somebody to answer.
pub fn parts(container: &ContainerRoute, scope: &ContainerScope, query: &Query) -> Vec<ScopePart> {
    let ranges = match key_ranges(container, query) {
        None => vec![scope.keys.clone()],
        Some(ranges) => ranges
            .iter()
            .filter_map(|range| range.intersect(&scope.keys))
            .collect(),
    };
    let mut parts = Vec::new();
    let shards = scope.shards(container);
    for shard in &shards {
        for keys in ranges
            .iter()
            .filter_map(|range| shard.facts.range.intersect(range))
        {
            parts.push(ScopePart {
                shard: Arc::clone(shard),
                keys,
            });
        }
    }
    if parts.is_empty()
        && let Some(shard) = shards.first().or_else(|| container.shards.first())
    {
        let nothing = shard.facts.range.min.clone();
        parts.push(ScopePart {
            shard: Arc::clone(shard),
            keys: EpkRange::new(nothing.clone(), nothing),
        });
    }
    parts
}

/// Where items that match the filter can be; `None` for everywhere.
pub fn key_ranges(container: &ContainerRoute, query: &Query) -> Option<Vec<EpkRange>> {
    let definition = &container.container.definition.partition_key;
    if !query.reads_items() {
        // One row of constants, from anywhere but only once.
        return Some(vec![EpkRange::point(Epk::from_bytes(&[0; 16]))]);
    }
    // A computed property may stand in for a key that the item lacks.
    if !container.computed.is_empty() {
        return None;
    }
    let paths: Vec<String> = definition
        .paths
        .iter()
        .map(PropertyPath::as_str)
        .map(str::to_owned)
        .collect();
    // All levels of a hierarchical key, or else as many of the first ones as are bound.
    (1..=paths.len()).rev().find_map(|levels| {
        match query.partition_keys(paths.get(..levels).unwrap_or(&paths)) {
            PartitionKeys::All => None,
            PartitionKeys::Only(keys) => Some(ranges(definition, &keys)),
        }
    })
}

fn ranges(definition: &PartitionKeyDefinition, keys: &[Vec<serde_json::Value>]) -> Vec<EpkRange> {
    let mut ranges: Vec<EpkRange> = keys
        .iter()
        .map(|key| {
            // Objects and arrays are no keys: their items have an undefined one.
            let component =
                |value| KeyComponent::from_json(value).unwrap_or(KeyComponent::Undefined);
            let key = PartitionKey(key.iter().map(component).collect());
            let (min, max) = definition.prefix_range(&key);
            EpkRange::new(min, max)
        })
        .collect();
    ranges.sort_by(|a, b| a.min.cmp(&b.min));
    ranges.dedup();
    ranges
}
