//! The load driver: measures a node the way its users load it.
//!
//! `bolide bench node` starts its own servers as processes of their own (a node, and a baseline
//! that answers a constant from the same HTTP server), loads them over raw keep-alive connections
//! from this process, and prints what it measured beside the target that it has to meet. A figure
//! that depends on the machine is given as a ratio to the baseline of the same run.
//!
//! `bolide bench cluster` does the same for a cluster of three nodes, and `bolide bench driver` for
//! the driver itself.
//!
//! `bolide bench run` puts any Cosmos-compatible server under a [`workload`], at the peak or at a
//! constant rate, and holds every answer against a model of what must be there ([`check`]).

mod account;
mod against_wrk;
mod baseline;
mod cases;
mod check;
mod cluster;
mod compare;
mod context;
mod doomed;
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
mod workload;

pub use options::{BenchTask, CaseName, NodeBench, RunBench};

use std::cell::RefCell;
use std::path::Path;

use crate::model::error::{Error, Result};
use report::Report;

/// Runs one task of the driver to its end. A missed target is a result, not an error; what is false
/// is whether the server answered rightly.
pub fn run(task: &BenchTask) -> Result<bool> {
    match task {
        BenchTask::Run(options) => return run::run(options),
        BenchTask::Compare(options) => compare::run(options)?,
        BenchTask::List => print!("{}", workload::list()?),
        BenchTask::Baseline(server) => baseline::serve(server.port)?,
        BenchTask::Node(options) => measured(options.servers.json.as_deref(), async |report| {
            cases::run(options, report).await
        })?,
        BenchTask::Cluster(options) => measured(options.servers.json.as_deref(), async |report| {
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
    show(json, "", "")?;
    let report = RefCell::new(Report::default());
    let outcome = until_interrupted(work(&report));
    let report = report.into_inner();
    show(json, &report.table(), &report.json())?;
    outcome
}

/// Works to the end or to Ctrl-C.
fn until_interrupted(work: impl Future<Output = Result<()>>) -> Result<()> {
    // Dropping the work stops the servers and removes their folders, on Ctrl-C too.
    event_loop()?.block_on(async {
        tokio::select! {
            outcome = work => outcome,
            _ = tokio::signal::ctrl_c() => Err(Error::unavailable("interrupted")),
        }
    })
}

/// Prints a table, and writes the same as JSON to a file if one is named.
fn show(json_file: Option<&Path>, table: &str, json: &str) -> Result<()> {
    print!("{table}");
    json_file.map_or(Ok(()), |path| write_file(path, json))
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
