//! Metrics names in one table, tracing, health.
