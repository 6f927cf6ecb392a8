//! The health port: is the process alive, is it ready, how is it doing, and its metrics. Unauthenticated and without any document.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use actix::Addr;
use actix_web::{HttpResponse, http::StatusCode, web};
use arc_swap::ArcSwap;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    orders::{self, Order},
    scrape,
};
use crate::{
    clock::ClockKeeper,
    cluster::{NodeId, member::Member},
    coordinator::{
        Coordinator, check,
        meta::Meta,
        questions::{self, Question},
        split::SplitShard,
    },
    model::{
        catalog::{Catalog, NodeState},
        error::{Error, ErrorKind, Result},
    },
    router::RoutingTable,
    shard::host::Leader,
    telemetry::Exporter,
};

/// How long a wish for a split waits for the catalog to have a leader.
const SPLIT_PATIENCE: Duration = Duration::from_secs(5);
const SPLIT_POLL: Duration = Duration::from_millis(20);

pub struct Health {
    pub table: Arc<ArcSwap<RoutingTable>>,
    pub clock: Arc<ClockKeeper>,
    pub metrics: Exporter,
    pub coordinator: Addr<Coordinator>,
    /// There in a cluster only.
    pub cluster: Option<(Arc<Member>, Arc<Meta>)>,
}

pub fn configure(config: &mut web::ServiceConfig) {
    config
        .route("/alive", web::get().to(alive))
        .route("/ready", web::get().to(ready))
        .route("/status", web::get().to(status))
        .route("/metrics", web::get().to(metrics))
        .route("/cluster/check", web::get().to(check_cluster))
        .route("/cluster/drain/{node}", web::post().to(drain))
        .route("/clock/confirm", web::post().to(confirm_clock))
        .route("/split", web::post().to(split));
}

async fn alive() -> HttpResponse {
    HttpResponse::Ok().json(json!({"alive": true}))
}

/// Ready when every shard can serve.
async fn ready(health: web::Data<Health>) -> HttpResponse {
    let table = health.table.load();
    let broken: Vec<String> = table
        .routes()
        .flat_map(|route| route.shards.iter().map(move |shard| (route, shard)))
        .filter(|(_, shard)| shard.remote().is_none())
        .filter_map(|(route, shard)| {
            Some(format!(
                "{}: {}",
                route.name_path,
                shard.check_writable().err()?
            ))
        })
        .collect();
    let body = json!({"ready": broken.is_empty(), "broken": broken});
    // A node with a broken shard serves the others: it is ready, and says what is wrong.
    HttpResponse::Ok().json(body)
}

async fn status(health: web::Data<Health>) -> HttpResponse {
    let table = health.table.load();
    let own = health.cluster.as_ref().map(|(member, _)| member.node);
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
    let cluster = health.cluster.as_ref();
    HttpResponse::Ok().json(json!({
        "cluster": cluster.map(|(member, meta)| cluster_status(member, meta, &table.catalog)),
        "version": env!("CARGO_PKG_VERSION"),
        "now": clock.now(),
        "purgingPaused": clock.purging_paused(),
        "containers": containers,
    }))
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
            "leads": group.role.leads,
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
                    Some(Leader::Elsewhere(node)) => json!(node),
                    None => Value::Null,
                },
                "error": view.check_writable().err().map(|error| error.message),
                "lsn": state.lsn,
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
                "index": {"mode": state.index.mode.name(), "progress": progress, "lazyProgress": lazy},
            })
        }
    }
}

async fn metrics(health: web::Data<Health>) -> HttpResponse {
    // Shards are looked at, which may need the disk.
    let rendered = web::block(move || {
        let observe = || scrape::observe(&health.table.load(), &health.clock.clock());
        health.metrics.render(observe)
    });
    match rendered.await {
        Ok(text) => HttpResponse::Ok()
            .content_type("text/plain; version=0.0.4")
            .body(text),
        Err(_) => HttpResponse::ServiceUnavailable().finish(),
    }
}

/// What to split: `?container=dbs/shop/colls/carts&range=0`.
#[derive(Deserialize)]
struct Split {
    container: String,
    /// May be left out where there is only one.
    range: Option<u32>,
}

/// The operator's wish that a shard be split. Answers when its parts have taken over.
async fn split(wish: web::Query<Split>, health: web::Data<Health>) -> HttpResponse {
    let Split { container, range } = wish.into_inner();
    let done = match names(&container) {
        Ok((database, container)) => split_shard(&health, &database, &container, range).await,
        Err(error) => Err(error),
    };
    match done {
        Ok(ranges) => HttpResponse::Ok().json(json!({"ranges": ranges})),
        Err(error) => {
            let status = StatusCode::from_u16(error.status());
            HttpResponse::build(status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR))
                .json(json!({"error": error.message}))
        }
    }
}

/// Has a shard split here or, where the catalog is led elsewhere, there.
async fn split_shard(
    health: &Health,
    database: &str,
    container: &str,
    range: Option<u32>,
) -> Result<Vec<u32>> {
    let deadline = Instant::now() + SPLIT_PATIENCE;
    loop {
        let request = SplitShard {
            database: database.to_owned(),
            container: container.to_owned(),
            range_id: range,
        };
        let gone = |_| Error::unavailable("the node is stopping");
        let done = health.coordinator.send(request).await.map_err(gone)?;
        let (leader, error) = match done {
            Err(error) => match error.kind {
                ErrorKind::Elsewhere(leader) => (leader, error),
                _ => return Err(error),
            },
            done => return done,
        };
        match (&health.cluster, leader) {
            (Some((member, _)), Some(node)) if node != member.node => {
                let question = Question::Split {
                    database: database.to_owned(),
                    container: container.to_owned(),
                    range,
                };
                let answer = member.request(node, question.encode()).await;
                if let Ok(answer) = answer {
                    return questions::decode_answer(&answer);
                }
                return Err(Error::unavailable(format!(
                    "node {node}, which leads the catalog, does not answer; whether the shard is being split is not known"
                )));
            }
            _ if Instant::now() > deadline => return Err(error),
            // There is no leader for a moment.
            _ => tokio::time::sleep(SPLIT_POLL).await,
        }
    }
}

/// Begins to take a node out of the cluster.
async fn drain(health: web::Data<Health>, node: web::Path<NodeId>) -> HttpResponse {
    let given = match &health.cluster {
        None => Err((400, "this node is on its own".to_owned())),
        Some((member, _)) => {
            let order = Order::Drain(node.into_inner());
            orders::give(member, &health.coordinator, order).await
        }
    };
    match given {
        Ok(_) => HttpResponse::Accepted().json(json!({"draining": true})),
        Err((status, message)) => {
            let status = StatusCode::from_u16(status);
            HttpResponse::build(status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR))
                .json(json!({"error": message}))
        }
    }
}

/// Database and container of a path by names.
fn names(path: &str) -> Result<(String, String)> {
    match path.split('/').collect::<Vec<_>>().as_slice() {
        ["dbs", database, "colls", container] => {
            Ok(((*database).to_owned(), (*container).to_owned()))
        }
        _ => Err(Error::bad_request(format!(
            "'{path}' is no container: dbs/DATABASE/colls/CONTAINER is expected"
        ))),
    }
}

/// Compares what is alive in all replicas of all shards.
async fn check_cluster(health: web::Data<Health>) -> HttpResponse {
    let Some((member, _)) = &health.cluster else {
        return HttpResponse::NotFound().json(json!({"error": "this node is on its own"}));
    };
    let shards = check::check(&health.table.load_full(), member).await;
    let equal = shards.iter().all(|shard| shard.equal);
    HttpResponse::Ok().json(json!({"equal": equal, "shards": shards}))
}

/// The operator's word that a jump of the clock is right.
async fn confirm_clock(health: web::Data<Health>) -> HttpResponse {
    health.clock.clock().confirm();
    HttpResponse::Ok().json(json!({"purgingPaused": false}))
}
