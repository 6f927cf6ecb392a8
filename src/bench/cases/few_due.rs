//! 1,000 items that fall due in one second among all those that do not.

use std::time::{Duration, Instant};

use super::Context;
use super::million::CONTAINER;
use crate::bench::item::BATCH_ITEMS;
use crate::bench::node::Node;
use crate::bench::report::{Bar, Unit};
use crate::bench::request::{ItemRead, container_link};
use crate::bench::scripts::{Cargo, Due};
use crate::clock;
use crate::model::error::{Error, Result};

const CASE: &str = "few due";
const ITEMS: u32 = 1_000;
const TTL_SECONDS: u64 = 4;
pub const PURGED: &str = "bolide_expiry_purged_items_total";
/// How often the counter of purged items is looked at.
const POLL: Duration = Duration::from_millis(10);
/// After this they count as not purged at all.
pub const PURGE_SECONDS_MAX: u64 = 60;

pub async fn run(context: &Context<'_>, node: &Node) -> Result<()> {
    let before = node.counter(PURGED).await?;
    // From the start of a second on, so that all are due in one.
    tokio::time::sleep(until_next_second()).await;
    let first = context.items();
    node.load(&Cargo::new(
        CONTAINER,
        first,
        ITEMS,
        Due::After(TTL_SECONDS),
    ))
    .await?;
    // The second of the item that was written first: the others are due then or later.
    let mut due = u64::MAX;
    for batch in 0..ITEMS / BATCH_ITEMS {
        due = due.min(written_at(node, first + batch * BATCH_ITEMS).await? + TTL_SECONDS);
    }
    let begun = Instant::now();
    while node.counter(PURGED).await? < before + u64::from(ITEMS) {
        if begun.elapsed().as_secs() > PURGE_SECONDS_MAX {
            let seen = node.counter(PURGED).await? - before;
            return Err(Error::unavailable(format!(
                "{seen} of {ITEMS} items that fell due were purged within {PURGE_SECONDS_MAX} s"
            )));
        }
        tokio::time::sleep(POLL).await;
    }
    let lag = clock::wall().as_secs_f64() - due as f64;
    context.add(
        CASE,
        "1,000 items purged after their second",
        lag,
        Unit::Seconds,
        Bar::AtMost(2.0),
    );
    if lag < 0.0 {
        return Err(Error::unavailable("items were purged before their second"));
    }
    Ok(())
}

/// The `_ts` of an item.
async fn written_at(node: &Node, number: u32) -> Result<u64> {
    let read = ItemRead::new(&container_link(CONTAINER), number);
    let (body, _) = node.ask(&read.request()).await?;
    let item: serde_json::Value = serde_json::from_slice(&body)
        .map_err(|error| Error::unavailable(format!("an item is no JSON: {error}")))?;
    item.get("_ts")
        .and_then(serde_json::Value::as_u64)
        .ok_or_else(|| Error::unavailable("an item has no _ts"))
}

fn until_next_second() -> Duration {
    Duration::from_secs(1) - Duration::from_nanos(u64::from(clock::wall().subsec_nanos()))
}
