//! Requests as the bytes that go over the wire.

use std::io::Write as _;

use super::item;
use crate::client::{Signed, Signer};

/// The one database of a run.
pub const DATABASE: &str = "bench";

pub struct Request<'a> {
    pub verb: &'static str,
    pub path: &'a str,
    pub resource_type: &'a str,
    pub link: &'a str,
    /// Besides those that every request has.
    pub headers: Vec<(&'a str, &'a str)>,
    pub body: &'a [u8],
}

impl Request<'_> {
    /// Appends the request, signed in this second.
    pub fn write(&self, target: &mut Vec<u8>, signer: &Signer, second: u64) {
        self.write_head(target, signer, second);
        write_body(target, self.body);
    }

    fn write_head(&self, target: &mut Vec<u8>, signer: &Signer, second: u64) {
        write_start(target, signer, self.verb, self.path);
        let verb_lower = lower(self.verb);
        let (resource_type, link) = (self.resource_type, self.link);
        let signed = Signed {
            verb_lower,
            resource_type,
            link,
        };
        signer.write_headers(target, &signed, second);
        for (name, value) in &self.headers {
            for part in [name, ": ", value, "\r\n"] {
                target.extend_from_slice(part.as_bytes());
            }
        }
    }
}

/// The verb as signatures spell it.
fn lower(verb: &'static str) -> &'static str {
    match verb {
        "GET" => "get",
        "POST" => "post",
        "PUT" => "put",
        "PATCH" => "patch",
        "DELETE" => "delete",
        other => other,
    }
}

/// The request line and the headers that never change.
pub fn write_start(target: &mut Vec<u8>, signer: &Signer, verb: &str, path: &str) {
    for part in [
        verb,
        " ",
        path,
        " HTTP/1.1\r\nhost: ",
        signer.host(),
        "\r\naccept: application/json\r\nx-ms-version: 2020-07-15\r\n",
    ] {
        target.extend_from_slice(part.as_bytes());
    }
}

/// The end of the head, and the body if there is one.
pub fn write_body(target: &mut Vec<u8>, body: &[u8]) {
    write_typed_body(target, "application/json", body);
}

/// The same for a query, whose body has a type of its own.
pub fn write_query_body(target: &mut Vec<u8>, body: &[u8]) {
    write_typed_body(target, "application/query+json", body);
}

fn write_typed_body(target: &mut Vec<u8>, content_type: &str, body: &[u8]) {
    if !body.is_empty() {
        // Writing to a vector cannot fail.
        let _ = write!(
            target,
            "content-type: {content_type}\r\ncontent-length: {}\r\n",
            body.len()
        );
    }
    target.extend_from_slice(b"\r\n");
    target.extend_from_slice(body);
}

/// The header value that names a partition key of one text.
pub fn partition_key_header(partition_key: &str) -> String {
    format!(r#"["{partition_key}"]"#)
}

/// The path of a container, without its leading slash: also what signatures call it.
pub fn container_link(container: &str) -> String {
    format!("dbs/{DATABASE}/colls/{container}")
}

/// A transactional batch for items of one partition key; the items are not sent back.
pub fn batch<'a>(path: &'a str, link: &'a str, key: &'a str, body: &'a [u8]) -> Request<'a> {
    Request {
        verb: "POST",
        path,
        resource_type: "docs",
        link,
        headers: vec![
            ("x-ms-cosmos-is-batch-request", "True"),
            ("x-ms-cosmos-batch-atomic", "True"),
            ("x-ms-cosmos-batch-continue-on-error", "False"),
            ("prefer", "return=minimal"),
            ("x-ms-documentdb-partitionkey", key),
        ],
        body,
    }
}

/// The body of a batch that creates items, each written by `write_item`.
pub fn write_creates<N>(
    target: &mut Vec<u8>,
    numbers: impl IntoIterator<Item = N>,
    mut write_item: impl FnMut(&mut Vec<u8>, N),
) {
    target.push(b'[');
    for (index, number) in numbers.into_iter().enumerate() {
        if index > 0 {
            target.push(b',');
        }
        target.extend_from_slice(br#"{"operationType":"Create","resourceBody":"#);
        write_item(target, number);
        target.push(b'}');
    }
    target.push(b']');
}

/// A point read of one item.
pub struct ItemRead {
    path: String,
    key: String,
}

impl ItemRead {
    /// Of the item with this number in a loaded container.
    pub fn new(container_link: &str, number: impl Into<u64>) -> Self {
        let number = number.into();
        Self {
            path: format!("/{container_link}/docs/{}", item::id(number)),
            key: partition_key_header(&item::partition_key(number)),
        }
    }

    pub fn request(&self) -> Request<'_> {
        Request {
            verb: "GET",
            path: &self.path,
            resource_type: "docs",
            link: self.path.trim_start_matches('/'),
            headers: vec![("x-ms-documentdb-partitionkey", &self.key)],
            body: b"",
        }
    }
}
