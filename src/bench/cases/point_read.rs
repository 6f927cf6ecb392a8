//! Point reads of 1 KB items, signed, against the same requests to the baseline.

use serde_json::json;

use super::{SETTLE_TIMEOUT, metrics_cost};
use crate::bench::context::CaseContext;
use crate::bench::measure::Compared;
use crate::bench::report::Unit::{Micros, Share, Times};
use crate::bench::scripts::{Cargo, Due};
use crate::model::error::Result;

const CONTAINER: &str = "reads";
/// Items of the container; the reads are spread over them.
const ITEMS: u32 = 100_000;

pub async fn run(context: &CaseContext<'_>) -> Result<()> {
    let (items, connections) = (ITEMS.min(context.items), context.connections);
    let baseline = context.bench.start_baseline().await?;
    let node = context
        .bench
        .start_node_with("point-read", CONTAINER, &json!({}))
        .await?;
    node.load(&Cargo::new(CONTAINER, 0, items, Due::Inherit))
        .await?;
    node.settle(SETTLE_TIMEOUT).await?;
    let compared = Compared::rounds(context.rounds, async |_| {
        let constant = context
            .reads(&baseline, CONTAINER, items, connections)
            .await?;
        let read = context
            .reads(&node.server, CONTAINER, items, connections)
            .await?;
        Ok((constant, read))
    })
    .await?;

    let case = context.case("point read");
    case.measured("baseline GET", &compared.base);
    case.measured("read", &compared.subject);
    case.at_most("CPU, baseline GETs", compared.cpu_ratio(), Times, 2.5);
    case.ratios(
        "rate, of the baseline's",
        &compared.rate_ratios,
        Share,
        Some(0.5),
    );
    if let Some(micros) = metrics_cost::micros_a_read() {
        case.show("metrics of a read", micros, Micros);
        let share = micros / compared.subject.cpu_micros();
        case.below("metrics, of a read's CPU", share, Share, 0.02);
    }
    Ok(())
}
