//! What `bolide bench` can be asked for.

use std::path::PathBuf;

use clap::builder::RangedI64ValueParser;
use clap::{Args, Subcommand, ValueEnum};

/// What the driver can do.
#[derive(Clone, Debug, PartialEq, Subcommand)]
pub enum BenchTask {
    /// Run a workload against a node of its own, or against any Cosmos-compatible endpoint
    Run(Box<RunBench>),
    /// Show the workloads that come along
    List,
    /// Do the same work against Bolide and the peers that are installed, alternately
    Compare(Box<CompareBench>),
    /// Measure a node of its own against every target that a node has to meet
    Node(NodeBench),
    /// Measure a cluster of its own on this machine against every target that a cluster has to meet
    Cluster(ClusterBench),
    /// Measure the driver itself against `wrk`, alternately, with a server that answers a constant
    Driver(DriverBench),
    /// Serve a constant answer from the same HTTP server: what the node is measured against
    #[command(name = "yardstick")]
    Baseline(BaselineServer),
}

/// What is measured with, and where the figures go.
#[derive(Args, Clone, Debug, PartialEq)]
pub struct ServerFlags {
    /// Connections that send one request after the other
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = within(1, 4_096))]
    pub connections: u32,
    /// Also write the figures to this file
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Keep the measured nodes' data below this folder [default: the system's temporary folder]
    #[arg(long, value_name = "DIR")]
    pub data_path: Option<PathBuf>,
}

#[derive(Args, Clone, Debug, PartialEq)]
pub struct NodeBench {
    /// Run only this case; can be repeated
    #[arg(long, value_name = "NAME", value_enum)]
    pub only: Vec<CaseName>,
    /// Items of the large containers; a smaller number makes a quick smoke run
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = within(1_000, 100_000_000))]
    pub items: u32,
    /// Containers of the case that has many
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = within(10, 100_000))]
    pub containers: u32,
    /// Least length of each measurement, in seconds
    #[arg(long, value_name = "S", default_value_t = 2.0, value_parser = seconds)]
    pub seconds: f64,
    /// Rounds of each measurement that is compared, alternately with what it is compared to
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = within(1, 100))]
    pub rounds: u32,
    #[command(flatten)]
    pub servers: ServerFlags,
}

#[derive(Args, Clone, Debug, PartialEq)]
pub struct RunBench {
    /// A workload of `bolide bench list`, or a TOML file
    #[arg(default_value = "ycsb-a")]
    pub workload: String,
    #[command(flatten)]
    pub target: TargetFlags,
    /// Connections, each with one request at a time [default: the workload's]
    #[arg(long, value_name = "N", value_parser = within(1, 4_096))]
    pub connections: Option<u32>,
    /// How long to measure [default: the workload's]
    #[arg(long, value_name = "S", value_parser = seconds)]
    pub seconds: Option<f64>,
    /// How long to run before that [default: the workload's]
    #[arg(long, value_name = "S", value_parser = seconds_or_none)]
    pub warm_up: Option<f64>,
    /// Send this many operations a second whatever the server does; latency counts from the moment
    /// at which an operation should have been sent [default: one after the other]
    #[arg(long, value_name = "N", value_parser = rate)]
    pub rate: Option<f64>,
    /// Items that are loaded before [default: the workload's]
    #[arg(long, value_name = "N", value_parser = within(1, 100_000_000))]
    pub items: Option<u32>,
    /// Choose operations and items by this seed
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Take all answers as they come: for servers that only answer
    #[arg(long)]
    pub no_check: bool,
    /// Serve the metrics of the run on this port of 127.0.0.1; 0 lets the system choose [default:
    /// 8090, if it is free]
    #[arg(long, value_name = "N")]
    pub metrics_port: Option<u16>,
    /// Also write the results to this file
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Also write an HdrHistogram log, with an interval a second for each operation
    #[arg(long, value_name = "FILE")]
    pub hdr: Option<PathBuf>,
    /// Also write a report with plots, as one page that needs no network
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

#[derive(Args, Clone, Debug, PartialEq)]
pub struct CompareBench {
    /// Compare with this one; can be repeated [default: all that are installed]
    #[arg(long, value_name = "NAME", value_enum)]
    pub peer: Vec<PeerName>,
    #[command(flatten)]
    pub target: TargetFlags,
    /// Items of 1 KB that are read and written
    #[arg(long, value_name = "N", default_value_t = 20_000, value_parser = within(100, 100_000_000))]
    pub items: u32,
    /// Items that fall due together
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = within(1, 100_000_000))]
    pub doomed: u32,
    /// Connections that send one request after the other
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = within(1, 256))]
    pub connections: u32,
    /// Length of each measurement, in seconds
    #[arg(long, value_name = "S", default_value_t = 3.0, value_parser = seconds)]
    pub seconds: f64,
    /// How often each is measured
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = within(1, 100))]
    pub repetitions: u32,
    /// Also write the figures to this file
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// Peers that can be started here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PeerName {
    /// Values with EXPIRE; appendfsync always and everysec
    Redis,
    /// Rows of jsonb; synchronous_commit on and off
    Postgres,
}

impl CompareBench {
    pub fn wants(&self, peer: PeerName) -> bool {
        self.peer.is_empty() || self.peer.contains(&peer)
    }
}

/// The server to load.
#[derive(Args, Clone, Debug, Default, PartialEq)]
pub struct TargetFlags {
    /// Load this server; can be repeated for the nodes of a cluster [default: a node of its own]
    #[arg(long, value_name = "URL")]
    pub endpoint: Vec<String>,
    /// The account's key [default: the emulator's]
    #[arg(long, value_name = "KEY", conflicts_with = "key_file")]
    pub key: Option<String>,
    /// Take the account's key from the first line of this file
    #[arg(long, value_name = "FILE")]
    pub key_file: Option<PathBuf>,
    /// Trust the certificates of this PEM file [default: those that the machine trusts]
    #[arg(long, value_name = "FILE", conflicts_with = "insecure")]
    pub ca_file: Option<PathBuf>,
    /// Trust any certificate
    #[arg(long)]
    pub insecure: bool,
    /// Ask a node here for its purge lag, such as http://127.0.0.1:8080/ [default: only its own]
    #[arg(long, value_name = "URL")]
    pub node_metrics: Option<String>,
    /// Keep its own node's data below this folder [default: the system's temporary folder]
    #[arg(long, value_name = "DIR")]
    pub data_path: Option<PathBuf>,
}

#[derive(Args, Clone, Debug, PartialEq)]
pub struct ClusterBench {
    /// Run only this case; can be repeated
    #[arg(long, value_name = "NAME", value_enum)]
    pub only: Vec<ClusterCase>,
    /// Items that are read
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = within(100, 10_000_000))]
    pub items: u32,
    /// Length of each measurement, in seconds
    #[arg(long, value_name = "S", default_value_t = 2.0, value_parser = seconds)]
    pub seconds: f64,
    /// Rounds of each measurement, alternately with what it is compared to
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = within(1, 100))]
    pub rounds: u32,
    /// Shards of the container that shows what many of them cost
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = within(1, 1_000))]
    pub shards: u32,
    /// How often a node is killed
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = within(1, 100))]
    pub kills: u32,
    #[command(flatten)]
    pub servers: ServerFlags,
}

/// The cases of a cluster, in the order in which they run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ClusterCase {
    /// Replicated durable creates, beside those of one node
    Create,
    /// Point reads spread over all nodes
    Read,
    /// The same request at the leader's node and at another one
    Forward,
    /// Point reads at the level strong, beside those at the level session
    Strong,
    /// Many shards: start and idle CPU
    Shards,
    /// kill -9 of a node until its shards take writes again
    Failover,
}

#[derive(Args, Clone, Debug, PartialEq)]
pub struct DriverBench {
    /// Connections of both
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = within(1, 4_096))]
    pub connections: u32,
    /// Length of each measurement, in seconds
    #[arg(long, value_name = "S", default_value_t = 4, value_parser = within(1, 3_600))]
    pub seconds: u32,
    /// How often each is measured
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = within(1, 100))]
    pub rounds: u32,
    /// Also write the figures to this file
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

#[derive(Args, Clone, Debug, PartialEq)]
pub struct BaselineServer {
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
    /// 1,000 containers: space, creates, rest, expiry, restart
    ManyContainers,
}

impl NodeBench {
    pub fn wants(&self, case: CaseName) -> bool {
        self.only.is_empty() || self.only.contains(&case)
    }
}

/// Longest measurement: a day.
const SECONDS_MAX: f64 = 86_400.0;
/// Most operations a second that can be asked for.
const RATE_MAX: f64 = 10_000_000.0;

/// Takes a whole number from one to another.
fn within(low: i64, high: i64) -> RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(low..=high)
}

fn positive(text: &str, max: f64) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(number) if number > 0.0 && number <= max => Ok(number),
        _ => Err(format!("a number above 0 and up to {max} is expected")),
    }
}

fn seconds(text: &str) -> Result<f64, String> {
    positive(text, SECONDS_MAX)
}

fn seconds_or_none(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(0.0) => Ok(0.0),
        _ => seconds(text),
    }
}

fn rate(text: &str) -> Result<f64, String> {
    positive(text, RATE_MAX)
}
