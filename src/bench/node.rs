//! A node under measurement: started on a folder of its own, asked and loaded over the wire.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::connection::{Connection, header_of};
use super::process::{Scratch, Server, free_port};
use super::request::{DATABASE, Request, container_link};
use super::scripts::Cargo;
use super::signer::{Signer, unix_seconds};
use crate::model::error::{Error, Result};

/// Connections that load a container: batches are large, so few keep the node busy.
const LOAD_CONNECTIONS: u32 = 8;
/// How long a load may take.
const LOAD_SECONDS_MAX: u64 = 600;
/// A node that uses less than this share of a core has nothing left to do.
const IDLE_SHARE: f64 = 0.04;
/// How long a node is watched at a time to see whether it is idle.
const IDLE_WINDOW: Duration = Duration::from_millis(500);
/// Characters of a refusal that are shown.
const REFUSAL_CHARS_MAX: usize = 300;

/// What starts the servers of a run.
pub struct Bench {
    pub scratch: Scratch,
    pub signer: Signer,
    key_file: PathBuf,
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
            data,
            health_port,
            signer: self.signer.clone(),
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

const ACCOUNT: Request<'static> = Request {
    verb: "GET",
    path: "/",
    resource_type: "",
    link: "",
    headers: Vec::new(),
    body: b"",
};

pub struct Node {
    pub server: Server,
    /// The data folder.
    pub data: PathBuf,
    health_port: u16,
    signer: Signer,
    /// From its start to its first answer.
    pub start: Duration,
}

impl Node {
    /// Sends one request on a connection of its own; the body of a 2xx answer and how long it
    /// took from the request to the answer.
    pub async fn ask(&self, request: &Request<'_>) -> Result<(Vec<u8>, Duration)> {
        let told = self.ask_for_head(request).await?;
        Ok((told.body, told.latency))
    }

    /// Sends one request on a connection of its own; its 2xx answer.
    pub async fn ask_for_head(&self, request: &Request<'_>) -> Result<Told> {
        let mut bytes = Vec::new();
        request.write(&mut bytes, &self.signer, unix_seconds());
        let what = format!("{} {}", request.verb, request.path);
        exchange(self.server.port, &bytes, &what).await
    }

    pub async fn create_database(&self) -> Result<()> {
        let body = serde_json::json!({ "id": DATABASE }).to_string();
        let request = Request {
            verb: "POST",
            path: "/dbs",
            resource_type: "dbs",
            link: "",
            headers: Vec::new(),
            body: body.as_bytes(),
        };
        self.ask(&request).await.map(drop)
    }

    /// Creates a container with the partition key `/pk` and these other properties.
    pub async fn create_container(&self, id: &str, properties: &Value) -> Result<()> {
        let link = format!("dbs/{DATABASE}");
        let (path, body) = (
            format!("/{link}/colls"),
            container_definition(id, properties),
        );
        let request = Request {
            verb: "POST",
            path: &path,
            resource_type: "colls",
            link: &link,
            headers: Vec::new(),
            body: body.as_bytes(),
        };
        self.ask(&request).await.map(drop)
    }

    /// Replaces the definition of a container; how long the answer took.
    pub async fn replace_container(&self, id: &str, properties: &Value) -> Result<Duration> {
        let link = container_link(id);
        let (path, body) = (format!("/{link}"), container_definition(id, properties));
        let request = Request {
            verb: "PUT",
            path: &path,
            resource_type: "colls",
            link: &link,
            headers: Vec::new(),
            body: body.as_bytes(),
        };
        self.ask(&request).await.map(|(_, latency)| latency)
    }

    /// Writes all that a cargo holds; how long it took.
    pub async fn load(&self, cargo: &Arc<Cargo>) -> Result<Duration> {
        let begun = Instant::now();
        let scripts = cargo.scripts(&self.signer, LOAD_CONNECTIONS);
        let load = super::load::Load::start(self.server.port, scripts)?;
        let tallies = load.ended(Duration::from_secs(LOAD_SECONDS_MAX)).await?;
        let refused = tallies.iter().flat_map(|tally| &tally.unexpected).next();
        match refused {
            Some((status, _)) => Err(Error::unavailable(format!(
                "the node refused a batch of the load with status {status}"
            ))),
            None => Ok(begun.elapsed()),
        }
    }

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
        let request = b"GET /metrics HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n";
        let told = exchange(self.health_port, request, "GET /metrics").await?;
        Ok(counter_sum(&String::from_utf8_lossy(&told.body), name))
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

/// An answer that is kept.
pub struct Told {
    head: Vec<u8>,
    pub body: Vec<u8>,
    /// From the request to the whole answer.
    pub latency: Duration,
}

impl Told {
    pub fn header(&self, name: &str) -> Option<&str> {
        header_of(&self.head, name)
    }
}

async fn exchange(port: u16, request: &[u8], what: &str) -> Result<Told> {
    let failed = |error| Error::unavailable(format!("{what} failed: {error}"));
    let mut connection = Connection::open(port).await.map_err(failed)?;
    let sent = Instant::now();
    let answer = connection.exchange(request).await.map_err(failed)?;
    let latency = sent.elapsed();
    if !(200..300).contains(&answer.status) {
        let body = String::from_utf8_lossy(answer.body);
        let shown: String = body.chars().take(REFUSAL_CHARS_MAX).collect();
        return Err(Error::unavailable(format!(
            "{what} was answered with {}: {shown}",
            answer.status
        )));
    }
    Ok(Told {
        head: answer.head.to_owned(),
        body: answer.body.to_owned(),
        latency,
    })
}

fn container_definition(id: &str, properties: &Value) -> String {
    let mut definition = serde_json::json!({
        "id": id,
        "partitionKey": { "paths": ["/pk"], "kind": "Hash", "version": 2 },
    });
    if let (Some(definition), Some(properties)) =
        (definition.as_object_mut(), properties.as_object())
    {
        definition.extend(properties.clone());
    }
    definition.to_string()
}

fn fresh_key() -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(rand::random::<[u8; 64]>())
}

/// Adds up `name value` and `name{labels} value` of the Prometheus text format.
fn counter_sum(text: &str, name: &str) -> u64 {
    let values = text.lines().filter_map(|line| {
        let rest = line.strip_prefix(name)?;
        let value = match rest.strip_prefix('{') {
            Some(labelled) => labelled.rsplit_once('}')?.1,
            None => rest.strip_prefix(' ')?,
        };
        value.trim().parse::<f64>().ok()
    });
    values.sum::<f64>() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_added_over_their_labels() {
        let text =
            "# TYPE a_total counter\na_total 5\na_total{x=\"}\"} 7\na_total_b 9\nb_total 1\n";
        assert_eq!(counter_sum(text, "a_total"), 12);
        assert_eq!(counter_sum(text, "b_total"), 1);
        assert_eq!(counter_sum(text, "c_total"), 0);
    }

    #[test]
    fn a_definition_has_its_key_and_the_given_properties() {
        let text = container_definition("c", &serde_json::json!({ "defaultTtl": -1 }));
        let definition: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(definition["id"], "c");
        assert_eq!(definition["partitionKey"]["paths"][0], "/pk");
        assert_eq!(definition["defaultTtl"], -1);
    }
}
