//! The load driver: what it has done, as its recorder hands it over once a second.

use metrics::{Counter, Histogram};

use super::{labels::BenchOutcome, table};

/// The series of one kind of operation.
pub struct OperationSeries {
    outcomes: Vec<Counter>,
    latency: Histogram,
}

impl OperationSeries {
    /// Registers them, so that they are seen at 0 before anything happens.
    pub fn new(operation: &str) -> Self {
        let outcomes = BenchOutcome::TEXTS.iter();
        Self {
            outcomes: outcomes
                .map(|outcome| table::BENCH_OPERATIONS.counter(&[operation, outcome]))
                .collect(),
            latency: table::BENCH_LATENCY.histogram(&[operation]),
        }
    }

    pub fn ended(&self, outcome: BenchOutcome, operations: u64) {
        if let Some(series) = self.outcomes.get(outcome as usize) {
            series.increment(operations);
        }
    }

    pub fn took(&self, seconds: f64, operations: usize) {
        self.latency.record_many(seconds, operations);
    }
}

/// What a run as a whole shows.
pub struct RunSeries {
    lag: Histogram,
    violations: Vec<Counter>,
}

impl RunSeries {
    /// For a run with these kinds of violations; `rate` is what it asks for, 0 for as fast as it can.
    pub fn new<'k>(rate: f64, kinds: impl Iterator<Item = &'k str>) -> Self {
        table::BENCH_RATE_ASKED.gauge(&[]).set(rate);
        Self {
            lag: table::BENCH_EXPIRY_LAG.histogram(&[]),
            violations: kinds
                .map(|kind| table::BENCH_VIOLATIONS.counter(&[kind]))
                .collect(),
        }
    }

    /// So many reads of items that were due saw them this long after their second.
    pub fn seen(&self, lag_seconds: f64, reads: usize) {
        self.lag.record_many(lag_seconds, reads);
    }

    /// Of the kind in this place there were so many in all.
    pub fn violations(&self, kind: usize, total: u64) {
        if let Some(series) = self.violations.get(kind) {
            series.absolute(total);
        }
    }
}
