//! Takes a node out of a cluster: tells the cluster, and shows how far it is.

use std::{path::Path, time::Duration};

use serde_json::Value;

use super::nodes::{self, LocalNode};
use crate::{
    client::{HealthPort, Signer},
    model::error::{Error, Result},
};

/// The node that was asked may have to ask the one that leads the catalog.
const ORDER_TIMEOUT: Duration = Duration::from_secs(30);
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// `signer` is given the key file of a node that `up` has started.
pub fn run(
    node: u64,
    health_port: Option<u16>,
    folder: &Path,
    signer: impl Fn(Option<&Path>) -> Result<Signer>,
) -> Result<()> {
    let (port, signer) = match health_port {
        Some(port) => (HealthPort::local(port), signer(None)?),
        None => {
            let other = another(node, folder)?;
            (other.health(), signer(other.key_file.as_deref())?)
        }
    };
    let path = format!("/cluster/drain/{node}");
    port.order(&signer, "POST", &path, ORDER_TIMEOUT)?;
    let mut shown = None;
    loop {
        let status = port.get("/status").ok_or_else(|| {
            Error::unavailable("the node that was asked does not answer any more")
        })?;
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
        std::thread::sleep(POLL_INTERVAL);
    }
    println!("node {node} has nothing left and is off the list: it can be stopped");
    Ok(())
}

/// A node that stays.
fn another(node: u64, folder: &Path) -> Result<LocalNode> {
    let nodes = nodes::load(folder)?;
    let mut others = nodes.into_iter().filter(|one| u64::from(one.id) != node);
    others
        .find(|one| one.health().get("/alive").is_some())
        .ok_or_else(|| Error::unavailable("no other node of the cluster runs"))
}
