//! A container with all items that is queried: loaded once for all cases that ask it.

use serde_json::json;

use super::{Context, SETTLE, count, equality, megabytes, order_by, reindex};
use crate::bench::item::Look;
use crate::bench::options::CaseName;
use crate::bench::process::disk_bytes;
use crate::bench::report::{Bar, Unit};
use crate::bench::scripts::{Cargo, Due};
use crate::model::error::Result;

const CASE: &str = "queried";
pub const CONTAINER: &str = "queried";

/// The cases that ask it, in their order; the last one changes it.
pub const CASES: [CaseName; 4] = [
    CaseName::Equality,
    CaseName::OrderBy,
    CaseName::Count,
    CaseName::Reindex,
];

pub async fn run(context: &Context<'_>) -> Result<()> {
    let items = context.items();
    let node = context.bench.start_node("queried").await?;
    node.create_database().await?;
    let policy = json!({
        "indexingMode": "consistent",
        "includedPaths": [{ "path": "/*" }],
        "excludedPaths": [{ "path": "/score/?" }],
    });
    let definition = json!({ "indexingPolicy": policy });
    node.create_container(CONTAINER, &definition).await?;
    let look = Look::Simple { items };
    let cargo = Cargo::looking(look, CONTAINER, 0, items, Due::Inherit);
    let took = node.load(&cargo).await?;
    let rate = f64::from(items) / took.as_secs_f64();
    context.add(CASE, "items", f64::from(items), Unit::Count, Bar::None);
    let figure = "load in batches of 100, items";
    context.add(CASE, figure, rate, Unit::PerSecond, Bar::None);
    node.settle(SETTLE).await?;
    let disk = megabytes(disk_bytes(&node.data));
    context.add(CASE, "data folder", disk, Unit::Megabytes, Bar::None);
    for case in CASES {
        if !context.options.wants(case) {
            continue;
        }
        match case {
            CaseName::Equality => equality::run(context, &node).await?,
            CaseName::OrderBy => order_by::run(context, &node).await?,
            CaseName::Count => count::run(context, &node).await?,
            _ => reindex::run(context, &node).await?,
        }
    }
    Ok(())
}
