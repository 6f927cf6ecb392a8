//! Talks to a node's health port: small questions, and signed orders.

use std::{fmt, time::Duration};

use serde_json::Value;
use tokio::time::timeout;

use crate::{
    client::{Signed, Signer, connection::Connection, endpoint::Endpoint, unix_seconds},
    model::{
        account::ORDER_RESOURCE_TYPE,
        error::{Error, Result},
    },
};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
const SCHEME: &str = "http://";

/// Where a node serves health.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthPort {
    /// Without the brackets of an IPv6 address.
    host: String,
    port: u16,
}

impl fmt::Display for HealthPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}", self.authority())
    }
}

impl HealthPort {
    pub fn new(host: &str, port: u16) -> Self {
        let host = host.trim_start_matches('[').trim_end_matches(']');
        Self {
            host: host.to_owned(),
            port,
        }
    }

    /// On this machine.
    pub fn local(port: u16) -> Self {
        Self::new("127.0.0.1", port)
    }

    /// Reads `http://HOST:PORT`, with or without the scheme and a slash at the end.
    pub fn parse(endpoint: &str) -> Result<Self> {
        let bare = endpoint.strip_prefix(SCHEME).unwrap_or(endpoint);
        let bare = bare.strip_suffix('/').unwrap_or(bare);
        let parts = bare.rsplit_once(':').and_then(|(host, port)| {
            let bracketed = host.starts_with('[') && host.ends_with(']');
            let good =
                !host.is_empty() && !host.contains('/') && (bracketed || !host.contains(':'));
            good.then_some((host, port.parse().ok()?))
        });
        match parts {
            Some((host, port)) => Ok(Self::new(host, port)),
            None => Err(Error::bad_request(format!(
                "'{endpoint}' is no health endpoint: http://HOST:PORT is expected"
            ))),
        }
    }

    /// Host and port as a URL has them.
    fn authority(&self) -> String {
        match self.host.contains(':') {
            true => format!("[{}]:{}", self.host, self.port),
            false => format!("{}:{}", self.host, self.port),
        }
    }

    /// `GET` of a JSON document; `None` when there is none to be had.
    pub fn get(&self, path: &str) -> Option<Value> {
        self.ask(path).map(|(_, answer)| answer)
    }

    /// `GET` of a JSON document with the status of its answer; `None` when there is none to be had.
    pub fn ask(&self, path: &str) -> Option<(u16, Value)> {
        self.exchange("GET", path, "", ANSWER_TIMEOUT)
    }

    /// Gives an order, and returns what the node answers. Fails with the node's reason when it
    /// refuses.
    pub fn order(
        &self,
        signer: &Signer,
        verb: &str,
        path_and_query: &str,
        time_max: Duration,
    ) -> Result<Value> {
        let path = path_and_query.split('?').next().unwrap_or_default();
        let signed = Signed {
            verb_lower: &verb.to_ascii_lowercase(),
            resource_type: ORDER_RESOURCE_TYPE,
            link: path.trim_start_matches('/'),
        };
        let mut lines = Vec::new();
        signer.write_headers(&mut lines, &signed, unix_seconds());
        let lines = String::from_utf8_lossy(&lines);
        let Some((status, answer)) = self.exchange(verb, path_and_query, &lines, time_max) else {
            return Err(Error::unavailable(format!(
                "nobody answers on the health port {self}"
            )));
        };
        match status {
            200..300 => Ok(answer),
            _ => {
                let why = answer["error"].as_str().unwrap_or("no reason is given");
                // What is said on the command line is one line.
                let why = why.replace('\n', "\\n");
                let hint = match status {
                    401 => "; --key-file names the file with the account's key",
                    _ => "",
                };
                Err(Error::bad_request(format!(
                    "the node refuses ({status}): {why}{hint}"
                )))
            }
        }
    }

    /// Status and JSON of an answer.
    fn exchange(
        &self,
        verb: &str,
        path: &str,
        header_lines: &str,
        time_max: Duration,
    ) -> Option<(u16, Value)> {
        let request = format!(
            "{verb} {path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n\
             content-length: 0\r\n{header_lines}\r\n",
            self.authority()
        );
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_all().build().ok()?.block_on(async {
            let endpoint = Endpoint::plain(&self.host, self.port);
            let opened = timeout(CONNECT_TIMEOUT, Connection::open_to(&endpoint)).await;
            let mut connection = opened.ok()?.ok()?;
            let answered = timeout(time_max, connection.exchange(request.as_bytes())).await;
            let answer = answered.ok()?.ok()?;
            Some((answer.status, serde_json::from_slice(answer.body).ok()?))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_read() {
        let table = [
            ("http://127.0.0.1:8080", "127.0.0.1:8080"),
            ("http://db.example.org:80/", "db.example.org:80"),
            ("bolide:8080", "bolide:8080"),
            ("http://[::1]:8080", "[::1]:8080"),
        ];
        for (endpoint, authority) in table {
            assert_eq!(HealthPort::parse(endpoint).unwrap().authority(), authority);
        }
        for endpoint in [
            "",
            "localhost",
            "https://a:1",
            "http://a:99999",
            "::1:8080",
            "a:1/b",
        ] {
            let error = HealthPort::parse(endpoint).unwrap_err();
            assert!(error.message.contains(endpoint), "{error}");
        }
    }
}
