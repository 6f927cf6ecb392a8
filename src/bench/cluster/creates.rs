//! Durable creates of 1 KB items: on a majority of three nodes, beside one node's.

use serde_json::json;

use super::members::MeasuredCluster;
use crate::bench::context::CaseContext;
use crate::bench::item::Look;
use crate::bench::measure::{Compared, measure_all};
use crate::bench::scripts::Creates;
use crate::model::error::Result;

const CONTAINER: &str = "creates";

pub async fn run(context: &CaseContext<'_>) -> Result<()> {
    let (bench, nothing) = (&context.bench, json!({}));
    let node = bench
        .start_node_with("create-solo", CONTAINER, &nothing)
        .await?;
    let cluster = MeasuredCluster::start_with(bench, "create", &[], CONTAINER).await?;
    let compared = Compared::rounds(context.rounds, async |round| {
        let (connections, extent) = (context.connections, context.extent);
        let scripts = || {
            let look = Look::Payload;
            Creates::spread(&bench.signer, CONTAINER, look, round, connections)
        };
        let alone = measure_all(&[&node.server], scripts(), extent).await?;
        let together = measure_all(&cluster.servers(), scripts(), extent).await?;
        Ok((alone, together))
    })
    .await?;
    let names = ("one node", "three nodes");
    context.case("create").rates(names, &compared, Some(0.25));
    Ok(())
}
