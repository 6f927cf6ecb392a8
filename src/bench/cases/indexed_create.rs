//! Durable creates of items with twenty properties, all of them indexed, against the same without an index.

use serde_json::json;

use super::{Context, SETTLE};
use crate::bench::item::Look;
use crate::bench::measure::{Compared, Extent, Measured, measure};
use crate::bench::node::Node;
use crate::bench::report::{Bar, Unit};
use crate::bench::scripts::Creates;
use crate::model::error::Result;

const CASE: &str = "indexed create";
const NONE: &str = "unindexed";
const CONSISTENT: &str = "indexed";
/// Operations of one round at least: enough that write buffers are written out within it.
const ROUND_OPERATIONS_MIN: u64 = 100_000;

pub async fn run(context: &Context<'_>) -> Result<()> {
    let node = context.bench.start_node("indexed-create").await?;
    node.create_database().await?;
    let policy = json!({ "indexingPolicy": { "indexingMode": "none", "automatic": false } });
    node.create_container(NONE, &policy).await?;
    node.create_container(CONSISTENT, &json!({})).await?;
    let mut compared = Compared::default();
    for round in 0..context.options.rounds {
        let none = create(context, &node, NONE, round).await?;
        let consistent = create(context, &node, CONSISTENT, round).await?;
        compared.add(&none, &consistent);
    }
    context.add_measured(CASE, "mode none", &compared.base);
    context.add_measured(CASE, "mode consistent", &compared.subject);
    let (cpu, bar) = (compared.cpu_ratio(), Bar::AtMost(3.0));
    context.add(CASE, "CPU, of mode none's", cpu, Unit::Times, bar);
    let rate = 1.0 / compared.rate_ratio();
    let figure = "time at full load, of mode none's";
    context.add(CASE, figure, rate, Unit::Times, Bar::AtMost(3.0));
    Ok(())
}

/// One round. What the writes leave to do behind their answers belongs to their cost.
async fn create(
    context: &Context<'_>,
    node: &Node,
    container: &str,
    round: u32,
) -> Result<Measured> {
    let (signer, connections) = (&context.bench.signer, context.options.connections);
    let scripts = Creates::spread(signer, container, Look::Wide, round, connections);
    let extent = Extent {
        operations_min: ROUND_OPERATIONS_MIN.min(u64::from(context.options.items)),
        ..context.extent()
    };
    let before = node.server.cpu()?;
    let mut measured = measure(&node.server, scripts, extent).await?;
    let measured_cpu = measured.cpu;
    let all = node.server.cpu()?.saturating_sub(before);
    node.settle(SETTLE).await?;
    let behind = node.server.cpu()?.saturating_sub(before + all);
    // Those of the warm-up leave some too.
    let share = measured_cpu.as_secs_f64() / all.as_secs_f64().max(f64::MIN_POSITIVE);
    measured.cpu += behind.mul_f64(share.min(1.0));
    Ok(measured)
}
