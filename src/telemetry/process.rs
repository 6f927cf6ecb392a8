//! The process as the system sees it, and which build it is. Looked up when asked for.

use super::table;

/// Sets the gauges of the process; what the system does not say is left out.
pub fn observe() {
    let process = metrics_process::collector::collect();
    let whole = |value: Option<u64>| value.map(|value| value as f64);
    let readings = [
        (&table::PROCESS_CPU, process.cpu_seconds_total),
        (&table::PROCESS_MEMORY, whole(process.resident_memory_bytes)),
        (&table::PROCESS_OPEN_FILES, whole(process.open_fds)),
        (&table::PROCESS_OPEN_FILES_MAX, whole(process.max_fds)),
        (&table::PROCESS_THREADS, whole(process.threads)),
        (&table::PROCESS_START, whole(process.start_time_seconds)),
    ];
    for (metric, value) in readings {
        if let Some(value) = value {
            metric.gauge(&[]).set(value);
        }
    }
    table::BUILD_INFO
        .gauge(&[env!("CARGO_PKG_VERSION")])
        .set(1.0);
}
