//! A container with all items that is queried: loaded once for all cases that ask it.

use serde_json::json;

use super::{SETTLE_TIMEOUT, count, equality, order_by, reindex};
use crate::bench::context::CaseContext;
use crate::bench::item::Look;
use crate::bench::options::CaseName;
use crate::bench::process::disk_bytes;
use crate::bench::report::Unit::{Count, Megabytes, PerSecond};
use crate::bench::report::megabytes;
use crate::bench::scripts::{Cargo, Due};
use crate::model::error::Result;

pub const CONTAINER: &str = "queried";

/// The cases that ask it, in their order; the last one changes it.
pub const CASES: [CaseName; 4] = [
    CaseName::Equality,
    CaseName::OrderBy,
    CaseName::Count,
    CaseName::Reindex,
];

pub async fn run(context: &CaseContext<'_>, wants: impl Fn(CaseName) -> bool) -> Result<()> {
    let (case, items) = (context.case("queried"), context.items);
    let policy = json!({
        "indexingMode": "consistent",
        "includedPaths": [{ "path": "/*" }],
        "excludedPaths": [{ "path": "/score/?" }],
    });
    let properties = json!({ "indexingPolicy": policy });
    let node = context
        .bench
        .start_node_with("queried", CONTAINER, &properties)
        .await?;
    let look = Look::Simple { items };
    let cargo = Cargo::looking(look, CONTAINER, 0, items, Due::Inherit);
    let took = node.load(&cargo).await?;
    case.show("items", f64::from(items), Count);
    let rate = f64::from(items) / took.as_secs_f64();
    case.show("load in batches of 100, items", rate, PerSecond);
    node.settle(SETTLE_TIMEOUT).await?;
    case.show("data folder", megabytes(disk_bytes(&node.data)), Megabytes);
    for name in CASES.into_iter().filter(|name| wants(*name)) {
        match name {
            CaseName::Equality => equality::run(context, &node).await?,
            CaseName::OrderBy => order_by::run(context, &node).await?,
            CaseName::Count => count::run(context, &node).await?,
            _ => reindex::run(context, &node).await?,
        }
    }
    Ok(())
}
