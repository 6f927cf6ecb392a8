//! Takes a node out of a cluster: tells the cluster, and shows how far it is.

use std::{path::Path, time::Duration};

use serde_json::Value;

use super::{http, nodes};
use crate::model::error::{Error, Result};

const LOOK_EVERY: Duration = Duration::from_millis(200);

pub fn run(node: u64, health_port: Option<u16>, folder: &Path) -> Result<()> {
    let port = match health_port {
        Some(port) => port,
        None => another(node, folder)?,
    };
    let silent = || Error::unavailable(format!("nobody answers on the health port {port}"));
    let (status, answer) =
        http::post(port, &format!("/cluster/drain/{node}")).ok_or_else(silent)?;
    if status >= 300 {
        let why = answer["error"].as_str().unwrap_or("the cluster refuses");
        return Err(Error::bad_request(why));
    }
    let mut shown = None;
    loop {
        let status = http::get(port, "/status").ok_or_else(silent)?;
        let left = match &status["cluster"]["nodes"][node.to_string()] {
            Value::Null => break,
            record => {
                record["replicas"].as_u64().unwrap_or(0) + record["leaving"].as_u64().unwrap_or(0)
            }
        };
        if shown != Some(left) {
            println!("node {node} has {left} replicas left");
            shown = Some(left);
        }
        std::thread::sleep(LOOK_EVERY);
    }
    println!("node {node} has nothing left and is off the list: it can be stopped");
    Ok(())
}

/// The health port of a node that stays.
fn another(node: u64, folder: &Path) -> Result<u16> {
    let nodes = nodes::load(folder)?;
    let mut others = nodes.iter().filter(|one| u64::from(one.id) != node);
    let up = others.find(|one| http::get(one.health_port, "/alive").is_some());
    up.map(|one| one.health_port)
        .ok_or_else(|| Error::unavailable("no other node of the cluster runs"))
}
