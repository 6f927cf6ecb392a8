//! Durable creates of 1 KB items: on a majority of three nodes, beside one node's.

use serde_json::json;

use super::Context;
use super::members::Cluster;
use crate::bench::item::Look;
use crate::bench::measure::{Compared, measure, measure_all};
use crate::bench::report::Bar;
use crate::bench::scripts::Creates;
use crate::model::error::Result;

const CASE: &str = "create";
const CONTAINER: &str = "creates";

pub async fn run(context: &Context<'_>) -> Result<()> {
    let node = context.bench.start_node("create-solo").await?;
    let cluster = Cluster::start(&context.bench, "create", &[]).await?;
    for account in [&*node, &cluster.account()] {
        account.create_database().await?;
        account.create_container(CONTAINER, &json!({})).await?;
    }
    let mut compared = Compared::default();
    for round in 0..context.options.rounds {
        let scripts = || {
            let (signer, connections) = (&context.bench.signer, context.options.connections);
            Creates::spread(signer, CONTAINER, Look::Payload, round, connections)
        };
        let alone = measure(&node.server, scripts(), context.extent()).await?;
        let together = measure_all(&cluster.servers(), scripts(), context.extent()).await?;
        compared.add(&alone, &together);
    }
    let names = ("one node", "three nodes");
    context.add_rates(CASE, names, &compared, Bar::AtLeast(0.25));
    Ok(())
}
