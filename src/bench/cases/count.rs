//! Counts of all items: by the index, and by a scan because the property is not indexed. The scan is also what any query without
//! a usable index costs. The first count by the index is told apart: those after it know the sums.

use super::Context;
use super::queried::CONTAINER;
use crate::bench::measure::median;
use crate::bench::node::Node;
use crate::bench::query::{Answered, answer};
use crate::bench::report::{Bar, Unit};
use crate::model::error::{Error, Result};

const CASE: &str = "count";
const BY_INDEX: &str = "SELECT VALUE COUNT(1) FROM c WHERE c.rank >= 0";
const BY_SCAN: &str = "SELECT VALUE COUNT(1) FROM c WHERE c.score >= 0";
/// A scan that finds one item.
const SEARCH: &str = "SELECT * FROM c WHERE c.score = 5";

pub async fn run(context: &Context<'_>, node: &Node) -> Result<()> {
    let items = f64::from(context.items());
    // What was never counted is walked over; after that sums are known.
    let first = vec![counted(context, node, BY_INDEX).await?];
    let (mut by_index, mut by_scan, mut search) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..context.options.rounds {
        by_index.push(counted(context, node, BY_INDEX).await?);
        by_scan.push(counted(context, node, BY_SCAN).await?);
        search.push(found(node).await?);
    }
    for (name, all) in [
        ("by the index for the first time", &first),
        ("by the index", &by_index),
        ("by a scan", &by_scan),
        ("search by a scan", &search),
    ] {
        let figure = format!("{name}, time");
        let millis = seconds(all) * 1e3;
        context.add(CASE, &figure, millis, Unit::Millis, Bar::None);
        // A count by sums takes less CPU time than can be told.
        if name != "by the index" {
            let cpu: f64 = all.iter().map(|one| one.cpu.as_secs_f64()).sum();
            let rate = items * all.len() as f64 / cpu.max(f64::MIN_POSITIVE);
            let bar = match name {
                "by a scan" | "search by a scan" => Bar::AtLeast(300_000.0),
                _ => Bar::None,
            };
            let figure = format!("{name}, items per second of one core");
            context.add(CASE, &figure, rate, Unit::PerSecond, bar);
        }
        let read = all.iter().map(|one| one.items_read).max().unwrap_or(0);
        let figure = format!("{name}, items read");
        context.add(CASE, &figure, read as f64, Unit::Count, Bar::None);
        let pages = all.iter().map(|one| one.pages).max().unwrap_or(0);
        let figure = format!("{name}, pages");
        context.add(CASE, &figure, pages as f64, Unit::Count, Bar::None);
    }
    let faster = seconds(&by_scan) / seconds(&first);
    let figure = "index for the first time, times as fast as the scan";
    context.add(CASE, figure, faster, Unit::Times, Bar::None);
    let faster = seconds(&by_scan) / seconds(&by_index);
    let (figure, bar) = ("index, times as fast as the scan", Bar::AtLeast(10.0));
    context.add(CASE, figure, faster, Unit::Times, bar);
    Ok(())
}

/// The middle of the rounds' times.
fn seconds(all: &[Answered]) -> f64 {
    let mut times: Vec<f64> = all.iter().map(|one| one.latency.as_secs_f64()).collect();
    median(&mut times)
}

async fn counted(context: &Context<'_>, node: &Node, query: &str) -> Result<Answered> {
    let answered = answer(node, CONTAINER, query).await?;
    if answered.rows != [serde_json::json!(context.items())] {
        return Err(Error::unavailable(format!(
            "'{query}' gave {:?}",
            answered.rows
        )));
    }
    Ok(answered)
}

async fn found(node: &Node) -> Result<Answered> {
    let answered = answer(node, CONTAINER, SEARCH).await?;
    if answered.rows.len() != 1 {
        let rows = answered.rows.len();
        return Err(Error::unavailable(format!("'{SEARCH}' gave {rows} rows")));
    }
    Ok(answered)
}
