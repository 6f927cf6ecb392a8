//! Shards that were split.

use std::sync::LazyLock;

use metrics::Counter;

use super::table;

static SPLITS: LazyLock<Counter> = LazyLock::new(|| table::SPLITS.counter(&[]));

/// Makes the series known before there is anything to count.
pub(super) fn register() {
    LazyLock::force(&SPLITS);
}

/// The catalog names the parts of a shard in its place.
pub fn done() {
    SPLITS.increment(1);
}
