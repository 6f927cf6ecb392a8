//! Queries for ten of all items by an indexed property, against point reads of the same container.

use serde_json::json;

use super::Context;
use super::queried::CONTAINER;
use crate::bench::item::{GROUP_ITEMS, group};
use crate::bench::measure::{Compared, Extent, measure};
use crate::bench::node::Node;
use crate::bench::query::{Queries, body};
use crate::bench::report::{Bar, Unit};
use crate::bench::scripts::PointReads;
use crate::model::error::Result;

const CASE: &str = "equality";
const QUERY: &str = "SELECT * FROM c WHERE c.group = @p";
/// Different groups that are asked for: their items are as many as those that the point reads go to.
const GROUPS: u32 = 1_000;

pub async fn run(context: &Context<'_>, node: &Node) -> Result<()> {
    let (items, connections) = (context.items(), context.options.connections);
    let signer = &context.bench.signer;
    let groups = items / GROUP_ITEMS;
    let asked = GROUPS.min(groups);
    let bodies: Vec<Vec<u8>> = (0..asked)
        .map(|one| one * (groups / asked))
        .map(|number| body(QUERY, Some(&json!(group(number, items)))))
        .collect();
    let extent = Extent {
        operations_min: 0,
        ..context.extent()
    };
    let mut compared = Compared::default();
    for _ in 0..context.options.rounds {
        let reads = PointReads::spread(signer, CONTAINER, items, connections);
        let read = measure(&node.server, reads, extent).await?;
        let queries = Queries::spread(signer, CONTAINER, &bodies, GROUP_ITEMS, connections);
        let query = measure(&node.server, queries, extent).await?;
        compared.add(&read, &query);
    }
    context.add_measured(CASE, "point read", &compared.base);
    context.add_measured(CASE, "query", &compared.subject);
    let p50 = compared.subject.latency_micros(0.5) / compared.base.latency_micros(0.5);
    let bar = Bar::AtMost(5.0);
    context.add(CASE, "p50, point reads'", p50, Unit::Times, bar);
    let cpu = compared.cpu_ratio();
    context.add(CASE, "CPU, point reads'", cpu, Unit::Times, Bar::None);
    Ok(())
}
