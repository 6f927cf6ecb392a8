//! An account under load, asked over the wire: its databases, containers and ranges.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::connection::{Connection, header_of};
use super::endpoint::Endpoint;
use super::load::{Load, Plan};
use super::pace::Pace;
use super::request::{DATABASE, Request, container_link};
use super::scripts::Cargo;
use crate::client::{Signer, unix_seconds};
use crate::model::error::{Error, Result};

/// Characters of a refusal that are shown.
const REFUSAL_CHARS_MAX: usize = 300;
/// How long one such request may take.
const ASK_SECONDS_MAX: u64 = 60;

/// Connections that load a container: batches are large, so few keep a node busy.
const LOAD_CONNECTIONS: u32 = 8;
/// How long a load may take.
const LOAD_SECONDS_MAX: u64 = 600;

/// The account itself.
pub const ACCOUNT: Request<'static> = Request {
    verb: "GET",
    path: "/",
    resource_type: "",
    link: "",
    headers: Vec::new(),
    body: b"",
};

/// One or several servers that know the same key and the same data.
#[derive(Clone)]
pub struct Account {
    pub endpoints: Vec<Endpoint>,
    pub signer: Signer,
}

impl Account {
    /// There must be an endpoint.
    pub fn new(endpoints: Vec<Endpoint>, signer: Signer) -> Self {
        debug_assert!(!endpoints.is_empty());
        Self { endpoints, signer }
    }

    /// Sees to it that every endpoint answers and takes the key.
    pub async fn check(&self) -> Result<()> {
        for endpoint in &self.endpoints {
            let unreachable = |error: io::Error| {
                let hint = endpoint.hint(&error);
                Error::bad_request(format!(
                    "cannot reach the endpoint {endpoint}: {error}{hint}"
                ))
            };
            let reply = self
                .exchange(endpoint, &ACCOUNT)
                .await
                .map_err(unreachable)?;
            match reply.status {
                200 => {}
                401 | 403 => {
                    return Err(Error::bad_request(format!(
                        "the endpoint {endpoint} refuses the key (status {}): {}",
                        reply.status,
                        reply.shown()
                    )));
                }
                status => {
                    return Err(Error::bad_request(format!(
                        "the endpoint {endpoint} does not show its account (status {status}): {}",
                        reply.shown()
                    )));
                }
            }
        }
        Ok(())
    }

    /// Sends one request on a connection of its own; the body of a 2xx answer and how long it
    /// took from the request to the answer.
    pub async fn ask(&self, request: &Request<'_>) -> Result<(Vec<u8>, Duration)> {
        let told = self.ask_for_head(request).await?;
        Ok((told.body, told.latency))
    }

    /// Sends one request on a connection of its own; its 2xx answer.
    pub async fn ask_for_head(&self, request: &Request<'_>) -> Result<Told> {
        let what = format!("{} {}", request.verb, request.path);
        let failed = |error| Error::unavailable(format!("{what} failed: {error}"));
        let Some(endpoint) = self.endpoints.first() else {
            return Err(Error::internal("the account has no endpoint"));
        };
        let reply = self.exchange(endpoint, request).await.map_err(failed)?;
        reply.granted(&what)
    }

    async fn exchange(&self, endpoint: &Endpoint, request: &Request<'_>) -> io::Result<Told> {
        let signer = self.signer.for_host(&endpoint.authority());
        let mut bytes = Vec::new();
        request.write(&mut bytes, &signer, unix_seconds());
        exchange(endpoint, &bytes).await
    }

    pub async fn create_database(&self) -> Result<()> {
        let body = json!({ "id": DATABASE }).to_string();
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

    /// Creates the database, unless it is there.
    pub async fn ensure_database(&self) -> Result<()> {
        let link = format!("dbs/{DATABASE}");
        let path = format!("/{link}");
        let read = Request {
            verb: "GET",
            path: &path,
            resource_type: "dbs",
            link: &link,
            headers: Vec::new(),
            body: b"",
        };
        match self.ask(&read).await {
            Ok(_) => Ok(()),
            Err(_) => self.create_database().await,
        }
    }

    /// Creates a container with the partition key `/pk` and these other properties.
    pub async fn create_container(&self, id: &str, properties: &Value) -> Result<()> {
        self.create_container_with(id, properties, Vec::new()).await
    }

    /// The same with these headers, such as its throughput.
    pub async fn create_container_with(
        &self,
        id: &str,
        properties: &Value,
        headers: Vec<(&str, &str)>,
    ) -> Result<()> {
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
            headers,
            body: body.as_bytes(),
        };
        self.ask(&request).await.map(drop)
    }

    /// Replaces the definition of a container; how long the answer took.
    pub async fn replace_container(&self, id: &str, properties: &Value) -> Result<Duration> {
        let body = container_definition(id, properties);
        let asked = self.on_container("PUT", id, body.as_bytes()).await;
        asked.map(|(_, latency)| latency)
    }

    pub async fn delete_container(&self, id: &str) -> Result<()> {
        self.on_container("DELETE", id, b"").await.map(drop)
    }

    async fn on_container(
        &self,
        verb: &'static str,
        id: &str,
        body: &[u8],
    ) -> Result<(Vec<u8>, Duration)> {
        let link = container_link(id);
        let path = format!("/{link}");
        let request = Request {
            verb,
            path: &path,
            resource_type: "colls",
            link: &link,
            headers: Vec::new(),
            body,
        };
        self.ask(&request).await
    }

    /// Writes all that a cargo holds, through all endpoints; how long it took.
    pub async fn load(&self, cargo: &Arc<Cargo>) -> Result<Duration> {
        let begun = Instant::now();
        let load = Load::start_plan(Plan {
            endpoints: self.endpoints.clone(),
            scripts: cargo.scripts(&self.signer, LOAD_CONNECTIONS),
            pace: Pace::AnswerByAnswer,
            operations: 1,
        })?;
        let tallies = load.ended(Duration::from_secs(LOAD_SECONDS_MAX)).await?;
        let refused = tallies.iter().flat_map(|tally| &tally.unexpected).next();
        match refused {
            Some((status, _)) => Err(Error::unavailable(format!(
                "the node refused a batch of the load with status {status}"
            ))),
            None => Ok(begun.elapsed()),
        }
    }

    /// Writes an item of its own; the session token of a container of one shard after that.
    pub async fn session_token(&self, container: &str) -> Result<String> {
        let link = container_link(container);
        let request = Request {
            verb: "POST",
            path: &format!("/{link}/docs"),
            resource_type: "docs",
            link: &link,
            headers: vec![
                ("x-ms-documentdb-partitionkey", r#"["token"]"#),
                ("x-ms-documentdb-is-upsert", "True"),
            ],
            body: br#"{"id":"token","pk":"token"}"#,
        };
        let told = self.ask_for_head(&request).await?;
        let token = told.header("x-ms-session-token");
        token
            .map(str::to_owned)
            .ok_or_else(|| Error::unavailable("a write was answered without a session token"))
    }

    /// The ids of a container's partition key ranges.
    pub async fn range_ids(&self, container: &str) -> Result<Vec<String>> {
        let link = container_link(container);
        let path = format!("/{link}/pkranges");
        let request = Request {
            verb: "GET",
            path: &path,
            resource_type: "pkranges",
            link: &link,
            headers: Vec::new(),
            body: b"",
        };
        let (body, _) = self.ask(&request).await?;
        let feed: Value = serde_json::from_slice(&body).unwrap_or_default();
        let ranges = feed.get("PartitionKeyRanges").and_then(Value::as_array);
        let ids = ranges.into_iter().flatten();
        Ok(ids
            .filter_map(|range| Some(range.get("id")?.as_str()?.to_owned()))
            .collect())
    }
}

/// The metrics that a server tells, in the text format of Prometheus.
pub async fn metrics(endpoint: &Endpoint) -> Result<String> {
    let told = health(endpoint, "/metrics").await?;
    Ok(String::from_utf8_lossy(&told.body).into_owned())
}

/// What a node tells of its shards and of its cluster.
pub async fn status(endpoint: &Endpoint) -> Result<Value> {
    health_json(endpoint, "/status").await
}

/// Whether a node serves, and what keeps it from that.
pub async fn ready(endpoint: &Endpoint) -> Result<Value> {
    health_json(endpoint, "/ready").await
}

async fn health_json(endpoint: &Endpoint, path: &str) -> Result<Value> {
    let told = health(endpoint, path).await?;
    serde_json::from_slice(&told.body)
        .map_err(|error| Error::unavailable(format!("{path} of {endpoint} is no JSON: {error}")))
}

async fn health(endpoint: &Endpoint, path: &str) -> Result<Told> {
    let request = format!(
        "GET {path} HTTP/1.1\r\nhost: {}\r\n\r\n",
        endpoint.authority()
    );
    let failed = |error| Error::unavailable(format!("{path} of {endpoint} failed: {error}"));
    let reply = exchange(endpoint, request.as_bytes())
        .await
        .map_err(failed)?;
    reply.granted(&format!("GET {path}"))
}

/// An answer that is kept.
pub struct Told {
    status: u16,
    head: Vec<u8>,
    pub body: Vec<u8>,
    /// From the request to the whole answer.
    pub latency: Duration,
}

impl Told {
    pub fn header(&self, name: &str) -> Option<&str> {
        header_of(&self.head, name)
    }

    fn shown(&self) -> String {
        let body = String::from_utf8_lossy(&self.body);
        let line = body.split_whitespace().collect::<Vec<_>>().join(" ");
        line.chars().take(REFUSAL_CHARS_MAX).collect()
    }

    fn granted(self, what: &str) -> Result<Self> {
        if (200..300).contains(&self.status) {
            return Ok(self);
        }
        Err(Error::unavailable(format!(
            "{what} was answered with {}: {}",
            self.status,
            self.shown()
        )))
    }
}

async fn exchange(endpoint: &Endpoint, request: &[u8]) -> io::Result<Told> {
    let work = async {
        let mut connection = Connection::open_to(endpoint).await?;
        let sent = Instant::now();
        let answer = connection.exchange(request).await?;
        Ok(Told {
            status: answer.status,
            head: answer.head.to_owned(),
            body: answer.body.to_owned(),
            latency: sent.elapsed(),
        })
    };
    tokio::time::timeout(Duration::from_secs(ASK_SECONDS_MAX), work).await?
}

fn container_definition(id: &str, properties: &Value) -> String {
    let mut definition = json!({
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_definition_has_its_key_and_the_given_properties() {
        let text = container_definition("c", &json!({ "defaultTtl": -1 }));
        let definition: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(definition["id"], "c");
        assert_eq!(definition["partitionKey"]["paths"][0], "/pk");
        assert_eq!(definition["defaultTtl"], -1);
    }
}
