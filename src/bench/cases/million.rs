//! A container with all items: memory, a change of defaultTtl, a restart.

use serde_json::json;

use super::{Context, SETTLE, few_due, megabytes};
use crate::bench::measure::measure;
use crate::bench::node::Node;
use crate::bench::options::CaseName;
use crate::bench::process::disk_bytes;
use crate::bench::report::{Bar, Unit};
use crate::bench::request::{ItemRead, container_link};
use crate::bench::scripts::{Cargo, Due, PointReads};
use crate::model::error::Result;

const CASE: &str = "million";
pub const CONTAINER: &str = "million";
const FOLDER: &str = "million";
/// Values to which defaultTtl is changed, one after the other; none lets an item fall due.
const DEFAULT_TTLS: [i32; 6] = [86_400, -1, 1_000_000, 2_147_483_647, 604_800, -1];

pub async fn run(context: &Context<'_>) -> Result<()> {
    let items = context.items();
    let node = context.bench.start_node(FOLDER).await?;
    node.create_database().await?;
    node.create_container(CONTAINER, &json!({ "defaultTtl": -1 }))
        .await?;
    let took = node
        .load(&Cargo::new(CONTAINER, 0, items, Due::Inherit))
        .await?;
    let rate = f64::from(items) / took.as_secs_f64();
    context.add(CASE, "items", f64::from(items), Unit::Count, Bar::None);
    context.add(
        CASE,
        "load in batches of 100, items",
        rate,
        Unit::PerSecond,
        Bar::None,
    );
    node.settle(SETTLE).await?;
    if context.options.wants(CaseName::FewDue) {
        few_due::run(context, &node).await?;
    }
    if context.options.wants(CaseName::Million) {
        change_default_ttl(context, &node).await?;
        measure_reads(context, &node).await?;
        measure_space(context, &node)?;
        restart(context, node).await?;
    }
    Ok(())
}

async fn change_default_ttl(context: &Context<'_>, node: &Node) -> Result<()> {
    let mut longest = 0.0_f64;
    for ttl in DEFAULT_TTLS {
        let definition = json!({ "defaultTtl": ttl });
        let latency = node.replace_container(CONTAINER, &definition).await?;
        longest = longest.max(latency.as_secs_f64() * 1e3);
    }
    let figure = "change of defaultTtl, longest of 6";
    context.add(CASE, figure, longest, Unit::Millis, Bar::Below(50.0));
    Ok(())
}

/// Reads among all items, for the reader: the small container of the point reads fits any cache.
async fn measure_reads(context: &Context<'_>, node: &Node) -> Result<()> {
    let signer = &context.bench.signer;
    let connections = context.options.connections;
    let scripts = PointReads::spread(signer, CONTAINER, context.items(), connections);
    let measured = measure(&node.server, scripts, context.extent()).await?;
    context.add_measured(CASE, "read among all", &measured);
    Ok(())
}

fn measure_space(context: &Context<'_>, node: &Node) -> Result<()> {
    let (now, most) = node.server.resident_bytes()?;
    let disk = disk_bytes(&node.data);
    context.add(
        CASE,
        "resident memory",
        megabytes(now),
        Unit::Megabytes,
        Bar::Below(1_024.0),
    );
    context.add(
        CASE,
        "resident memory, most ever",
        megabytes(most),
        Unit::Megabytes,
        Bar::None,
    );
    context.add(
        CASE,
        "data folder",
        megabytes(disk),
        Unit::Megabytes,
        Bar::None,
    );
    Ok(())
}

async fn restart(context: &Context<'_>, node: Node) -> Result<()> {
    let read = ItemRead::new(&container_link(CONTAINER), context.items() - 1);
    let read = read.request();
    let stop = node.server.stop().await?;
    context.add(
        CASE,
        "clean stop",
        stop.as_secs_f64(),
        Unit::Seconds,
        Bar::None,
    );
    let node = context.bench.start_node_until(FOLDER, &read).await?;
    let start = node.start.as_secs_f64();
    context.add(
        CASE,
        "restart to first answered read",
        start,
        Unit::Seconds,
        Bar::Below(2.0),
    );
    // Dropping a node kills it.
    drop(node);
    let node = context.bench.start_node_until(FOLDER, &read).await?;
    let start = node.start.as_secs_f64();
    let figure = "restart after kill -9 to first answered read";
    context.add(CASE, figure, start, Unit::Seconds, Bar::Below(2.0));
    Ok(())
}
