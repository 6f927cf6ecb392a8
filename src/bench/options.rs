//! What `bolide bench` can be asked for.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

/// What the driver can do.
#[derive(Clone, Debug, PartialEq, Subcommand)]
pub enum BenchTask {
    /// Measure a node of its own against every bar that a node has to meet
    Node(NodeBench),
    /// Serve a constant answer from the same HTTP server: what the node is measured against
    Yardstick(Yardstick),
}

#[derive(Args, Clone, Debug, PartialEq)]
pub struct NodeBench {
    /// Run only this case; can be repeated
    #[arg(long, value_name = "NAME", value_enum)]
    pub only: Vec<CaseName>,
    /// Items of the large containers; a smaller number makes a quick smoke run
    #[arg(long, value_name = "N", default_value_t = 1_000_000,
          value_parser = clap::value_parser!(u32).range(1_000..=100_000_000))]
    pub items: u32,
    /// Connections that send one request after the other
    #[arg(long, value_name = "N", default_value_t = 64,
          value_parser = clap::value_parser!(u32).range(1..=4_096))]
    pub connections: u32,
    /// Least length of each measurement, in seconds
    #[arg(long, value_name = "S", default_value_t = 2.0, value_parser = seconds)]
    pub seconds: f64,
    /// Rounds of each measurement that is compared, alternately with what it is compared to
    #[arg(long, value_name = "N", default_value_t = 5,
          value_parser = clap::value_parser!(u32).range(1..=100))]
    pub rounds: u32,
    /// Also write the figures to this file
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Keep the measured nodes' data below this folder [default: the system's temporary folder]
    #[arg(long, value_name = "DIR")]
    pub data_path: Option<PathBuf>,
}

#[derive(Args, Clone, Debug, PartialEq)]
pub struct Yardstick {
    /// Listen on this port of 127.0.0.1
    #[arg(long, value_name = "N")]
    pub port: u16,
}

/// The cases, in the order in which they run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CaseName {
    /// Start to first answer with an empty store
    Startup,
    /// Point reads of 1 KB items
    PointRead,
    /// Durable creates of 1 KB items
    Create,
    /// Memory, restart and a change of defaultTtl with all items
    Million,
    /// 1,000 items that fall due among all that do not
    FewDue,
    /// All items fall due within five seconds
    MassExpiry,
    /// Queries for ten of all items by an indexed property
    Equality,
    /// The first ten of all items in the order of an indexed property
    OrderBy,
    /// Counts of all items, by the index and by a scan
    Count,
    /// Creates of items with twenty properties, with and without an index
    IndexedCreate,
    /// A new index over all items while others read and write
    Reindex,
}

impl NodeBench {
    pub fn wants(&self, case: CaseName) -> bool {
        self.only.is_empty() || self.only.contains(&case)
    }
}

/// Longest measurement: signatures and the run as a whole stay within bounds.
const SECONDS_MAX: f64 = 600.0;

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if seconds > 0.0 && seconds <= SECONDS_MAX => Ok(seconds),
        _ => Err(format!(
            "a number above 0 and up to {SECONDS_MAX} is expected"
        )),
    }
}
