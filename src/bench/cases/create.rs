//! Durable creates of 1 KB items, against POSTs to the baseline and against one connection.

use std::time::Duration;

use serde_json::json;

use super::SETTLE_TIMEOUT;
use crate::bench::context::CaseContext;
use crate::bench::measure::Compared;
use crate::bench::report::Unit::{Micros, Share, Times};
use crate::model::error::Result;

const CONTAINER: &str = "writes";
const FSYNCS: &str = "bolide_commit_fsyncs_total";
const COMMANDS: &str = "bolide_commit_commands_total";

pub async fn run(context: &CaseContext<'_>) -> Result<()> {
    let baseline = context.bench.start_baseline().await?;
    let policy = json!({ "indexingPolicy": { "indexingMode": "none", "automatic": false } });
    let node = context
        .bench
        .start_node_with("create", CONTAINER, &policy)
        .await?;

    let many = (context.connections, context.extent);
    // One connection is slow: only its rate is of interest, not its CPU time.
    let one = (1, context.short_extent());
    let (mut to_constant, mut to_alone) = (Compared::default(), Compared::default());
    let (mut fsyncs, mut commands) = (0, 0);
    let mut behind = Duration::ZERO;
    for round in 0..context.rounds {
        let constant = context
            .creates(&baseline, CONTAINER, 2 * round, many)
            .await?;
        let alone = context
            .creates(&node.server, CONTAINER, 2 * round, one)
            .await?;
        let before = (node.counter(FSYNCS).await?, node.counter(COMMANDS).await?);
        let mut create = context
            .creates(&node.server, CONTAINER, 2 * round + 1, many)
            .await?;
        fsyncs += node.counter(FSYNCS).await? - before.0;
        let written = node.counter(COMMANDS).await? - before.1;
        commands += written;
        // What a write leaves to do behind its answer belongs to its cost: the measured writes'
        // share of it, as those of the warm-up leave some too.
        let answered = node.server.cpu()?;
        node.settle(SETTLE_TIMEOUT).await?;
        let share = create.tally.operations as f64 / written.max(1) as f64;
        let left = node.server.cpu()?.saturating_sub(answered).mul_f64(share);
        create.cpu += left;
        behind += left;
        to_constant.add(&constant, &create);
        to_alone.add(&alone, &create);
    }
    let case = context.case("create");
    case.measured("baseline POST", &to_constant.base);
    case.measured("one connection", &to_alone.base);
    case.measured("create", &to_constant.subject);
    let behind = behind.as_secs_f64() * 1e6 / to_constant.subject.tally.operations as f64;
    case.show("create, CPU behind the answers, of that", behind, Micros);
    case.at_most("CPU, baseline POSTs", to_constant.cpu_ratio(), Times, 5.0);
    case.ratios(
        "rate, of one connection's",
        &to_alone.rate_ratios,
        Times,
        Some(8.0),
    );
    case.below(
        "fsyncs, of the writes",
        fsyncs as f64 / commands as f64,
        Share,
        0.1,
    );
    Ok(())
}
