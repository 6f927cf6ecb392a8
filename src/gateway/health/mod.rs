//! The health port: is the process alive, is it ready, how is it doing, and its metrics, for
//! everybody and without any document; and orders, for those who may give them.

pub mod node_orders;
pub mod order_auth;
mod orders;
pub mod port;
mod ready;
mod scrape;

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicBool, Ordering},
};

use actix::Addr;
use arc_swap::ArcSwap;
use bytes::Bytes;
use serde_json::{Value, json};

use self::{
    order_auth::{OrderAuth, Sender},
    ready::{Readiness, condition},
};
use crate::{
    clock::ClockKeeper,
    cluster::{NodeId, member::Member},
    coordinator::{Coordinator, meta::Meta},
    model::{
        catalog::{Catalog, NodeState},
        error::{Error, ErrorKind},
    },
    router::RoutingTable,
    shard::host::{Leader, ShardHost},
    store::damage::Tally,
    telemetry::Exporter,
};

/// What the health port knows of the node.
pub struct Health {
    pub clock: Arc<ClockKeeper>,
    metrics: Exporter,
    pub orders: OrderAuth,
    running: OnceLock<Running>,
    stopping: AtomicBool,
}

/// What is there once the node serves.
pub struct Running {
    pub table: Arc<ArcSwap<RoutingTable>>,
    pub host: Arc<ShardHost>,
    pub coordinator: Addr<Coordinator>,
    /// There in a cluster only.
    pub cluster: Option<(Arc<Member>, Arc<Meta>)>,
}

impl Health {
    /// Of a node that is starting.
    pub fn new(clock: Arc<ClockKeeper>, metrics: Exporter, orders: OrderAuth) -> Self {
        Self {
            clock,
            metrics,
            orders,
            running: OnceLock::new(),
            stopping: AtomicBool::new(false),
        }
    }

    /// The node serves from now on.
    pub fn started(&self, running: Running) {
        // A node starts once.
        let _ = self.running.set(running);
    }

    /// The node serves nobody who comes from now on.
    pub fn stopping(&self) {
        self.stopping.store(true, Ordering::Release);
    }

    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// `None` while the node is starting.
    pub fn running(&self) -> Option<&Running> {
        self.running.get()
    }
}

/// What is said of what is not there yet.
pub fn starting() -> Error {
    Error::unavailable("the node is starting")
}

/// A request to the health port.
pub struct Asked<'a> {
    pub verb: &'a str,
    pub path: &'a str,
    /// What follows the `?`, as it was sent.
    pub query: &'a str,
    pub sender: Sender<'a>,
}

/// What is answered to it.
#[derive(Debug)]
pub struct Told {
    pub status: u16,
    pub content_type: &'static str,
    pub body: Bytes,
}

impl Told {
    pub fn json(status: u16, body: &Value) -> Self {
        Self {
            status,
            content_type: "application/json",
            body: body.to_string().into(),
        }
    }

    pub fn error(error: &Error) -> Self {
        Self::json(error.status(), &json!({"error": error.message}))
    }
}

/// What everybody may see. Everything else on this port is an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Page {
    Alive,
    Ready,
    Status,
    Metrics,
}

impl Page {
    fn at(path: &str) -> Option<Self> {
        match path {
            "/alive" => Some(Self::Alive),
            "/ready" => Some(Self::Ready),
            "/status" => Some(Self::Status),
            "/metrics" => Some(Self::Metrics),
            _ => None,
        }
    }
}

/// The one entry point of the health port.
pub async fn answer(health: &Arc<Health>, asked: &Asked<'_>) -> Told {
    match (Page::at(asked.path), asked.verb) {
        (None, _) => orders::answer(health, asked).await,
        (Some(page), "GET" | "HEAD") => show(health, page, asked.query).await,
        (Some(_), verb) => Told::error(&Error::new(
            ErrorKind::MethodNotAllowed,
            format!("'{}' does not take the method {verb}", asked.path),
        )),
    }
}

async fn show(health: &Arc<Health>, page: Page, query: &str) -> Told {
    match page {
        Page::Alive => Told::json(200, &json!({"alive": true})),
        Page::Ready => ready(health, query),
        Page::Status => status(health),
        Page::Metrics => metrics(Arc::clone(health)).await,
    }
}

/// With `?strict` every broken shard counts.
fn ready(health: &Health, query: &str) -> Told {
    let strict = query
        .split('&')
        .any(|part| part.split('=').next() == Some("strict"));
    let readiness = Readiness::of(health);
    let status = match readiness.state.is_ready(strict) {
        true => 200,
        false => 503,
    };
    Told::json(status, &readiness.to_json(strict))
}

fn status(health: &Health) -> Told {
    let Some(running) = health.running() else {
        return Told::error(&starting());
    };
    let table = running.table.load();
    let own = running.cluster.as_ref().map(|(member, _)| member.node);
    let mut containers: Vec<Value> = table
        .routes()
        .map(|route| {
            let shards: Vec<Value> = route.shards.iter().map(|shard| {
                let mut status = shard_status(shard, own);
                let range = route.container.ranges.iter().find(|range| range.id == shard.facts.range_id);
                if let Some(range) = range.filter(|_| own.is_some()) {
                    status["replicas"] = json!(range.replicas);
                    status["leaving"] = json!(range.leaving);
                }
                status
            }).collect();
            json!({"container": &*route.name_path, "defaultTtl": route.container.definition.default_ttl.to_json(), "shards": shards})
        })
        .collect();
    containers.sort_by(|a, b| a["container"].as_str().cmp(&b["container"].as_str()));
    let clock = health.clock.clock();
    let cluster = running.cluster.as_ref();
    Told::json(
        200,
        &json!({
            "cluster": cluster.map(|(member, meta)| cluster_status(member, meta, &table.catalog)),
            "version": env!("CARGO_PKG_VERSION"),
            "now": clock.now(),
            "purgingPaused": clock.purging_paused(),
            "clock": health.clock.status(),
            "opening": running.host.openings().left(),
            "containers": containers,
            "removed": removed_status(&running.host),
            "lostSequences": running.host.lost_sequences(),
        }),
    )
}

/// Folders that a start has set aside.
fn removed_status(host: &ShardHost) -> Vec<Value> {
    let removed = host.removed().into_iter();
    removed
        .map(|one| json!({"name": one.name, "bytes": one.bytes, "since": one.since}))
        .collect()
}

fn cluster_status(member: &Member, meta: &Meta, catalog: &Catalog) -> Value {
    let nodes = catalog.nodes.iter().map(|(node, record)| {
        let ranges = || catalog.containers().flat_map(|container| &container.ranges);
        let nodes = json!({
            "address": record.address,
            "state": match record.state {
                NodeState::Member => "member",
                NodeState::Draining => "draining",
            },
            "replicas": ranges().filter(|range| range.replicas.contains(node)).count(),
            "leaving": ranges().filter(|range| range.leaving.contains(node)).count(),
        });
        (node.to_string(), nodes)
    });
    let groups = member.driver.status();
    let groups = groups.iter().map(|group| {
        let lag = group
            .lag
            .iter()
            .map(|(node, lag)| (node.to_string(), json!(lag)));
        json!({
            "group": group.group.to_string(),
            "leads": group.role.is_leader,
            "leader": group.role.leader,
            "term": group.role.term,
            "committed": group.commit,
            "voters": group.members.voters,
            "learners": group.members.learners,
            "lag": lag.collect::<serde_json::Map<_, _>>(),
        })
    });
    let counts = member.counts();
    let members = member.members();
    let connected = members.keys().filter(|node| member.is_connected(**node));
    json!({
        "node": member.node,
        "members": members.iter().map(|(node, address)| (node.to_string(), json!(address))).collect::<serde_json::Map<_, _>>(),
        "nodes": nodes.collect::<serde_json::Map<_, _>>(),
        "connected": connected.collect::<Vec<_>>(),
        "catalogLeader": meta.leader(),
        "groups": groups.collect::<Vec<_>>(),
        "refusedFrames": counts.refused_frames.load(Ordering::Relaxed),
        "refusedNodes": counts.refused_nodes.load(Ordering::Relaxed) + counts.refused_strangers.load(Ordering::Relaxed),
    })
}

/// `own` is this node in a cluster.
fn shard_status(shard: &crate::shard::host::ShardHandle, own: Option<NodeId>) -> Value {
    let facts = &shard.facts;
    let range = json!({"id": facts.range_id, "min": facts.range.min.to_hex(), "max": facts.range.max.to_hex()});
    if shard.remote().is_some() {
        return json!({"range": range, "error": null, "remote": true});
    }
    if shard.is_opening() {
        return json!({"range": range, "error": null, "opening": true});
    }
    match shard.view() {
        Err(error) => json!({"range": range, "error": error.message}),
        Ok(view) => {
            let state = view.state();
            let counters = &view.counters;
            let (progress, lazy) = view.index_progress();
            json!({
                "range": range,
                "leader": match shard.leader() {
                    Some(Leader::Here) => json!(own),
                    Some(Leader::Remote(node)) => json!(node),
                    None => Value::Null,
                },
                "error": condition(shard).1,
                "lsn": state.lsn,
                "secondsAhead": view.seconds_ahead(),
                "documents": state.documents,
                "bytes": state.bytes,
                "splitLeftovers": view.has_foreign(),
                "deadBytes": state.dead_bytes,
                "diskBytes": view.engine.disk_bytes(),
                "requestsUnderWay": shard.requests_under_way(),
                "commands": counters.commands.load(Ordering::Relaxed),
                "fsyncs": counters.fsyncs.load(Ordering::Relaxed),
                "purged": counters.purged.load(Ordering::Relaxed),
                "restarts": counters.restarts.load(Ordering::Relaxed),
                "tornBytes": view.engine.torn_bytes(),
                "damage": tally(&view.engine.damage().damaged),
                "diskFailures": tally(&view.engine.damage().failed),
                "index": {"mode": state.index.mode.name(), "progress": progress, "lazyProgress": lazy},
            })
        }
    }
}

/// What was met of damage, or of a failing disk, since the shard was opened.
fn tally(met: &Tally) -> Value {
    match met.first() {
        None => Value::Null,
        Some(first) => json!({"count": met.count(), "first": first}),
    }
}

async fn metrics(health: Arc<Health>) -> Told {
    // Shards are looked at, which may need the disk.
    let rendered = tokio::task::spawn_blocking(move || {
        let observe = || {
            let running = health.running();
            let table = running.map(|running| running.table.load());
            let table = table.as_ref().map(|table| &***table);
            let ready = Readiness::of(&health).state.is_ready(false);
            let host = running.map(|running| &*running.host);
            scrape::observe(table, &health.clock.clock(), host, ready);
        };
        health.metrics.render(observe)
    });
    match rendered.await {
        Ok(text) => Told {
            status: 200,
            content_type: "text/plain; version=0.0.4",
            body: text.into(),
        },
        Err(_) => Told::error(&Error::unavailable("the node is stopping")),
    }
}
