//! Every metric that Bolide exports: the one place where names, kinds, units, help and labels are written down. dashboards/README.md shows the same
//! table; tests compare the two with each other and with what a loaded node exports.

use super::{
    labels::{
        BENCH_OPERATION, BENCH_OUTCOME, BENCH_VIOLATION, CONTAINER, HORIZON, KIND, OPERATION,
        REASON, REFUSAL, STATE, STATUS, VERSION,
    },
    metric::{Kind, Metric},
};

const REQUEST_SECONDS: &[f64] = &[
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5,
    5.0, 10.0,
];
const CHARGES: &[f64] = &[1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 1_000.0];
const LAG_SECONDS: &[f64] = &[
    0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0, 1_800.0, 3_600.0, 86_400.0,
];
/// Of what must be 0: only what is not 0 falls into the others.
const SEEN_LAG_SECONDS: &[f64] = &[0.0, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0, 1_800.0];
const GROUP_COMMANDS: &[f64] = &[
    1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1_024.0,
];
const GROUP_BYTES: &[f64] = &[
    1_024.0,
    4_096.0,
    16_384.0,
    65_536.0,
    262_144.0,
    1_048_576.0,
    4_194_304.0,
    16_777_216.0,
    67_108_864.0,
];

/// Writes the metrics of a theme down once: as names for the code, and as a list for the exporter and the tests.
macro_rules! theme {
    ($(#[$about:meta])* $list:ident: $($name:ident = $kind:expr, $text:literal, $unit:literal, [$($label:expr),*], $help:literal;)+) => {
        $(pub static $name: Metric = Metric { name: $text, kind: $kind, unit: $unit, labels: &[$($label),*], help: $help };)+

        $(#[$about])*
        pub static $list: &[&Metric] = &[$(&$name),+];
    };
}

theme! {
    /// What clients ask.
    REQUEST_METRICS:
    REQUESTS = Kind::Counter, "bolide_requests_total", "requests", [CONTAINER, OPERATION, STATUS],
        "Requests answered.";
    REQUEST_DURATION = Kind::Histogram(REQUEST_SECONDS), "bolide_request_duration_seconds", "seconds", [CONTAINER, OPERATION],
        "From the headers of a request to its answer, the waiting for its body and for the disk included.";
    REQUESTS_IN_FLIGHT = Kind::Gauge, "bolide_requests_in_flight", "requests", [],
        "Requests under way.";
    REQUEST_CHARGE = Kind::Histogram(CHARGES), "bolide_request_charge_units", "request units", [CONTAINER],
        "Charge of an answered request.";
    REQUESTS_THROTTLED = Kind::Counter, "bolide_requests_throttled_total", "requests", [CONTAINER, REASON],
        "Requests that were told to come back later (429).";
    QUERY_MEMORY = Kind::Gauge, "bolide_query_memory_bytes", "bytes", [],
        "Memory reserved for queries in flight and for unfinished pages that wait for their clients.";
    QUERY_MEMORY_REFUSALS = Kind::Counter, "bolide_query_memory_refusals_total", "queries", [],
        "Queries refused because of their memory: 400 above the bound of one, 429 above that of all.";
    CONNECTIONS = Kind::Gauge, "bolide_connections", "connections", [],
        "Open connections of clients, those of the health port included.";
    CONNECTIONS_REFUSED = Kind::Counter, "bolide_connections_refused_total", "connections", [REFUSAL],
        "Connections that were refused, or closed through their peer's fault.";
}

theme! {
    /// How far behind expiry is.
    EXPIRY_METRICS:
    VISIBLE_LAG = Kind::Gauge, "bolide_expiry_visible_lag_seconds", "seconds", [],
        "By how many whole seconds an answer left after one of its items had expired: the most in the last one to two minutes. Must be 0.";
    ANSWERS_CHECKED = Kind::Counter, "bolide_expiry_checked_answers_total", "answers", [],
        "Answers with items that expire, held against the clock once more when they were complete.";
    ANSWERS_LATE = Kind::Counter, "bolide_expiry_late_answers_total", "answers", [],
        "Answers that left after the second in which one of their items fell due. Must be 0.";
    PURGE_LAG = Kind::Histogram(LAG_SECONDS), "bolide_expiry_purge_lag_seconds", "seconds", [],
        "From the second in which an item fell due to its removal from the store. Readers do not see it in between.";
    BACKLOG = Kind::Gauge, "bolide_expiry_backlog_items", "items", [CONTAINER],
        "Expired items that are still in the store; counted up to 100,000 a shard.";
    OLDEST_OVERDUE = Kind::Gauge, "bolide_expiry_oldest_overdue_seconds", "seconds", [CONTAINER],
        "How long ago the oldest of them fell due; 0 when there is none.";
    PURGED = Kind::Counter, "bolide_expiry_purged_items_total", "items", [CONTAINER],
        "Expired items removed from the store.";
    SCHEDULED = Kind::Counter, "bolide_expiry_scheduled_items_total", "items", [HORIZON],
        "Items written, by the time after which they fall due.";
    PACER = Kind::Gauge, "bolide_expiry_pacer_ratio", "ratio", [CONTAINER],
        "Share of its time that the busiest purger may work: it rises with the lag and falls when users wait. 0 when nothing is due.";
    PAUSED = Kind::Gauge, "bolide_expiry_paused", "boolean", [],
        "1 while purging is paused because the clock is suspect.";
    CLOCK_JUMPS = Kind::Counter, "bolide_clock_jumps_total", "jumps", [],
        "Jumps of the wall clock beyond the bound, a start far from the stored second included.";
    CLOCK_FILE_DAMAGED = Kind::Gauge, "bolide_clock_file_damaged", "boolean", [],
        "1 when the stored second could not be read at start.";
    SHARD_AHEAD = Kind::Gauge, "bolide_clock_shard_ahead_seconds", "seconds", [CONTAINER],
        "By how many seconds the newest _ts of a shard is ahead of the clock. Items written meanwhile get that _ts and expire late by as much.";
}

theme! {
    /// How far indexes have come.
    INDEX_METRICS:
    REINDEX_PROGRESS = Kind::Gauge, "bolide_index_reindex_progress_ratio", "ratio", [CONTAINER],
        "How far a new index has come in the shard that has most to do; 1 when none is being built.";
    LAZY_LAG = Kind::Gauge, "bolide_index_lazy_lag_transactions", "transactions", [CONTAINER],
        "Transactions that a lazy index has not seen yet; 0 for other modes.";
}

theme! {
    /// What is on disk, and how it comes there.
    STORAGE_METRICS:
    COMMIT_DURATION = Kind::Histogram(REQUEST_SECONDS), "bolide_commit_duration_seconds", "seconds", [],
        "From handing a group of transactions to the commit log to its answers, the fsync included.";
    FSYNC_DURATION = Kind::Histogram(REQUEST_SECONDS), "bolide_commit_fsync_seconds", "seconds", [],
        "The engine's durable write of a group: append to the journal, and fsync.";
    COMMANDS = Kind::Counter, "bolide_commit_commands_total", "transactions", [],
        "Transactions made durable.";
    FSYNCS = Kind::Counter, "bolide_commit_fsyncs_total", "fsyncs", [],
        "Fsyncs for them.";
    BATCH_COMMANDS = Kind::Histogram(GROUP_COMMANDS), "bolide_commit_batch_commands", "transactions", [],
        "Transactions that shared an fsync.";
    BATCH_BYTES = Kind::Histogram(GROUP_BYTES), "bolide_commit_batch_bytes", "bytes", [],
        "Bytes that were written with one fsync.";
    DOCUMENTS = Kind::Gauge, "bolide_storage_documents", "items", [CONTAINER],
        "Stored items, expired ones that are not purged yet included.";
    BYTES = Kind::Gauge, "bolide_storage_bytes", "bytes", [CONTAINER, KIND],
        "Bytes by what they are: stored items, removed ones whose space is not back yet, sorted files, journal, write buffers.";
    READY = Kind::Gauge, "bolide_ready", "boolean", [],
        "1 while /ready answers 200; 0 while the node starts, stops, was drained, lacks the catalog's quorum, or no shard here can serve.";
    SHARDS = Kind::Gauge, "bolide_shards", "shards", [CONTAINER, STATE],
        "Shards by what they can do: serve, no writes while the disk is full or no file descriptor is left, no writes until a restart (poisoned), nothing (down), no writes for want of a leader (leaderless), not yet anything after a start (opening).";
    RECOVERY = Kind::Gauge, "bolide_shard_recovery_seconds", "seconds", [CONTAINER],
        "How long the slowest shard took to open, the replay of its journal included.";
    TORN_BYTES = Kind::Gauge, "bolide_shard_torn_bytes", "bytes", [CONTAINER],
        "Bytes of unfinished records at the journals' ends that were dropped when the shards were opened.";
    DAMAGE = Kind::Counter, "bolide_storage_damage_total", "operations", [CONTAINER],
        "Reads and writes that met damaged files since the shards were opened. Must be 0.";
    DISK_FAILURES = Kind::Counter, "bolide_storage_disk_failures_total", "operations", [CONTAINER],
        "Reads and writes that the disk has failed since the shards were opened. Must be 0.";
    SEQUENCES_LOST = Kind::Gauge, "bolide_storage_sequences_lost", "boolean", [],
        "1 when the recorded sequence numbers could not be read at start: a WAL that was cut would not be noticed.";
    REMOVED_BYTES = Kind::Gauge, "bolide_storage_removed_bytes", "bytes", [],
        "Bytes of folders that a start has set aside in removed/ because the catalog does not know them.";
}

theme! {
    /// The actors that own the shards.
    ACTOR_METRICS:
    INTAKE = Kind::Gauge, "bolide_shard_intake_requests", "requests", [CONTAINER],
        "Writes that wait for the shard actors to take them up.";
    UNDER_WAY = Kind::Gauge, "bolide_shard_requests_under_way", "requests", [CONTAINER],
        "Writes that were let in and are not answered yet.";
    RESTARTS = Kind::Counter, "bolide_shard_restarts_total", "restarts", [CONTAINER],
        "Shard actors rebuilt after a panic or reopened after a full disk.";
    SPLITS = Kind::Counter, "bolide_shard_splits_total", "splits", [],
        "Shards that were split in two; in a cluster counted by the node that leads the catalog.";
}

theme! {
    /// The process; names as everywhere.
    PROCESS_METRICS:
    PROCESS_CPU = Kind::Gauge, "process_cpu_seconds_total", "seconds", [],
        "User and system time of the process. Only goes up; a gauge because counters of the facade are whole numbers.";
    PROCESS_MEMORY = Kind::Gauge, "process_resident_memory_bytes", "bytes", [],
        "Resident memory.";
    MEMORY_LIMIT = Kind::Gauge, "bolide_memory_limit_bytes", "bytes", [],
        "Memory of the cgroup or machine, from which the default bounds follow.";
    PROCESS_OPEN_FILES = Kind::Gauge, "process_open_fds", "files", [],
        "Open file descriptors.";
    PROCESS_OPEN_FILES_MAX = Kind::Gauge, "process_max_fds", "files", [],
        "File descriptors that the process may open.";
    PROCESS_THREADS = Kind::Gauge, "process_threads", "threads", [],
        "Threads.";
    PROCESS_START = Kind::Gauge, "process_start_time_seconds", "seconds", [],
        "When the process started, since 1970.";
    BUILD_INFO = Kind::Gauge, "bolide_build_info", "boolean", [VERSION],
        "Always 1; its label names the version.";
}

theme! {
    /// What the load driver exports of itself; a node has none of these.
    DRIVER_METRICS:
    BENCH_OPERATIONS = Kind::Counter, "bolide_bench_operations_total", "operations", [BENCH_OPERATION, BENCH_OUTCOME],
        "Operations that the driver has finished.";
    BENCH_LATENCY = Kind::Histogram(REQUEST_SECONDS), "bolide_bench_latency_seconds", "seconds", [BENCH_OPERATION],
        "Latency as the driver sees it; at a constant rate from the time at which the operation should have been sent.";
    BENCH_RATE_ASKED = Kind::Gauge, "bolide_bench_rate_asked", "operations a second", [],
        "The rate that the run asks for; 0 when it goes as fast as it can.";
    BENCH_EXPIRY_LAG = Kind::Histogram(SEEN_LAG_SECONDS), "bolide_bench_expiry_lag_seconds", "seconds", [],
        "How long after its second an item was still seen, of every read of an item that was due. Must be 0.";
    BENCH_VIOLATIONS = Kind::Counter, "bolide_bench_violations_total", "violations", [BENCH_VIOLATION],
        "Answers that contradict the driver's model of what must be there. Must be 0.";
}

/// The themes of a node's metrics with their headings.
pub static NODE_THEMES: &[(&str, &[&Metric])] = &[
    ("Requests", REQUEST_METRICS),
    ("Expiry", EXPIRY_METRICS),
    ("Index", INDEX_METRICS),
    ("Storage", STORAGE_METRICS),
    ("Actors", ACTOR_METRICS),
    ("Process", PROCESS_METRICS),
];

/// Every metric, the driver's included.
pub fn all() -> impl Iterator<Item = &'static Metric> {
    let node = NODE_THEMES.iter().flat_map(|(_, theme)| *theme);
    node.chain(DRIVER_METRICS).copied()
}
