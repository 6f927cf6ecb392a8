//! What a cluster of three nodes on this machine reaches, beside one node of the same run.

mod creates;
mod failover;
mod forward;
mod keys;
mod many_shards;
mod members;
mod reads;
mod strong;

use std::cell::RefCell;
use std::time::Duration;

use super::context::CaseContext;
use super::measure::Extent;
use super::node::Launcher;
use super::options::{ClusterBench, ClusterCase};
use super::report::Report;
use crate::model::error::Result;

/// Runs all cases that are asked for. Their figures are in the report even if a later one fails.
pub async fn run(options: &ClusterBench, report: &RefCell<Report>) -> Result<()> {
    let context = &CaseContext {
        bench: Launcher::new(options.servers.data_path.as_deref())?,
        report,
        items: options.items,
        connections: options.servers.connections,
        rounds: options.rounds,
        extent: Extent {
            length: Duration::from_secs_f64(options.seconds),
            operations_min: 0,
        },
    };
    context.machine();
    let wants = |case| options.only.is_empty() || options.only.contains(&case);
    if wants(ClusterCase::Create) {
        creates::run(context).await?;
    }
    if wants(ClusterCase::Read) {
        reads::run(context).await?;
    }
    if wants(ClusterCase::Forward) {
        forward::run(context).await?;
    }
    if wants(ClusterCase::Strong) {
        strong::run(context).await?;
    }
    if wants(ClusterCase::Shards) {
        many_shards::run(context, options.shards).await?;
    }
    if wants(ClusterCase::Failover) {
        failover::run(context, options.kills).await?;
    }
    Ok(())
}
