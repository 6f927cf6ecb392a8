//! One measurement: a closed loop for a while, with the server's CPU time beside it.

use std::time::{Duration, Instant};

use super::load::{Load, Script, Tally};
use super::process::Server;
use crate::model::error::{Error, Result};

/// Share of a measurement's length that warms up before it.
const WARM_UP_SHARE: f64 = 0.2;
/// How long a measurement may go on to reach its number of operations.
const LENGTH_SECONDS_MAX: u64 = 120;
/// How often the number of operations is looked at.
const POLL: Duration = Duration::from_millis(20);
/// Phase of the operations that count; 0 is the warm-up, 2 what is still under way.
const MEASURED: usize = 1;

/// How long a measurement goes on: both have to be reached.
#[derive(Clone, Copy, Debug)]
pub struct Extent {
    pub length: Duration,
    pub operations_min: u64,
}

/// What was measured, in one round or in several.
#[derive(Clone, Default)]
pub struct Measured {
    pub tally: Tally,
    pub elapsed: Duration,
    /// User and system time of the server meanwhile.
    pub cpu: Duration,
}

impl Measured {
    pub fn rate(&self) -> f64 {
        self.tally.operations as f64 / self.elapsed.as_secs_f64().max(f64::MIN_POSITIVE)
    }

    pub fn cpu_micros(&self) -> f64 {
        self.cpu.as_secs_f64() * 1e6 / (self.tally.operations as f64).max(1.0)
    }

    pub fn latency_micros(&self, share: f64) -> f64 {
        self.tally.latency.quantile(share).as_secs_f64() * 1e6
    }

    pub fn add(&mut self, round: &Self) {
        self.tally.add(&round.tally);
        self.elapsed += round.elapsed;
        self.cpu += round.cpu;
    }
}

/// Runs one connection for each script until the extent is reached.
pub async fn measure(
    server: &Server,
    scripts: Vec<Box<dyn Script>>,
    extent: Extent,
) -> Result<Measured> {
    let load = Load::start(server.port, scripts)?;
    tokio::time::sleep(extent.length.mul_f64(WARM_UP_SHARE)).await;
    let cpu_before = server.cpu()?;
    let begun = Instant::now();
    load.enter_phase(MEASURED);
    loop {
        tokio::time::sleep(POLL).await;
        let elapsed = begun.elapsed();
        let enough = elapsed >= extent.length && load.operations(MEASURED) >= extent.operations_min;
        if enough || load.has_ended() || elapsed.as_secs() >= LENGTH_SECONDS_MAX {
            break;
        }
    }
    load.enter_phase(MEASURED + 1);
    let elapsed = begun.elapsed();
    let cpu = server.cpu()?.saturating_sub(cpu_before);
    let mut tallies = load.stop().await?;
    if tallies.len() <= MEASURED {
        return Err(Error::internal("a load has no measured phase"));
    }
    Ok(Measured {
        tally: tallies.swap_remove(MEASURED),
        elapsed,
        cpu,
    })
}
