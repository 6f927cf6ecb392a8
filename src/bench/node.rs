//! A node under measurement: started on a folder of its own, asked and loaded over the wire.

use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::account::{self, ACCOUNT, Account};
use super::endpoint::Endpoint;
use super::metrics_text;
use super::process::{Scratch, Server, free_port};
use super::request::{Request, container_link};
use crate::client::{Signer, unix_seconds};
use crate::model::error::{Error, Result};

/// A node that uses less than this share of a core has nothing left to do.
const IDLE_SHARE: f64 = 0.04;
/// How long a node is watched at a time to see whether it is idle.
const IDLE_WINDOW: Duration = Duration::from_millis(500);

/// What starts the servers of a run.
pub struct Bench {
    pub scratch: Scratch,
    pub signer: Signer,
    pub key_file: PathBuf,
}

impl Bench {
    pub fn new(data_path: Option<&Path>) -> Result<Self> {
        let scratch = Scratch::create(data_path)?;
        let key = fresh_key();
        let key_file = scratch.path().join("account.key");
        std::fs::write(&key_file, &key).map_err(|error| {
            Error::bad_request(format!("cannot write '{}': {error}", key_file.display()))
        })?;
        let signer = Signer::new(&key)?;
        Ok(Self {
            scratch,
            signer,
            key_file,
        })
    }

    /// Starts a node on this folder below the scratch folder, which it makes if it is not there,
    /// and waits for its first answer to this request.
    pub async fn start_node_until(&self, folder: &str, first: &Request<'_>) -> Result<Node> {
        let data = self.scratch.path().join(folder);
        let (port, health_port) = (free_port()?, free_port()?);
        let arguments = [
            "serve",
            "--data-path",
            &data.display().to_string(),
            "--port",
            &port.to_string(),
            "--health-port",
            &health_port.to_string(),
            "--key-file",
            &self.key_file.display().to_string(),
        ]
        .map(str::to_owned);
        let mut bytes = Vec::new();
        first.write(&mut bytes, &self.signer, unix_seconds());
        let mut server = Server::spawn("node", &self.scratch, &arguments, port)?;
        let start = server.answering(&bytes).await?;
        Ok(Node {
            server,
            account: Account::new(vec![Endpoint::local(port)], self.signer.clone()),
            data,
            health: Endpoint::local(health_port),
            start,
        })
    }

    /// Starts a node and waits until it shows its account.
    pub async fn start_node(&self, folder: &str) -> Result<Node> {
        self.start_node_until(folder, &ACCOUNT).await
    }

    pub async fn start_yardstick(&self) -> Result<Server> {
        let port = free_port()?;
        let arguments = ["bench", "yardstick", "--port", &port.to_string()].map(str::to_owned);
        let mut server = Server::spawn("yardstick", &self.scratch, &arguments, port)?;
        server
            .answering(b"GET / HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
            .await?;
        Ok(server)
    }
}

pub struct Node {
    pub server: Server,
    /// How it is asked over the wire.
    account: Account,
    /// The data folder.
    pub data: PathBuf,
    /// Where it tells its metrics.
    pub health: Endpoint,
    /// From its start to its first answer.
    pub start: Duration,
}

impl Deref for Node {
    type Target = Account;

    fn deref(&self) -> &Account {
        &self.account
    }
}

impl Node {
    /// How far a change of a container's index has come, in percent.
    pub async fn index_progress(&self, id: &str) -> Result<u8> {
        let link = container_link(id);
        let request = Request {
            verb: "GET",
            path: &format!("/{link}"),
            resource_type: "colls",
            link: &link,
            headers: vec![("x-ms-documentdb-populatequotainfo", "True")],
            body: b"",
        };
        let told = self.ask_for_head(&request).await?;
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
    /// not longer than the patience lasts.
    pub async fn settle(&self, patience: Duration) -> Result<()> {
        let until = Instant::now() + patience;
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
