//! What is compared: servers that read and write items by their number, each in its own protocol.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{postgres, redis};
use crate::bench::item::{self, ITEM_BYTES, KnownItem, Random};
use crate::bench::load::{Script, Scripts, scripts};
use crate::bench::node::MeasuredNode;
use crate::bench::process::ServerProcess;
use crate::bench::request::CosmosRequest;
use crate::client::connection::RawAnswer;
use crate::client::endpoint::Endpoint;
use crate::client::{Signer, unix_seconds};

/// A started server, stopped when it is dropped.
pub struct ComparedPeer {
    pub name: String,
    pub guarantees: &'static str,
    pub endpoint: Endpoint,
    pub speaker: Speaker,
    pub host: Host,
}

/// A way of running a peer that changes what it guarantees.
pub struct Variant {
    pub setting: &'static str,
    pub name: &'static str,
    pub guarantees: &'static str,
}

/// Where the server runs.
pub enum Host {
    Own(ServerProcess),
    Bolide(Box<MeasuredNode>),
    /// At an endpoint that was given.
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
                CosmosRequest::item(link, number).write(target, signer, unix_seconds());
            }
        }
    }

    /// Appends the write of an item that lives for this many seconds, there or not.
    pub fn write(&self, target: &mut Vec<u8>, number: u64, body: &[u8], ttl: u64) {
        match self {
            Self::Redis => redis::set(target, number, body, ttl),
            Self::Postgres => postgres::set(target, number, body, ttl),
            Self::Cosmos { signer, link } => {
                CosmosRequest::upsert(link, &item::partition_key(number), body)
                    .header("prefer", "return=minimal")
                    .write(target, signer, unix_seconds());
            }
        }
    }
}

/// What a connection does.
#[derive(Clone)]
pub enum PeerWork {
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

pub struct PeerScript {
    speaker: Speaker,
    work: PeerWork,
    random: Random,
    body: Vec<u8>,
    request: Vec<u8>,
}

impl PeerScript {
    pub fn spread(speaker: &Speaker, work: &PeerWork, connections: u32, seed: u64) -> Scripts {
        let mut seeds = Random::new(seed);
        scripts(0..connections, |_| Self {
            speaker: speaker.clone(),
            work: work.clone(),
            random: Random::new(seeds.next()),
            body: Vec::new(),
            request: Vec::new(),
        })
    }

    fn write(&mut self, number: u64, ttl: u64) {
        let known = KnownItem {
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

impl Script for PeerScript {
    fn next(&mut self) -> Option<&[u8]> {
        self.request.clear();
        match &self.work {
            PeerWork::Read { items } => {
                let number = self.random.below_wide(*items);
                self.speaker.read(&mut self.request, number);
            }
            PeerWork::Write { items, ttl } => {
                let (number, ttl) = (self.random.below_wide(*items), *ttl);
                self.write(number, ttl);
            }
            PeerWork::Fill { next, end, due } => {
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

    fn accepts(&mut self, answer: RawAnswer<'_>) -> bool {
        matches!(answer.status, 200 | 201)
    }
}

/// What to do about a program that is not there.
pub fn missing(program: &str, package: &str) -> String {
    format!("{program} is not installed: apt-get install {package}")
}
