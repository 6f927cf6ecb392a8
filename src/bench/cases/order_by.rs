//! The first ten of all items in the order of an indexed property.

use serde_json::Value;

use super::queried::CONTAINER;
use crate::bench::context::CaseContext;
use crate::bench::measure::measure;
use crate::bench::node::MeasuredNode;
use crate::bench::query::{Queries, answer, body};
use crate::bench::report::Unit::Count;
use crate::model::error::{Error, Result};

const ROWS: u32 = 10;
const QUERIES: [&str; 3] = [
    "SELECT TOP 10 * FROM c ORDER BY c.rank",
    "SELECT * FROM c ORDER BY c.rank DESC OFFSET 0 LIMIT 10",
    "SELECT VALUE c.rank FROM c WHERE c.rank >= 100 ORDER BY c.rank OFFSET 0 LIMIT 10",
];
/// Items that may be read for the ten: about ten, not all.
const ITEMS_READ_MAX: f64 = 20.0;

pub async fn run(context: &CaseContext<'_>, node: &MeasuredNode) -> Result<()> {
    let case = context.case("order by");
    let mut most = 0;
    for (query, first) in QUERIES.into_iter().zip([0, context.items - 1, 100]) {
        let answered = answer(node, CONTAINER, query).await?;
        let (rows, found) = (answered.rows.len(), answered.rows.first());
        let rank = found.map(|row| row.get("rank").unwrap_or(row));
        if rows != ROWS as usize || rank != Some(&Value::from(first)) {
            return Err(Error::unavailable(format!(
                "'{query}' gave {rows} rows, the first with {rank:?}"
            )));
        }
        most = most.max(answered.items_read);
    }
    case.at_most(
        "items read for ten, at most",
        most as f64,
        Count,
        ITEMS_READ_MAX,
    );
    let bodies = QUERIES.map(|query| body(query, None));
    for (name, connections) in [("alone", 1), ("query", context.connections)] {
        let scripts = Queries::spread(&context.bench.signer, CONTAINER, &bodies, ROWS, connections);
        let measured = measure(&node.server, scripts, context.short_extent()).await?;
        case.measured(name, &measured);
    }
    Ok(())
}
