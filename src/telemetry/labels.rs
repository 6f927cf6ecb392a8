//! The closed sets of label values.

use super::metric::{Label, Values};

/// An enumeration whose members are the values of a label.
macro_rules! closed_set {
    ($(#[$about:meta])* $name:ident { $($(#[$doc:meta])* $member:ident = $text:literal,)+ }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name { $($(#[$doc])* $member,)+ }

        impl $name {
            pub const ALL: &'static [Self] = &[$(Self::$member,)+];
            pub const TEXTS: &'static [&'static str] = &[$($text,)+];

            pub const fn text(self) -> &'static str {
                match self { $(Self::$member => $text,)+ }
            }
        }
    };
}

closed_set! {
    /// What a request asks for.
    Operation {
        Read = "read",
        Create = "create",
        Upsert = "upsert",
        Replace = "replace",
        Patch = "patch",
        Delete = "delete",
        DeletePartition = "delete_partition",
        Batch = "batch",
        Query = "query",
        QueryPlan = "query_plan",
        ReadFeed = "read_feed",
        ChangeFeed = "change_feed",
        CatalogRead = "catalog_read",
        CatalogWrite = "catalog_write",
        /// Whatever has no handler, and what was refused before it was known what it is.
        Unknown = "unknown",
    }
}

closed_set! {
    /// Why a request was told to come back later.
    Throttle {
        /// The container's request units of the second are spent.
        Throughput = "throughput",
        /// Too much waits for the shard or for the node.
        Queue = "queue",
    }
}

closed_set! {
    /// Why a connection was refused, or closed through its peer's fault.
    Refusal {
        /// There are too many connections, and none could be closed for it.
        Full = "full",
        /// It was closed for another one: without a request for long, while there were too many.
        Displaced = "displaced",
        /// It sent nothing, or did not finish its TLS handshake.
        Silent = "silent",
        /// A head was not sent in time.
        SlowHeaders = "slow_headers",
        /// A body was not sent in time.
        SlowBody = "slow_body",
        /// It took nothing of its answer.
        StalledReader = "stalled_reader",
        /// What it sent is not HTTP, or breaks its rules.
        Malformed = "malformed",
        TlsHandshake = "tls_handshake",
        TlsAtPlainPort = "tls_at_plain_port",
        PlainAtTlsPort = "plain_at_tls_port",
    }
}

closed_set! {
    /// Within what time an item falls due that is written now.
    Horizon {
        Minute = "minute",
        Hour = "hour",
        Day = "day",
        Week = "week",
        Later = "later",
        Never = "never",
    }
}

closed_set! {
    /// What a shard can do.
    ShardCondition {
        Serving = "serving",
        /// Takes no writes until the disk has room.
        DiskFull = "disk_full",
        /// Takes no writes until there are file descriptors.
        NoDescriptors = "no_descriptors",
        /// Takes no writes until the node is restarted.
        Poisoned = "poisoned",
        /// Answers nothing.
        Down = "down",
        /// No node is known to lead it.
        Leaderless = "leaderless",
        /// Is opened behind the start of the node; requests wait for it.
        Opening = "opening",
    }
}

closed_set! {
    /// What bytes are taken up by.
    BytesKind {
        /// Stored items, expired ones that are not purged yet included.
        Items = "items",
        /// Removed since the files were last rewritten.
        Dead = "dead",
        /// Sorted files on disk.
        Files = "files",
        /// Journal files on disk.
        Journal = "journal",
        /// Write buffers in memory.
        Buffers = "buffers",
    }
}

closed_set! {
    /// How an operation of the load driver ended.
    BenchOutcome {
        /// With an answer that had to be expected, 404 for an item that is gone included.
        Ok = "ok",
        /// The server asked to come back later (429).
        Throttled = "throttled",
        /// The server does not offer it (501).
        NotImplemented = "not_implemented",
        Failed = "failed",
        /// The connection broke, or no answer came in time.
        Unanswered = "unanswered",
    }
}

/// The status codes that a node answers with.
pub const STATUS_CODES: [u16; 22] = [
    200, 201, 204, 207, 304, 400, 401, 403, 404, 405, 408, 409, 410, 412, 413, 424, 429, 449, 500,
    501, 503, 507,
];
/// Their texts; then a client that did not wait, and a code that is not in the list.
pub const STATUSES: &[&str] = &[
    "200", "201", "204", "207", "304", "400", "401", "403", "404", "405", "408", "409", "410",
    "412", "413", "424", "429", "449", "500", "501", "503", "507", "gone", "other",
];

pub const CONTAINER: Label = Label {
    name: "container",
    values: Values::Containers,
};
pub const OPERATION: Label = listed("operation", Operation::TEXTS);
pub const STATUS: Label = listed("status", STATUSES);
pub const REASON: Label = listed("reason", Throttle::TEXTS);
pub const REFUSAL: Label = listed("cause", Refusal::TEXTS);
pub const HORIZON: Label = listed("horizon", Horizon::TEXTS);
pub const STATE: Label = listed("state", ShardCondition::TEXTS);
pub const KIND: Label = listed("kind", BytesKind::TEXTS);
pub const VERSION: Label = Label {
    name: "version",
    values: Values::Version,
};

/// Of the load driver, as its reports spell them: what it does, how that ended, and what a checked answer got wrong.
pub const BENCH_OPERATION: Label = listed(
    "operation",
    &[
        "read",
        "update",
        "insert",
        "upsert",
        "scan",
        "read_modify_write",
        "delete",
    ],
);
pub const BENCH_OUTCOME: Label = listed("outcome", BenchOutcome::TEXTS);
pub const BENCH_VIOLATION: Label = listed(
    "kind",
    &[
        "expired_seen",
        "live_missing",
        "lost_write",
        "stale_read",
        "wrong_content",
    ],
);

const fn listed(name: &'static str, values: &'static [&'static str]) -> Label {
    Label {
        name,
        values: Values::Listed(values),
    }
}
