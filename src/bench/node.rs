//! A node under measurement: started on a folder of its own, asked and loaded over the wire.

use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::account::{self, Account};
use super::metrics_text;
use super::process::{Scratch, ServerProcess, free_port};
use super::request::{CosmosRequest, container_link};
use crate::client::Signer;
use crate::client::endpoint::Endpoint;
use crate::model::error::{Error, Result};

/// A node that uses less than this share of a core has nothing left to do.
const IDLE_SHARE: f64 = 0.04;
/// How long a node is watched at a time to see whether it is idle.
const IDLE_WINDOW: Duration = Duration::from_millis(500);

/// What starts the servers of a run.
pub struct Launcher {
    pub scratch: Scratch,
    pub signer: Signer,
    pub key_file: PathBuf,
}

impl Launcher {
    pub fn new(data_path: Option<&Path>) -> Result<Self> {
        let scratch = Scratch::create(data_path)?;
        let key = fresh_key();
        let key_file = scratch.path().join("account.key");
        super::write_file(&key_file, &key)?;
        let signer = Signer::new(&key)?;
        Ok(Self {
            scratch,
            signer,
            key_file,
        })
    }

    /// Starts a node on this folder below the scratch folder, which it makes if it is not there,
    /// and waits for its first answer to this request.
    pub async fn start_node_until(
        &self,
        folder: &str,
        first: &CosmosRequest<'_>,
    ) -> Result<MeasuredNode> {
        let data = self.scratch.path().join(folder);
        let (port, health_port) = (free_port()?, free_port()?);
        let arguments = [
            "serve".to_owned(),
            format!("--data-path={}", data.display()),
            format!("--port={port}"),
            format!("--health-port={health_port}"),
            format!("--key-file={}", self.key_file.display()),
        ];
        let mut server = ServerProcess::spawn("node", self.scratch.path(), &arguments, port)?;
        let start = server.answering(&first.bytes(&self.signer)).await?;
        Ok(MeasuredNode {
            server,
            account: Account::new(vec![Endpoint::local(port)], self.signer.clone()),
            data,
            health: Endpoint::local(health_port),
            start,
        })
    }

    /// Starts a node and waits until it shows its account.
    pub async fn start_node(&self, folder: &str) -> Result<MeasuredNode> {
        self.start_node_until(folder, &account::account()).await
    }

    /// Starts a node with a container, which has these properties besides its partition key.
    pub async fn start_node_with(
        &self,
        folder: &str,
        container: &str,
        properties: &Value,
    ) -> Result<MeasuredNode> {
        let node = self.start_node(folder).await?;
        node.create_database().await?;
        node.create_container(container, properties).await?;
        Ok(node)
    }

    /// Starts the server that answers a constant.
    pub async fn start_baseline(&self) -> Result<ServerProcess> {
        let port = free_port()?;
        let arguments = ["bench", "yardstick", "--port", &port.to_string()].map(str::to_owned);
        let mut server = ServerProcess::spawn("baseline", self.scratch.path(), &arguments, port)?;
        server
            .answering(b"GET / HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
            .await?;
        Ok(server)
    }
}

pub struct MeasuredNode {
    pub server: ServerProcess,
    /// How it is asked over the wire.
    account: Account,
    /// The data folder.
    pub data: PathBuf,
    /// Where it tells its metrics.
    pub health: Endpoint,
    /// From its start to its first answer.
    pub start: Duration,
}

impl Deref for MeasuredNode {
    type Target = Account;

    fn deref(&self) -> &Account {
        &self.account
    }
}

impl MeasuredNode {
    /// How far a change of a container's index has come, in percent.
    pub async fn index_progress(&self, id: &str) -> Result<u8> {
        let request = CosmosRequest::to("GET", "colls", &container_link(id))
            .header("x-ms-documentdb-populatequotainfo", "True");
        let told = self.ask(&request).await?;
        told.header("x-ms-documentdb-collection-index-transformation-progress")
            .and_then(|percent| percent.parse().ok())
            .ok_or_else(|| Error::unavailable("a container does not say how far its index is"))
    }

    /// The sum of all series of a counter; 0 before it is first counted.
    pub async fn counter(&self, name: &str) -> Result<u64> {
        let text = account::metrics(&self.health).await?;
        Ok(metrics_text::sum(&text, name) as u64)
    }

    /// Waits until the node has done what it does behind its answers (flushes, compactions), but
    /// not longer than the timeout.
    pub async fn settle(&self, timeout: Duration) -> Result<()> {
        let until = Instant::now() + timeout;
        while Instant::now() + IDLE_WINDOW < until {
            let before = self.server.cpu()?;
            tokio::time::sleep(IDLE_WINDOW).await;
            let used = self.server.cpu()?.saturating_sub(before);
            if used < IDLE_WINDOW.mul_f64(IDLE_SHARE) {
                break;
            }
        }
        Ok(())
    }
}

pub fn fresh_key() -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(rand::random::<[u8; 64]>())
}
