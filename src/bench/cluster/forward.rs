//! The same request at the node that leads the shard, and at one that has to forward it: creates,
//! which only the leader decides, and point reads of a shard that the other node has no replica of.

use super::members::{MeasuredCluster, NODES, shards};
use super::reads::prepare;
use crate::bench::context::CaseContext;
use crate::bench::measure::Compared;
use crate::model::error::{Error, Result};

const CONTAINER: &str = "forwarded";

/// Two nodes of three have to forward reads.
const SETTING: &str = "cluster.replication=1";

pub async fn run(context: &CaseContext<'_>) -> Result<()> {
    creates(context).await?;
    point_reads(context).await
}

async fn point_reads(context: &CaseContext<'_>) -> Result<()> {
    let (case, items) = (context.case("forward"), context.items);
    let settings = [SETTING.to_owned()];
    let cluster = MeasuredCluster::start(&context.bench, "forward-reads", &settings).await?;
    prepare(&cluster.account(), CONTAINER, items).await?;
    let statuses = cluster.statuses().await?;
    let has = statuses
        .iter()
        .position(|status| shards(status).any(|shard| shard["lsn"].is_u64()));
    let has = has.ok_or_else(|| Error::unavailable("no node has the shard"))?;
    let (replica, other) = (cluster.server(has)?, cluster.server((has + 1) % NODES)?);
    let (mut alone, mut many) = (Compared::default(), Compared::default());
    for _ in 0..context.rounds {
        for (connections, compared) in [(1, &mut alone), (context.connections, &mut many)] {
            let local = context
                .reads(replica, CONTAINER, items, connections)
                .await?;
            let forwarded = context.reads(other, CONTAINER, items, connections).await?;
            compared.add(&local, &forwarded);
        }
    }
    let names = ("read of its own replica", "read sent on to a replica");
    case.latencies(names, &alone, Some(2.0));
    let names = ("reads of its own replica", "reads sent on to a replica");
    case.rates(names, &many, Some(0.5));
    Ok(())
}

async fn creates(context: &CaseContext<'_>) -> Result<()> {
    let cluster = MeasuredCluster::start_with(&context.bench, "forward", &[], CONTAINER).await?;
    let leader = cluster.leader().await?;
    let (leader, other) = (
        cluster.server(leader)?,
        cluster.server((leader + 1) % NODES)?,
    );
    let one = (1, context.extent);
    let compared = Compared::rounds(context.rounds, async |round| {
        let local = context.creates(leader, CONTAINER, 2 * round, one).await?;
        let forwarded = context
            .creates(other, CONTAINER, 2 * round + 1, one)
            .await?;
        Ok((local, forwarded))
    })
    .await?;
    let names = ("create at the leader", "create sent on to the leader");
    context
        .case("forward")
        .latencies(names, &compared, Some(2.0));
    Ok(())
}
