//! The load driver: measures a node the way its users load it.
//!
//! `bolide bench node` starts its own servers as processes of their own (a node, and a yardstick
//! that answers a constant from the same HTTP server), loads them over raw keep-alive connections
//! from this process, and prints what it measured beside the bar that it has to meet. A figure
//! that depends on the machine is given as a ratio to the yardstick of the same run.

mod cases;
mod connection;
mod doomed;
mod histogram;
mod item;
mod load;
mod measure;
mod node;
mod options;
mod process;
mod query;
mod report;
mod request;
mod scripts;
mod signer;
mod yardstick;

pub use options::{BenchTask, CaseName, NodeBench};

use std::cell::RefCell;
use std::path::Path;

use crate::model::error::{Error, Result};
use report::Report;

/// Runs one task of the driver to its end. A missed bar is a result, not an error.
pub fn run(task: &BenchTask) -> Result<()> {
    match task {
        BenchTask::Yardstick(yardstick) => yardstick::serve(yardstick.port),
        BenchTask::Node(options) => measure_node(options),
    }
}

fn measure_node(options: &NodeBench) -> Result<()> {
    // Before the work, not after it, a file that cannot be written is found.
    if let Some(path) = &options.json {
        write_json(path, "")?;
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Error::internal(format!("cannot start the event loop: {error}")))?;
    let report = RefCell::new(Report::default());
    // Dropping the cases stops the servers and removes their folders, on Ctrl-C too.
    let outcome = runtime.block_on(async {
        tokio::select! {
            outcome = cases::run(options, &report) => outcome,
            _ = tokio::signal::ctrl_c() => Err(Error::unavailable("interrupted")),
        }
    });
    let report = report.into_inner();
    print!("{}", report.table());
    if let Some(path) = &options.json {
        write_json(path, &report.json())?;
    }
    outcome
}

fn write_json(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text)
        .map_err(|error| Error::bad_request(format!("cannot write '{}': {error}", path.display())))
}
