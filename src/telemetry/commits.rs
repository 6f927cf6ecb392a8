//! Commits: how many transactions share an fsync, and how long it takes.

use std::{sync::LazyLock, time::Duration};

use metrics::{Counter, Histogram};

use super::table;

/// The handles of all that a commit counts.
struct Commits {
    commands: Counter,
    fsyncs: Counter,
    duration: Histogram,
    fsync: Histogram,
    batch_commands: Histogram,
    batch_bytes: Histogram,
}

static COMMITS: LazyLock<Commits> = LazyLock::new(|| Commits {
    commands: table::COMMANDS.counter(&[]),
    fsyncs: table::FSYNCS.counter(&[]),
    duration: table::COMMIT_DURATION.histogram(&[]),
    fsync: table::FSYNC_DURATION.histogram(&[]),
    batch_commands: table::BATCH_COMMANDS.histogram(&[]),
    batch_bytes: table::BATCH_BYTES.histogram(&[]),
});

/// Makes the series known before there is anything to count.
pub(super) fn register() {
    LazyLock::force(&COMMITS);
}

/// A group of this many transactions was made durable with one fsync.
pub fn synced(commands: usize, bytes: usize, took: Duration) {
    let commits = &*COMMITS;
    commits.fsyncs.increment(1);
    commits.commands.increment(commands as u64);
    commits.fsync.record(took);
    commits.batch_commands.record(commands as f64);
    commits.batch_bytes.record(bytes as f64);
}

/// A group with clients that wait for it was committed and answered.
pub fn committed(took: Duration) {
    COMMITS.duration.record(took);
}
