//! The cases of `bolide bench node`: one file for each thing that a node has to reach.

mod count;
mod create;
mod equality;
mod few_due;
mod indexed_create;
mod many_containers;
mod mass_expiry;
mod metrics_cost;
mod million;
mod order_by;
mod point_read;
mod queried;
mod reindex;
mod startup;

use std::cell::RefCell;
use std::fs::File;
use std::io::{Seek as _, Write as _};
use std::path::Path;
use std::time::{Duration, Instant};

use super::context::CaseContext;
use super::item::BATCH_ITEMS;
use super::measure::Extent;
use super::node::Launcher;
use super::options::{CaseName, NodeBench};
use super::report::Report;
use super::report::Unit::Micros;
use crate::model::error::Result;

/// Operations over which a server's CPU time is taken, at least.
const OPERATIONS_MIN: u64 = 100_000;
/// How long a node is waited for to become idle.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(30);
/// Syncs of the probe that says what a sync costs here.
const PROBE_SYNCS: usize = 50;

/// Runs all cases that are asked for. Their figures are in the report even if a later one fails.
pub async fn run(options: &NodeBench, report: &RefCell<Report>) -> Result<()> {
    // A smoke run with few items does few operations too.
    let operations = OPERATIONS_MIN.min(u64::from(options.items));
    let context = &CaseContext {
        bench: Launcher::new(options.servers.data_path.as_deref())?,
        report,
        // In whole batches.
        items: options.items.div_ceil(BATCH_ITEMS) * BATCH_ITEMS,
        connections: options.servers.connections,
        rounds: options.rounds,
        extent: Extent {
            length: Duration::from_secs_f64(options.seconds),
            operations_min: operations.div_ceil(u64::from(options.rounds)),
        },
    };
    let machine = context.machine();
    for (figure, grows) in [
        ("sync of a 4 KB append, p10", true),
        ("sync of a 4 KB overwrite, p10", false),
    ] {
        if let Some(micros) = sync_micros(context.bench.scratch.path(), grows) {
            machine.show(figure, micros, Micros);
        }
    }
    let wants = |case| options.wants(case);
    if wants(CaseName::Startup) {
        startup::run(context).await?;
    }
    if wants(CaseName::PointRead) {
        point_read::run(context).await?;
    }
    if wants(CaseName::Create) {
        create::run(context).await?;
    }
    if wants(CaseName::Million) || wants(CaseName::FewDue) {
        million::run(context, wants).await?;
    }
    if wants(CaseName::MassExpiry) {
        mass_expiry::run(context).await?;
    }
    if queried::CASES.into_iter().any(wants) {
        queried::run(context, wants).await?;
    }
    if wants(CaseName::IndexedCreate) {
        indexed_create::run(context).await?;
    }
    if wants(CaseName::ManyContainers) {
        many_containers::run(context, options.containers).await?;
    }
    Ok(())
}

/// Returns what the disk below this folder takes to make a small write durable, at the end of a
/// file or within it. On a folder in memory it is next to nothing, and the figures of writes say
/// little.
fn sync_micros(folder: &Path, grows: bool) -> Option<f64> {
    const BLOCK: [u8; 4096] = [7; 4096];
    let path = folder.join("sync-probe");
    let mut file = File::create(&path).ok()?;
    if !grows {
        file.write_all(&BLOCK.repeat(PROBE_SYNCS)).ok()?;
        file.sync_all().ok()?;
        file.rewind().ok()?;
    }
    let mut times = Vec::with_capacity(PROBE_SYNCS);
    for _ in 0..PROBE_SYNCS {
        file.write_all(&BLOCK).ok()?;
        let begun = Instant::now();
        file.sync_data().ok()?;
        times.push(begun.elapsed().as_secs_f64() * 1e6);
    }
    // The probe is a few hundred kilobytes; the scratch folder takes it away if this does not.
    let _ = std::fs::remove_file(&path);
    // On a busy machine most of them wait longer for a core than for the disk.
    times.sort_by(f64::total_cmp);
    times.get(PROBE_SYNCS / 10).copied()
}
