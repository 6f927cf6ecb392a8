//! A cluster under measurement: its nodes as processes of this machine, which can be killed and
//! started again.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::bench::account::{self, Account};
use crate::bench::node::Launcher;
use crate::bench::process::{ServerProcess, free_port};
use crate::client::endpoint::Endpoint;
use crate::model::error::{Error, Result};

/// Nodes of a cluster.
pub const NODES: usize = 3;
/// How long the nodes may take to find each other, or to become alike again.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(120);
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// A node, whether it runs or not.
struct Member {
    port: u16,
    health: Endpoint,
    folder: PathBuf,
    arguments: Vec<String>,
}

pub struct MeasuredCluster<'b> {
    bench: &'b Launcher,
    members: Vec<Member>,
    servers: Vec<Option<ServerProcess>>,
}

impl<'b> MeasuredCluster<'b> {
    /// Starts the nodes on a folder below the scratch folder, with these settings besides.
    pub async fn start(bench: &'b Launcher, name: &str, settings: &[String]) -> Result<Self> {
        let folder = bench.scratch.folder(name)?;
        let secret = folder.join("cluster.key");
        crate::bench::write_file(&secret, &crate::bench::node::fresh_key())?;
        let ports = (0..NODES)
            .map(|_| Ok((free_port()?, free_port()?, free_port()?)))
            .collect::<Result<Vec<_>>>()?;
        let members = ports.iter().enumerate();
        let members = members.map(|(at, (_, _, peer))| format!("{}=127.0.0.1:{peer}", at + 1));
        let members = members.collect::<Vec<_>>().join(",");
        let mut nodes = Vec::new();
        for (at, (port, health, _)) in ports.iter().enumerate() {
            let folder = bench.scratch.folder(&format!("{name}/node{}", at + 1))?;
            let mut arguments = vec![
                "serve".to_owned(),
                format!("--data-path={}", folder.join("data").display()),
                format!("--port={port}"),
                format!("--health-port={health}"),
                format!("--key-file={}", bench.key_file.display()),
                format!("--set=cluster.node={}", at + 1),
                format!("--set=cluster.members={members}"),
                format!("--set=cluster.key_file={}", secret.display()),
            ];
            arguments.extend(settings.iter().map(|setting| format!("--set={setting}")));
            nodes.push(Member {
                port: *port,
                health: Endpoint::local(*health),
                folder,
                arguments,
            });
        }
        let mut cluster = Self {
            bench,
            members: nodes,
            servers: (0..NODES).map(|_| None).collect(),
        };
        cluster.start_all().await?;
        Ok(cluster)
    }

    /// Starts the nodes and makes a container.
    pub async fn start_with(
        bench: &'b Launcher,
        name: &str,
        settings: &[String],
        container: &str,
    ) -> Result<Self> {
        let cluster = Self::start(bench, name, settings).await?;
        let account = cluster.account();
        account.create_database().await?;
        account.create_container(container, &json!({})).await?;
        Ok(cluster)
    }

    /// Starts every node, and waits until each knows the leader of the catalog.
    pub async fn start_all(&mut self) -> Result<()> {
        for node in 0..NODES {
            self.spawn(node)?;
        }
        self.serving().await
    }

    pub fn spawn(&mut self, node: usize) -> Result<()> {
        let (Some(member), Some(server)) = (self.members.get(node), self.servers.get_mut(node))
        else {
            return Err(Error::internal(format!("there is no node {node}")));
        };
        let started = ServerProcess::spawn("node", &member.folder, &member.arguments, member.port)?;
        *server = Some(started);
        Ok(())
    }

    async fn serving(&mut self) -> Result<()> {
        let first = account::account().bytes(&self.bench.signer);
        for server in self.servers.iter_mut().flatten() {
            server.answering(&first).await?;
        }
        self.until("know the leader of the catalog", |statuses| {
            let led = |status: &Value| status["cluster"]["catalogLeader"].is_u64();
            statuses.iter().all(led)
        })
        .await
    }

    /// Waits until what the running nodes tell of themselves is so.
    pub async fn until(&self, what: &str, so: impl Fn(&[Value]) -> bool) -> Result<()> {
        let deadline = Instant::now() + SETTLE_TIMEOUT;
        loop {
            let statuses = self.statuses().await;
            if statuses.as_deref().is_ok_and(&so) {
                return Ok(());
            }
            if Instant::now() > deadline {
                let seconds = SETTLE_TIMEOUT.as_secs();
                return Err(Error::unavailable(format!(
                    "the nodes do not {what} within {seconds} s"
                )));
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Waits until all nodes are connected and have applied the same of every shard.
    pub async fn alike(&self) -> Result<()> {
        self.until("become alike", |statuses| {
            let connected = |status: &Value| {
                let others = status["cluster"]["connected"].as_array();
                others.is_some_and(|others| others.len() == NODES - 1)
            };
            let mut lsns = statuses.iter().map(lsns);
            let first = lsns.next();
            statuses.len() == NODES
                && statuses.iter().all(connected)
                && lsns.all(|other| Some(other) == first)
        })
        .await
    }

    /// Waits until every node knows leaders; the node that leads most shards, from 0 on.
    pub async fn leader(&self) -> Result<usize> {
        self.until("have leaders", |statuses| {
            statuses.iter().all(|status| busiest(status).is_some())
        })
        .await?;
        let statuses = self.statuses().await?;
        let leader = statuses.first().and_then(busiest);
        leader.ok_or_else(|| Error::unavailable("no shard has a leader"))
    }

    /// What the running nodes tell of themselves, in their order.
    pub async fn statuses(&self) -> Result<Vec<Value>> {
        let mut statuses = Vec::new();
        for (member, server) in self.members.iter().zip(&self.servers) {
            if server.is_some() {
                statuses.push(account::status(&member.health).await?);
            }
        }
        Ok(statuses)
    }

    /// kill -9.
    pub fn kill(&mut self, node: usize) {
        if let Some(server) = self.servers.get_mut(node) {
            *server = None;
        }
    }

    pub fn kill_all(&mut self) {
        (0..NODES).for_each(|node| self.kill(node));
    }

    /// Those that run.
    pub fn servers(&self) -> Vec<&ServerProcess> {
        self.servers.iter().flatten().collect()
    }

    pub fn server(&self, node: usize) -> Result<&ServerProcess> {
        let server = self.servers.get(node).and_then(Option::as_ref);
        server.ok_or_else(|| Error::internal(format!("node {} does not run", node + 1)))
    }

    /// All endpoints that are served.
    pub fn account(&self) -> Account {
        let endpoints = self.servers().into_iter();
        let endpoints = endpoints.map(|server| Endpoint::local(server.port));
        Account::new(endpoints.collect(), self.bench.signer.clone())
    }
}

/// Every shard that a node tells of.
pub fn shards(status: &Value) -> impl Iterator<Item = &Value> {
    let containers = status["containers"].as_array().into_iter().flatten();
    containers.flat_map(|container| container["shards"].as_array().into_iter().flatten())
}

fn lsns(status: &Value) -> Vec<Option<u64>> {
    shards(status).map(|shard| shard["lsn"].as_u64()).collect()
}

/// Returns the node that leads most shards, as one of them tells it, from 0 on.
fn busiest(status: &Value) -> Option<usize> {
    let mut led = [0; NODES];
    for leader in shards(status).filter_map(|shard| shard["leader"].as_u64()) {
        let node = usize::try_from(leader).ok()?.checked_sub(1)?;
        *led.get_mut(node)? += 1;
    }
    let (node, count) = led.iter().enumerate().max_by_key(|(_, count)| **count)?;
    (*count > 0).then_some(node)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_busiest_node_leads_most_shards() {
        let status = json!({"containers": [
            {"shards": [{"leader": 2, "lsn": 4}, {"leader": 3, "lsn": 5}]},
            {"shards": [{"leader": 2, "lsn": 6}, {"leader": null, "error": "down"}]},
        ]});
        assert_eq!(busiest(&status), Some(1));
        assert_eq!(lsns(&status), [Some(4), Some(5), Some(6), None]);
        assert_eq!(busiest(&json!({"containers": []})), None);
    }
}
