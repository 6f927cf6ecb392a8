//! 1,000 items that fall due in one second among all those that do not.

use std::time::{Duration, Instant};

use super::million::CONTAINER;
use crate::bench::context::CaseContext;
use crate::bench::item::BATCH_ITEMS;
use crate::bench::node::MeasuredNode;
use crate::bench::report::Unit::Seconds;
use crate::bench::request::{CosmosRequest, container_link};
use crate::bench::scripts::{Cargo, Due};
use crate::clock;
use crate::model::error::{Error, Result};

const ITEMS: u32 = 1_000;
const TTL_SECONDS: u64 = 4;
pub const PURGED: &str = "bolide_expiry_purged_items_total";
/// How often the counter of purged items is looked at.
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// After this they count as not purged at all.
pub const PURGE_TIMEOUT: Duration = Duration::from_secs(60);

pub async fn run(context: &CaseContext<'_>, node: &MeasuredNode) -> Result<()> {
    let before = node.counter(PURGED).await?;
    // From the start of a second on, so that all are due in one.
    tokio::time::sleep(until_next_second()).await;
    let first = context.items;
    let cargo = Cargo::new(CONTAINER, first, ITEMS, Due::After(TTL_SECONDS));
    node.load(&cargo).await?;
    // The second of the item that was written first: the others are due then or later.
    let mut due = u64::MAX;
    for batch in 0..ITEMS / BATCH_ITEMS {
        due = due.min(written_at(node, first + batch * BATCH_ITEMS).await? + TTL_SECONDS);
    }
    let begun = Instant::now();
    while node.counter(PURGED).await? < before + u64::from(ITEMS) {
        if begun.elapsed() > PURGE_TIMEOUT {
            let (seen, seconds) = (
                node.counter(PURGED).await? - before,
                PURGE_TIMEOUT.as_secs(),
            );
            return Err(Error::unavailable(format!(
                "{seen} of {ITEMS} items that expired were purged within {seconds} s"
            )));
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    let lag = clock::wall().as_secs_f64() - due as f64;
    let case = context.case("few due");
    case.at_most("1,000 items purged after their second", lag, Seconds, 2.0);
    if lag < 0.0 {
        return Err(Error::unavailable("items were purged before their second"));
    }
    Ok(())
}

/// Returns the `_ts` of an item.
async fn written_at(node: &MeasuredNode, number: u32) -> Result<u64> {
    let told = node
        .ask(&CosmosRequest::item(&container_link(CONTAINER), number))
        .await?;
    let item: serde_json::Value = serde_json::from_slice(&told.body)
        .map_err(|error| Error::unavailable(format!("an item is no JSON: {error}")))?;
    let written = item["_ts"].as_u64();
    written.ok_or_else(|| Error::unavailable("an item has no _ts"))
}

fn until_next_second() -> Duration {
    Duration::from_secs(1) - Duration::from_nanos(u64::from(clock::wall().subsec_nanos()))
}
