//! Many shards: how soon they serve after all nodes have started, and what they cost at rest.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::keys::write_keys;
use super::members::{MeasuredCluster, shards};
use crate::bench::context::CaseContext;
use crate::bench::process::ServerProcess;
use crate::bench::report::Unit::{Seconds, Share};
use crate::model::error::Result;

const CONTAINER: &str = "many";
/// Partition keys that are written to see that the shards serve, for each shard.
const KEYS_PER_SHARD: u32 = 4;
/// How long the nodes are left alone before their rest is measured, and how long it is.
const SETTLE: Duration = Duration::from_secs(5);
const REST: Duration = Duration::from_secs(10);

pub async fn run(context: &CaseContext<'_>, count: u32) -> Result<()> {
    let case = context.case("shards");
    let settings = [format!("limits.shards_per_container={count}")];
    let mut cluster = MeasuredCluster::start(&context.bench, "shards", &settings).await?;
    let account = cluster.account();
    account.create_database().await?;
    let begun = Instant::now();
    account.create_container(CONTAINER, &json!({})).await?;
    let made = begun.elapsed().as_secs_f64();
    case.show(format!("container with {count} shards made"), made, Seconds);
    all_led(&cluster, count).await?;
    cluster.kill_all();

    let begun = Instant::now();
    let since = || begun.elapsed().as_secs_f64();
    cluster.start_all().await?;
    case.show("nodes answer", since(), Seconds);
    all_led(&cluster, count).await?;
    case.show("all shards led", since(), Seconds);
    write_keys(&account, CONTAINER, count * KEYS_PER_SHARD).await?;
    case.at_most("all shards led and written to", since(), Seconds, 10.0);

    tokio::time::sleep(SETTLE).await;
    let before = cpu(&cluster)?;
    tokio::time::sleep(REST).await;
    let busy = cpu(&cluster)?.saturating_sub(before);
    let share = busy.as_secs_f64() / REST.as_secs_f64();
    case.below("CPU at rest of all nodes, of a core", share, Share, 0.05);
    Ok(())
}

fn cpu(cluster: &MeasuredCluster<'_>) -> Result<Duration> {
    cluster.servers().into_iter().map(ServerProcess::cpu).sum()
}

/// Waits until every node sees a leader for each of so many shards.
async fn all_led(cluster: &MeasuredCluster<'_>, count: u32) -> Result<()> {
    let led = |status: &Value| {
        let led = shards(status).filter(|shard| shard["leader"].is_u64());
        led.count() == count as usize
    };
    let are_led = |statuses: &[Value]| statuses.iter().all(led);
    cluster.until("see a leader for every shard", are_led).await
}
