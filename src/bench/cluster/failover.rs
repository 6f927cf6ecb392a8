//! kill -9 of the node that leads most shards: how long until every shard takes writes again.

use std::time::Instant;

use serde_json::json;

use super::Context;
use super::keys::write_keys;
use super::members::{Cluster, busiest};
use crate::bench::measure::median;
use crate::bench::report::{Bar, Unit};
use crate::model::error::{Error, Result};

const CASE: &str = "failover";
const CONTAINER: &str = "failover";
const SHARDS: u32 = 6;
/// Partition keys that are written: enough that each shard has some.
const KEYS: u32 = 48;

pub async fn run(context: &Context<'_>) -> Result<()> {
    let settings = [format!("limits.shards_per_container={SHARDS}")];
    let mut cluster = Cluster::start(&context.bench, "failover", &settings).await?;
    let account = cluster.account();
    account.create_database().await?;
    account.create_container(CONTAINER, &json!({})).await?;
    let mut times = Vec::new();
    for _ in 0..context.options.kills {
        cluster.alike().await?;
        cluster
            .until("have leaders", |all| {
                all.iter().all(|one| busiest(one).is_some())
            })
            .await?;
        let statuses = cluster.statuses().await?;
        let Some(victim) = statuses.first().and_then(busiest) else {
            return Err(Error::unavailable("no shard has a leader"));
        };
        // Before the kill as after it, every key can be written.
        write_keys(&cluster.account(), CONTAINER, KEYS).await?;
        cluster.kill(victim);
        let begun = Instant::now();
        write_keys(&cluster.account(), CONTAINER, KEYS).await?;
        times.push(begun.elapsed().as_secs_f64());
        cluster.spawn(victim)?;
    }
    for (kill, seconds) in times.iter().enumerate() {
        let figure = format!("writes resume, kill {}", kill + 1);
        context.add(CASE, &figure, *seconds, Unit::Seconds, Bar::None);
    }
    let middle = median(&mut times);
    context.add(
        CASE,
        "writes resume, median",
        middle,
        Unit::Seconds,
        Bar::AtMost(3.0),
    );
    // Sorted by now.
    let worst = times.last().copied().unwrap_or(f64::NAN);
    context.add(
        CASE,
        "writes resume, worst",
        worst,
        Unit::Seconds,
        Bar::AtMost(3.0),
    );
    Ok(())
}
