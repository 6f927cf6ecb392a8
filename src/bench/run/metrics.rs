//! What the driver tells of itself while it runs: `/metrics` on a port of this machine.
//!
//! The recorder hands over what it has taken out of the load once a second, so the connections
//! count nothing twice and wait for nothing.

use std::net::{SocketAddr, TcpListener};
use std::sync::mpsc;

use bytes::Bytes;

use crate::bench::check::{Lag, ViolationKind, Violations};
use crate::bench::histogram::Histogram;
use crate::bench::load::{LoadTally, NO_ANSWER, NOT_IMPLEMENTED};
use crate::bench::workload::WorkloadOperation;
use crate::model::error::{Error, Result};
use crate::server::{Request, plain, simple};
use crate::telemetry::Exporter;
use crate::telemetry::bench::{OperationSeries, RunSeries};
use crate::telemetry::labels::BenchOutcome;

/// Where Prometheus looks for a driver unless it is told otherwise.
const PORT: u16 = 8_090;
const THROTTLED: u16 = 429;

/// Serves what is counted until the process ends. On the usual port, if it is free; a port that
/// was asked for must be free. Nothing comes back if nothing is served.
pub fn serve(port: Option<u16>) -> Result<Option<Exporter>> {
    let exporter = Exporter::install()
        .map_err(|error| Error::internal(format!("metrics cannot be collected: {error}")))?;
    match (listen(exporter.clone(), port.unwrap_or(PORT)), port) {
        (Ok(address), _) => eprintln!("metrics of this run: http://{address}/metrics"),
        (Err(error), None) => {
            eprintln!(
                "metrics of this run are not served: port {PORT}: {error}; --metrics-port 0 takes \
                 another"
            );
            return Ok(None);
        }
        (Err(error), Some(port)) => {
            return Err(Error::bad_request(format!(
                "cannot serve metrics on port {port}: {error}"
            )));
        }
    }
    Ok(Some(exporter))
}

/// The series of a run.
pub struct Metrics {
    /// Absent where nothing is served.
    exporter: Option<Exporter>,
    operations: Vec<OperationSeries>,
    run: RunSeries,
}

impl Metrics {
    pub fn new(
        exporter: Option<Exporter>,
        operations: &[WorkloadOperation],
        rate: Option<f64>,
    ) -> Self {
        let operations = operations.iter().map(|operation| operation.name());
        Self {
            exporter,
            operations: operations.map(OperationSeries::new).collect(),
            run: RunSeries::new(
                rate.unwrap_or(0.0),
                ViolationKind::ALL.iter().map(|kind| kind.name()),
            ),
        }
    }

    /// Adds what happened since the last time, by operation.
    pub fn add(&self, tallies: &[LoadTally], lag: &Lag, violations: &Violations) {
        let Some(exporter) = &self.exporter else {
            return;
        };
        for (series, tally) in self.operations.iter().zip(tallies) {
            let unexpected: u64 = tally.unexpected.values().sum();
            series.ended(BenchOutcome::Ok, tally.operations - unexpected);
            for (status, count) in &tally.unexpected {
                series.ended(outcome(*status), *count);
            }
            each(&tally.latency, |seconds, count| series.took(seconds, count));
        }
        each(&lag.seen, |seconds, count| self.run.seen(seconds, count));
        for (index, kind) in ViolationKind::ALL.iter().enumerate() {
            self.run.violations(index, violations.count(*kind));
        }
        exporter.tidy();
    }
}

fn outcome(status: u16) -> BenchOutcome {
    match status {
        NO_ANSWER => BenchOutcome::Unanswered,
        THROTTLED => BenchOutcome::Throttled,
        NOT_IMPLEMENTED => BenchOutcome::NotImplemented,
        _ => BenchOutcome::Failed,
    }
}

fn each(histogram: &Histogram, mut record: impl FnMut(f64, usize)) {
    let counts = histogram.counts();
    for step in counts.iter_recorded() {
        // The lower end of the step, so that nothing stays nothing.
        let seconds = counts.lowest_equivalent(step.value_iterated_to()) as f64 / 1e9;
        let count = usize::try_from(step.count_at_value()).unwrap_or(usize::MAX);
        record(seconds, count);
    }
}

/// The server has threads of its own: a scrape does not hold up the recorder.
fn listen(exporter: Exporter, port: u16) -> std::io::Result<SocketAddr> {
    let listener = TcpListener::bind(("127.0.0.1", port))?;
    let address = listener.local_addr()?;
    let (tell, told) = mpsc::channel();
    std::thread::Builder::new()
        .name("bench-metrics".to_owned())
        .spawn(move || {
            actix::System::new().block_on(async move {
                let server = simple::serve(listener, 1, move || {
                    let exporter = exporter.clone();
                    move |request: &Request, _whole: Bytes| match request.path() {
                        "/metrics" => {
                            plain(200, "text/plain; version=0.0.4", exporter.render(|| {}))
                        }
                        _ => plain(404, "text/plain", "there is only /metrics\n"),
                    }
                });
                let _ = tell.send(server.as_ref().map(|_| ()).map_err(std::io::Error::kind));
                if server.is_ok() {
                    std::future::pending::<()>().await;
                }
            });
        })?;
    told.recv().map_err(std::io::Error::other)??;
    Ok(address)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::telemetry::labels::{BENCH_OPERATION, BENCH_VIOLATION};
    use crate::telemetry::metric::{Label, Values};

    #[test]
    fn a_lag_of_nothing_stays_nothing() {
        let mut histogram = Histogram::default();
        for lag in [Duration::ZERO, Duration::ZERO, Duration::from_secs(2)] {
            histogram.record(lag);
        }
        let mut told = Vec::new();
        each(&histogram, |seconds, count| told.push((seconds, count)));
        let (seconds, count) = told[1];
        assert_eq!((told[0], count), ((0.0, 2), 1));
        assert!((seconds - 2.0).abs() < 0.01, "{seconds}");
    }

    #[test]
    fn the_table_of_metrics_lists_every_operation_and_every_violation() {
        let listed = |label: &Label| match label.values {
            Values::Listed(values) => values.to_vec(),
            other => panic!("{other:?}"),
        };
        assert_eq!(
            listed(&BENCH_OPERATION),
            WorkloadOperation::ALL.map(WorkloadOperation::name)
        );
        assert_eq!(
            listed(&BENCH_VIOLATION),
            ViolationKind::ALL.map(ViolationKind::name)
        );
    }
}
