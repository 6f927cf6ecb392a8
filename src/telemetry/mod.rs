//! Metrics: their names in one table, the handles that count them, and the exporter that shows them.
//!
//! Whoever counts calls a function of its theme (`requests`, `expiry`, `commits`); each keeps its handles, so that counting looks nothing up. What can be
//! read off when somebody asks (gauges of shards and of the process) is read off then, not kept up to date meanwhile.

pub mod bench;
pub mod commits;
pub mod connections;
pub mod containers;
pub mod expiry;
pub mod exporter;
pub mod labels;
pub mod metric;
pub mod process;
pub mod queries;
pub mod requests;
pub mod splits;
pub mod table;

pub use exporter::Exporter;

/// Makes the series of a node known that must be seen at 0 before anything happens.
pub fn register_node() {
    commits::register();
    connections::register();
    expiry::register();
    queries::register();
    splits::register();
}
