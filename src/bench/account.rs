//! An account under load, asked over the wire: its databases, containers and ranges.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::load::Load;
use super::request::{CosmosRequest, DATABASE, DATABASE_LINK, container_link};
use super::scripts::Cargo;
use crate::client::Signer;
use crate::client::connection::{Connection, header_of};
use crate::client::endpoint::Endpoint;
use crate::model::error::{Error, Result};

/// Characters of a refusal that are shown.
const REFUSAL_CHARS_MAX: usize = 300;
/// How long one such request may take.
const ASK_TIMEOUT: Duration = Duration::from_secs(60);

/// Connections that load a container: batches are large, so few keep a node busy.
const LOAD_CONNECTIONS: u32 = 8;
const LOAD_TIMEOUT: Duration = Duration::from_secs(600);

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
            let reply = self.exchange(endpoint, &account()).await.map_err(|error| {
                let hint = endpoint.hint(&error);
                Error::bad_request(format!(
                    "cannot reach the endpoint {endpoint}: {error}{hint}"
                ))
            })?;
            let problem = match reply.status {
                200 => continue,
                401 | 403 => "refuses the key",
                _ => "does not show its account",
            };
            let (status, shown) = (reply.status, reply.shown());
            return Err(Error::bad_request(format!(
                "the endpoint {endpoint} {problem} (status {status}): {shown}"
            )));
        }
        Ok(())
    }

    /// Sends one request on a connection of its own; its 2xx answer.
    pub async fn ask(&self, request: &CosmosRequest<'_>) -> Result<KeptAnswer> {
        let what = request.shown();
        let failed = |error| Error::unavailable(format!("{what} failed: {error}"));
        let Some(endpoint) = self.endpoints.first() else {
            return Err(Error::internal("the account has no endpoint"));
        };
        let reply = self.exchange(endpoint, request).await.map_err(failed)?;
        reply.granted(&what)
    }

    async fn exchange(
        &self,
        endpoint: &Endpoint,
        request: &CosmosRequest<'_>,
    ) -> io::Result<KeptAnswer> {
        let signer = self.signer.for_host(&endpoint.authority());
        exchange(endpoint, &request.bytes(&signer)).await
    }

    pub async fn create_database(&self) -> Result<()> {
        let body = json!({ "id": DATABASE }).to_string();
        let request = CosmosRequest::below("POST", "", "dbs").body(body.as_bytes());
        self.ask(&request).await.map(drop)
    }

    /// Creates the database, unless it is there.
    pub async fn ensure_database(&self) -> Result<()> {
        match self
            .ask(&CosmosRequest::to("GET", "dbs", DATABASE_LINK))
            .await
        {
            Ok(_) => Ok(()),
            Err(_) => self.create_database().await,
        }
    }

    /// Creates a container with the partition key `/pk` and these other properties.
    pub async fn create_container(&self, id: &str, properties: &Value) -> Result<()> {
        self.create_container_with(id, properties, None).await
    }

    /// The same with this throughput, in request units a second.
    pub async fn create_container_with(
        &self,
        id: &str,
        properties: &Value,
        throughput: Option<u32>,
    ) -> Result<()> {
        let body = container_definition(id, properties);
        let mut request =
            CosmosRequest::below("POST", DATABASE_LINK, "colls").body(body.as_bytes());
        if let Some(units) = throughput {
            request = request.header("x-ms-offer-throughput", units.to_string());
        }
        self.ask(&request).await.map(drop)
    }

    /// Replaces the definition of a container; how long the answer took.
    pub async fn replace_container(&self, id: &str, properties: &Value) -> Result<Duration> {
        let body = container_definition(id, properties);
        let request = CosmosRequest::to("PUT", "colls", &container_link(id)).body(body.as_bytes());
        Ok(self.ask(&request).await?.latency)
    }

    pub async fn delete_container(&self, id: &str) -> Result<()> {
        let request = CosmosRequest::to("DELETE", "colls", &container_link(id));
        self.ask(&request).await.map(drop)
    }

    /// Writes all that a cargo holds, through all endpoints; how long it took.
    pub async fn load(&self, cargo: &Arc<Cargo>) -> Result<Duration> {
        let begun = Instant::now();
        let scripts = cargo.scripts(&self.signer, LOAD_CONNECTIONS);
        let load = Load::closed(self.endpoints.clone(), scripts)?;
        load.accepted(LOAD_TIMEOUT, "the node").await?;
        Ok(begun.elapsed())
    }

    /// Writes an item of its own; the session token of a container of one shard after that.
    pub async fn session_token(&self, container: &str) -> Result<String> {
        let link = container_link(container);
        let request = CosmosRequest::upsert(&link, "token", br#"{"id":"token","pk":"token"}"#);
        let told = self.ask(&request).await?;
        let token = told.header("x-ms-session-token").map(str::to_owned);
        token.ok_or_else(|| Error::unavailable("a write was answered without a session token"))
    }

    /// The ids of a container's partition key ranges.
    pub async fn range_ids(&self, container: &str) -> Result<Vec<String>> {
        let request = CosmosRequest::below("GET", &container_link(container), "pkranges");
        let told = self.ask(&request).await?;
        let feed: Value = serde_json::from_slice(&told.body).unwrap_or_default();
        let ranges = feed["PartitionKeyRanges"].as_array().into_iter().flatten();
        let ids = ranges.filter_map(|range| range["id"].as_str());
        Ok(ids.map(str::to_owned).collect())
    }
}

/// Returns a request for the account itself.
pub fn account() -> CosmosRequest<'static> {
    CosmosRequest::to("GET", "", "")
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

async fn health(endpoint: &Endpoint, path: &str) -> Result<KeptAnswer> {
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
pub struct KeptAnswer {
    status: u16,
    head: Vec<u8>,
    pub body: Vec<u8>,
    /// From the request to the whole answer.
    pub latency: Duration,
}

impl KeptAnswer {
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

async fn exchange(endpoint: &Endpoint, request: &[u8]) -> io::Result<KeptAnswer> {
    let work = async {
        let mut connection = Connection::open_to(endpoint).await?;
        let sent = Instant::now();
        let answer = connection.exchange(request).await?;
        Ok(KeptAnswer {
            status: answer.status,
            head: answer.head.to_owned(),
            body: answer.body.to_owned(),
            latency: sent.elapsed(),
        })
    };
    tokio::time::timeout(ASK_TIMEOUT, work).await?
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
