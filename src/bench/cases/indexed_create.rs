//! Durable creates of items with twenty properties, all of them indexed, against the same without
//! an index.

use serde_json::json;

use super::SETTLE_TIMEOUT;
use crate::bench::context::CaseContext;
use crate::bench::item::Look;
use crate::bench::measure::{Compared, Extent, Measured, Spread, measure};
use crate::bench::node::MeasuredNode;
use crate::bench::report::Unit::Times;
use crate::bench::scripts::Creates;
use crate::model::error::Result;

const NONE: &str = "unindexed";
const CONSISTENT: &str = "indexed";
/// Operations of one round at least: enough that write buffers are flushed within it.
const ROUND_OPERATIONS_MIN: u64 = 100_000;

pub async fn run(context: &CaseContext<'_>) -> Result<()> {
    let policy = json!({ "indexingPolicy": { "indexingMode": "none", "automatic": false } });
    let node = context
        .bench
        .start_node_with("indexed-create", NONE, &policy)
        .await?;
    node.create_container(CONSISTENT, &json!({})).await?;
    let compared = Compared::rounds(context.rounds, async |round| {
        let none = create(context, &node, NONE, round).await?;
        Ok((none, create(context, &node, CONSISTENT, round).await?))
    })
    .await?;
    let case = context.case("indexed create");
    case.measured("mode none", &compared.base);
    case.measured("mode consistent", &compared.subject);
    case.at_most("CPU, of mode none's", compared.cpu_ratio(), Times, 3.0);
    let time = 1.0 / Spread::of(&compared.rate_ratios).median;
    case.at_most("time at full load, of mode none's", time, Times, 3.0);
    Ok(())
}

/// Measures one round. What the writes leave to do behind their answers belongs to their cost.
async fn create(
    context: &CaseContext<'_>,
    node: &MeasuredNode,
    container: &str,
    round: u32,
) -> Result<Measured> {
    let (signer, connections) = (&context.bench.signer, context.connections);
    let scripts = Creates::spread(signer, container, Look::Wide, round, connections);
    let extent = Extent {
        operations_min: ROUND_OPERATIONS_MIN.min(u64::from(context.items)),
        ..context.extent
    };
    let before = node.server.cpu()?;
    let mut measured = measure(&node.server, scripts, extent).await?;
    let all = node.server.cpu()?.saturating_sub(before);
    node.settle(SETTLE_TIMEOUT).await?;
    let behind = node.server.cpu()?.saturating_sub(before + all);
    // Those of the warm-up leave some too.
    let share = measured.cpu.as_secs_f64() / all.as_secs_f64().max(f64::MIN_POSITIVE);
    measured.cpu += behind.mul_f64(share.min(1.0));
    Ok(measured)
}
