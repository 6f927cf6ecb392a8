//! All items fall due within five seconds, while others are read.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;

use super::few_due::PURGED;
use super::{Context, SETTLE, megabytes};
use crate::bench::doomed::{Doomed, Findings};
use crate::bench::item::{BATCH_ITEMS, ITEM_BYTES};
use crate::bench::load::{Load, Tally};
use crate::bench::node::Node;
use crate::bench::process::disk_bytes;
use crate::bench::report::{Bar, Unit};
use crate::bench::scripts::{Cargo, Due, DueBounds, PointReads};
use crate::client::unix_seconds;
use crate::clock;
use crate::model::error::{Error, Result};

const CASE: &str = "mass expiry";
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
const PURGE_GIVE_UP_SECONDS: u64 = 180;
const DISK_SECONDS_MAX: f64 = 120.0;
/// What the folder may take, of what the live items alone need.
const DISK_SHARE_MAX: f64 = 1.3;
/// Resident memory while purging, of that before.
const MEMORY_SHARE_MAX: f64 = 1.2;
const POLL: Duration = Duration::from_millis(100);

const BEFORE: usize = 1;
const DURING: usize = 2;
const AFTER: usize = 3;

pub async fn run(context: &Context<'_>) -> Result<()> {
    let Loaded {
        node,
        cargo,
        first_due,
        live,
        live_bytes,
    } = load(context).await?;
    let (items, signer) = (context.items(), &context.bench.signer);
    let purged_before = node.counter(PURGED).await?;
    let full_bytes = disk_bytes(&node.data);

    let before_begins = first_due as f64 - before_seconds(context);
    sleep_until(before_begins - WARM_UP_SECONDS).await;
    let findings = Arc::new(Findings::default());
    let readers = PointReads::spread(signer, CONTAINER, live, context.options.connections);
    let foreground = Load::start(node.server.port, readers)?;
    let checkers = Doomed::spread(signer, &cargo, &findings, CHECKERS);
    let checkers = Load::start(node.server.port, checkers)?;
    sleep_until(before_begins).await;
    let (resident_before, _) = node.server.resident_bytes()?;
    foreground.enter_phase(BEFORE);
    sleep_until(first_due as f64).await;
    foreground.enter_phase(DURING);

    let target = purged_before + u64::from(items);
    let peak = watch_purge(&node, target, [&foreground, &checkers]).await?;
    let last_due = latest_due(&cargo);
    let purge = (now() - last_due).max(0.0);
    foreground.enter_phase(AFTER);
    let tallies = foreground.stop().await?;
    checkers.stop().await?;

    let disk = watch_disk(&node, live_bytes, last_due).await;
    report_reads(context, &tallies, &findings);
    let bar = Bar::AtMost(PURGE_SECONDS_MAX);
    context.add(
        CASE,
        "all purged after the last second",
        purge,
        Unit::Seconds,
        bar,
    );
    let memory = peak as f64 / resident_before as f64;
    let bar = Bar::AtMost(MEMORY_SHARE_MAX);
    context.add(
        CASE,
        "resident before",
        megabytes(resident_before),
        Unit::Megabytes,
        Bar::None,
    );
    context.add(
        CASE,
        "resident while purging, of before",
        memory,
        Unit::Times,
        bar,
    );
    report_disk(context, &disk, [live_bytes, full_bytes], live);
    Ok(())
}

/// A node with the items that stay and the items that go, before the first of them does.
struct Loaded {
    node: Node,
    cargo: Arc<Cargo>,
    first_due: u64,
    live: u32,
    /// What the data folder took with the live items alone.
    live_bytes: u64,
}

/// The second in which items fall due is set before they are loaded; when the load turns out to
/// take longer, it begins again with more time.
async fn load(context: &Context<'_>) -> Result<Loaded> {
    for (attempt, slack) in LOAD_SLACKS.into_iter().enumerate() {
        let loaded = try_load(context, attempt, slack).await?;
        let until = loaded.first_due as f64 - before_seconds(context) - WARM_UP_SECONDS;
        if !loaded.cargo.is_late() && now() < until {
            let patience = Duration::from_secs_f64(until - now());
            loaded.node.settle(patience).await?;
            return Ok(loaded);
        }
        eprintln!("  {CASE}: the load took longer than foreseen; once more");
    }
    Err(Error::unavailable(
        "the load took longer than the items had to live",
    ))
}

async fn try_load(context: &Context<'_>, attempt: usize, slack: f64) -> Result<Loaded> {
    let items = context.items();
    let live = (items / LIVE_SHARE).div_ceil(BATCH_ITEMS) * BATCH_ITEMS;
    let folder = format!("mass-expiry-{attempt}");
    let node = context.bench.start_node(&folder).await?;
    node.create_database().await?;
    let definition = json!({ "defaultTtl": -1 });
    node.create_container(CONTAINER, &definition).await?;
    let stays = Cargo::new(CONTAINER, 0, live, Due::Inherit);
    let took = node.load(&stays).await?.as_secs_f64();
    node.settle(SETTLE).await?;
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

fn before_seconds(context: &Context<'_>) -> f64 {
    (context.options.seconds * BEFORE_ROUNDS).min(BEFORE_SECONDS_MAX)
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
async fn watch_purge(node: &Node, target: u64, loads: [&Load; 2]) -> Result<u64> {
    let begun = Instant::now();
    let mut peak = 0;
    loop {
        peak = peak.max(node.server.resident_bytes()?.0);
        let purged = node.counter(PURGED).await?;
        if purged >= target {
            return Ok(peak);
        }
        if begun.elapsed().as_secs() > PURGE_GIVE_UP_SECONDS {
            return Err(Error::unavailable(format!(
                "{} items were not purged within {PURGE_GIVE_UP_SECONDS} s",
                target - purged
            )));
        }
        if loads.iter().any(|load| load.has_ended()) {
            return Err(Error::unavailable(
                "a connection failed while items were purged",
            ));
        }
        tokio::time::sleep(POLL).await;
    }
}

struct Disk {
    bytes: u64,
    /// Since the last second of expiry, when the folder was small enough or the time was over.
    seconds: f64,
}

async fn watch_disk(node: &Node, live_bytes: u64, last_due: f64) -> Disk {
    loop {
        let (bytes, seconds) = (disk_bytes(&node.data), now() - last_due);
        let small = bytes as f64 <= live_bytes as f64 * DISK_SHARE_MAX;
        if small || seconds > DISK_SECONDS_MAX {
            return Disk { bytes, seconds };
        }
        tokio::time::sleep(POLL).await;
    }
}

fn report_reads(context: &Context<'_>, tallies: &[Tally], findings: &Findings) {
    let p99 = |phase: usize| {
        let latency = tallies.get(phase).map(|tally| tally.latency.quantile(0.99));
        latency.map_or(f64::NAN, |latency| latency.as_secs_f64() * 1e6)
    };
    let count = |phase: usize| tallies.get(phase).map_or(0, |tally| tally.operations) as f64;
    let wrong: u64 = tallies
        .iter()
        .flat_map(|tally| tally.unexpected.values())
        .sum();
    let ratio = p99(DURING) / p99(BEFORE);
    context.add(
        CASE,
        "reads of live items before",
        count(BEFORE),
        Unit::Count,
        Bar::None,
    );
    context.add(
        CASE,
        "reads of live items while purging",
        count(DURING),
        Unit::Count,
        Bar::None,
    );
    context.add(
        CASE,
        "live items that a read missed",
        wrong as f64,
        Unit::Count,
        Bar::AtMost(0.0),
    );
    context.add(
        CASE,
        "read p99 before",
        p99(BEFORE),
        Unit::Micros,
        Bar::None,
    );
    context.add(
        CASE,
        "read p99 while purging",
        p99(DURING),
        Unit::Micros,
        Bar::None,
    );
    context.add(
        CASE,
        "read p99 while purging, of before",
        ratio,
        Unit::Times,
        Bar::AtMost(2.0),
    );
    for (figure, value, bar) in findings.rows() {
        context.add(CASE, figure, value as f64, Unit::Count, bar);
    }
}

fn report_disk(context: &Context<'_>, disk: &Disk, [live, full]: [u64; 2], live_items: u32) {
    let raw = u64::from(live_items) * ITEM_BYTES as u64;
    let share = disk.bytes as f64 / live as f64;
    let add = |figure, value, unit, bar| context.add(CASE, figure, value, unit, bar);
    add(
        "live items as they were sent",
        megabytes(raw),
        Unit::Megabytes,
        Bar::None,
    );
    add(
        "data folder with the live items",
        megabytes(live),
        Unit::Megabytes,
        Bar::None,
    );
    add(
        "data folder with all items",
        megabytes(full),
        Unit::Megabytes,
        Bar::None,
    );
    add(
        "data folder after",
        megabytes(disk.bytes),
        Unit::Megabytes,
        Bar::None,
    );
    add(
        "data folder after, of the live items'",
        share,
        Unit::Times,
        Bar::AtMost(DISK_SHARE_MAX),
    );
    let bar = Bar::AtMost(DISK_SECONDS_MAX);
    add(
        "data folder small after the last second",
        disk.seconds,
        Unit::Seconds,
        bar,
    );
}

/// The last second in which an item falls due.
fn latest_due(cargo: &Cargo) -> f64 {
    let latest = cargo.bounds().iter().map(|bounds| bounds.latest()).max();
    latest.unwrap_or(0) as f64
}

fn now() -> f64 {
    clock::wall().as_secs_f64()
}

async fn sleep_until(second: f64) {
    let wait = (second - now()).max(0.0);
    tokio::time::sleep(Duration::from_secs_f64(wait)).await;
}
