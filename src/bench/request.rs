//! Requests as the bytes that go over the wire.

use std::borrow::Cow;
use std::io::Write as _;

use super::item;
use crate::client::{Signed, Signer, unix_seconds};

/// The one database of a run.
pub const DATABASE: &str = "bench";
/// The link of that database.
pub const DATABASE_LINK: &str = "dbs/bench";

const PARTITION_KEY: &str = "x-ms-documentdb-partitionkey";

/// Returns the path of a container without its leading slash: also what signatures call it.
pub fn container_link(container: &str) -> String {
    format!("{DATABASE_LINK}/colls/{container}")
}

/// Returns the header value that names a partition key of one text.
fn partition_key_header(partition_key: &str) -> String {
    format!(r#"["{partition_key}"]"#)
}

pub struct CosmosRequest<'a> {
    verb: &'static str,
    path: String,
    resource_type: &'static str,
    /// Where the part of the path ends that signatures cover.
    link_end: usize,
    /// Besides those that every request has.
    headers: Vec<(&'static str, Cow<'a, str>)>,
    body: &'a [u8],
}

impl<'a> CosmosRequest<'a> {
    /// To a resource itself; the account has no link and no type.
    pub fn to(verb: &'static str, resource_type: &'static str, link: &str) -> Self {
        let path = format!("/{link}");
        Self {
            verb,
            link_end: path.len(),
            path,
            resource_type,
            headers: Vec::new(),
            body: b"",
        }
    }

    /// To all resources of a type below a parent.
    pub fn below(verb: &'static str, parent: &str, resource_type: &'static str) -> Self {
        let slash = if parent.is_empty() { "" } else { "/" };
        Self {
            path: format!("/{parent}{slash}{resource_type}"),
            link_end: "/".len() + parent.len(),
            ..Self::to(verb, resource_type, "")
        }
    }

    /// A point read of the item with this number.
    pub fn item(container_link: &str, number: impl Into<u64>) -> Self {
        let number = number.into();
        let link = format!("{container_link}/docs/{}", item::id(number));
        Self::to("GET", "docs", &link).partition_key(&item::partition_key(number))
    }

    /// An upsert of one item.
    pub fn upsert(container_link: &str, partition_key: &str, body: &'a [u8]) -> Self {
        Self::below("POST", container_link, "docs")
            .partition_key(partition_key)
            .header("x-ms-documentdb-is-upsert", "True")
            .body(body)
    }

    /// A transactional batch for items of one partition key; the items are not sent back.
    pub fn batch(container_link: &str, partition_key: &str, body: &'a [u8]) -> Self {
        Self::below("POST", container_link, "docs")
            .header("x-ms-cosmos-is-batch-request", "True")
            .header("x-ms-cosmos-batch-atomic", "True")
            .header("x-ms-cosmos-batch-continue-on-error", "False")
            .header("prefer", "return=minimal")
            .partition_key(partition_key)
            .body(body)
    }

    pub fn header(mut self, name: &'static str, value: impl Into<Cow<'a, str>>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    pub fn partition_key(self, partition_key: &str) -> Self {
        self.header(PARTITION_KEY, partition_key_header(partition_key))
    }

    pub fn body(self, body: &'a [u8]) -> Self {
        Self { body, ..self }
    }

    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns verb and path, for messages.
    pub fn shown(&self) -> String {
        format!("{} {}", self.verb, self.path)
    }

    /// Appends the request, signed in this second.
    pub fn write(&self, target: &mut Vec<u8>, signer: &Signer, second: u64) {
        write_start(target, signer, self.verb, &self.path);
        let signed = Signed {
            verb_lower: lower(self.verb),
            resource_type: self.resource_type,
            link: self.path.get(1..self.link_end).unwrap_or_default(),
        };
        signer.write_headers(target, &signed, second);
        for (name, value) in &self.headers {
            write_header(target, name, value);
        }
        write_body(target, self.body);
    }

    /// Returns the request, signed now.
    pub fn bytes(&self, signer: &Signer) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.write(&mut bytes, signer, unix_seconds());
        bytes
    }
}

/// Returns the verb as signatures spell it.
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

/// Posts to the documents of a container. They are signed once a second: a signature covers
/// neither headers nor body.
pub struct DocumentPosts {
    signer: Signer,
    link: String,
    signed: Vec<u8>,
    second: u64,
    request: Vec<u8>,
}

impl DocumentPosts {
    pub fn new(signer: &Signer, container: &str) -> Self {
        Self {
            signer: signer.clone(),
            link: container_link(container),
            signed: Vec::new(),
            second: 0,
            request: Vec::new(),
        }
    }

    /// Returns a request with these headers and this body.
    pub fn post(&mut self, headers: &[(&str, &str)], body: &[u8]) -> &[u8] {
        let second = unix_seconds();
        if self.second != second {
            let link = &self.link;
            let signed = Signed {
                verb_lower: "post",
                resource_type: "docs",
                link,
            };
            self.signed.clear();
            self.signer.write_headers(&mut self.signed, &signed, second);
            self.second = second;
        }
        let path = format!("/{}/docs", self.link);
        self.request.clear();
        write_start(&mut self.request, &self.signer, "POST", &path);
        self.request.extend_from_slice(&self.signed);
        for (name, value) in headers {
            write_header(&mut self.request, name, value);
        }
        write_body(&mut self.request, body);
        &self.request
    }

    /// Returns a create of an item.
    pub fn create(&mut self, partition_key: &str, body: &[u8]) -> &[u8] {
        let key = partition_key_header(partition_key);
        self.post(&[(PARTITION_KEY, &key)], body)
    }
}

/// Appends the request line and the headers that never change.
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

pub fn write_header(target: &mut Vec<u8>, name: &str, value: &str) {
    for part in [name, ": ", value, "\r\n"] {
        target.extend_from_slice(part.as_bytes());
    }
}

/// Appends the end of the head, and the body if there is one.
pub fn write_body(target: &mut Vec<u8>, body: &[u8]) {
    write_typed_body(target, "application/json", body);
}

/// Appends the same for a query, whose body has a type of its own.
pub fn write_query_body(target: &mut Vec<u8>, body: &[u8]) {
    write_typed_body(target, "application/query+json", body);
}

fn write_typed_body(target: &mut Vec<u8>, content_type: &str, body: &[u8]) {
    if !body.is_empty() {
        let length = body.len();
        // Writing to a vector cannot fail.
        let _ = write!(
            target,
            "content-type: {content_type}\r\ncontent-length: {length}\r\n"
        );
    }
    target.extend_from_slice(b"\r\n");
    target.extend_from_slice(body);
}

/// Appends the body of a batch that creates items, each written by `write_item`.
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
