//! The same request at the node that leads the shard, and at one that has to send it on: creates,
//! which only the leader decides, and point reads of a shard that the other node has no replica of.

use serde_json::json;

use super::Context;
use super::members::{Cluster, NODES, busiest, shards};
use super::reads::prepare;
use crate::bench::item::Look;
use crate::bench::measure::{Compared, measure};
use crate::bench::report::Bar;
use crate::bench::scripts::{Creates, PointReads};
use crate::model::error::{Error, Result};

const CASE: &str = "forward";
const CONTAINER: &str = "forwarded";

/// Where reads have to be sent on by two nodes of three.
const SETTING: &str = "cluster.replication=1";

pub async fn run(context: &Context<'_>) -> Result<()> {
    creates(context).await?;
    point_reads(context).await
}

async fn point_reads(context: &Context<'_>) -> Result<()> {
    let items = context.options.items;
    let settings = [SETTING.to_owned()];
    let cluster = Cluster::start(&context.bench, "forward-reads", &settings).await?;
    prepare(&cluster.account(), CONTAINER, items).await?;
    let statuses = cluster.statuses().await?;
    let has = statuses
        .iter()
        .position(|status| shards(status).any(|shard| shard["lsn"].is_u64()));
    let has = has.ok_or_else(|| Error::unavailable("no node has the shard"))?;
    let (mut alone, mut many) = (Compared::default(), Compared::default());
    for _ in 0..context.options.rounds {
        for (connections, compared) in [(1, &mut alone), (context.options.connections, &mut many)] {
            let signer = &context.bench.signer;
            let scripts = || PointReads::spread(signer, CONTAINER, items, connections);
            let local = measure(cluster.server(has)?, scripts(), context.extent()).await?;
            let other = cluster.server((has + 1) % NODES)?;
            let forwarded = measure(other, scripts(), context.extent()).await?;
            compared.add(&local, &forwarded);
        }
    }
    let names = ("read of its own replica", "read sent on to a replica");
    context.add_latencies(CASE, names, &alone, Bar::AtMost(2.0));
    let names = ("reads of its own replica", "reads sent on to a replica");
    context.add_rates(CASE, names, &many, Bar::AtLeast(0.5));
    Ok(())
}

async fn creates(context: &Context<'_>) -> Result<()> {
    let cluster = Cluster::start(&context.bench, "forward", &[]).await?;
    let account = cluster.account();
    account.create_database().await?;
    account.create_container(CONTAINER, &json!({})).await?;
    let (leader, other) = leader_and_other(&cluster).await?;
    let mut compared = Compared::default();
    for round in 0..context.options.rounds {
        let scripts = |round| {
            let signer = &context.bench.signer;
            Creates::spread(signer, CONTAINER, Look::Payload, round, 1)
        };
        let leads = cluster.server(leader)?;
        let sends_on = cluster.server(other)?;
        let local = measure(leads, scripts(2 * round), context.extent()).await?;
        let forwarded = measure(sends_on, scripts(2 * round + 1), context.extent()).await?;
        compared.add(&local, &forwarded);
    }
    let names = ("create at the leader", "create sent on to the leader");
    context.add_latencies(CASE, names, &compared, Bar::AtMost(2.0));
    Ok(())
}

/// The node that leads the one shard of this cluster, and one that does not.
pub async fn leader_and_other(cluster: &Cluster<'_>) -> Result<(usize, usize)> {
    cluster
        .until("have a leader", |statuses| {
            statuses.iter().all(|status| busiest(status).is_some())
        })
        .await?;
    let statuses = cluster.statuses().await?;
    let leader = statuses.first().and_then(busiest);
    let leader = leader.ok_or_else(|| Error::unavailable("the shard has no leader"))?;
    Ok((leader, (leader + 1) % NODES))
}
