//! Workloads: what a run writes, reads and checks. Each is a small TOML file.
//!
//! A file goes in, a checked [`Workload`] comes out, or one line that names what is wrong.

mod keys;
mod library;
mod parse;

pub use keys::{Inserted, ItemChooser};
pub use library::{find, list};

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Items of one partition key, so that a scan has something to read.
pub const PARTITION_ITEMS: u64 = 100;

/// One workload, as its file says it.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Workload {
    /// One line for people.
    pub about: String,
    #[serde(default)]
    pub container: ContainerPart,
    #[serde(default)]
    pub items: ItemsPart,
    /// How often each operation is done, in relation to the others.
    pub operations: BTreeMap<WorkloadOperation, u32>,
    #[serde(default)]
    pub keys: KeysPart,
    #[serde(default)]
    pub default_ttl_changes: Option<DefaultTtlChanges>,
    #[serde(default)]
    pub change_feed: ChangeFeedPart,
    #[serde(default)]
    pub run: RunPart,
}

/// The container that the items are in.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ContainerPart {
    /// Its `defaultTtl`, in seconds, or -1; absent: time to live is off.
    pub default_ttl: Option<i64>,
    /// Its throughput, in request units a second; absent: the server's default.
    pub throughput: Option<u32>,
}

/// What is written.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct ItemsPart {
    /// Items that are loaded before the run.
    pub count: u32,
    /// Bytes of an item's JSON.
    pub bytes: usize,
    /// The `ttl` that written items have, in seconds; absent: they inherit.
    pub ttl: Option<u32>,
    /// All loaded items fall due in one and the same second, this long after the warm-up began.
    pub due_together_seconds: Option<u32>,
    /// Loaded items that never fall due, one for each this many that do.
    pub stay_one_in: Option<u32>,
}

impl Default for ItemsPart {
    fn default() -> Self {
        Self {
            count: 10_000,
            bytes: 1_024,
            ttl: None,
            due_together_seconds: None,
            stay_one_in: None,
        }
    }
}

/// What a connection can do, in the order in which it is reported.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkloadOperation {
    /// A point read.
    Read,
    /// A replace of a whole item.
    Update,
    /// A create of a new item.
    Insert,
    /// An upsert of an item, whether it is there or not.
    Upsert,
    /// A query for items in the order of their ids.
    Scan,
    /// A read, then a replace of what was read.
    ReadModifyWrite,
    /// A delete.
    Delete,
}

impl WorkloadOperation {
    pub const ALL: [Self; 7] = [
        Self::Read,
        Self::Update,
        Self::Insert,
        Self::Upsert,
        Self::Scan,
        Self::ReadModifyWrite,
        Self::Delete,
    ];

    /// As files, reports and metrics spell it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Update => "update",
            Self::Insert => "insert",
            Self::Upsert => "upsert",
            Self::Scan => "scan",
            Self::ReadModifyWrite => "read_modify_write",
            Self::Delete => "delete",
        }
    }
}

/// Which items are chosen.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct KeysPart {
    pub distribution: Distribution,
    /// Exponent of the zipfian and latest distributions.
    pub skew: f64,
    /// For the distribution `recent`: how far back, in seconds.
    pub recent_seconds: u32,
    /// Most items of a scan.
    pub scan_items_max: u32,
}

impl Default for KeysPart {
    fn default() -> Self {
        Self {
            distribution: Distribution::Uniform,
            skew: 0.99,
            recent_seconds: 10,
            scan_items_max: 100,
        }
    }
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Distribution {
    /// Each as often as any other.
    Uniform,
    /// Few very often, anywhere among all.
    Zipfian,
    /// The newest very often.
    Latest,
    /// Those inserted in the last seconds, each as often as any other.
    Recent,
}

/// Changes of the container's `defaultTtl` under load.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct DefaultTtlChanges {
    pub every_seconds: u32,
    /// In turn; the file's `container.default_ttl` is where it starts.
    pub values: Vec<i64>,
}

/// Readers of the change feed beside the load.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct ChangeFeedPart {
    pub readers: u32,
}

/// How it runs, unless the command line says otherwise.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct RunPart {
    pub connections: u32,
    pub seconds: u32,
    pub warm_up_seconds: u32,
    /// Operations a second; absent: as many as the server answers.
    pub rate: Option<u32>,
}

impl Default for RunPart {
    fn default() -> Self {
        Self {
            connections: 64,
            seconds: 30,
            warm_up_seconds: 5,
            rate: None,
        }
    }
}
