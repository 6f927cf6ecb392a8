//! The memory of queries, and of the node.

use std::sync::LazyLock;

use metrics::{Counter, Gauge};

use super::table;

static RESERVED: LazyLock<Gauge> = LazyLock::new(|| table::QUERY_MEMORY.gauge(&[]));
static REFUSED: LazyLock<Counter> = LazyLock::new(|| table::QUERY_MEMORY_REFUSALS.counter(&[]));

/// Makes the series known before there is anything to count.
pub(super) fn register() {
    RESERVED.set(0.0);
    LazyLock::force(&REFUSED);
}

/// Sets what is reserved for all queries.
pub fn reserved(bytes: usize) {
    RESERVED.set(bytes as f64);
}

/// A query was refused because of its memory.
pub fn refused() {
    REFUSED.increment(1);
}

/// Sets how much memory there is.
pub fn limit(bytes: u64) {
    table::MEMORY_LIMIT.gauge(&[]).set(bytes as f64);
}
