//! Looks at a run once a second: what is shown while it goes on, and what is kept for its report.

use std::fs::File;
use std::io::{BufWriter, IsTerminal as _, Write as _};
use std::path::Path;
use std::time::{Duration, Instant, UNIX_EPOCH};

use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::{IntervalLogWriterBuilder, Tag};

use super::metrics::Metrics;
use super::progress;
use super::shared::RunState;
use super::summary::{Point, PointOperation, PurgeLag, RunSummary};
use super::target::LoadTarget;
use super::{MEASURED, RunJob, WARM_UP};
use crate::bench::account;
use crate::bench::check::Lag;
use crate::bench::histogram::Histogram;
use crate::bench::load::{Load, LoadTally};
use crate::bench::metrics_text::Buckets;
use crate::bench::report::grouped;
use crate::client::endpoint::Endpoint;
use crate::clock;
use crate::model::error::{Error, Result};
use crate::telemetry::Exporter;

const TICK: Duration = Duration::from_secs(1);
/// Without a terminal a line is printed this often, in ticks.
const PLAIN_TICKS: usize = 5;
/// How far behind its second the oldest item of a purge was, on the node's own account.
const PURGE_LAG: &str = "bolide_expiry_purge_lag_seconds";
/// The log shows the largest value of an interval in milliseconds.
const NANOSECONDS_PER_MILLISECOND: f64 = 1e6;

/// An HdrHistogram log: a file that the tools around HdrHistogram read.
pub struct HdrLog {
    file: BufWriter<File>,
    path: String,
    begun: Duration,
}

impl HdrLog {
    pub fn create(path: &Path) -> Result<Self> {
        let path_shown = path.display().to_string();
        let file = File::create(path).map_err(|error| unwritable(&path_shown, &error))?;
        let mut log = Self {
            file: BufWriter::new(file),
            path: path_shown,
            begun: clock::wall(),
        };
        let mut serializer = V2DeflateSerializer::new();
        let begun = UNIX_EPOCH + log.begun;
        IntervalLogWriterBuilder::new()
            .add_comment("latencies in nanoseconds, an interval a second for each operation")
            .with_start_time(begun)
            .with_base_time(begun)
            .with_max_value_divisor(NANOSECONDS_PER_MILLISECOND)
            .begin_log_with(&mut log.file, &mut serializer)
            .map_err(|error| unwritable(&log.path, &error))?;
        Ok(log)
    }

    /// Appends one interval; the head of the log is written already.
    fn append(&mut self, tag: &str, length: Duration, latency: &Histogram) -> Result<()> {
        let mut lines = Vec::new();
        let mut serializer = V2DeflateSerializer::new();
        let from = clock::wall().saturating_sub(self.begun + length);
        let written = IntervalLogWriterBuilder::new()
            .with_max_value_divisor(NANOSECONDS_PER_MILLISECOND)
            .begin_log_with(&mut lines, &mut serializer)
            .and_then(|mut log| {
                let interval = log.write_histogram(latency.counts(), from, length, Tag::new(tag));
                interval.map_err(|error| std::io::Error::other(format!("{error:?}")))
            });
        written.map_err(|error| unwritable(&self.path, &error))?;
        // Of the lines only the interval's is new.
        let text = String::from_utf8_lossy(&lines);
        let interval = text.lines().find(|line| line.starts_with("Tag="));
        writeln!(self.file, "{}", interval.unwrap_or_default())
            .and_then(|()| self.file.flush())
            .map_err(|error| unwritable(&self.path, &error))
    }
}

fn unwritable(path: &str, error: &std::io::Error) -> Error {
    Error::bad_request(format!("cannot write '{path}': {error}"))
}

/// Where else the results of a run go while it runs.
#[derive(Default)]
pub struct Outlets {
    pub hdr: Option<HdrLog>,
    pub exporter: Option<Exporter>,
}

pub struct Recorder {
    begun: Instant,
    last_tick: Instant,
    /// How long the run is meant to take.
    planned: Duration,
    /// How long was measured.
    measured: Duration,
    /// By operation.
    totals: Vec<LoadTally>,
    lag: Lag,
    points: Vec<Point>,
    health: Option<Endpoint>,
    purge_before: Buckets,
    purge_last: Buckets,
    hdr: Option<HdrLog>,
    metrics: Metrics,
    is_terminal: bool,
}

impl Recorder {
    pub async fn new(
        job: &RunJob,
        shared: &RunState,
        health: Option<Endpoint>,
        outlets: Outlets,
    ) -> Result<Self> {
        let mut recorder = Self {
            begun: Instant::now(),
            last_tick: Instant::now(),
            planned: job.warm_up + job.length,
            measured: Duration::ZERO,
            totals: vec![LoadTally::default(); shared.operations.len()],
            lag: Lag::default(),
            points: Vec::new(),
            health,
            purge_before: Buckets::default(),
            purge_last: Buckets::default(),
            hdr: outlets.hdr,
            metrics: Metrics::new(outlets.exporter, &shared.operations, job.rate),
            is_terminal: std::io::stderr().is_terminal(),
        };
        recorder.purge_before = recorder.purge_lag().await;
        recorder.purge_last = recorder.purge_before.clone();
        Ok(recorder)
    }

    /// Warms up, measures, and ends.
    pub async fn follow(&mut self, job: &RunJob, load: &Load, shared: &RunState) -> Result<()> {
        self.until(job.warm_up, WARM_UP, load, shared).await?;
        load.enter_phase(MEASURED);
        self.last_tick = Instant::now();
        self.until(job.warm_up + job.length, MEASURED, load, shared)
            .await
    }

    async fn until(
        &mut self,
        end: Duration,
        phase: usize,
        load: &Load,
        shared: &RunState,
    ) -> Result<()> {
        loop {
            let left = end.saturating_sub(self.begun.elapsed());
            if left.is_zero() {
                return Ok(());
            }
            tokio::time::sleep(left.min(TICK)).await;
            self.tick(phase, load, shared).await?;
            if load.has_ended() {
                return Err(Error::unavailable(
                    "a thread of the driver ended: a connection could not be opened",
                ));
            }
        }
    }

    /// Adds what was in flight when the load ended. It counts, but it is no second of its own: no
    /// request was sent any more, so its rate would mean nothing.
    pub async fn finish(&mut self, load: &Load, shared: &RunState) -> Result<()> {
        let points = self.points.len();
        self.tick(MEASURED, load, shared).await?;
        if points > 0 {
            self.points.truncate(points);
        }
        if self.is_terminal {
            eprintln!();
        }
        Ok(())
    }

    async fn tick(&mut self, phase: usize, load: &Load, shared: &RunState) -> Result<()> {
        let tallies = load.take(phase);
        let length = self.last_tick.elapsed();
        self.last_tick = Instant::now();
        let operations: u64 = tallies.iter().map(|tally| tally.operations).sum();
        if operations == 0 && length < TICK / 2 {
            return Ok(());
        }
        let lag = shared.checker.take_lag();
        let purge = self.purge_lag().await;
        let purge_now = purge.since(&self.purge_last);
        self.purge_last = purge;
        self.metrics.add(&tallies, &lag, &shared.checker.violations);
        let mut all = LoadTally::default();
        for tally in &tallies {
            all.add(tally);
        }
        let part = |tally: &LoadTally| PointOperation::new(tally, length);
        self.points.push(Point {
            at_seconds: self.begun.elapsed().as_secs_f64(),
            is_warm_up: phase == WARM_UP,
            all: part(&all),
            operations: tallies.iter().map(part).collect(),
            due_reads: lag.seen.count(),
            seen_lag_seconds: lag.seen.max().as_secs_f64(),
            purge_lag_seconds: purge_now.quantile(0.99).filter(|lag| lag.is_finite()),
        });
        if phase == MEASURED {
            self.measured += length;
            for (total, tally) in self.totals.iter_mut().zip(&tallies) {
                total.add(tally);
            }
            if let Some(hdr) = &mut self.hdr {
                for (operation, tally) in shared.operations.iter().zip(&tallies) {
                    hdr.append(operation.name(), length, &tally.latency)?;
                }
            }
        }
        self.lag.seen.add(&lag.seen);
        self.show(phase, &all, length, shared);
        Ok(())
    }

    fn show(&self, phase: usize, all: &LoadTally, length: Duration, shared: &RunState) {
        let errors: u64 = self.totals.iter().map(LoadTally::errors_total).sum();
        let elapsed = self.begun.elapsed().min(self.planned).as_secs_f64();
        let planned = self.planned.as_secs_f64();
        let line = format!(
            "{elapsed:.0}/{planned:.0} s{}  {:>9} /s  p99 {:>8.2} ms  expiry lag {:.3} s  \
             errors {errors}  violations {}",
            if phase == WARM_UP { " (warm-up)" } else { "" },
            grouped(all.operations as f64 / length.as_secs_f64().max(1e-3)),
            all.latency.quantile(0.99).as_secs_f64() * 1e3,
            self.lag.seen.max().as_secs_f64(),
            shared.checker.violations.total(),
        );
        if self.is_terminal {
            let shown = progress::line(elapsed / planned, &line, progress::columns());
            eprint!("\r\x1b[2K{shown}");
        } else if self.points.len() % PLAIN_TICKS == 1 {
            eprintln!("{line}");
        }
    }

    /// What the node says of its purge so far; nothing, where it cannot be asked.
    async fn purge_lag(&self) -> Buckets {
        let Some(health) = &self.health else {
            return Buckets::default();
        };
        match account::metrics(health).await {
            Ok(text) => Buckets::read(&text, PURGE_LAG),
            Err(_) => self.purge_last.clone(),
        }
    }

    pub fn summary(
        self,
        job: &RunJob,
        target: &LoadTarget,
        shared: &RunState,
        unsent: u64,
        is_interrupted: bool,
    ) -> RunSummary {
        let purge = self.purge_last.since(&self.purge_before);
        let quantile = |share| purge.quantile(share);
        let purge = quantile(0.5)
            .zip(quantile(0.99))
            .map(|(p50, p99)| PurgeLag {
                p50_seconds_at_most: p50,
                p99_seconds_at_most: p99,
            });
        RunSummary::new(
            job,
            target.shown(),
            shared,
            super::summary::RunFigures {
                length: self.measured,
                totals: self.totals,
                lag: self.lag,
                purge,
                points: self.points,
                unsent,
                is_interrupted,
            },
        )
    }
}
