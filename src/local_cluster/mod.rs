//! A cluster on this machine, for trying it out: starts node processes, shows their status, ends
//! them. It knows the nodes from outside only: their command line, their health port and their
//! process ids.

mod check;
mod drain;
mod hints;
mod nodes;
mod status;

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::{
    model::error::Result,
    operator::{KeyFlag, ReadKey},
};

/// Where a cluster keeps its data if nothing else is said.
const DATA_PATH: &str = "./data/cluster";

/// What to do with a cluster on this machine.
#[derive(Clone, Debug, PartialEq, Eq, Subcommand)]
pub enum ClusterTask {
    /// Start a cluster on this machine, for trying it out
    Up(UpFlags),
    /// End the nodes of a cluster that `up` has started; the data stays
    Down(ClusterFolder),
    /// Show nodes, shards, leaders and lag
    Status(ClusterFolder),
    /// Compare the live items of all replicas of all shards
    Check(CheckFlags),
    /// Move the replicas of a node to the others, and take it off the list
    Drain(DrainFlags),
}

#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct CheckFlags {
    #[command(flatten)]
    folder: ClusterFolder,
    #[command(flatten)]
    key: KeyFlag,
}

#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct DrainFlags {
    /// The number of the node
    node: u64,
    /// Health port of any node of the cluster, on this machine; those that `up` has started are
    /// known
    #[arg(long, value_name = "PORT")]
    health_port: Option<u16>,
    #[command(flatten)]
    key: KeyFlag,
    #[command(flatten)]
    folder: ClusterFolder,
}

#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct ClusterFolder {
    /// Where the cluster keeps its data
    #[arg(long, value_name = "DIR", default_value = DATA_PATH)]
    data_path: PathBuf,
}

#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct UpFlags {
    #[command(flatten)]
    folder: ClusterFolder,
    /// How many nodes
    #[arg(long, value_name = "N", default_value_t = 3,
          value_parser = clap::value_parser!(u16).range(1..=9))]
    nodes: u16,
    /// REST port of the first node; each node takes the two ports beside it too, and the next node
    /// begins ten above
    #[arg(long, value_name = "N", default_value_t = 8081,
          value_parser = clap::value_parser!(u16).range(1024..=65_000))]
    port: u16,
    /// Take the account's keys from this file [default: the emulator's key]
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
}

impl ClusterTask {
    /// Whether the account's key is taken from the settings: of nodes that `up` has not started.
    pub fn wants_key(&self) -> bool {
        matches!(self, Self::Drain(drain) if drain.health_port.is_some())
    }

    /// Takes this key file where the command line names none.
    pub fn or_key(&mut self, key_file: Option<PathBuf>) {
        if let Self::Drain(drain) = self {
            drain.key.or_else(|| key_file);
        }
    }
}

pub fn run(task: &ClusterTask, read_key: ReadKey<'_>) -> Result<()> {
    match task {
        ClusterTask::Up(up) => nodes::up(
            &up.folder.data_path,
            up.nodes,
            up.port,
            up.key_file.as_deref(),
        ),
        ClusterTask::Down(folder) => nodes::down(&folder.data_path),
        ClusterTask::Status(folder) => status::show(&folder.data_path),
        ClusterTask::Check(check) => check::run(&check.folder.data_path, &check.key, read_key),
        ClusterTask::Drain(drain) => drain::run(
            drain.node,
            drain.health_port,
            &drain.folder.data_path,
            |known| drain.key.signer(known, read_key),
        ),
    }
}
