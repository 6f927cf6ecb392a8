//! The cases: one file for each thing that a node has to reach.

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

use super::item::BATCH_ITEMS;
use super::measure::{Compared, Extent, Measured};
use super::node::Bench;
use super::options::{CaseName, NodeBench};
use super::report::{Bar, Report, Unit};
use crate::model::error::Result;

/// Operations over which a server's CPU time is taken, at least.
const OPERATIONS_MIN: u64 = 100_000;
/// How long a node is waited for to become idle.
const SETTLE: Duration = Duration::from_secs(30);
/// Syncs of the probe that says what a sync costs here.
const PROBE_SYNCS: usize = 50;

/// What all cases need.
struct Context<'a> {
    bench: Bench,
    options: &'a NodeBench,
    report: &'a RefCell<Report>,
}

impl Context<'_> {
    fn add(&self, case: &'static str, figure: &str, value: f64, unit: Unit, bar: Bar) {
        self.report.borrow_mut().add(case, figure, value, unit, bar);
    }

    fn add_measured(&self, case: &'static str, name: &str, measured: &Measured) {
        self.report.borrow_mut().add_measured(case, name, measured);
    }

    /// The ratio of the rates of all rounds, and its spread.
    fn add_rate_ratio(
        &self,
        case: &'static str,
        figure: &str,
        compared: &Compared,
        unit: Unit,
        bar: Bar,
    ) {
        self.add(case, figure, compared.rate_ratio(), unit, bar);
        let (low, high) = compared.rate_ratio_range();
        self.add(
            case,
            &format!("{figure}, lowest round"),
            low,
            unit,
            Bar::None,
        );
        self.add(
            case,
            &format!("{figure}, highest round"),
            high,
            unit,
            Bar::None,
        );
    }

    /// The length of one round. A smoke run with few items does few operations too.
    fn extent(&self) -> Extent {
        Extent {
            length: self.length(),
            operations_min: OPERATIONS_MIN
                .min(u64::from(self.options.items))
                .div_ceil(u64::from(self.options.rounds)),
        }
    }

    fn length(&self) -> Duration {
        Duration::from_secs_f64(self.options.seconds)
    }

    /// The size of the large containers, in whole batches.
    fn items(&self) -> u32 {
        self.options.items.div_ceil(BATCH_ITEMS) * BATCH_ITEMS
    }
}

/// Runs all cases that are asked for. Their figures are in the report even if a later one fails.
pub async fn run(options: &NodeBench, report: &RefCell<Report>) -> Result<()> {
    let context = Context {
        bench: Bench::new(options.data_path.as_deref())?,
        options,
        report,
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    context.add("machine", "cores", cores as f64, Unit::Count, Bar::None);
    for (figure, grows) in [
        ("sync of a 4 KB append, p10", true),
        ("sync of a 4 KB overwrite, p10", false),
    ] {
        if let Some(micros) = sync_micros(context.bench.scratch.path(), grows) {
            context.add("machine", figure, micros, Unit::Micros, Bar::None);
        }
    }
    if options.wants(CaseName::Startup) {
        startup::run(&context).await?;
    }
    if options.wants(CaseName::PointRead) {
        point_read::run(&context).await?;
    }
    if options.wants(CaseName::Create) {
        create::run(&context).await?;
    }
    if options.wants(CaseName::Million) || options.wants(CaseName::FewDue) {
        million::run(&context).await?;
    }
    if options.wants(CaseName::MassExpiry) {
        mass_expiry::run(&context).await?;
    }
    if queried::CASES.iter().any(|case| options.wants(*case)) {
        queried::run(&context).await?;
    }
    if options.wants(CaseName::IndexedCreate) {
        indexed_create::run(&context).await?;
    }
    if options.wants(CaseName::ManyContainers) {
        many_containers::run(&context).await?;
    }
    Ok(())
}

/// What the disk below this folder takes to make a small write durable, at the end of a file or
/// within it. On a folder in memory it is next to nothing, and the figures of writes say little.
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

fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / (1024.0 * 1024.0)
}
