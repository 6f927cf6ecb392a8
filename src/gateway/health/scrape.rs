//! What is read off the node when somebody asks for its metrics: the shards by container, the clock, the process.

use std::{collections::BTreeMap, sync::atomic::Ordering};

use super::ready;
use crate::{
    clock::Clock,
    router::{ContainerRoute, RoutingTable},
    shard::{
        host::{ShardHandle, ShardHost},
        view::ShardView,
    },
    telemetry::{
        connections, expiry,
        labels::{BytesKind, ShardCondition},
        process, requests, table,
    },
};

/// Sets every gauge that is not kept up to date while things happen. There is no table and no host
/// while the node is starting.
pub fn observe(table: Option<&RoutingTable>, clock: &Clock, host: Option<&ShardHost>, ready: bool) {
    table::READY.gauge(&[]).set(f64::from(u8::from(ready)));
    let removed = host.map_or(0, |host| host.removed().iter().map(|one| one.bytes).sum());
    table::REMOVED_BYTES.gauge(&[]).set(removed as f64);
    table::REQUESTS_IN_FLIGHT
        .gauge(&[])
        .set(requests::in_flight() as f64);
    table::CONNECTIONS
        .gauge(&[])
        .set(connections::open() as f64);
    table::VISIBLE_LAG
        .gauge(&[])
        .set(expiry::visible_lag_seconds() as f64);
    table::PAUSED
        .gauge(&[])
        .set(f64::from(u8::from(clock.purging_paused())));
    table::CLOCK_FILE_DAMAGED
        .gauge(&[])
        .set(f64::from(u8::from(clock.has_lost_floor())));
    let sequences_lost = host.and_then(ShardHost::lost_sequences).is_some();
    table::SEQUENCES_LOST
        .gauge(&[])
        .set(f64::from(u8::from(sequences_lost)));
    process::observe();
    let mut containers: BTreeMap<&str, Totals> = BTreeMap::new();
    for route in table.into_iter().flat_map(RoutingTable::routes) {
        containers
            .entry(route.series.label())
            .or_default()
            .add(route);
    }
    for (container, totals) in containers {
        totals.set(container);
    }
}

/// The shards of one container, or of all that share a label.
#[derive(Default)]
struct Totals {
    conditions: [usize; ShardCondition::ALL.len()],
    bytes: [u64; BytesKind::ALL.len()],
    documents: u64,
    backlog: usize,
    oldest_overdue_seconds: f64,
    purged: u64,
    pacer: f64,
    /// What is left to do, so that a container without shards has nothing left.
    reindex_left: f64,
    lazy_lag: u64,
    recovery_seconds: f64,
    torn_bytes: u64,
    damage: u64,
    disk_failures: u64,
    waiting: usize,
    under_way: usize,
    restarts: u64,
    ahead_seconds: i64,
}

impl Totals {
    fn add(&mut self, route: &ContainerRoute) {
        for shard in route.shards.iter().filter(|one| one.remote().is_none()) {
            self.add_shard(shard);
        }
    }

    fn add_shard(&mut self, shard: &ShardHandle) {
        self.under_way += shard.requests_under_way();
        if let Ok(view) = shard.view() {
            self.add_view(&view);
        }
        let (condition, _) = ready::condition(shard);
        if let Some(count) = self.conditions.get_mut(condition as usize) {
            *count += 1;
        }
    }

    fn add_view(&mut self, view: &ShardView) {
        let state = view.state();
        let counters = &view.counters;
        self.documents += state.documents;
        let sizes = [
            (BytesKind::Items, state.bytes),
            (BytesKind::Dead, state.dead_bytes),
            (BytesKind::Files, view.engine.disk_bytes()),
            (BytesKind::Journal, view.engine.wal_bytes()),
            (BytesKind::Buffers, view.engine.buffer_bytes()),
        ];
        for (kind, bytes) in sizes {
            if let Some(sum) = self.bytes.get_mut(kind as usize) {
                *sum += bytes;
            }
        }
        match view.expiry_backlog() {
            Ok(backlog) => {
                self.backlog += backlog.items;
                if let Some(second) = backlog.oldest_expiry {
                    let seconds = view.clock.seconds_since(second);
                    self.oldest_overdue_seconds = self.oldest_overdue_seconds.max(seconds);
                }
            }
            Err(failure) => {
                tracing::warn!(range = view.facts.range_id, %failure, "the expiry backlog could not be counted");
            }
        }
        self.purged += counters.purged.load(Ordering::Relaxed);
        self.pacer = self.pacer.max(counters.purger_duty_ratio());
        let (progress, _) = view.index_progress();
        self.reindex_left = self.reindex_left.max(1.0 - f64::from(progress) / 100.0);
        self.lazy_lag += view.lazy_lag();
        let recovery = counters.recovery_micros.load(Ordering::Relaxed) as f64 / 1e6;
        self.recovery_seconds = self.recovery_seconds.max(recovery);
        self.torn_bytes += view.engine.torn_bytes();
        self.damage += view.engine.damage().damaged.count();
        self.disk_failures += view.engine.damage().failed.count();
        self.waiting += view.waiting();
        self.restarts += counters.restarts.load(Ordering::Relaxed);
        self.ahead_seconds = self.ahead_seconds.max(view.seconds_ahead());
    }

    fn set(&self, container: &str) {
        let gauges = [
            (&table::DOCUMENTS, self.documents as f64),
            (&table::BACKLOG, self.backlog as f64),
            (&table::OLDEST_OVERDUE, self.oldest_overdue_seconds),
            (&table::PACER, self.pacer),
            (&table::REINDEX_PROGRESS, 1.0 - self.reindex_left),
            (&table::LAZY_LAG, self.lazy_lag as f64),
            (&table::RECOVERY, self.recovery_seconds),
            (&table::TORN_BYTES, self.torn_bytes as f64),
            (&table::INTAKE, self.waiting as f64),
            (&table::UNDER_WAY, self.under_way as f64),
            (&table::SHARD_AHEAD, self.ahead_seconds as f64),
        ];
        for (metric, value) in gauges {
            metric.gauge(&[container]).set(value);
        }
        table::DAMAGE.counter(&[container]).absolute(self.damage);
        table::DISK_FAILURES
            .counter(&[container])
            .absolute(self.disk_failures);
        table::PURGED.counter(&[container]).absolute(self.purged);
        table::RESTARTS
            .counter(&[container])
            .absolute(self.restarts);
        for (kind, bytes) in BytesKind::TEXTS.iter().zip(self.bytes) {
            table::BYTES.gauge(&[container, kind]).set(bytes as f64);
        }
        for (condition, shards) in ShardCondition::TEXTS.iter().zip(self.conditions) {
            table::SHARDS
                .gauge(&[container, condition])
                .set(shards as f64);
        }
    }
}
