//! Durable creates of 1 KB items, against POSTs to the yardstick and against one connection.

use std::time::Duration;

use serde_json::json;

use super::{Context, SETTLE};
use crate::bench::item::Look;
use crate::bench::measure::{Compared, Extent, measure};
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
    let (mut to_constant, mut to_alone) = (Compared::default(), Compared::default());
    let (mut fsyncs, mut commands) = (0, 0);
    let mut behind = Duration::ZERO;
    for round in 0..context.options.rounds {
        let scripts = |load, connections| {
            Creates::spread(
                signer,
                CONTAINER,
                Look::Payload,
                2 * round + load,
                connections,
            )
        };
        let constant = measure(&yardstick, scripts(0, connections), context.extent()).await?;
        let alone = measure(&node.server, scripts(0, 1), alone_extent).await?;
        let before = (node.counter(FSYNCS).await?, node.counter(COMMANDS).await?);
        let mut create = measure(&node.server, scripts(1, connections), context.extent()).await?;
        fsyncs += node.counter(FSYNCS).await? - before.0;
        let written = node.counter(COMMANDS).await? - before.1;
        commands += written;
        // What a write leaves to do behind its answer belongs to its cost: the measured writes'
        // share of it, as those of the warm-up leave some too.
        let answered = node.server.cpu()?;
        node.settle(SETTLE).await?;
        let share = create.tally.operations as f64 / written.max(1) as f64;
        let left = node.server.cpu()?.saturating_sub(answered).mul_f64(share);
        create.cpu += left;
        behind += left;
        to_constant.add(&constant, &create);
        to_alone.add(&alone, &create);
    }
    context.add_measured(CASE, "yardstick POST", &to_constant.base);
    context.add_measured(CASE, "one connection", &to_alone.base);
    context.add_measured(CASE, "create", &to_constant.subject);
    let behind = behind.as_secs_f64() * 1e6 / to_constant.subject.tally.operations as f64;
    let figure = "create, CPU behind the answers, of that";
    context.add(CASE, figure, behind, Unit::Micros, Bar::None);
    let (cpu, bar) = (to_constant.cpu_ratio(), Bar::AtMost(5.0));
    context.add(CASE, "CPU, yardstick POSTs", cpu, Unit::Times, bar);
    let (figure, bar) = ("rate, of one connection's", Bar::AtLeast(8.0));
    context.add_rate_ratio(CASE, figure, &to_alone, Unit::Times, bar);
    let (share, bar) = (fsyncs as f64 / commands as f64, Bar::Below(0.1));
    context.add(CASE, "fsyncs, of the writes", share, Unit::Share, bar);
    Ok(())
}
