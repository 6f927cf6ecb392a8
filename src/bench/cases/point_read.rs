//! Point reads of 1 KB items, signed, against the same requests to the yardstick.

use serde_json::json;

use super::Context;
use crate::bench::measure::{Measured, measure};
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
    node.settle().await?;

    let (mut constant, mut read) = (Measured::default(), Measured::default());
    for _ in 0..context.options.rounds {
        let scripts = || PointReads::spread(signer, CONTAINER, items, connections);
        constant.add(&measure(&yardstick, scripts(), context.extent()).await?);
        read.add(&measure(&node.server, scripts(), context.extent()).await?);
    }
    context.add_measured(CASE, "yardstick GET", &constant);
    context.add_measured(CASE, "read", &read);
    let cpu = read.cpu_micros() / constant.cpu_micros();
    let rate = read.rate() / constant.rate();
    context.add(
        CASE,
        "CPU, yardstick GETs",
        cpu,
        Unit::Times,
        Bar::AtMost(2.5),
    );
    context.add(
        CASE,
        "rate, of the yardstick's",
        rate,
        Unit::Share,
        Bar::AtLeast(0.5),
    );
    Ok(())
}
