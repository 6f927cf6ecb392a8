//! A container with all items: memory, a change of defaultTtl, a restart.

use serde_json::json;

use super::{SETTLE_TIMEOUT, few_due};
use crate::bench::context::CaseContext;
use crate::bench::node::MeasuredNode;
use crate::bench::options::CaseName;
use crate::bench::process::disk_bytes;
use crate::bench::report::Unit::{Count, Megabytes, Millis, PerSecond, Seconds};
use crate::bench::report::{CaseReport, megabytes};
use crate::bench::request::{CosmosRequest, container_link};
use crate::bench::scripts::{Cargo, Due};
use crate::model::error::Result;

pub const CONTAINER: &str = "million";
const FOLDER: &str = "million";
/// Values to which defaultTtl is changed, one after the other; none lets an item expire.
const DEFAULT_TTLS: [i32; 6] = [86_400, -1, 1_000_000, 2_147_483_647, 604_800, -1];

pub async fn run(context: &CaseContext<'_>, wants: impl Fn(CaseName) -> bool) -> Result<()> {
    let (case, items) = (context.case("million"), context.items);
    let properties = json!({ "defaultTtl": -1 });
    let node = context
        .bench
        .start_node_with(FOLDER, CONTAINER, &properties)
        .await?;
    let took = node
        .load(&Cargo::new(CONTAINER, 0, items, Due::Inherit))
        .await?;
    case.show("items", f64::from(items), Count);
    let rate = f64::from(items) / took.as_secs_f64();
    case.show("load in batches of 100, items", rate, PerSecond);
    node.settle(SETTLE_TIMEOUT).await?;
    if wants(CaseName::FewDue) {
        few_due::run(context, &node).await?;
    }
    if wants(CaseName::Million) {
        change_default_ttl(case, &node).await?;
        // The small container of the point reads fits any cache; this one does not.
        let reads = context
            .reads(&node.server, CONTAINER, items, context.connections)
            .await?;
        case.measured("read among all", &reads);
        let (now, most) = node.server.resident_bytes()?;
        case.below("resident memory", megabytes(now), Megabytes, 1_024.0);
        case.show("resident memory, most ever", megabytes(most), Megabytes);
        case.show("data folder", megabytes(disk_bytes(&node.data)), Megabytes);
        restart(context, case, node).await?;
    }
    Ok(())
}

async fn change_default_ttl(case: CaseReport<'_>, node: &MeasuredNode) -> Result<()> {
    let mut longest = 0.0_f64;
    for ttl in DEFAULT_TTLS {
        let properties = json!({ "defaultTtl": ttl });
        let latency = node.replace_container(CONTAINER, &properties).await?;
        longest = longest.max(latency.as_secs_f64() * 1e3);
    }
    case.below("change of defaultTtl, longest of 6", longest, Millis, 50.0);
    Ok(())
}

async fn restart(
    context: &CaseContext<'_>,
    case: CaseReport<'_>,
    node: MeasuredNode,
) -> Result<()> {
    let read = CosmosRequest::item(&container_link(CONTAINER), context.items - 1);
    let stop = node.server.stop().await?;
    case.show("clean stop", stop.as_secs_f64(), Seconds);
    for figure in [
        "restart to first answered read",
        "restart after kill -9 to first answered read",
    ] {
        let node = context.bench.start_node_until(FOLDER, &read).await?;
        case.below(figure, node.start.as_secs_f64(), Seconds, 2.0);
        // Dropping a node kills it.
        drop(node);
    }
    Ok(())
}
