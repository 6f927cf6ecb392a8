//! What is compared: servers that read and write items by their number, each in its own protocol.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{postgres, redis};
use crate::bench::connection::Answer;
use crate::bench::endpoint::Endpoint;
use crate::bench::item::{self, ITEM_BYTES, Known, Random};
use crate::bench::load::Script;
use crate::bench::node::Node;
use crate::bench::process::Server;
use crate::bench::request::{ItemRead, Request, partition_key_header};
use crate::client::{Signer, unix_seconds};

/// A started server, stopped when it is dropped.
pub struct Peer {
    pub name: String,
    pub guarantees: &'static str,
    pub endpoint: Endpoint,
    pub speaker: Speaker,
    pub host: Host,
}

/// Whose the server is.
pub enum Host {
    Own(Server),
    Bolide(Box<Node>),
    /// Somebody else's.
    Elsewhere,
}

/// How a server is spoken to.
#[derive(Clone)]
pub enum Speaker {
    Cosmos { signer: Signer, link: String },
    Redis,
    Postgres,
}

impl Speaker {
    /// Appends the read of an item.
    pub fn read(&self, target: &mut Vec<u8>, number: u64) {
        match self {
            Self::Redis => redis::read(target, number),
            Self::Postgres => postgres::read(target, number),
            Self::Cosmos { signer, link } => {
                let read = ItemRead::new(link, number);
                read.request().write(target, signer, unix_seconds());
            }
        }
    }

    /// Appends the write of an item that lives for this many seconds, there or not.
    pub fn write(&self, target: &mut Vec<u8>, number: u64, body: &[u8], ttl: u64) {
        match self {
            Self::Redis => redis::set(target, number, body, ttl),
            Self::Postgres => postgres::set(target, number, body, ttl),
            Self::Cosmos { signer, link } => {
                let path = format!("/{link}/docs");
                let key = partition_key_header(&item::partition_key(number));
                let request = Request {
                    verb: "POST",
                    path: &path,
                    resource_type: "docs",
                    link,
                    headers: vec![
                        ("x-ms-documentdb-partitionkey", &key),
                        ("x-ms-documentdb-is-upsert", "True"),
                        ("prefer", "return=minimal"),
                    ],
                    body,
                };
                request.write(target, signer, unix_seconds());
            }
        }
    }
}

/// What a connection does.
#[derive(Clone)]
pub enum Work {
    /// Reads at random of the first items.
    Read { items: u64 },
    /// Writes at random of the first items.
    Write { items: u64, ttl: u64 },
    /// Writes of all items from one to another, each once, due in about the same second.
    Fill {
        next: Arc<AtomicU64>,
        end: u64,
        due: u64,
    },
}

pub struct Doing {
    speaker: Speaker,
    work: Work,
    random: Random,
    body: Vec<u8>,
    request: Vec<u8>,
}

impl Doing {
    pub fn spread(
        speaker: &Speaker,
        work: &Work,
        connections: u32,
        seed: u64,
    ) -> Vec<Box<dyn Script>> {
        let mut seeds = Random::new(seed);
        let script = |_| {
            Box::new(Self {
                speaker: speaker.clone(),
                work: work.clone(),
                random: Random::new(seeds.next()),
                body: Vec::new(),
                request: Vec::new(),
            }) as Box<dyn Script>
        };
        (0..connections).map(script).collect()
    }

    fn write(&mut self, number: u64, ttl: u64) {
        let known = Known {
            number,
            version: self.random.below(u32::MAX),
            ttl: Some(ttl),
            bytes: ITEM_BYTES,
        };
        self.body.clear();
        known.write(&mut self.body);
        self.speaker
            .write(&mut self.request, number, &self.body, ttl);
    }
}

impl Script for Doing {
    fn next(&mut self) -> Option<&[u8]> {
        self.request.clear();
        match &self.work {
            Work::Read { items } => {
                let number = self.random.below_wide(*items);
                self.speaker.read(&mut self.request, number);
            }
            Work::Write { items, ttl } => {
                let (number, ttl) = (self.random.below_wide(*items), *ttl);
                self.write(number, ttl);
            }
            Work::Fill { next, end, due } => {
                let number = next.fetch_add(1, Ordering::Relaxed);
                let ttl = due.saturating_sub(unix_seconds()).max(1);
                if number >= *end {
                    return None;
                }
                self.write(number, ttl);
            }
        }
        Some(&self.request)
    }

    fn accepts(&mut self, answer: Answer<'_>) -> bool {
        matches!(answer.status, 200 | 201)
    }
}

/// What to do about a program that is not there.
pub fn missing(program: &str, package: &str) -> String {
    format!("{program} is not installed: apt-get install {package}")
}
