//! From the start of the process to its first answer, with an empty store.

use super::Context;
use crate::bench::measure::median;
use crate::bench::report::{Bar, Unit};
use crate::model::error::Result;

const CASE: &str = "startup";
/// Starts, each on a new folder.
const STARTS: u32 = 5;

pub async fn run(context: &Context<'_>) -> Result<()> {
    let mut times = Vec::new();
    for start in 0..STARTS {
        let node = context.bench.start_node(&format!("empty-{start}")).await?;
        times.push(node.start.as_secs_f64() * 1e3);
    }
    let longest = times.iter().copied().fold(0.0, f64::max);
    let middle = median(&mut times);
    context.add(
        CASE,
        "empty store to first answer, median",
        middle,
        Unit::Millis,
        Bar::Below(300.0),
    );
    context.add(
        CASE,
        "empty store to first answer, longest",
        longest,
        Unit::Millis,
        Bar::None,
    );
    Ok(())
}
