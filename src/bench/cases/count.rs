//! Counts of all items: by the index, and by a scan because the property is not indexed. The scan
//! is also what any query without a usable index costs. The first count by the index is shown
//! apart: later ones find the aggregate cache filled.

use serde_json::json;

use super::queried::CONTAINER;
use crate::bench::context::CaseContext;
use crate::bench::measure::Spread;
use crate::bench::node::MeasuredNode;
use crate::bench::query::{AnsweredQuery, answer};
use crate::bench::report::Unit::{Count, Millis, PerSecond, Times};
use crate::model::error::{Error, Result};

const BY_INDEX: &str = "SELECT VALUE COUNT(1) FROM c WHERE c.rank >= 0";
const BY_SCAN: &str = "SELECT VALUE COUNT(1) FROM c WHERE c.score >= 0";
/// A scan that finds one item.
const SEARCH: &str = "SELECT * FROM c WHERE c.score = 5";
/// Items that a scan looks at in a second of one core.
const SCAN_RATE_MIN: f64 = 300_000.0;

pub async fn run(context: &CaseContext<'_>, node: &MeasuredNode) -> Result<()> {
    let items = f64::from(context.items);
    let first = vec![counted(context, node, BY_INDEX).await?];
    let (mut by_index, mut by_scan, mut search) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..context.rounds {
        by_index.push(counted(context, node, BY_INDEX).await?);
        by_scan.push(counted(context, node, BY_SCAN).await?);
        search.push(found(node).await?);
    }
    let case = context.case("count");
    for (name, all) in [
        ("by the index for the first time", &first),
        ("by the index", &by_index),
        ("by a scan", &by_scan),
        ("search by a scan", &search),
    ] {
        case.show(format!("{name}, time"), seconds(all) * 1e3, Millis);
        let cpu: f64 = all.iter().map(|one| one.cpu.as_secs_f64()).sum();
        let rate = items * all.len() as f64 / cpu.max(f64::MIN_POSITIVE);
        let figure = format!("{name}, items per second of one core");
        match name {
            // A count from the aggregate cache takes less CPU time than can be told.
            "by the index" => {}
            "by the index for the first time" => case.show(figure, rate, PerSecond),
            _ => case.at_least(figure, rate, PerSecond, SCAN_RATE_MIN),
        }
        let read = all.iter().map(|one| one.items_read).max().unwrap_or(0);
        case.show(format!("{name}, items read"), read as f64, Count);
        let pages = all.iter().map(|one| one.pages).max().unwrap_or(0);
        case.show(format!("{name}, pages"), pages as f64, Count);
    }
    let faster = |than: &[AnsweredQuery]| seconds(&by_scan) / seconds(than);
    case.show(
        "index for the first time, times as fast as the scan",
        faster(&first),
        Times,
    );
    case.at_least(
        "index, times as fast as the scan",
        faster(&by_index),
        Times,
        10.0,
    );
    Ok(())
}

/// Returns the median of the rounds' times.
fn seconds(all: &[AnsweredQuery]) -> f64 {
    let times: Vec<f64> = all.iter().map(|one| one.latency.as_secs_f64()).collect();
    Spread::of(&times).median
}

async fn counted(
    context: &CaseContext<'_>,
    node: &MeasuredNode,
    query: &str,
) -> Result<AnsweredQuery> {
    let answered = answer(node, CONTAINER, query).await?;
    match answered.rows == [json!(context.items)] {
        true => Ok(answered),
        false => Err(Error::unavailable(format!(
            "'{query}' gave {:?}",
            answered.rows
        ))),
    }
}

async fn found(node: &MeasuredNode) -> Result<AnsweredQuery> {
    let answered = answer(node, CONTAINER, SEARCH).await?;
    match answered.rows.len() {
        1 => Ok(answered),
        rows => Err(Error::unavailable(format!("'{SEARCH}' gave {rows} rows"))),
    }
}
