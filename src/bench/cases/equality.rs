//! Queries for ten of all items by an indexed property, against point reads of the same container.

use serde_json::json;

use super::queried::CONTAINER;
use crate::bench::context::CaseContext;
use crate::bench::item::{GROUP_ITEMS, group};
use crate::bench::measure::{Compared, measure};
use crate::bench::node::MeasuredNode;
use crate::bench::query::{Queries, body};
use crate::bench::report::Unit::Times;
use crate::bench::scripts::PointReads;
use crate::model::error::Result;

const QUERY: &str = "SELECT * FROM c WHERE c.group = @p";
/// Different groups that are asked for: their items are as many as those that the point reads go
/// to.
const GROUPS: u32 = 1_000;

pub async fn run(context: &CaseContext<'_>, node: &MeasuredNode) -> Result<()> {
    let (items, connections) = (context.items, context.connections);
    let (signer, extent) = (&context.bench.signer, context.short_extent());
    let groups = items / GROUP_ITEMS;
    let asked = GROUPS.min(groups);
    let bodies: Vec<Vec<u8>> = (0..asked)
        .map(|one| one * (groups / asked))
        .map(|number| body(QUERY, Some(&json!(group(number, items)))))
        .collect();
    let compared = Compared::rounds(context.rounds, async |_| {
        let reads = PointReads::spread(signer, CONTAINER, items, connections);
        let read = measure(&node.server, reads, extent).await?;
        let queries = Queries::spread(signer, CONTAINER, &bodies, GROUP_ITEMS, connections);
        Ok((read, measure(&node.server, queries, extent).await?))
    })
    .await?;
    let case = context.case("equality");
    case.measured("point read", &compared.base);
    case.measured("query", &compared.subject);
    let p50 = compared.subject.latency_micros(0.5) / compared.base.latency_micros(0.5);
    case.at_most("p50, point reads'", p50, Times, 5.0);
    case.show("CPU, point reads'", compared.cpu_ratio(), Times);
    Ok(())
}
