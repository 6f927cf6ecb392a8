//! Commands for the operator of a running node: they give it signed orders on its health port.

mod ready;

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use clap::{Args, Subcommand};

pub use self::ready::Ready;
use crate::{
    client::{EMULATOR_KEY, HealthPort, Signer},
    model::error::{Error, Result},
};

/// Where a node serves health unless it is told otherwise.
const HEALTH_PORT: u16 = 8080;

/// A split answers when its parts have taken over.
const SPLIT_TIMEOUT: Duration = Duration::from_secs(600);
const CONFIRM_TIMEOUT: Duration = Duration::from_secs(10);

/// An order to a running node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OperatorTask {
    Clock(ClockTask),
    Ready(Ready),
    Split(SplitOrder),
}

#[derive(Clone, Debug, PartialEq, Eq, Subcommand)]
pub enum ClockTask {
    /// Confirm that the node's time is right after a jump: purging goes on at once
    Confirm(NodeFlags),
}

#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct SplitOrder {
    /// The container, as dbs/DATABASE/colls/CONTAINER
    container: String,
    /// The partition key range; may be left out where there is only one
    #[arg(long, value_name = "N")]
    range: Option<u32>,
    #[command(flatten)]
    node: NodeFlags,
}

/// Which node, and with which key.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct NodeFlags {
    #[command(flatten)]
    health: HealthFlags,
    #[command(flatten)]
    key: KeyFlag,
}

/// Which node.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub struct HealthFlags {
    /// Health endpoint of the node, http://HOST:PORT [default: this machine, by the settings]
    #[arg(
        long,
        alias = "endpoint",
        value_name = "URL",
        conflicts_with = "health_port"
    )]
    health_endpoint: Option<String>,
    /// Health port of the node on this machine [default: server.health_port of the settings]
    #[arg(long, alias = "port", value_name = "PORT")]
    health_port: Option<u16>,
}

#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyFlag {
    /// Sign with the primary key of this file [default: auth.key_file of the settings, else the
    /// emulator's key]
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
}

impl KeyFlag {
    /// Takes this file where the command line names none.
    pub fn or_else(&mut self, key_file: impl FnOnce() -> Option<PathBuf>) {
        if self.key_file.is_none() {
            self.key_file = key_file();
        }
    }

    /// Signs with the key of this file, else of another, else with the well-known one.
    pub fn signer(&self, other: Option<&Path>, read_key: ReadKey<'_>) -> Result<Signer> {
        match self.key_file.as_deref().or(other) {
            Some(path) => Signer::new(&read_key(path)?),
            None => Signer::new(EMULATOR_KEY),
        }
    }
}

/// Reads the primary key of a key file, in base64.
pub type ReadKey<'a> = &'a dyn Fn(&Path) -> Result<String>;

/// What the settings say of the node that is started with them.
pub struct Configured {
    pub host: String,
    pub health_port: u16,
    pub key_file: Option<PathBuf>,
}

impl HealthFlags {
    /// Takes the settings' word where the command line says nothing.
    fn or_else(&mut self, host: &str, health_port: u16) {
        if self.health_endpoint.is_none() && self.health_port.is_none() {
            self.health_endpoint = Some(HealthPort::new(host, health_port).to_string());
        }
    }

    fn port(&self) -> Result<HealthPort> {
        match (&self.health_endpoint, self.health_port) {
            (Some(endpoint), _) => HealthPort::parse(endpoint),
            (None, port) => Ok(HealthPort::local(port.unwrap_or(HEALTH_PORT))),
        }
    }
}

impl NodeFlags {
    fn fill(&mut self, node: Configured) {
        self.health.or_else(&node.host, node.health_port);
        self.key.or_else(|| node.key_file);
    }
}

impl OperatorTask {
    /// Takes from the settings what the command line does not say.
    pub fn fill(&mut self, node: Configured) {
        match self {
            Self::Clock(ClockTask::Confirm(flags)) => flags.fill(node),
            Self::Ready(ready) => ready.fill(&node),
            Self::Split(split) => split.node.fill(node),
        }
    }
}

pub fn run(task: &OperatorTask, read_key: ReadKey<'_>) -> Result<()> {
    match task {
        OperatorTask::Clock(ClockTask::Confirm(node)) => confirm(node, read_key),
        OperatorTask::Ready(ready) => ready.ask(),
        OperatorTask::Split(split) => self::split(split, read_key),
    }
}

fn confirm(node: &NodeFlags, read_key: ReadKey<'_>) -> Result<()> {
    let signer = node.key.signer(None, read_key)?;
    let port = node.health.port()?;
    let answer = port.order(&signer, "POST", "/clock/confirm", CONFIRM_TIMEOUT)?;
    match answer["purgingPaused"].as_bool() {
        Some(true) => println!("confirmed; purging is still paused, /status says why"),
        _ => println!("confirmed; purging goes on"),
    }
    Ok(())
}

fn split(split: &SplitOrder, read_key: ReadKey<'_>) -> Result<()> {
    let mut query = form_urlencoded::Serializer::new(String::new());
    query.append_pair("container", &split.container);
    if let Some(range) = split.range {
        query.append_pair("range", &range.to_string());
    }
    let path = format!("/split?{}", query.finish());
    let signer = split.node.key.signer(None, read_key)?;
    let port = split.node.health.port()?;
    let answer = port.order(&signer, "POST", &path, SPLIT_TIMEOUT)?;
    let Some(ranges) = answer["ranges"].as_array() else {
        return Err(Error::internal(format!("the node answered {answer}")));
    };
    let ranges: Vec<String> = ranges.iter().map(ToString::to_string).collect();
    println!("split into the ranges {}", ranges.join(" and "));
    Ok(())
}
