//! Point reads of 1 KB items, signed, against the same requests to the yardstick.

use serde_json::json;

use super::{Context, SETTLE, metrics_cost};
use crate::bench::measure::{Compared, measure};
use crate::bench::report::{Bar, Unit};
use crate::bench::scripts::{Cargo, Due, PointReads};
use crate::model::error::Result;

const CASE: &str = "point read";
const CONTAINER: &str = "reads";
/// Items of the container; the reads are spread over them.
const ITEMS: u32 = 100_000;

pub async fn run(context: &Context<'_>) -> Result<()> {
    let items = ITEMS.min(context.items());
    let connections = context.options.connections;
    let signer = &context.bench.signer;
    let yardstick = context.bench.start_yardstick().await?;
    let node = context.bench.start_node("point-read").await?;
    node.create_database().await?;
    node.create_container(CONTAINER, &json!({})).await?;
    node.load(&Cargo::new(CONTAINER, 0, items, Due::Inherit))
        .await?;
    node.settle(SETTLE).await?;

    let mut compared = Compared::default();
    for _ in 0..context.options.rounds {
        let scripts = || PointReads::spread(signer, CONTAINER, items, connections);
        let constant = measure(&yardstick, scripts(), context.extent()).await?;
        let read = measure(&node.server, scripts(), context.extent()).await?;
        compared.add(&constant, &read);
    }
    context.add_measured(CASE, "yardstick GET", &compared.base);
    context.add_measured(CASE, "read", &compared.subject);
    let (cpu, bar) = (compared.cpu_ratio(), Bar::AtMost(2.5));
    context.add(CASE, "CPU, yardstick GETs", cpu, Unit::Times, bar);
    let (figure, bar) = ("rate, of the yardstick's", Bar::AtLeast(0.5));
    context.add_rate_ratio(CASE, figure, &compared, Unit::Share, bar);
    if let Some(micros) = metrics_cost::micros_a_read() {
        context.add(CASE, "metrics of a read", micros, Unit::Micros, Bar::None);
        let share = micros / compared.subject.cpu_micros();
        let bar = Bar::Below(0.02);
        context.add(CASE, "metrics, of a read's CPU", share, Unit::Share, bar);
    }
    Ok(())
}
