//! What a run has shown: as a table, and as JSON.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use serde::Serialize;

use super::RunJob;
use super::shared::RunState;
use crate::bench::check::{Evidence, Lag, ViolationKind};
use crate::bench::histogram::Histogram;
use crate::bench::load::{LoadTally, NO_ANSWER};
use crate::bench::report::{aligned, grouped};

/// Points of the curve of latencies over shares of the operations.
const CURVE_SHARES: [f64; 13] = [
    0.0, 0.25, 0.5, 0.75, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999, 0.9995, 0.9999, 1.0,
];

/// Latencies in milliseconds.
#[derive(Clone, Debug, Serialize)]
pub struct Latency {
    pub p50_ms: f64,
    pub p90_ms: f64,
    pub p99_ms: f64,
    pub p999_ms: f64,
    pub max_ms: f64,
}

impl Latency {
    fn new(histogram: &Histogram) -> Self {
        let at = |share| millis(histogram.quantile(share));
        Self {
            p50_ms: at(0.5),
            p90_ms: at(0.9),
            p99_ms: at(0.99),
            p999_ms: at(0.999),
            max_ms: millis(histogram.max()),
        }
    }

    /// Returns the latencies from low to high, for people.
    pub fn shown(&self) -> [String; 5] {
        let Self {
            p50_ms,
            p90_ms,
            p99_ms,
            p999_ms,
            max_ms,
        } = self;
        [p50_ms, p90_ms, p99_ms, p999_ms, max_ms].map(|millis| format!("{millis:.2}"))
    }
}

/// One operation over the whole measurement, or all of them.
#[derive(Clone, Debug, Serialize)]
pub struct OperationSummary {
    pub name: String,
    pub count: u64,
    pub rate: f64,
    pub latency: Latency,
    /// Share (0 to 1) and milliseconds.
    pub curve: Vec<(f64, f64)>,
    /// By status; `no answer` is one too.
    pub errors: BTreeMap<String, u64>,
    /// Answers that say that the server does not offer the operation (501).
    pub not_implemented: u64,
}

impl OperationSummary {
    fn new(name: &str, tally: &LoadTally, length: Duration) -> Self {
        let shown = |(status, count)| match status {
            NO_ANSWER => ("no answer".to_owned(), count),
            status => (status.to_string(), count),
        };
        let curve = CURVE_SHARES.map(|share| (share, millis(tally.latency.quantile(share))));
        Self {
            name: name.to_owned(),
            count: tally.operations,
            rate: tally.operations as f64 / length.as_secs_f64().max(1e-3),
            latency: Latency::new(&tally.latency),
            curve: curve.to_vec(),
            errors: tally.errors().map(shown).collect(),
            not_implemented: tally.not_implemented(),
        }
    }

    /// Returns the errors by status, for people.
    pub fn errors_shown(&self) -> String {
        let errors = self.errors.iter();
        let errors: Vec<String> = errors.map(|(status, n)| format!("{status}: {n}")).collect();
        match errors.is_empty() {
            true => "none".to_owned(),
            false => errors.join(", "),
        }
    }

    fn cells(&self, asked: &str) -> [String; 9] {
        let [p50, p90, p99, p999, max] = self.latency.shown();
        let (name, rate) = (self.name.clone(), grouped(self.rate));
        let errors = self.errors_shown();
        [
            name,
            asked.to_owned(),
            rate,
            p50,
            p90,
            p99,
            p999,
            max,
            errors,
        ]
    }
}

/// A second of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Point {
    pub at_seconds: f64,
    pub is_warm_up: bool,
    pub all: PointOperation,
    /// In the order of the summary's operations.
    pub operations: Vec<PointOperation>,
    /// Reads of items whose second had come, and how long after it one was seen at the most.
    pub due_reads: u64,
    pub seen_lag_seconds: f64,
    /// 99 % of the node's purges were not later.
    pub purge_lag_seconds: Option<f64>,
}

#[derive(Clone, Debug, Serialize)]
pub struct PointOperation {
    pub rate: f64,
    pub p50_ms: f64,
    pub p99_ms: f64,
    pub max_ms: f64,
    pub errors: u64,
}

impl PointOperation {
    pub fn new(tally: &LoadTally, length: Duration) -> Self {
        Self {
            rate: tally.operations as f64 / length.as_secs_f64().max(1e-3),
            p50_ms: millis(tally.latency.quantile(0.5)),
            p99_ms: millis(tally.latency.quantile(0.99)),
            max_ms: millis(tally.latency.max()),
            errors: tally.errors_total(),
        }
    }
}

/// How far behind a node's purge was, by its own account: an edge of its histogram.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct PurgeLag {
    pub p50_seconds_at_most: f64,
    pub p99_seconds_at_most: f64,
}

/// How long items were seen after their second, by the driver's own reads.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct SeenLag {
    pub reads_of_due_items: u64,
    pub p50_seconds: f64,
    pub p99_seconds: f64,
    pub max_seconds: f64,
}

/// What the recorder hands over.
pub struct RunFigures {
    pub length: Duration,
    pub totals: Vec<LoadTally>,
    pub lag: Lag,
    pub purge: Option<PurgeLag>,
    pub points: Vec<Point>,
    pub unsent: u64,
    pub is_interrupted: bool,
}

#[derive(Clone, Debug, Serialize)]
pub struct RunSummary {
    pub workload: String,
    pub about: String,
    pub against: String,
    pub connections: u32,
    pub seed: u64,
    pub items: u32,
    pub item_bytes: usize,
    pub warm_up_seconds: f64,
    pub measured_seconds: f64,
    pub is_interrupted: bool,
    pub is_checked: bool,
    /// Absent in a closed loop.
    pub asked_rate: Option<f64>,
    /// Operations that should have been sent by the end and were not.
    pub unsent: u64,
    pub all: OperationSummary,
    pub operations: Vec<OperationSummary>,
    pub expiry_seen_lag: SeenLag,
    pub expiry_purge_lag: Option<PurgeLag>,
    pub violations: BTreeMap<&'static str, u64>,
    pub evidence: Vec<Evidence>,
    pub points: Vec<Point>,
}

impl RunSummary {
    pub fn new(job: &RunJob, against: String, shared: &RunState, measured: RunFigures) -> Self {
        let length = measured.length;
        let mut all = LoadTally::default();
        measured.totals.iter().for_each(|tally| all.add(tally));
        let named = shared.operations.iter().zip(&measured.totals);
        let lag = &measured.lag.seen;
        let found = &shared.checker.violations;
        let violations = ViolationKind::ALL.map(|kind| (kind.name(), found.count(kind)));
        Self {
            workload: job.name.clone(),
            about: job.workload.about.clone(),
            against,
            connections: job.connections,
            seed: job.seed,
            items: job.workload.items.count,
            item_bytes: job.workload.items.bytes,
            warm_up_seconds: job.warm_up.as_secs_f64(),
            measured_seconds: length.as_secs_f64(),
            is_interrupted: measured.is_interrupted,
            is_checked: job.is_checked,
            asked_rate: job.rate,
            unsent: measured.unsent,
            all: OperationSummary::new("all", &all, length),
            operations: named
                .map(|(operation, tally)| OperationSummary::new(operation.name(), tally, length))
                .collect(),
            expiry_seen_lag: SeenLag {
                reads_of_due_items: lag.count(),
                p50_seconds: seconds(lag.quantile(0.5)),
                p99_seconds: seconds(lag.quantile(0.99)),
                max_seconds: seconds(lag.max()),
            },
            expiry_purge_lag: measured.purge,
            violations: violations.into_iter().collect(),
            evidence: found.kept(),
            points: measured.points,
        }
    }

    pub fn violations_total(&self) -> u64 {
        self.violations.values().sum()
    }

    /// How it was run, in one line.
    pub fn manner(&self) -> String {
        let pace = match self.asked_rate {
            Some(rate) => format!("open loop at {} /s", grouped(rate)),
            None => "closed loop".to_owned(),
        };
        format!(
            "{} connections, {pace}, {:.1} s after {:.0} s of warm-up, {} items of {} bytes, \
             seed {}",
            self.connections,
            self.measured_seconds,
            self.warm_up_seconds,
            grouped(f64::from(self.items)),
            grouped(self.item_bytes as f64),
            self.seed,
        )
    }

    /// Says how many operations the server does not offer, if there are any.
    pub fn not_implemented_shown(&self) -> Option<String> {
        let count = grouped(self.all.not_implemented as f64);
        let shown = format!("{count} operations answered with 501: the server does not offer them");
        (self.all.not_implemented > 0).then_some(shown)
    }

    /// Says how long expired items were seen: the headline.
    pub fn seen_lag_shown(&self) -> String {
        let lag = &self.expiry_seen_lag;
        match (self.is_checked, lag.reads_of_due_items) {
            (false, _) => "not checked".to_owned(),
            (true, 0) => "no item was read after its second".to_owned(),
            (true, reads) => format!(
                "p50 {:.3} s, p99 {:.3} s, max {:.3} s over {} reads of items whose second had \
                 come (must be 0)",
                lag.p50_seconds,
                lag.p99_seconds,
                lag.max_seconds,
                grouped(reads as f64),
            ),
        }
    }

    pub fn purge_lag_shown(&self) -> String {
        let edge = |seconds: f64| match seconds.is_finite() {
            true => format!("≤ {seconds} s"),
            false => "beyond the node's last bucket".to_owned(),
        };
        match self.expiry_purge_lag {
            None => "not told: no purge, or no node metrics in reach".to_owned(),
            Some(lag) => format!(
                "p50 {}, p99 {} (what the node says of giving space back)",
                edge(lag.p50_seconds_at_most),
                edge(lag.p99_seconds_at_most),
            ),
        }
    }

    pub fn verdict(&self) -> String {
        if !self.is_checked {
            return "not checked".to_owned();
        }
        if self.violations_total() == 0 {
            return "every answer was right".to_owned();
        }
        let found = self.violations.iter().filter(|(_, count)| **count > 0);
        let found: Vec<String> = found
            .map(|(kind, count)| format!("{kind}: {count}"))
            .collect();
        format!("VIOLATED {}", found.join(", "))
    }

    pub fn table(&self) -> String {
        let head = [
            "operation",
            "asked /s",
            "achieved /s",
            "p50 ms",
            "p90 ms",
            "p99 ms",
            "p99.9 ms",
            "max ms",
            "errors by status",
        ];
        let mut lines = vec![head.map(str::to_owned)];
        lines.extend(self.operations.iter().map(|operation| operation.cells("")));
        let asked = self.asked_rate.map_or("all it takes".to_owned(), grouped);
        lines.push(self.all.cells(&asked));
        let Self {
            workload,
            about,
            against,
            ..
        } = self;
        let (manner, interrupted) = (
            self.manner(),
            if self.is_interrupted {
                "; interrupted"
            } else {
                ""
            },
        );
        let mut text =
            format!("\n{workload}: {about}\nagainst {against}\n{manner}{interrupted}\n\n");
        text.push_str(&aligned(&lines, &[1, 2, 3, 4, 5, 6, 7]));
        if let Some(shown) = self.not_implemented_shown() {
            let _ = writeln!(text, "{shown}");
        }
        if self.unsent > 0 {
            let unsent = grouped(self.unsent as f64);
            let _ = writeln!(
                text,
                "{unsent} operations were due and not sent: the server is behind"
            );
        }
        let _ = writeln!(text, "\nexpiry lag, items seen:  {}", self.seen_lag_shown());
        let _ = writeln!(text, "expiry lag, purge:       {}", self.purge_lag_shown());
        let _ = writeln!(text, "checked:                 {}", self.verdict());
        text
    }

    pub fn json(&self) -> String {
        match serde_json::to_string_pretty(self) {
            Ok(text) => text + "\n",
            Err(error) => format!("{{\"error\":\"{error}\"}}\n"),
        }
    }
}

fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

/// To the millisecond: the histogram's step at nothing is not a lag.
fn seconds(duration: Duration) -> f64 {
    millis(duration).round() / 1e3
}
