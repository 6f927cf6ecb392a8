//! One item for each of many partition keys, written until it is acknowledged, as a client does
//! that tries again.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::bench::account::Account;
use crate::bench::request::{CosmosRequest, container_link};
use crate::client::Signer;
use crate::client::connection::Connection;
use crate::client::endpoint::Endpoint;
use crate::model::error::{Error, Result};

/// Connections over which the keys are spread.
const CONNECTIONS: u32 = 48;
/// Between two tries of a write.
const RETRY_INTERVAL: Duration = Duration::from_millis(5);
/// When a write is given up, and the run with it.
const WRITE_TIMEOUT: Duration = Duration::from_secs(60);
/// Characters of a refusal that are shown.
const REFUSAL_CHARS_MAX: usize = 300;

/// Writes every key through all endpoints, again and again until it is acknowledged.
pub async fn write_keys(account: &Account, container: &str, keys: u32) -> Result<()> {
    let endpoints = account.endpoints.iter().cycle();
    let writers: Vec<_> = (0..CONNECTIONS.min(keys))
        .zip(endpoints)
        .map(|(first, endpoint)| {
            let mut writer = Writer {
                signer: account.signer.clone(),
                endpoint: endpoint.clone(),
                link: container_link(container),
                connection: None,
            };
            tokio::spawn(async move {
                for key in (first..keys).step_by(CONNECTIONS as usize) {
                    writer.write(key).await?;
                }
                Ok::<(), Error>(())
            })
        })
        .collect();
    for writer in writers {
        writer
            .await
            .map_err(|error| Error::internal(format!("a write ended: {error}")))??;
    }
    Ok(())
}

struct Writer {
    signer: Signer,
    endpoint: Endpoint,
    link: String,
    connection: Option<Connection>,
}

impl Writer {
    async fn write(&mut self, key: u32) -> Result<()> {
        let deadline = Instant::now() + WRITE_TIMEOUT;
        let mut last = "the node cannot be reached".to_owned();
        while Instant::now() < deadline {
            match self.try_write(key).await {
                Ok(None) => return Ok(()),
                Ok(Some(refusal)) => last = refusal,
                Err(error) => {
                    self.connection = None;
                    last = error.to_string();
                }
            }
            tokio::time::sleep(RETRY_INTERVAL).await;
        }
        let seconds = WRITE_TIMEOUT.as_secs();
        Err(Error::unavailable(format!(
            "a write of the key k{key} was not taken within {seconds} s: {last}"
        )))
    }

    /// Nothing, if it was acknowledged; otherwise what was answered.
    async fn try_write(&mut self, key: u32) -> std::io::Result<Option<String>> {
        let key = format!("k{key}");
        let body = json!({ "id": "x", "pk": key }).to_string();
        let bytes = CosmosRequest::upsert(&self.link, &key, body.as_bytes()).bytes(&self.signer);
        let connection = match &mut self.connection {
            Some(connection) => connection,
            none => none.insert(Connection::open_to(&self.endpoint).await?),
        };
        let answer = connection.exchange(&bytes).await?;
        Ok((answer.status >= 300).then(|| {
            let body = String::from_utf8_lossy(answer.body);
            let body: String = body.chars().take(REFUSAL_CHARS_MAX).collect();
            format!("the last answer was {}: {body}", answer.status)
        }))
    }
}
