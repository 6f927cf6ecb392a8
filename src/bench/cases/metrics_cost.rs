//! What it costs a node to count a point read: the node's own code, on its own, against the CPU
//! time of the reads that were just measured.

use std::time::Instant;

use crate::telemetry::{
    Exporter,
    containers::ContainerSeries,
    labels::Operation,
    requests::{InFlight, Watch},
};

/// Requests that are counted in one round.
const REQUESTS: u32 = 200_000;
/// Rounds; the fastest one counts, because whatever else runs on the machine only slows one down.
const ROUNDS: u32 = 20;

/// Microseconds that counting a point read takes, the sorting of histograms included.
pub fn micros_a_read() -> Option<f64> {
    let exporter = Exporter::install().ok()?;
    let worker = InFlight::of_a_new_worker();
    let series = ContainerSeries::of("bench", "reads");
    let clock = crate::clock::Clock::system(
        crate::clock::Start::New,
        std::time::Duration::MAX,
        std::time::Duration::MAX,
    );
    let round = |_| {
        let begun = Instant::now();
        for _ in 0..REQUESTS {
            let watch = Watch::start(&worker);
            watch.operation(Operation::Read);
            watch.container(&series);
            watch.hands_out(Some(i64::MAX));
            watch.answered(200, 1.0, || clock.now());
        }
        exporter.tidy();
        begun.elapsed().as_secs_f64() * 1e6 / f64::from(REQUESTS)
    };
    (0..ROUNDS).map(round).min_by(f64::total_cmp)
}
