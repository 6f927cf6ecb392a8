//! kill -9 of the node that leads most shards: how long until every shard takes writes again.

use std::time::Instant;

use super::keys::write_keys;
use super::members::MeasuredCluster;
use crate::bench::context::CaseContext;
use crate::bench::measure::Spread;
use crate::bench::report::Unit::Seconds;
use crate::model::error::Result;

const CONTAINER: &str = "failover";
const SHARDS: u32 = 6;
/// Partition keys that are written: enough that each shard has some.
const KEYS: u32 = 48;

pub async fn run(context: &CaseContext<'_>, kills: u32) -> Result<()> {
    let settings = [format!("limits.shards_per_container={SHARDS}")];
    let mut cluster =
        MeasuredCluster::start_with(&context.bench, "failover", &settings, CONTAINER).await?;
    let (case, mut times) = (context.case("failover"), Vec::new());
    for kill in 1..=kills {
        cluster.alike().await?;
        let victim = cluster.leader().await?;
        // Before the kill as after it, every key can be written.
        write_keys(&cluster.account(), CONTAINER, KEYS).await?;
        cluster.kill(victim);
        let begun = Instant::now();
        write_keys(&cluster.account(), CONTAINER, KEYS).await?;
        let seconds = begun.elapsed().as_secs_f64();
        case.show(format!("writes resume, kill {kill}"), seconds, Seconds);
        times.push(seconds);
        cluster.spawn(victim)?;
    }
    let times = Spread::of(&times);
    case.at_most("writes resume, median", times.median, Seconds, 3.0);
    case.at_most("writes resume, worst", times.high, Seconds, 3.0);
    Ok(())
}
