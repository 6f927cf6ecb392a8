//! A new index over all items, while others read and write.

use std::time::{Duration, Instant};

use serde_json::json;

use super::Context;
use super::queried::CONTAINER;
use crate::bench::item::Look;
use crate::bench::load::{Load, Tally};
use crate::bench::node::Node;
use crate::bench::query::answer;
use crate::bench::report::{Bar, Unit};
use crate::bench::scripts::{Creates, PointReads};
use crate::model::error::{Error, Result};

const CASE: &str = "reindex";
/// Connections that write, beside those that read.
const WRITERS: u32 = 8;
/// The load before the change is measured for as long as this many rounds of other cases.
const BEFORE_ROUNDS: f64 = 3.0;
/// The load goes on at most so long beside the work; the rest of it is done alone.
const WATCHED: Duration = Duration::from_secs(60);
/// After this the index counts as not built at all.
const GIVE_UP: Duration = Duration::from_secs(600);
const POLL: Duration = Duration::from_millis(100);

const BEFORE: usize = 1;
const DURING: usize = 2;
const AFTER: usize = 3;

pub async fn run(context: &Context<'_>, node: &Node) -> Result<()> {
    let (items, signer) = (context.items(), &context.bench.signer);
    let readers = PointReads::spread(signer, CONTAINER, items, context.options.connections);
    let writers = Creates::spread(signer, CONTAINER, Look::Wide, 0, WRITERS);
    let readers = Load::start(node.server.port, readers)?;
    let writers = Load::start(node.server.port, writers)?;
    let enter = |phase| [&readers, &writers].map(|load| load.enter_phase(phase));
    tokio::time::sleep(context.length()).await;
    enter(BEFORE);
    tokio::time::sleep(context.length().mul_f64(BEFORE_ROUNDS)).await;

    enter(DURING);
    let begun = Instant::now();
    let policy = json!({ "indexingPolicy": { "indexingMode": "consistent" } });
    node.replace_container(CONTAINER, &policy).await?;
    let mut progress = node.index_progress(CONTAINER).await?;
    while progress < 100 && begun.elapsed() < WATCHED {
        tokio::time::sleep(POLL).await;
        progress = node.index_progress(CONTAINER).await?;
    }
    enter(AFTER);
    let watched = begun.elapsed().as_secs_f64();
    let (readers, writers) = (readers.stop().await?, writers.stop().await?);
    report(context, "read", &readers);
    report(context, "create", &writers);
    context.add(CASE, "under load for", watched, Unit::Seconds, Bar::None);
    let share = f64::from(progress) / 100.0;
    context.add(CASE, "done under load", share, Unit::Share, Bar::None);

    while node.index_progress(CONTAINER).await? < 100 {
        if begun.elapsed() > GIVE_UP {
            return Err(Error::unavailable(format!(
                "an index of {items} items was not built within {} s",
                GIVE_UP.as_secs()
            )));
        }
        tokio::time::sleep(POLL).await;
    }
    let took = begun.elapsed().as_secs_f64();
    context.add(CASE, "complete after", took, Unit::Seconds, Bar::None);
    check(node).await
}

/// The new index answers.
async fn check(node: &Node) -> Result<()> {
    let answered = answer(
        node,
        CONTAINER,
        "SELECT VALUE c.score FROM c WHERE c.score = 5",
    )
    .await?;
    if answered.rows == [json!(5)] && answered.items_read == 1 {
        return Ok(());
    }
    Err(Error::unavailable(format!(
        "the new index gave {:?} and {} items were read",
        answered.rows, answered.items_read
    )))
}

fn report(context: &Context<'_>, name: &str, phases: &[Tally]) {
    let p99 = |phase: usize| {
        let latency = phases.get(phase).map(|tally| tally.latency.quantile(0.99));
        latency.unwrap_or_default().as_secs_f64() * 1e6
    };
    for (when, phase) in [("before", BEFORE), ("meanwhile", DURING)] {
        let figure = format!("{name}, p99 {when}");
        context.add(CASE, &figure, p99(phase), Unit::Micros, Bar::None);
    }
    let figure = format!("{name}, p99 meanwhile, of before");
    let ratio = p99(DURING) / p99(BEFORE);
    context.add(CASE, &figure, ratio, Unit::Times, Bar::AtMost(2.0));
    for (status, count) in phases.iter().flat_map(|tally| &tally.unexpected) {
        let figure = format!("{name}, wrong answers ({status})");
        context.add(CASE, &figure, *count as f64, Unit::Count, Bar::AtMost(0.0));
    }
}
