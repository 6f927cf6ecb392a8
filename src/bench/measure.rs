//! One measurement: a closed loop for a while, with the server's CPU time beside it.

use std::time::{Duration, Instant};

use super::load::{Load, LoadTally, Script};
use super::process::{ServerProcess, machine_cpu, own_cpu};
use crate::client::endpoint::Endpoint;
use crate::model::error::{Error, Result};

/// Share of a measurement's length that warms up before it.
const WARM_UP_SHARE: f64 = 0.2;
/// How long a measurement may go on to reach its number of operations.
const LENGTH_SECONDS_MAX: u64 = 120;
/// How often the number of operations is looked at.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Phase of the operations that count; 0 is the warm-up, 2 what is still in flight.
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
    pub tally: LoadTally,
    pub elapsed: Duration,
    /// User and system time of the server meanwhile.
    pub cpu: Duration,
    /// Time that neither the server nor the driver was busy with: noise, and a warning.
    pub others: Duration,
}

impl Measured {
    pub fn rate(&self) -> f64 {
        self.tally.operations as f64 / self.elapsed.as_secs_f64().max(f64::MIN_POSITIVE)
    }

    pub fn cpu_micros(&self) -> f64 {
        self.cpu.as_secs_f64() * 1e6 / (self.tally.operations as f64).max(1.0)
    }

    pub fn latency_micros(&self, share: f64) -> f64 {
        self.tally.latency.micros(share)
    }

    pub fn add(&mut self, round: &Self) {
        self.tally.add(&round.tally);
        self.elapsed += round.elapsed;
        self.cpu += round.cpu;
        self.others += round.others;
    }

    /// Share of the machine that other processes took.
    pub fn others_share(&self) -> f64 {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        self.others.as_secs_f64() / (self.elapsed.as_secs_f64() * cores as f64)
    }
}

/// Runs one connection for each script until the extent is reached.
pub async fn measure(
    server: &ServerProcess,
    scripts: Vec<Box<dyn Script>>,
    extent: Extent,
) -> Result<Measured> {
    measure_all(&[server], scripts, extent).await
}

/// The same with the connections spread over several servers, which are taken as one.
pub async fn measure_all(
    servers: &[&ServerProcess],
    scripts: Vec<Box<dyn Script>>,
    extent: Extent,
) -> Result<Measured> {
    let cpu_of_all = || {
        let times = servers.iter().map(|server| server.cpu());
        times.sum::<Result<Duration>>()
    };
    let endpoints = servers.iter().map(|server| Endpoint::local(server.port));
    let load = Load::closed(endpoints.collect(), scripts)?;
    tokio::time::sleep(extent.length.mul_f64(WARM_UP_SHARE)).await;
    let cpu_before = cpu_of_all()?;
    let (own_before, all_before) = (own_cpu(), machine_cpu());
    let begun = Instant::now();
    load.enter_phase(MEASURED);
    loop {
        tokio::time::sleep(POLL_INTERVAL).await;
        let elapsed = begun.elapsed();
        let enough = elapsed >= extent.length && load.operations(MEASURED) >= extent.operations_min;
        if enough || load.has_ended() || elapsed.as_secs() >= LENGTH_SECONDS_MAX {
            break;
        }
    }
    load.enter_phase(MEASURED + 1);
    let elapsed = begun.elapsed();
    let cpu = cpu_of_all()?.saturating_sub(cpu_before);
    let own = own_cpu().saturating_sub(own_before);
    let all = machine_cpu().saturating_sub(all_before);
    let mut tallies = load.stop().await?;
    if tallies.len() <= MEASURED {
        return Err(Error::internal("a load has no measured phase"));
    }
    Ok(Measured {
        tally: tallies.swap_remove(MEASURED),
        elapsed,
        cpu,
        others: all.saturating_sub(cpu + own),
    })
}

/// Rounds of two measurements that alternate, so that noise hits both alike.
#[derive(Default)]
pub struct Compared {
    pub base: Measured,
    pub subject: Measured,
    /// The subject's rate in that of the base, for each round.
    pub rate_ratios: Vec<f64>,
}

impl Compared {
    /// Measures base and subject so often; `round` is given its number.
    pub async fn rounds(
        rounds: u32,
        mut round: impl AsyncFnMut(u32) -> Result<(Measured, Measured)>,
    ) -> Result<Self> {
        let mut compared = Self::default();
        for number in 0..rounds {
            let (base, subject) = round(number).await?;
            compared.add(&base, &subject);
        }
        Ok(compared)
    }

    pub fn add(&mut self, base: &Measured, subject: &Measured) {
        self.base.add(base);
        self.subject.add(subject);
        self.rate_ratios.push(subject.rate() / base.rate());
    }

    /// Returns the CPU time per operation of the subject, in those of the base.
    pub fn cpu_ratio(&self) -> f64 {
        self.subject.cpu_micros() / self.base.cpu_micros()
    }
}

/// Some values in short: one disturbed round does not move the median.
pub struct Spread {
    pub median: f64,
    pub low: f64,
    pub high: f64,
}

impl Spread {
    /// Returns numbers that are none if there is no value.
    pub fn of(values: &[f64]) -> Self {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let at = |index: usize| sorted.get(index).copied().unwrap_or(f64::NAN);
        Self {
            median: at(sorted.len() / 2),
            low: at(0),
            high: sorted.last().copied().unwrap_or(f64::NAN),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(operations: u64, elapsed: u64, cpu: u64) -> Measured {
        let tally = LoadTally {
            operations,
            ..LoadTally::default()
        };
        let (elapsed, cpu) = (Duration::from_secs(elapsed), Duration::from_secs(cpu));
        Measured {
            tally,
            elapsed,
            cpu,
            others: Duration::ZERO,
        }
    }

    #[test]
    fn one_disturbed_round_does_not_move_the_ratio_of_rates() {
        let mut compared = Compared::default();
        for subject in [50, 1, 60] {
            compared.add(&measured(100, 1, 1), &measured(subject, 1, 2));
        }
        let ratios = Spread::of(&compared.rate_ratios);
        assert_eq!((ratios.median, ratios.low, ratios.high), (0.5, 0.01, 0.6));
        let cpu = (6.0 / 111.0) / (3.0 / 300.0);
        assert!((compared.cpu_ratio() - cpu).abs() < 1e-9);
        assert!(Spread::of(&[]).median.is_nan());
    }
}
