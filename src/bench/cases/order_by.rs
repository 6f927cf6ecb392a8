//! The first ten of all items in the order of an indexed property.

use serde_json::Value;

use super::Context;
use super::queried::CONTAINER;
use crate::bench::measure::{Extent, measure};
use crate::bench::node::Node;
use crate::bench::query::{Queries, answer, body};
use crate::bench::report::{Bar, Unit};
use crate::model::error::{Error, Result};

const CASE: &str = "order by";
const ROWS: u32 = 10;
const QUERIES: [&str; 3] = [
    "SELECT TOP 10 * FROM c ORDER BY c.rank",
    "SELECT * FROM c ORDER BY c.rank DESC OFFSET 0 LIMIT 10",
    "SELECT VALUE c.rank FROM c WHERE c.rank >= 100 ORDER BY c.rank OFFSET 0 LIMIT 10",
];
/// Items that may be read for the ten: about ten, not all.
const ITEMS_READ_MAX: f64 = 20.0;

pub async fn run(context: &Context<'_>, node: &Node) -> Result<()> {
    let mut most = 0;
    for (query, first) in QUERIES.into_iter().zip([0, context.items() - 1, 100]) {
        let answered = answer(node, CONTAINER, query).await?;
        let found = answered.rows.first();
        let rank = found.map(|row| row.get("rank").unwrap_or(row));
        if answered.rows.len() != ROWS as usize || rank != Some(&Value::from(first)) {
            return Err(Error::unavailable(format!(
                "'{query}' gave {} rows, the first with {rank:?}",
                answered.rows.len()
            )));
        }
        most = most.max(answered.items_read);
    }
    let (figure, bar) = ("items read for ten, at most", Bar::AtMost(ITEMS_READ_MAX));
    context.add(CASE, figure, most as f64, Unit::Count, bar);
    let extent = Extent {
        operations_min: 0,
        ..context.extent()
    };
    let bodies = QUERIES.map(|query| body(query, None));
    for (name, connections) in [("alone", 1), ("query", context.options.connections)] {
        let scripts = Queries::spread(&context.bench.signer, CONTAINER, &bodies, ROWS, connections);
        let measured = measure(&node.server, scripts, extent).await?;
        context.add_measured(CASE, name, &measured);
    }
    Ok(())
}
