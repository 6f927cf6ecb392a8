//! From the start of the process to its first answer, with an empty store.

use crate::bench::context::CaseContext;
use crate::bench::measure::Spread;
use crate::bench::report::Unit::Millis;
use crate::model::error::Result;

/// Starts, each on a new folder.
const STARTS: u32 = 5;

pub async fn run(context: &CaseContext<'_>) -> Result<()> {
    let mut times = Vec::new();
    for start in 0..STARTS {
        let node = context.bench.start_node(&format!("empty-{start}")).await?;
        times.push(node.start.as_secs_f64() * 1e3);
    }
    let (case, times) = (context.case("startup"), Spread::of(&times));
    case.below(
        "empty store to first answer, median",
        times.median,
        Millis,
        300.0,
    );
    case.show("empty store to first answer, longest", times.high, Millis);
    Ok(())
}
