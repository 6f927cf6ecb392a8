//! Latencies in buckets whose width grows with the value: two percent of it at most.

use std::time::Duration;

/// Buckets of each power of two.
const STEPS: u64 = 64;
const STEP_BITS: u32 = STEPS.trailing_zeros();
/// Longer ones (over an hour) are counted in the last bucket.
const NANOSECONDS_MAX: u64 = 1 << 42;
const BUCKETS: usize = bucket(NANOSECONDS_MAX) + 1;

#[derive(Clone)]
pub struct Histogram {
    counts: Vec<u64>,
    total: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            counts: vec![0; BUCKETS],
            total: 0,
        }
    }
}

impl Histogram {
    pub fn record(&mut self, latency: Duration) {
        let nanoseconds = u64::try_from(latency.as_nanos()).unwrap_or(NANOSECONDS_MAX);
        if let Some(count) = self
            .counts
            .get_mut(bucket(nanoseconds.min(NANOSECONDS_MAX)))
        {
            *count += 1;
            self.total += 1;
        }
    }

    pub fn add(&mut self, other: &Self) {
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count += more;
        }
        self.total += other.total;
    }

    /// The latency that this share (0 to 1) of the operations did not exceed; zero without any.
    pub fn quantile(&self, share: f64) -> Duration {
        let rank = ((self.total as f64 * share).ceil() as u64).clamp(1, self.total.max(1));
        let mut seen = 0;
        for (index, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return Duration::from_nanos(upper_edge(index));
            }
        }
        Duration::ZERO
    }
}

/// Values below `STEPS` have a bucket each; above, the leading bits name it.
const fn bucket(nanoseconds: u64) -> usize {
    if nanoseconds < STEPS {
        return nanoseconds as usize;
    }
    let shift = nanoseconds.ilog2() - STEP_BITS;
    (shift as u64 * STEPS + (nanoseconds >> shift)) as usize
}

fn upper_edge(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < 2 * STEPS {
        return bucket;
    }
    let shift = bucket / STEPS - 1;
    ((bucket % STEPS + STEPS + 1) << shift) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_is_within_two_percent_of_its_buckets_edge() {
        let mut value = 1_u64;
        while value < NANOSECONDS_MAX {
            let edge = upper_edge(bucket(value));
            assert!(edge >= value, "{value}: {edge}");
            assert!(edge - value <= value / 50 + 1, "{value}: {edge}");
            assert_eq!(bucket(edge), bucket(value), "{value}");
            assert_eq!(bucket(edge + 1), bucket(value) + 1, "{value}");
            value += value / 7 + 1;
        }
    }

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
        for (share, micros) in [(0.5, 500.0), (0.99, 990.0), (1.0, 1000.0), (0.0, 1.0)] {
            let found = low.quantile(share).as_secs_f64() * 1e6;
            assert!((found / micros - 1.0).abs() < 0.02, "{share}: {found}");
        }
        assert_eq!(Histogram::default().quantile(0.99), Duration::ZERO);
        low.record(Duration::MAX);
        assert!(low.quantile(1.0) > Duration::from_secs(3_600));
    }
}
