//! Queries over all partitions: one after the other under load, or one to its last page.

use std::time::Duration;

use serde_json::{Value, json};

use super::load::{Script, Scripts, scripts};
use super::node::MeasuredNode;
use super::request::{CosmosRequest, DocumentPosts, container_link};
use crate::client::Signer;
use crate::client::connection::RawAnswer;
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
    let parameter = parameter.map(|value| json!({ "name": "@p", "value": value }));
    let parameters: Vec<Value> = parameter.into_iter().collect();
    let query = json!({ "query": text, "parameters": parameters });
    query.to_string().into_bytes()
}

/// One connection that sends queries in turn, each of which gives the same number of rows on one
/// page.
pub struct Queries {
    posts: DocumentPosts,
    bodies: Vec<Vec<u8>>,
    turn: usize,
    /// How the body of a right answer ends.
    end: String,
}

impl Queries {
    /// The queries are dealt out to the connections, one script for each.
    pub fn spread(
        signer: &Signer,
        container: &str,
        bodies: &[Vec<u8>],
        rows: u32,
        connections: u32,
    ) -> Scripts {
        let step = connections as usize;
        scripts(0..step, |connection| {
            let own = bodies.iter().cycle().skip(connection).step_by(step);
            Self {
                posts: DocumentPosts::new(signer, container),
                bodies: own.take(bodies.len().div_ceil(step)).cloned().collect(),
                turn: 0,
                end: format!(r#""_count":{rows}}}"#),
            }
        })
    }
}

impl Script for Queries {
    fn next(&mut self) -> Option<&[u8]> {
        self.turn = (self.turn + 1) % self.bodies.len().max(1);
        let body = self.bodies.get(self.turn)?;
        Some(self.posts.post(&HEADERS, body))
    }

    fn accepts(&mut self, answer: RawAnswer<'_>) -> bool {
        answer.status == 200 && answer.body.ends_with(self.end.as_bytes())
    }
}

/// A query and all its pages.
#[derive(Debug, Default)]
pub struct AnsweredQuery {
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
pub async fn answer(node: &MeasuredNode, container: &str, text: &str) -> Result<AnsweredQuery> {
    let (link, body) = (container_link(container), body(text, None));
    let mut answered = AnsweredQuery::default();
    let mut token: Option<String> = None;
    let cpu_before = node.server.cpu()?;
    while answered.pages < PAGES_MAX {
        let request = CosmosRequest::below("POST", &link, "docs").body(&body);
        let headers = HEADERS
            .into_iter()
            .chain(token.as_deref().map(|token| (CONTINUATION, token)));
        let request = headers.fold(request, |request, (name, value)| {
            request.header(name, value)
        });
        let told = node.ask(&request).await?;
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
