//! The load driver: measures a node the way its users load it.
//!
//! `bolide bench node` starts its own servers as processes of their own (a node, and a yardstick
//! that answers a constant from the same HTTP server), loads them over raw keep-alive connections
//! from this process, and prints what it measured beside the bar that it has to meet. A figure
//! that depends on the machine is given as a ratio to the yardstick of the same run.
//!
//! `bolide bench cluster` does the same for a cluster of three nodes, and `bolide bench driver` for
//! the driver itself.
//!
//! `bolide bench run` puts any Cosmos-compatible server under a [`workload`], at the peak or at a
//! constant rate, and holds every answer against a model of what must be there ([`check`]).

mod account;
mod against_wrk;
mod cases;
mod check;
mod cluster;
mod compare;
mod connection;
mod doomed;
mod endpoint;
mod histogram;
mod item;
mod load;
#[cfg(test)]
mod load_tests;
mod measure;
mod metrics_text;
mod node;
mod options;
mod pace;
mod process;
mod query;
mod report;
mod request;
mod run;
mod scripts;
mod wire;
mod workload;
mod yardstick;

pub use options::{BenchTask, CaseName, NodeBench, RunBench};

use std::cell::RefCell;
use std::path::Path;

use crate::model::error::{Error, Result};
use report::Report;

/// Runs one task of the driver to its end. A missed bar is a result, not an error; what is false
/// is whether the server answered rightly.
pub fn run(task: &BenchTask) -> Result<bool> {
    match task {
        BenchTask::Run(options) => return run::run(options),
        BenchTask::Compare(options) => compare::run(options)?,
        BenchTask::List => print!("{}", workload::list()?),
        BenchTask::Yardstick(yardstick) => yardstick::serve(yardstick.port)?,
        BenchTask::Node(options) => measured(options.json.as_deref(), async |report| {
            cases::run(options, report).await
        })?,
        BenchTask::Cluster(options) => measured(options.json.as_deref(), async |report| {
            cluster::run(options, report).await
        })?,
        BenchTask::Driver(options) => measured(options.json.as_deref(), async |report| {
            against_wrk::run(options, report).await
        })?,
    }
    Ok(true)
}

/// Measures, and shows the figures even if not all could be had.
fn measured(
    json: Option<&Path>,
    work: impl AsyncFnOnce(&RefCell<Report>) -> Result<()>,
) -> Result<()> {
    // Before the work, not after it, a file that cannot be written is found.
    if let Some(path) = json {
        write_file(path, "")?;
    }
    let runtime = event_loop()?;
    let report = RefCell::new(Report::default());
    // Dropping the cases stops the servers and removes their folders, on Ctrl-C too.
    let outcome = runtime.block_on(async {
        tokio::select! {
            outcome = work(&report) => outcome,
            _ = tokio::signal::ctrl_c() => Err(Error::unavailable("interrupted")),
        }
    });
    let report = report.into_inner();
    print!("{}", report.table());
    if let Some(path) = json {
        write_file(path, &report.json())?;
    }
    outcome
}

fn event_loop() -> Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Error::internal(format!("cannot start the event loop: {error}")))
}

fn write_file(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text)
        .map_err(|error| Error::bad_request(format!("cannot write '{}': {error}", path.display())))
}
