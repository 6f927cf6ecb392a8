//! Compares the replicas of a cluster, as its nodes tell it.

use std::{collections::BTreeSet, fmt::Write as _, path::Path, time::Duration};

use serde_json::Value;

use super::nodes;
use crate::{
    model::error::{Error, Result},
    operator::{KeyFlag, ReadKey},
};

/// Every shard is read as a whole by every node.
const CHECK_TIMEOUT: Duration = Duration::from_secs(3_600);
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
        .order(&signer, "GET", "/cluster/check", CHECK_TIMEOUT)?;
    let (text, found) = shown(&checked);
    print!("{text}");
    match (found.differ, found.missing.is_empty()) {
        (0, true) => Ok(()),
        (0, false) => Err(Error::unavailable(format!(
            "the replicas that were compared are equal; those of {} were not compared",
            found.missing()
        ))),
        (shards, _) => Err(Error::conflict(format!(
            "the replicas of {shards} shards differ"
        ))),
    }
}

/// What a check has found.
#[derive(Debug, Default, PartialEq)]
struct Found {
    /// Shards of which two replicas have different digests.
    differ: usize,
    /// Nodes whose replicas were not compared.
    missing: BTreeSet<u64>,
}

impl Found {
    fn missing(&self) -> String {
        let nodes: Vec<String> = self
            .missing
            .iter()
            .map(|node| format!("node {node}"))
            .collect();
        nodes.join(", ")
    }
}

/// The table, a line for each replica, and what it comes to.
fn shown(checked: &Value) -> (String, Found) {
    let mut text = line(
        ["container", "range", "node", "lsn", "time", "items"],
        "digest",
    );
    let mut found = Found::default();
    for shard in checked["shards"].as_array().into_iter().flatten() {
        let replicas = || shard["replicas"].as_array().into_iter().flatten();
        let digests: BTreeSet<&str> = replicas()
            .filter_map(|one| one["sha256"].as_str())
            .collect();
        let differs = digests.len() > 1;
        found.differ += usize::from(differs);
        for replica in replicas() {
            let digest = replica["sha256"].as_str();
            let verdict = match digest {
                Some(digest) => {
                    let shown = digest.get(..DIGEST_SHOWN).unwrap_or(digest);
                    format!("{shown}{}", if differs { "  differs" } else { "" })
                }
                None => {
                    found.missing.extend(replica["node"].as_u64());
                    let why = replica["error"]
                        .as_str()
                        .unwrap_or("the node says nothing of it");
                    format!("not compared: {why}")
                }
            };
            let number = |name: &str| match &replica[name] {
                Value::Null => "-".to_owned(),
                value => value.to_string(),
            };
            let container = shard["container"].as_str().unwrap_or("?");
            let range = shard["range"].to_string();
            let (node, lsn) = (number("node"), number("lsn"));
            let (at, items) = (number("at"), number("items"));
            text += &line([container, &range, &node, &lsn, &at, &items], &verdict);
        }
    }
    (text, found)
}

fn line([container, range, node, lsn, at, items]: [&str; 6], digest: &str) -> String {
    let mut line = String::new();
    let _ = writeln!(
        line,
        "{container:<32} {range:>5} {node:>5} {lsn:>10} {at:>12} {items:>10}  {digest}"
    );
    line
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn replica(node: u64, digest: Option<&str>) -> Value {
        let digest = digest.map(|letter| letter.repeat(64));
        match digest {
            Some(digest) => {
                json!({"node": node, "lsn": 12, "at": 1_790_000_000, "items": 3, "sha256": digest, "error": null})
            }
            None => {
                json!({"node": node, "lsn": null, "at": null, "items": null, "sha256": null, "error": "the node does not answer"})
            }
        }
    }

    fn checked(replicas: &[Value]) -> (String, Found) {
        let shard =
            json!({"container": "dbs/d/colls/c", "range": 0, "equal": false, "replicas": replicas});
        shown(&json!({"equal": false, "shards": [shard]}))
    }

    #[test]
    fn equal_replicas_beside_a_node_that_is_down_do_not_differ() {
        let (text, found) = checked(&[
            replica(1, Some("a")),
            replica(2, None),
            replica(3, Some("a")),
        ]);
        assert_eq!(found.differ, 0);
        assert_eq!(found.missing(), "node 2");
        assert!(
            !text.contains("differs") && !text.contains("null"),
            "{text}"
        );
        assert!(
            text.contains("not compared: the node does not answer"),
            "{text}"
        );
        let heads = text.lines().next().unwrap();
        for line in text.lines() {
            for head in ["range", "node", "lsn", "time", "items"] {
                let end = heads.find(head).unwrap() + head.len();
                let before = line.get(..end).unwrap();
                assert!(
                    !before.ends_with(' ') && line[end..].starts_with(' '),
                    "{text}"
                );
            }
        }
    }

    #[test]
    fn different_digests_differ() {
        let (text, found) = checked(&[replica(1, Some("a")), replica(2, Some("b"))]);
        assert_eq!((found.differ, found.missing.len()), (1, 0));
        assert_eq!(text.matches("differs").count(), 2, "{text}");
    }

    #[test]
    fn equal_replicas_are_equal() {
        let (_, found) = checked(&[replica(1, Some("a")), replica(2, Some("a"))]);
        assert_eq!(found, Found::default());
    }
}
