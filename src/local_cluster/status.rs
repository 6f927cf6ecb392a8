//! How a cluster stands, as its nodes tell it.

use std::path::Path;

use serde_json::Value;

use super::nodes;
use crate::model::error::Result;

/// The node that leads the catalog, as another sees it.
pub fn catalog_leader(status: &Value) -> Option<u64> {
    status["cluster"]["catalogLeader"].as_u64()
}

pub fn show(folder: &Path) -> Result<()> {
    let nodes = nodes::load(folder)?;
    let known: Vec<_> = nodes
        .iter()
        .map(|node| (node, node.health().get("/status")))
        .collect();
    println!(
        "{:<6} {:<26} {:<6} {:>8} {:>8}  connected",
        "node", "endpoint", "state", "leads", "max lag"
    );
    for (node, status) in &known {
        let endpoint = format!("http://127.0.0.1:{}/", node.port);
        let Some(status) = status else {
            println!("{:<6} {endpoint:<26} {:<6}", node.id, "down");
            continue;
        };
        let cluster = &status["cluster"];
        let groups = || cluster["groups"].as_array().into_iter().flatten();
        let led = groups().filter(|group| group["leads"] == true);
        let lag = led
            .clone()
            .flat_map(|group| group["lag"].as_object().into_iter().flatten())
            .filter_map(|(_, lag)| lag.as_u64())
            .max();
        let connected = cluster["connected"].as_array().into_iter().flatten();
        let connected: Vec<String> = connected.map(Value::to_string).collect();
        println!(
            "{:<6} {endpoint:<26} {:<6} {:>8} {:>8}  {}",
            node.id,
            "up",
            led.count(),
            lag.unwrap_or(0),
            connected.join(",")
        );
    }
    let Some(status) = known.iter().find_map(|(_, status)| status.as_ref()) else {
        return Ok(());
    };
    let leader = |leader: Option<u64>| leader.map_or("none".to_owned(), |node| node.to_string());
    println!("\ncatalog: leader {}", leader(catalog_leader(status)));
    for container in status["containers"].as_array().into_iter().flatten() {
        for shard in container["shards"].as_array().into_iter().flatten() {
            let replicas = shard["replicas"].as_array();
            let has_it = |node: u64| replicas.is_none_or(|all| all.iter().any(|one| *one == node));
            let led_by = known.iter().find_map(|(_, status)| {
                of_shard(status.as_ref()?, container, shard)?["leader"].as_u64()
            });
            let having = known.iter().filter(|(node, _)| has_it(node.id.into()));
            let lsns = having.map(|(node, status)| {
                let lsn = status
                    .as_ref()
                    .and_then(|status| of_shard(status, container, shard)?["lsn"].as_u64());
                format!(
                    "{}:{}",
                    node.id,
                    lsn.map_or("?".to_owned(), |lsn| lsn.to_string())
                )
            });
            println!(
                "{} range {}: leader {}, lsn {}",
                container["container"].as_str().unwrap_or("?"),
                shard["range"]["id"],
                leader(led_by),
                lsns.collect::<Vec<_>>().join(" ")
            );
        }
    }
    Ok(())
}

/// What a node says of a shard.
fn of_shard<'a>(status: &'a Value, container: &Value, shard: &Value) -> Option<&'a Value> {
    let mut containers = status["containers"].as_array()?.iter();
    let same = containers.find(|one| one["container"] == container["container"])?;
    let mut shards = same["shards"].as_array()?.iter();
    shards.find(|one| one["range"]["id"] == shard["range"]["id"])
}
