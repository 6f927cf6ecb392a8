//! Compares the replicas of a cluster, as its nodes tell it.

use std::{path::Path, time::Duration};

use serde_json::Value;

use super::nodes;
use crate::{
    model::error::{Error, Result},
    operator::{KeyFlag, ReadKey},
};

/// Every shard is read as a whole by every node.
const CHECK_TIME_MAX: Duration = Duration::from_secs(3_600);
/// Characters of a digest that people are shown.
const DIGEST_SHOWN: usize = 16;

pub fn run(folder: &Path, key: &KeyFlag, read_key: ReadKey<'_>) -> Result<()> {
    let nodes = nodes::load(folder)?;
    let mut running = nodes
        .iter()
        .filter(|node| node.health().get("/alive").is_some());
    let Some(node) = running.next() else {
        return Err(Error::unavailable("no node of the cluster answers"));
    };
    let signer = key.signer(node.key_file.as_deref(), read_key)?;
    let checked = node
        .health()
        .order(&signer, "GET", "/cluster/check", CHECK_TIME_MAX)?;
    print(&checked);
    if checked["equal"] == true {
        return Ok(());
    }
    Err(Error::conflict(
        "the replicas differ, or some could not be compared",
    ))
}

fn print(checked: &Value) {
    println!(
        "{:<32} {:>5} {:>5} {:>10} {:>12} {:>10}  {:<DIGEST_SHOWN$}",
        "container", "range", "node", "lsn", "time", "items", "digest"
    );
    for shard in checked["shards"].as_array().into_iter().flatten() {
        let replicas = shard["replicas"].as_array();
        for replica in replicas.into_iter().flatten() {
            let digest = replica["sha256"]
                .as_str()
                .and_then(|hex| hex.get(..DIGEST_SHOWN));
            let shown = digest.or(replica["error"].as_str()).unwrap_or("?");
            println!(
                "{:<32} {:>5} {:>5} {:>10} {:>12} {:>10}  {shown}{}",
                shard["container"].as_str().unwrap_or("?"),
                shard["range"],
                replica["node"],
                replica["lsn"],
                replica["at"],
                replica["items"],
                if shard["equal"] == true {
                    ""
                } else {
                    "  differs"
                }
            );
        }
    }
}
