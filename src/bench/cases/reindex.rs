//! A new index over all items, while others read and write.

use std::time::{Duration, Instant};

use serde_json::json;

use super::queried::CONTAINER;
use crate::bench::context::CaseContext;
use crate::bench::item::Look;
use crate::bench::load::{Load, LoadTally};
use crate::bench::node::MeasuredNode;
use crate::bench::query::answer;
use crate::bench::report::CaseReport;
use crate::bench::report::Unit::{Micros, Seconds, Share, Times};
use crate::bench::scripts::{Creates, PointReads};
use crate::model::error::{Error, Result};

/// Connections that write, beside those that read.
const WRITERS: u32 = 8;
/// The load before the change is measured for as long as this many rounds of other cases.
const BEFORE_ROUNDS: f64 = 3.0;
/// The load goes on at most so long beside the work; the rest of it is done alone.
const WATCHED_MAX: Duration = Duration::from_secs(60);
/// After this the index counts as not built at all.
const BUILD_TIMEOUT: Duration = Duration::from_secs(600);
const POLL_INTERVAL: Duration = Duration::from_millis(100);

const BEFORE: usize = 1;
const DURING: usize = 2;
const AFTER: usize = 3;

pub async fn run(context: &CaseContext<'_>, node: &MeasuredNode) -> Result<()> {
    let (case, items, signer) = (
        context.case("reindex"),
        context.items,
        &context.bench.signer,
    );
    let readers = PointReads::spread(signer, CONTAINER, items, context.connections);
    let writers = Creates::spread(signer, CONTAINER, Look::Wide, 0, WRITERS);
    let readers = Load::closed(node.endpoints.clone(), readers)?;
    let writers = Load::closed(node.endpoints.clone(), writers)?;
    let enter = |phase| [&readers, &writers].map(|load| load.enter_phase(phase));
    tokio::time::sleep(context.length()).await;
    enter(BEFORE);
    tokio::time::sleep(context.length().mul_f64(BEFORE_ROUNDS)).await;

    enter(DURING);
    let begun = Instant::now();
    let policy = json!({ "indexingPolicy": { "indexingMode": "consistent" } });
    node.replace_container(CONTAINER, &policy).await?;
    let progress = built(node, begun, WATCHED_MAX).await?;
    enter(AFTER);
    let watched = begun.elapsed().as_secs_f64();
    let (readers, writers) = (readers.stop().await?, writers.stop().await?);
    report(case, "read", &readers);
    report(case, "create", &writers);
    case.show("under load for", watched, Seconds);
    case.show("done under load", f64::from(progress) / 100.0, Share);

    if built(node, begun, BUILD_TIMEOUT).await? < 100 {
        let seconds = BUILD_TIMEOUT.as_secs();
        return Err(Error::unavailable(format!(
            "an index of {items} items was not built within {seconds} s"
        )));
    }
    case.show("complete after", begun.elapsed().as_secs_f64(), Seconds);
    check(node).await
}

/// Waits until the index is built, at most until so long after the change; how far it is, in
/// percent.
async fn built(node: &MeasuredNode, changed: Instant, timeout: Duration) -> Result<u8> {
    loop {
        let progress = node.index_progress(CONTAINER).await?;
        if progress >= 100 || changed.elapsed() >= timeout {
            return Ok(progress);
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Fails unless the new index answers.
async fn check(node: &MeasuredNode) -> Result<()> {
    let query = "SELECT VALUE c.score FROM c WHERE c.score = 5";
    let answered = answer(node, CONTAINER, query).await?;
    if answered.rows == [json!(5)] && answered.items_read == 1 {
        return Ok(());
    }
    Err(Error::unavailable(format!(
        "the new index gave {:?} and {} items were read",
        answered.rows, answered.items_read
    )))
}

fn report(case: CaseReport<'_>, name: &str, phases: &[LoadTally]) {
    let p99 = |phase: usize| {
        phases
            .get(phase)
            .map_or(0.0, |tally| tally.latency.micros(0.99))
    };
    case.show(format!("{name}, p99 before"), p99(BEFORE), Micros);
    case.show(format!("{name}, p99 meanwhile"), p99(DURING), Micros);
    let ratio = p99(DURING) / p99(BEFORE);
    case.at_most(
        format!("{name}, p99 meanwhile, of before"),
        ratio,
        Times,
        2.0,
    );
    for tally in phases {
        case.wrong_answers(&format!("{name}, "), tally);
    }
}
