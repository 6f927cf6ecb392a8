//! Many shards: how soon they serve after all nodes have started, and what they cost at rest.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::Context;
use super::keys::write_keys;
use super::members::{Cluster, shards};
use crate::bench::process::Server;
use crate::bench::report::{Bar, Unit};
use crate::model::error::Result;

const CASE: &str = "shards";
const CONTAINER: &str = "many";
/// Partition keys that are written to see that the shards serve, for each shard.
const KEYS_PER_SHARD: u32 = 4;
/// How long the nodes are left alone before their rest is measured, and how long it is.
const SETTLE: Duration = Duration::from_secs(5);
const REST: Duration = Duration::from_secs(10);

pub async fn run(context: &Context<'_>) -> Result<()> {
    let count = context.options.shards;
    let settings = [format!("limits.shards_per_container={count}")];
    let mut cluster = Cluster::start(&context.bench, "shards", &settings).await?;
    let account = cluster.account();
    account.create_database().await?;
    let begun = Instant::now();
    account.create_container(CONTAINER, &json!({})).await?;
    let name = format!("container with {count} shards made");
    let seconds = begun.elapsed().as_secs_f64();
    context.add(CASE, &name, seconds, Unit::Seconds, Bar::None);
    all_led(&cluster, count).await?;
    cluster.kill_all();

    let begun = Instant::now();
    cluster.start_all().await?;
    let started = begun.elapsed().as_secs_f64();
    context.add(CASE, "nodes answer", started, Unit::Seconds, Bar::None);
    all_led(&cluster, count).await?;
    let led = begun.elapsed().as_secs_f64();
    context.add(CASE, "all shards led", led, Unit::Seconds, Bar::None);
    write_keys(&account, CONTAINER, count * KEYS_PER_SHARD).await?;
    let served = begun.elapsed().as_secs_f64();
    let (name, bar) = ("all shards led and written to", Bar::AtMost(10.0));
    context.add(CASE, name, served, Unit::Seconds, bar);

    tokio::time::sleep(SETTLE).await;
    let before = cpu(&cluster)?;
    tokio::time::sleep(REST).await;
    let busy = cpu(&cluster)?.saturating_sub(before);
    let share = busy.as_secs_f64() / REST.as_secs_f64();
    let (name, bar) = ("CPU at rest of all nodes, of a core", Bar::Below(0.05));
    context.add(CASE, name, share, Unit::Share, bar);
    Ok(())
}

fn cpu(cluster: &Cluster<'_>) -> Result<Duration> {
    cluster.servers().into_iter().map(Server::cpu).sum()
}

/// Waits until every node sees a leader for each of so many shards.
async fn all_led(cluster: &Cluster<'_>, count: u32) -> Result<()> {
    let led = |status: &Value| {
        let led = shards(status).filter(|shard| shard["leader"].is_u64());
        led.count() == count as usize
    };
    let are_led = |statuses: &[Value]| statuses.iter().all(led);
    cluster.until("see a leader for every shard", are_led).await
}
