//! Queries over all partitions: one after the other under load, or one to its last page.

use std::time::Duration;

use serde_json::{Value, json};

use super::connection::Answer;
use super::load::Script;
use super::node::Node;
use super::request::{Request, container_link, write_body, write_start};
use crate::client::{Signed, Signer, unix_seconds};
use crate::model::error::{Error, Result};

/// What makes a POST a query over all partitions.
const HEADERS: [(&str, &str); 3] = [
    ("x-ms-documentdb-isquery", "True"),
    ("x-ms-documentdb-query-enablecrosspartition", "True"),
    ("x-ms-documentdb-populatequerymetrics", "True"),
];
const CONTINUATION: &str = "x-ms-continuation";
/// Pages of one query at most: far more than any needs here.
const PAGES_MAX: usize = 10_000;

/// The body of a query with at most one parameter, `@p`.
pub fn body(text: &str, parameter: Option<&Value>) -> Vec<u8> {
    let parameters: Vec<Value> = parameter
        .map(|value| json!({ "name": "@p", "value": value }))
        .into_iter()
        .collect();
    json!({ "query": text, "parameters": parameters })
        .to_string()
        .into_bytes()
}

/// One connection that sends queries in turn, each of which gives the same number of rows on one page.
pub struct Queries {
    signer: Signer,
    link: String,
    bodies: Vec<Vec<u8>>,
    turn: usize,
    /// How the body of a right answer ends.
    end: String,
    second: u64,
    signed: Vec<u8>,
    request: Vec<u8>,
}

impl Queries {
    /// The queries are dealt out to the connections, one script for each.
    pub fn spread(
        signer: &Signer,
        container: &str,
        bodies: &[Vec<u8>],
        rows: u32,
        connections: u32,
    ) -> Vec<Box<dyn Script>> {
        let script = |connection: u32| {
            let mine = bodies.iter().cycle().skip(connection as usize);
            let share = bodies.len().div_ceil(connections as usize);
            Box::new(Self {
                signer: signer.clone(),
                link: container_link(container),
                bodies: mine
                    .step_by(connections as usize)
                    .take(share)
                    .cloned()
                    .collect(),
                turn: 0,
                end: format!(r#""_count":{rows}}}"#),
                second: 0,
                signed: Vec::new(),
                request: Vec::new(),
            }) as Box<dyn Script>
        };
        (0..connections).map(script).collect()
    }
}

impl Script for Queries {
    fn next(&mut self) -> Option<&[u8]> {
        let second = unix_seconds();
        if self.second != second {
            let signed = Signed {
                verb_lower: "post",
                resource_type: "docs",
                link: &self.link,
            };
            self.signed.clear();
            self.signer.write_headers(&mut self.signed, &signed, second);
            self.second = second;
        }
        self.turn = (self.turn + 1) % self.bodies.len().max(1);
        let body = self.bodies.get(self.turn)?;
        self.request.clear();
        let path = format!("/{}/docs", self.link);
        write_start(&mut self.request, &self.signer, "POST", &path);
        self.request.extend_from_slice(&self.signed);
        for (name, value) in HEADERS {
            for part in [name, ": ", value, "\r\n"] {
                self.request.extend_from_slice(part.as_bytes());
            }
        }
        write_body(&mut self.request, body);
        Some(&self.request)
    }

    fn accepts(&mut self, answer: Answer<'_>) -> bool {
        answer.status == 200 && answer.body.ends_with(self.end.as_bytes())
    }
}

/// A query and all its pages.
#[derive(Debug, Default)]
pub struct Answered {
    pub rows: Vec<Value>,
    pub pages: usize,
    /// Items that the node has read for it.
    pub items_read: u64,
    /// Spent waiting for answers.
    pub latency: Duration,
    /// The node's CPU time meanwhile.
    pub cpu: Duration,
}

/// Asks for all pages of a query.
pub async fn answer(node: &Node, container: &str, text: &str) -> Result<Answered> {
    let link = container_link(container);
    let (path, body) = (format!("/{link}/docs"), body(text, None));
    let mut answered = Answered::default();
    let mut token: Option<String> = None;
    let cpu_before = node.server.cpu()?;
    while answered.pages < PAGES_MAX {
        let mut headers = HEADERS.to_vec();
        if let Some(token) = &token {
            headers.push((CONTINUATION, token));
        }
        let request = Request {
            verb: "POST",
            path: &path,
            resource_type: "docs",
            link: &link,
            headers,
            body: &body,
        };
        let told = node.ask_for_head(&request).await?;
        answered.pages += 1;
        answered.latency += told.latency;
        answered.items_read += told
            .header("x-ms-documentdb-query-metrics")
            .and_then(items_read)
            .ok_or_else(|| Error::unavailable("a query does not say what it read"))?;
        answered.rows.append(&mut rows(&told.body)?);
        token = told.header(CONTINUATION).map(str::to_owned);
        if token.is_none() {
            answered.cpu = node.server.cpu()?.saturating_sub(cpu_before);
            return Ok(answered);
        }
    }
    Err(Error::unavailable(format!(
        "'{text}' has more than {PAGES_MAX} pages"
    )))
}

fn rows(body: &[u8]) -> Result<Vec<Value>> {
    let mut page: Value = serde_json::from_slice(body)
        .map_err(|error| Error::unavailable(format!("a page is no JSON: {error}")))?;
    match page.get_mut("Documents").map(Value::take) {
        Some(Value::Array(rows)) => Ok(rows),
        _ => Err(Error::unavailable("a page has no rows")),
    }
}

/// The number of items read, of the query metrics.
fn items_read(metrics: &str) -> Option<u64> {
    let mut pairs = metrics.split(';').filter_map(|pair| pair.split_once('='));
    let (_, count) = pairs.find(|(name, _)| *name == "retrievedDocumentCount")?;
    count.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_and_pages_are_understood() {
        assert_eq!(items_read("a=1;retrievedDocumentCount=17;b=2.5"), Some(17));
        assert_eq!(items_read("a=1"), None);
        assert_eq!(
            rows(br#"{"_rid":"x","Documents":[1,{}],"_count":2}"#).unwrap(),
            [json!(1), json!({})]
        );
        assert!(rows(b"{}").is_err());
    }

    #[test]
    fn every_query_is_sent_by_some_connection() {
        let bodies: Vec<Vec<u8>> = (0..7_u8).map(|one| vec![one]).collect();
        let signer = Signer::new("").unwrap();
        let mut seen = std::collections::BTreeSet::new();
        for mut script in Queries::spread(&signer, "c", &bodies, 1, 3) {
            for _ in 0..3 {
                seen.extend(script.next().unwrap().last().copied());
            }
        }
        assert_eq!(seen.len(), bodies.len());
    }
}
