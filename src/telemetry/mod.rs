//! Metrics names in one table, tracing, health.

pub const CLOCK_JUMPS: &str = "bolide_clock_jumps_total";
pub const EXPIRY_PAUSED: &str = "bolide_expiry_paused";
pub const PURGED: &str = "bolide_expiry_purged_items_total";
pub const PURGE_LAG: &str = "bolide_expiry_purge_lag_seconds";
pub const FSYNCS: &str = "bolide_commit_fsyncs_total";
pub const COMMANDS: &str = "bolide_commit_commands_total";

/// A group of this many commands was made durable with one fsync.
pub fn committed(commands: usize) {
    metrics::counter!(FSYNCS).increment(1);
    metrics::counter!(COMMANDS).increment(commands as u64);
}

/// This many expired items left the store.
pub fn purged(items: usize) {
    if items > 0 {
        metrics::counter!(PURGED).increment(items as u64);
    }
}

/// How far behind its second the oldest item of a purge slice was.
pub fn purge_lag(seconds: i64, items: usize) {
    if items > 0 {
        metrics::histogram!(PURGE_LAG).record(seconds as f64);
    }
}

/// Installs the recorder; what it collects is rendered by the handle.
pub fn install()
-> Result<metrics_exporter_prometheus::PrometheusHandle, metrics_exporter_prometheus::BuildError> {
    metrics_exporter_prometheus::PrometheusBuilder::new().install_recorder()
}
