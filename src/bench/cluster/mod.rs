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

use super::measure::{Compared, Extent};
use super::node::Bench;
use super::options::{ClusterBench, ClusterCase};
use super::report::{Bar, Report, Unit};
use crate::model::error::Result;

/// What all cases need.
struct Context<'a> {
    bench: Bench,
    options: &'a ClusterBench,
    report: &'a RefCell<Report>,
}

impl Context<'_> {
    fn add(&self, case: &'static str, figure: &str, value: f64, unit: Unit, bar: Bar) {
        self.report.borrow_mut().add(case, figure, value, unit, bar);
    }

    fn extent(&self) -> Extent {
        Extent {
            length: Duration::from_secs_f64(self.options.seconds),
            operations_min: 0,
        }
    }

    /// Rates and latencies of both, and what the rates have to do with each other.
    fn add_rates(
        &self,
        case: &'static str,
        (base, subject): (&str, &str),
        compared: &Compared,
        bar: Bar,
    ) {
        let mut report = self.report.borrow_mut();
        report.add_measured(case, base, &compared.base);
        report.add_measured(case, subject, &compared.subject);
        let figure = format!("rate of {subject}, of {base}");
        report.add(case, &*figure, compared.rate_ratio(), Unit::Share, bar);
        let (low, high) = compared.rate_ratio_range();
        for (round, value) in [("lowest", low), ("highest", high)] {
            let figure = format!("{figure}, {round} round");
            report.add(case, figure, value, Unit::Share, Bar::None);
        }
    }

    /// The typical latencies of both, one request at a time.
    fn add_latencies(
        &self,
        case: &'static str,
        (base, subject): (&str, &str),
        compared: &Compared,
        bar: Bar,
    ) {
        let micros = |measured: &super::measure::Measured| measured.latency_micros(0.5);
        let (of_base, of_subject) = (micros(&compared.base), micros(&compared.subject));
        for (name, value) in [(base, of_base), (subject, of_subject)] {
            self.add(
                case,
                &format!("{name}, p50"),
                value,
                Unit::Micros,
                Bar::None,
            );
        }
        let figure = format!("{subject}, p50, in that of {base}");
        self.add(case, &figure, of_subject / of_base, Unit::Times, bar);
        for measured in [&compared.base, &compared.subject] {
            for (status, count) in &measured.tally.unexpected {
                let figure = format!("wrong answers ({status})");
                self.add(case, &figure, *count as f64, Unit::Count, Bar::AtMost(0.0));
            }
        }
    }
}

/// Runs all cases that are asked for. Their figures are in the report even if a later one fails.
pub async fn run(options: &ClusterBench, report: &RefCell<Report>) -> Result<()> {
    let context = Context {
        bench: Bench::new(options.data_path.as_deref())?,
        options,
        report,
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    context.add("machine", "cores", cores as f64, Unit::Count, Bar::None);
    if options.wants(ClusterCase::Create) {
        creates::run(&context).await?;
    }
    if options.wants(ClusterCase::Read) {
        reads::run(&context).await?;
    }
    if options.wants(ClusterCase::Forward) {
        forward::run(&context).await?;
    }
    if options.wants(ClusterCase::Strong) {
        strong::run(&context).await?;
    }
    if options.wants(ClusterCase::Shards) {
        many_shards::run(&context).await?;
    }
    if options.wants(ClusterCase::Failover) {
        failover::run(&context).await?;
    }
    Ok(())
}
