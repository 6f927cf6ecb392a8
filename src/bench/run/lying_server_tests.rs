//! The checker against servers that lie: each kind of lie is found, and an honest server is left
//! in peace.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};

use super::recorder::Outlets;
use super::summary::RunSummary;
use super::target::LoadTarget;
use super::{RunJob, execute};
use crate::bench::event_loop;
use crate::bench::workload::Workload;
use crate::client::unix_seconds;
use crate::server::{Answer, Request, plain, simple, with_header};

/// Every so many requests of the kind are lied about.
const EVERY: u64 = 40;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lie {
    None,
    ShowsExpired,
    HidesLive,
    LosesWrites,
    AnswersStale,
    MixesItemsUp,
    FeedsExpired,
    FeedForgets,
    ScanForgets,
}

/// A store in memory that speaks as much of the protocol as the driver does.
struct Liar {
    lie: Lie,
    turns: u64,
    lsn: u64,
    /// Versions of each item, the last one in force.
    items: HashMap<String, Vec<Value>>,
}

impl Liar {
    fn turn(&mut self) -> bool {
        self.turns += 1;
        self.turns.is_multiple_of(EVERY)
    }

    fn lives(item: &Value) -> bool {
        let ttl = item.get("ttl").and_then(Value::as_u64);
        ttl.is_none_or(|ttl| item["_ts"].as_u64().unwrap() + ttl > unix_seconds())
    }

    fn current(&self, id: &str) -> Option<&Value> {
        let item = self.items.get(id)?.last()?;
        Self::lives(item).then_some(item)
    }

    /// Whether it was there before; what it is now.
    fn store(&mut self, body: &Value) -> (bool, Value) {
        let id = body["id"].as_str().unwrap().to_owned();
        let was_there = self.current(&id).is_some();
        self.lsn += 1;
        let mut item = body.clone();
        item["_ts"] = json!(unix_seconds());
        item["_lsn"] = json!(self.lsn);
        if self.lie == Lie::LosesWrites && was_there && self.turn() {
            return (was_there, item);
        }
        self.items.entry(id).or_default().push(item.clone());
        (was_there, item)
    }

    fn read(&mut self, id: &str) -> Option<Value> {
        let is_turn = self.turn();
        let versions = self.items.get(id)?;
        match self.lie {
            Lie::ShowsExpired => versions.last().cloned(),
            Lie::HidesLive if is_turn => None,
            Lie::AnswersStale if is_turn && versions.len() > 1 => {
                versions.iter().rev().nth(1).cloned()
            }
            Lie::MixesItemsUp if is_turn => {
                let mut item = self.current(id)?.clone();
                item["payload"] = json!("AAAA");
                Some(item)
            }
            _ => self.current(id).cloned(),
        }
    }

    /// The items after this LSN, and the last one's.
    fn feed(&mut self, after: u64) -> Vec<Value> {
        let shows = |item: &&Value| self.lie == Lie::FeedsExpired || Self::lives(item);
        let last = self.items.values().filter_map(|versions| versions.last());
        let mut items: Vec<Value> = last
            .filter(|item| item["_lsn"].as_u64().unwrap() > after)
            .filter(shows)
            .cloned()
            .collect();
        items.sort_by_key(|item| item["_lsn"].as_u64());
        items.truncate(100);
        if self.lie == Lie::FeedForgets {
            items.retain(|item| item["id"] != "i000000007");
        }
        items
    }

    fn scan(&mut self, first: &str, limit: usize) -> Vec<Value> {
        let is_turn = self.turn();
        let live = self.items.values().filter_map(|versions| versions.last());
        let key = &self.items[first].last().unwrap()["pk"];
        let mut items: Vec<Value> = live
            .filter(|item| Self::lives(item) && &item["pk"] == key)
            .filter(|item| item["id"].as_str().unwrap() >= first)
            .cloned()
            .collect();
        items.sort_by(|a, b| a["id"].as_str().cmp(&b["id"].as_str()));
        items.truncate(limit);
        if self.lie == Lie::ScanForgets && is_turn {
            items.remove(0);
        }
        items
    }
}

fn reply(status: u16, body: &Value) -> Answer {
    plain(status, "application/json", body.to_string())
}

fn answer(request: &Request, body: &Bytes, liar: &Mutex<Liar>) -> Answer {
    let mut liar = liar.lock().unwrap();
    let path = request.path().to_owned();
    let header = |name: &str| {
        request
            .headers()
            .get(name)
            .and_then(|value| value.to_str().ok())
    };
    let (_, rest) = path.split_once("/docs").unwrap_or(("", "-"));
    let id = rest.trim_start_matches('/').to_owned();
    let status = match (request.method(), rest) {
        (_, "-") if path.ends_with("/pkranges") => {
            return reply(200, &json!({"PartitionKeyRanges": [{"id": "0"}]}));
        }
        (&Method::POST, "-") => return reply(201, &json!({})),
        (_, "-") => return reply(200, &json!({})),
        (&Method::GET, "") => {
            let after = header("if-none-match").and_then(|etag| etag.parse().ok());
            let after = after.unwrap_or(0);
            let items = liar.feed(after);
            let last = items
                .last()
                .map_or(after, |item| item["_lsn"].as_u64().unwrap());
            let reply = match items.is_empty() {
                true => plain(304, "application/json", ""),
                false => reply(200, &json!({ "Documents": items })),
            };
            return with_header(reply, http::header::ETAG, &last.to_string());
        }
        (&Method::GET, _) => match liar.read(&id) {
            Some(item) => return reply(200, &item),
            None => 404,
        },
        (&Method::DELETE, _) => match liar.items.remove(&id) {
            Some(_) => return plain(204, "application/json", ""),
            None => 404,
        },
        _ => {
            let body: Value = serde_json::from_slice(body).unwrap();
            if let Some(operations) = body.as_array() {
                for operation in operations {
                    liar.store(&operation["resourceBody"]);
                }
                return reply(200, &json!([]));
            }
            if let Some(query) = body.get("query").and_then(Value::as_str) {
                let limit = query.rsplit(' ').next().unwrap().parse().unwrap();
                let items = liar.scan(body["parameters"][0]["value"].as_str().unwrap(), limit);
                return reply(200, &json!({ "Documents": items }));
            }
            let is_update = request.method() == Method::PUT;
            if is_update && liar.current(&id).is_none() {
                404
            } else {
                let (was_there, item) = liar.store(&body);
                let status = if was_there { 200 } else { 201 };
                let token = http::HeaderName::from_static("x-ms-session-token");
                let lsn = format!("0:1#{}", liar.lsn);
                return with_header(reply(status, &item), token, &lsn);
            }
        }
    };
    reply(status, &json!({}))
}

fn serve(lie: Lie) -> u16 {
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let liar = Arc::new(Mutex::new(Liar {
        lie,
        turns: 0,
        lsn: 0,
        items: HashMap::new(),
    }));
    // The thread ends with the process.
    std::thread::spawn(move || {
        actix::System::new().block_on(async move {
            let _server = simple::serve(listener, 1, move || {
                let liar = Arc::clone(&liar);
                move |request: &Request, body: Bytes| answer(request, &body, &liar)
            })
            .unwrap();
            std::future::pending::<()>().await;
        });
    });
    port
}

fn summary(lie: Lie, workload: &Value, length: Duration) -> RunSummary {
    let workload: Workload = serde_json::from_value(workload.clone()).unwrap();
    let job = RunJob {
        name: "liar".to_owned(),
        workload,
        connections: 4,
        warm_up: Duration::ZERO,
        length,
        rate: Some(4_000.0),
        seed: 1,
        is_checked: true,
    };
    let target = LoadTarget::of_port(serve(lie));
    event_loop()
        .unwrap()
        .block_on(execute(&job, &target, Outlets::default()))
        .unwrap()
}

/// Items come and go.
fn expiring() -> Value {
    json!({
        "about": "", "container": {"default_ttl": -1}, "items": {"count": 200, "ttl": 1},
        "operations": {"insert": 30, "read": 70},
        "keys": {"distribution": "recent", "recent_seconds": 4},
        "change_feed": {"readers": 1},
    })
}

/// Items are written again and again.
fn changing() -> Value {
    json!({
        "about": "", "items": {"count": 200},
        "operations": {"read": 50, "update": 20, "upsert": 20, "read_modify_write": 5, "scan": 5},
        "change_feed": {"readers": 1},
    })
}

fn found(lie: Lie, workload: &Value, seconds: f64) -> Vec<(&'static str, u64)> {
    let summary = summary(lie, workload, Duration::from_secs_f64(seconds));
    assert!(summary.all.count > 100, "{}", summary.table());
    let total = summary.violations_total();
    assert_eq!(total > 0, !summary.evidence.is_empty());
    for evidence in &summary.evidence {
        assert!(evidence.request.contains("docs"), "{evidence:?}");
        assert!(evidence.sent_unix_seconds > 1e9 && !evidence.what.is_empty());
    }
    let kinds = summary.violations.into_iter();
    kinds.filter(|(_, count)| *count > 0).collect()
}

#[test]
fn an_honest_server_is_left_in_peace() {
    assert_eq!(found(Lie::None, &expiring(), 3.2), []);
    assert_eq!(found(Lie::None, &changing(), 1.0), []);
}

#[test]
fn an_item_that_is_seen_after_its_second_is_found() {
    let found = found(Lie::ShowsExpired, &expiring(), 3.2);
    assert_eq!(found[0].0, "expired_seen", "{found:?}");
    assert_eq!(found.len(), 1, "{found:?}");
}

#[test]
fn an_expired_item_in_the_change_feed_is_found() {
    // The feed of a liar starts over only for new readers, so the load is what expires in it.
    let mut workload = expiring();
    workload["operations"] = json!({"read": 1});
    workload["keys"] = json!({"distribution": "uniform"});
    workload["items"]["count"] = json!(20_000);
    let found = found(Lie::FeedsExpired, &workload, 3.2);
    assert_eq!(found[0].0, "expired_seen", "{found:?}");
}

#[test]
fn a_live_item_that_is_missing_is_found() {
    for (lie, workload) in [
        (Lie::HidesLive, changing()),
        (Lie::ScanForgets, changing()),
        (Lie::FeedForgets, changing()),
    ] {
        let found = found(lie, &workload, 1.0);
        assert_eq!(found[0].0, "live_missing", "{lie:?} {found:?}");
        assert_eq!(found.len(), 1, "{lie:?} {found:?}");
    }
}

#[test]
fn a_lost_write_is_found() {
    let found = found(Lie::LosesWrites, &changing(), 1.0);
    assert!(
        found.iter().any(|(kind, _)| *kind == "lost_write"),
        "{found:?}"
    );
}

#[test]
fn a_stale_answer_is_found() {
    let found = found(Lie::AnswersStale, &changing(), 1.0);
    assert_eq!(found[0].0, "stale_read", "{found:?}");
    assert_eq!(found.len(), 1, "{found:?}");
}

#[test]
fn an_item_with_what_nobody_wrote_is_found() {
    let found = found(Lie::MixesItemsUp, &changing(), 0.6);
    assert_eq!(found[0].0, "wrong_content", "{found:?}");
}
