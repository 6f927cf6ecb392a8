//! Durable creates of 1 KB items, against POSTs to the yardstick and against one connection.

use serde_json::json;

use super::Context;
use crate::bench::measure::{Extent, Measured, measure};
use crate::bench::report::{Bar, Unit};
use crate::bench::scripts::Creates;
use crate::model::error::Result;

const CASE: &str = "create";
const CONTAINER: &str = "writes";
const FSYNCS: &str = "bolide_commit_fsyncs_total";
const COMMANDS: &str = "bolide_commit_commands_total";

pub async fn run(context: &Context<'_>) -> Result<()> {
    let connections = context.options.connections;
    let signer = &context.bench.signer;
    let yardstick = context.bench.start_yardstick().await?;
    let node = context.bench.start_node("create").await?;
    node.create_database().await?;
    let policy = json!({ "indexingPolicy": { "indexingMode": "none", "automatic": false } });
    node.create_container(CONTAINER, &policy).await?;

    // One connection is slow: only its rate is of interest, not its CPU time.
    let alone_extent = Extent {
        operations_min: 0,
        ..context.extent()
    };
    let mut constant = Measured::default();
    let mut alone = Measured::default();
    let mut create = Measured::default();
    let (mut fsyncs, mut commands) = (0, 0);
    for round in 0..context.options.rounds {
        let scripts =
            |load, connections| Creates::spread(signer, CONTAINER, 2 * round + load, connections);
        constant.add(&measure(&yardstick, scripts(0, connections), context.extent()).await?);
        alone.add(&measure(&node.server, scripts(0, 1), alone_extent).await?);
        let before = (node.counter(FSYNCS).await?, node.counter(COMMANDS).await?);
        let mut measured = measure(&node.server, scripts(1, connections), context.extent()).await?;
        fsyncs += node.counter(FSYNCS).await? - before.0;
        commands += node.counter(COMMANDS).await? - before.1;
        // What a write leaves to do behind its answer belongs to its cost.
        let answered = node.server.cpu()?;
        node.settle().await?;
        measured.cpu += node.server.cpu()?.saturating_sub(answered);
        create.add(&measured);
    }
    context.add_measured(CASE, "yardstick POST", &constant);
    context.add_measured(CASE, "one connection", &alone);
    context.add_measured(CASE, "create", &create);
    let cpu = create.cpu_micros() / constant.cpu_micros();
    let gain = create.rate() / alone.rate();
    let share = fsyncs as f64 / commands as f64;
    context.add(
        CASE,
        "CPU, yardstick POSTs",
        cpu,
        Unit::Times,
        Bar::AtMost(5.0),
    );
    context.add(
        CASE,
        "rate, of one connection's",
        gain,
        Unit::Times,
        Bar::AtLeast(8.0),
    );
    context.add(
        CASE,
        "fsyncs, of the writes",
        share,
        Unit::Share,
        Bar::Below(0.1),
    );
    Ok(())
}
