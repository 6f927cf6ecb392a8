//! How a cluster stands, as its nodes tell it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    path::Path,
};

use serde_json::Value;

use super::{hints, nodes};
use crate::model::error::{Error, Result};

/// The node that leads the catalog, as another sees it.
pub fn catalog_leader(status: &Value) -> Option<u64> {
    status["cluster"]["catalogLeader"].as_u64()
}

/// A node that `up` has started: its REST port, and what it says if it answers.
struct Known {
    port: u16,
    status: Option<Value>,
}

pub fn show(folder: &Path) -> Result<()> {
    let nodes = nodes::load(folder)?;
    let known: BTreeMap<u64, Known> = nodes
        .iter()
        .map(|node| {
            let status = node.health().get("/status");
            let port = node.port;
            (node.id.into(), Known { port, status })
        })
        .collect();
    print!("{}", shown(&known));
    if known.values().any(|node| node.status.is_some()) {
        return Ok(());
    }
    Err(Error::unavailable(format!(
        "no node of the cluster in '{}' answers; '{}' and '{}' start it again",
        folder.display(),
        hints::command("down", folder),
        hints::command("up", folder),
    )))
}

/// The whole text.
fn shown(known: &BTreeMap<u64, Known>) -> String {
    let mut text = format!(
        "{:<6} {:<26} {:<8} {:>8} {:>8}  connected\n",
        "node", "endpoint", "state", "leads", "max lag"
    );
    // One that knows a leader of the catalog has the newest list of nodes.
    let statuses = || known.values().filter_map(|node| node.status.as_ref());
    let witness = statuses()
        .find(|status| catalog_leader(status).is_some())
        .or_else(|| statuses().next());
    let listed = witness.map(listed).unwrap_or_default();
    let numbers: Vec<u64> = match listed.is_empty() {
        true => known.keys().copied().collect(),
        false => listed.keys().copied().collect(),
    };
    for number in numbers {
        let record = listed.get(&number).copied().unwrap_or(&Value::Null);
        let line = node_line(number, record, known.get(&number), witness);
        let _ = writeln!(text, "{}", line.trim_end());
    }
    if let Some(witness) = witness {
        let leader = catalog_leader(witness);
        let _ = writeln!(text, "\ncatalog: leader {}", or_none(leader));
        shards(&mut text, known, witness);
    }
    text
}

/// The nodes of the catalog, by number.
fn listed(status: &Value) -> BTreeMap<u64, &Value> {
    let nodes = status["cluster"]["nodes"].as_object().into_iter().flatten();
    nodes
        .filter_map(|(number, record)| Some((number.parse().ok()?, record)))
        .collect()
}

fn node_line(
    number: u64,
    record: &Value,
    known: Option<&Known>,
    witness: Option<&Value>,
) -> String {
    let status = known.and_then(|node| node.status.as_ref());
    // Of a node that was started elsewhere only the address is known at which the others reach it.
    let endpoint = match (known, record["address"].as_str()) {
        (Some(node), _) => format!("http://127.0.0.1:{}/", node.port),
        (None, Some(address)) => format!("nodes at {address}"),
        (None, None) => "?".to_owned(),
    };
    let is_connected = witness.is_some_and(|witness| {
        numbers_in(&witness["cluster"]["connected"]).any(|one| one == number)
    });
    let is_up = match known {
        Some(_) => status.is_some(),
        None => is_connected,
    };
    let state = match (is_up, record["state"].as_str()) {
        (false, _) => "down",
        (true, Some("draining")) => "draining",
        (true, _) => "up",
    };
    let Some(status) = status else {
        return format!("{number:<6} {endpoint:<26} {state}");
    };
    let cluster = &status["cluster"];
    let groups = cluster["groups"].as_array().into_iter().flatten();
    let led: Vec<&Value> = groups.filter(|group| group["leads"] == true).collect();
    let lags = led.iter().filter_map(|group| group["lag"].as_object());
    let lag = lags.flatten().filter_map(|(_, lag)| lag.as_u64()).max();
    let connected: Vec<String> = numbers_in(&cluster["connected"])
        .map(|one| one.to_string())
        .collect();
    format!(
        "{number:<6} {endpoint:<26} {state:<8} {:>8} {:>8}  {}",
        led.len(),
        lag.unwrap_or(0),
        connected.join(",")
    )
}

/// Adds a line for each shard: its leader, and how far each replica is.
fn shards(text: &mut String, known: &BTreeMap<u64, Known>, witness: &Value) {
    for container in witness["containers"].as_array().into_iter().flatten() {
        for shard in container["shards"].as_array().into_iter().flatten() {
            let of = |number: &u64| {
                let status = known.get(number)?.status.as_ref()?;
                of_shard(status, container, shard)
            };
            let replicas: BTreeSet<u64> = match &shard["replicas"] {
                Value::Null => known.keys().copied().collect(),
                listed => numbers_in(listed).collect(),
            };
            let led_by = known
                .keys()
                .find_map(|number| of(number)?["leader"].as_u64());
            let lsns = replicas.iter().map(|number| {
                let lsn = of(number).and_then(|shard| shard["lsn"].as_u64());
                format!(
                    "{number}:{}",
                    lsn.map_or("?".to_owned(), |lsn| lsn.to_string())
                )
            });
            let _ = writeln!(
                text,
                "{} range {}: leader {}, lsn {}",
                container["container"].as_str().unwrap_or("?"),
                shard["range"]["id"],
                or_none(led_by),
                lsns.collect::<Vec<_>>().join(" ")
            );
        }
    }
}

/// What a node says of a shard.
fn of_shard<'a>(status: &'a Value, container: &Value, shard: &Value) -> Option<&'a Value> {
    let mut containers = status["containers"].as_array()?.iter();
    let same = containers.find(|one| one["container"] == container["container"])?;
    let mut shards = same["shards"].as_array()?.iter();
    shards.find(|one| one["range"]["id"] == shard["range"]["id"])
}

fn numbers_in(list: &Value) -> impl Iterator<Item = u64> {
    let list = list.as_array().into_iter().flatten();
    list.filter_map(Value::as_u64)
}

fn or_none(node: Option<u64>) -> String {
    node.map_or("none".to_owned(), |node| node.to_string())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn status() -> Value {
        let shard = json!({"range": {"id": 0}, "replicas": [1, 4], "leader": 1, "lsn": 12});
        json!({
            "cluster": {
                "nodes": {
                    "1": {"address": "127.0.0.1:8082", "state": "member"},
                    "3": {"address": "127.0.0.1:8102", "state": "draining"},
                    "4": {"address": "10.0.0.4:9000", "state": "member"},
                    "5": {"address": "10.0.0.5:9000", "state": "member"},
                },
                "connected": [3, 4], "catalogLeader": 1,
                "groups": [{"leads": true, "lag": {"4": 7}}, {"leads": false, "lag": {}}],
            },
            "containers": [{"container": "dbs/d/colls/c", "shards": [shard]}],
        })
    }

    /// `up` has started nodes 1, 2 and 3; 2 was drained since, 3 is down, 4 and 5 have joined.
    #[test]
    fn the_nodes_are_those_of_the_catalog() {
        let node = |port, status| Known { port, status };
        let known = BTreeMap::from([
            (1, node(8081, Some(status()))),
            (2, node(8091, None)),
            (3, node(8101, None)),
        ]);
        let text = shown(&known);
        let line = |number: &str| text.lines().find(|line| line.starts_with(number));
        assert_eq!(line("2"), None, "{text}");
        let words = |number| line(number).unwrap().split_whitespace().collect::<Vec<_>>();
        assert_eq!(
            words("1"),
            ["1", "http://127.0.0.1:8081/", "up", "1", "7", "3,4"]
        );
        assert_eq!(words("3"), ["3", "http://127.0.0.1:8101/", "down"]);
        assert_eq!(words("4"), ["4", "nodes", "at", "10.0.0.4:9000", "up"]);
        assert_eq!(words("5"), ["5", "nodes", "at", "10.0.0.5:9000", "down"]);
        assert!(
            text.contains("dbs/d/colls/c range 0: leader 1, lsn 1:12 4:?"),
            "{text}"
        );
    }

    #[test]
    fn without_an_answer_the_nodes_that_were_started_are_shown_as_down() {
        let node = |port| Known { port, status: None };
        let text = shown(&BTreeMap::from([(1, node(8081)), (2, node(8091))]));
        assert_eq!(text.matches("down").count(), 2, "{text}");
        assert!(!text.contains("catalog"), "{text}");
    }
}
