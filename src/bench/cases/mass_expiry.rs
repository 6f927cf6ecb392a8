//! All items fall due within five seconds, while others are read.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use serde_json::json;

use super::SETTLE_TIMEOUT;
use super::few_due::PURGED;
use crate::bench::context::CaseContext;
use crate::bench::doomed::{Doomed, Findings};
use crate::bench::item::{BATCH_ITEMS, ITEM_BYTES};
use crate::bench::load::{Load, LoadTally};
use crate::bench::node::MeasuredNode;
use crate::bench::process::disk_bytes;
use crate::bench::report::Unit::{Count, Megabytes, Micros, Seconds, Times};
use crate::bench::report::{CaseReport, megabytes};
use crate::bench::scripts::{Cargo, Due, DueBounds, PointReads};
use crate::client::{unix_seconds, unix_time};
use crate::model::error::{Error, Result};

const CONTAINER: &str = "doomed";
/// Items that stay, one for this many that go.
const LIVE_SHARE: u32 = 4;
/// The writes reach into the second after the one they were signed in, so four make five.
const SPREAD_SECONDS: u64 = 4;
/// How much longer than foreseen the load may take, at each attempt.
const LOAD_SLACKS: [f64; 3] = [2.0, 4.0, 8.0];
/// Time kept free between the load, as it is foreseen, and the reads before the first second.
const MARGIN_SECONDS: f64 = 2.0;
const WARM_UP_SECONDS: f64 = 1.0;
/// Reads before the first second are measured for as long as this many rounds of other cases.
const BEFORE_ROUNDS: f64 = 3.0;
const BEFORE_SECONDS_MAX: f64 = 10.0;
/// Connections that look whether the doomed items are there when they must be and not after.
const CHECKERS: u32 = 4;
const PURGE_SECONDS_MAX: f64 = 60.0;
/// After this they count as not purged at all.
const PURGE_TIMEOUT: Duration = Duration::from_secs(180);
const DISK_SECONDS_MAX: f64 = 120.0;
/// What the folder may take, of what the live items alone need.
const DISK_SHARE_MAX: f64 = 1.3;
/// Resident memory while purging, of that before.
const MEMORY_SHARE_MAX: f64 = 1.2;
const POLL_INTERVAL: Duration = Duration::from_millis(100);

const BEFORE: usize = 1;
const DURING: usize = 2;
const AFTER: usize = 3;

pub async fn run(context: &CaseContext<'_>) -> Result<()> {
    let case = context.case("mass expiry");
    let Loaded {
        node,
        cargo,
        first_due,
        live,
        live_bytes,
    } = load(context).await?;
    let (items, signer) = (context.items, &context.bench.signer);
    let purged_before = node.counter(PURGED).await?;
    let full_bytes = disk_bytes(&node.data);

    let before_begins = first_due as f64 - before_seconds(context);
    sleep_until(before_begins - WARM_UP_SECONDS).await;
    let findings = Arc::new(Findings::default());
    let readers = PointReads::spread(signer, CONTAINER, live, context.connections);
    let foreground = Load::closed(node.endpoints.clone(), readers)?;
    let checkers = Doomed::spread(signer, &cargo, &findings, CHECKERS);
    let checkers = Load::closed(node.endpoints.clone(), checkers)?;
    sleep_until(before_begins).await;
    let (resident_before, _) = node.server.resident_bytes()?;
    foreground.enter_phase(BEFORE);
    sleep_until(first_due as f64).await;
    foreground.enter_phase(DURING);

    let target = purged_before + u64::from(items);
    let peak = watch_purge(&node, target, [&foreground, &checkers]).await?;
    let last_due = latest_due(&cargo);
    let purge = (unix_time() - last_due).max(0.0);
    foreground.enter_phase(AFTER);
    let tallies = foreground.stop().await?;
    checkers.stop().await?;

    let disk = watch_disk(&node, live_bytes, last_due).await;
    report_reads(case, &tallies, &findings);
    case.at_most(
        "all purged after the last second",
        purge,
        Seconds,
        PURGE_SECONDS_MAX,
    );
    case.show("resident before", megabytes(resident_before), Megabytes);
    let memory = peak as f64 / resident_before as f64;
    case.at_most(
        "resident while purging, of before",
        memory,
        Times,
        MEMORY_SHARE_MAX,
    );
    report_disk(case, &disk, [live_bytes, full_bytes], live);
    Ok(())
}

/// A node with the items that stay and the items that go, before the first of them does.
struct Loaded {
    node: MeasuredNode,
    cargo: Arc<Cargo>,
    first_due: u64,
    live: u32,
    /// What the data folder took with the live items alone.
    live_bytes: u64,
}

/// The second in which items fall due is set before they are loaded; when the load turns out to
/// take longer, it begins again with more time.
async fn load(context: &CaseContext<'_>) -> Result<Loaded> {
    for (attempt, slack) in LOAD_SLACKS.into_iter().enumerate() {
        let loaded = try_load(context, attempt, slack).await?;
        let until = loaded.first_due as f64 - before_seconds(context) - WARM_UP_SECONDS;
        let left = until - unix_time();
        if !loaded.cargo.is_late() && left > 0.0 {
            loaded.node.settle(Duration::from_secs_f64(left)).await?;
            return Ok(loaded);
        }
        eprintln!("  mass expiry: the load took longer than foreseen; once more");
    }
    Err(Error::unavailable(
        "the load took longer than the items had to live",
    ))
}

async fn try_load(context: &CaseContext<'_>, attempt: usize, slack: f64) -> Result<Loaded> {
    let items = context.items;
    let live = (items / LIVE_SHARE).div_ceil(BATCH_ITEMS) * BATCH_ITEMS;
    let folder = format!("mass-expiry-{attempt}");
    let properties = json!({ "defaultTtl": -1 });
    let node = context
        .bench
        .start_node_with(&folder, CONTAINER, &properties)
        .await?;
    let stays = Cargo::new(CONTAINER, 0, live, Due::Inherit);
    let took = node.load(&stays).await?.as_secs_f64();
    node.settle(SETTLE_TIMEOUT).await?;
    let live_bytes = disk_bytes(&node.data);

    let foreseen = took * f64::from(items) / f64::from(live) * slack;
    let ahead = foreseen + before_seconds(context) + WARM_UP_SECONDS + MARGIN_SECONDS;
    let first_due = unix_seconds() + ahead.ceil() as u64;
    let cargo = doomed_cargo(live, items, first_due);
    node.load(&cargo).await?;
    Ok(Loaded {
        node,
        cargo,
        first_due,
        live,
        live_bytes,
    })
}

fn before_seconds(context: &CaseContext<'_>) -> f64 {
    (context.length().as_secs_f64() * BEFORE_ROUNDS).min(BEFORE_SECONDS_MAX)
}

fn doomed_cargo(first: u32, items: u32, second: u64) -> Arc<Cargo> {
    let batches = items.div_ceil(BATCH_ITEMS);
    let due = Due::At {
        second,
        spread_seconds: SPREAD_SECONDS,
        bounds: (0..batches).map(|_| DueBounds::default()).collect(),
    };
    Cargo::new(CONTAINER, first, items, due)
}

/// Waits until the counter has reached the target; the most memory that was resident meanwhile.
async fn watch_purge(node: &MeasuredNode, target: u64, loads: [&Load; 2]) -> Result<u64> {
    let begun = Instant::now();
    let mut peak = 0;
    loop {
        peak = peak.max(node.server.resident_bytes()?.0);
        let purged = node.counter(PURGED).await?;
        if purged >= target {
            return Ok(peak);
        }
        if begun.elapsed() > PURGE_TIMEOUT {
            let (left, seconds) = (target - purged, PURGE_TIMEOUT.as_secs());
            return Err(Error::unavailable(format!(
                "{left} items were not purged within {seconds} s"
            )));
        }
        if loads.iter().any(|load| load.has_ended()) {
            return Err(Error::unavailable(
                "a connection failed while items were purged",
            ));
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

struct Disk {
    bytes: u64,
    /// Since the last second of expiry, when the folder was small enough or the time was over.
    seconds: f64,
}

async fn watch_disk(node: &MeasuredNode, live_bytes: u64, last_due: f64) -> Disk {
    loop {
        let (bytes, seconds) = (disk_bytes(&node.data), unix_time() - last_due);
        let small = bytes as f64 <= live_bytes as f64 * DISK_SHARE_MAX;
        if small || seconds > DISK_SECONDS_MAX {
            return Disk { bytes, seconds };
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

fn report_reads(case: CaseReport<'_>, tallies: &[LoadTally], findings: &Findings) {
    let of = |phase: usize| tallies.get(phase).cloned().unwrap_or_default();
    let (before, during) = (of(BEFORE), of(DURING));
    let wrong: u64 = tallies
        .iter()
        .flat_map(|tally| tally.unexpected.values())
        .sum();
    let [p99_before, p99_during] = [&before, &during].map(|tally| tally.latency.micros(0.99));
    case.show(
        "reads of live items before",
        before.operations as f64,
        Count,
    );
    case.show(
        "reads of live items while purging",
        during.operations as f64,
        Count,
    );
    case.at_most("live items that a read missed", wrong as f64, Count, 0.0);
    case.show("read p99 before", p99_before, Micros);
    case.show("read p99 while purging", p99_during, Micros);
    let ratio = p99_during / p99_before;
    case.at_most("read p99 while purging, of before", ratio, Times, 2.0);
    findings.report(case);
}

fn report_disk(case: CaseReport<'_>, disk: &Disk, [live, full]: [u64; 2], live_items: u32) {
    for (figure, bytes) in [
        (
            "live items as they were sent",
            u64::from(live_items) * ITEM_BYTES as u64,
        ),
        ("data folder with the live items", live),
        ("data folder with all items", full),
        ("data folder after", disk.bytes),
    ] {
        case.show(figure, megabytes(bytes), Megabytes);
    }
    let share = disk.bytes as f64 / live as f64;
    case.at_most(
        "data folder after, of the live items'",
        share,
        Times,
        DISK_SHARE_MAX,
    );
    let figure = "data folder small after the last second";
    case.at_most(figure, disk.seconds, Seconds, DISK_SECONDS_MAX);
}

/// The last second in which an item falls due.
fn latest_due(cargo: &Cargo) -> f64 {
    let bounds = cargo.bounds().iter();
    let latest = bounds.map(|bounds| bounds.latest.load(Ordering::Relaxed));
    latest.max().unwrap_or(0) as f64
}

async fn sleep_until(second: f64) {
    let wait = (second - unix_time()).max(0.0);
    tokio::time::sleep(Duration::from_secs_f64(wait)).await;
}
