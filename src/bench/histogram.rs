//! Latencies with a bounded relative error: a thin door to HdrHistogram.

use std::time::Duration;

use hdrhistogram::Histogram as Counts;

/// Finest step, in nanoseconds; a request takes longer.
const NANOSECONDS_MIN: u64 = 1_000;
/// Longer ones (over an hour) are counted as this.
const NANOSECONDS_MAX: u64 = 1 << 42;
/// Decimal digits of a value that are kept.
const DIGITS: u8 = 3;

#[derive(Clone)]
pub struct Histogram(Counts<u64>);

impl Default for Histogram {
    fn default() -> Self {
        let counts = Counts::new_with_bounds(NANOSECONDS_MIN, NANOSECONDS_MAX, DIGITS);
        Self(counts.expect("the bounds are in order and the digits few"))
    }
}

impl Histogram {
    pub fn record(&mut self, latency: Duration) {
        let nanoseconds = u64::try_from(latency.as_nanos()).unwrap_or(NANOSECONDS_MAX);
        self.0.saturating_record(nanoseconds.min(NANOSECONDS_MAX));
    }

    pub fn add(&mut self, other: &Self) {
        // Both have the same bounds, so nothing can be out of range.
        let _ = self.0.add(&other.0);
    }

    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// The latency that this share (0 to 1) of the operations did not exceed; zero without any.
    pub fn quantile(&self, share: f64) -> Duration {
        Duration::from_nanos(self.0.value_at_quantile(share))
    }

    /// The same in microseconds.
    pub fn micros(&self, share: f64) -> f64 {
        self.quantile(share).as_secs_f64() * 1e6
    }

    pub fn max(&self) -> Duration {
        Duration::from_nanos(self.0.max())
    }

    /// The counts themselves, in nanoseconds, for the log that other tools read.
    pub fn counts(&self) -> &Counts<u64> {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_of_a_known_distribution() {
        let mut low = Histogram::default();
        let mut high = Histogram::default();
        for micros in 1..=900 {
            low.record(Duration::from_micros(micros));
        }
        for micros in 901..=1_000 {
            high.record(Duration::from_micros(micros));
        }
        low.add(&high);
        assert_eq!(low.count(), 1_000);
        for (share, micros) in [(0.5, 500.0), (0.99, 990.0), (1.0, 1000.0)] {
            let found = low.quantile(share).as_secs_f64() * 1e6;
            assert!((found / micros - 1.0).abs() < 0.02, "{share}: {found}");
        }
        assert_eq!(Histogram::default().quantile(0.99), Duration::ZERO);
        low.record(Duration::MAX);
        assert!(low.max() > Duration::from_secs(3_600));
    }
}
