//! What the connections of the cases send.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use super::item::{self, BATCH_ITEMS, Look, Random};
use super::load::{Script, Scripts, scripts};
use super::request::{CosmosRequest, DocumentPosts, container_link, write_creates};
use crate::client::connection::RawAnswer;
use crate::client::{Signer, unix_seconds};

/// Items that point reads go to, spread evenly over the container: enough that none is special,
/// few enough that signing them once a second costs the driver next to nothing.
const POINT_READ_IDS: u32 = 10_000;

/// Point reads of items that are there, one after the other.
pub struct PointReads {
    signer: Signer,
    link: String,
    /// Besides those that every read has.
    headers: Vec<(&'static str, String)>,
    reads: Vec<PreparedRead>,
    turn: usize,
}

struct PreparedRead {
    number: u32,
    /// The second in which the bytes were signed.
    second: u64,
    bytes: Vec<u8>,
}

impl PointReads {
    /// One script for each connection over a container that holds the items 0 to `items`.
    pub fn spread(signer: &Signer, container: &str, items: u32, connections: u32) -> Scripts {
        Self::spread_with(signer, container, items, connections, &[])
    }

    /// The same with these headers in each read.
    pub fn spread_with(
        signer: &Signer,
        container: &str,
        items: u32,
        connections: u32,
        headers: &[(&'static str, String)],
    ) -> Scripts {
        let reads = POINT_READ_IDS.min(items).max(connections);
        let prepared = |read: u32| PreparedRead {
            number: (u64::from(read) * u64::from(items) / u64::from(reads)) as u32,
            second: 0,
            bytes: Vec::new(),
        };
        scripts(0..connections, |connection| Self {
            signer: signer.clone(),
            link: container_link(container),
            headers: headers.to_vec(),
            reads: (connection..reads)
                .step_by(connections as usize)
                .map(prepared)
                .collect(),
            turn: 0,
        })
    }
}

impl Script for PointReads {
    fn next(&mut self) -> Option<&[u8]> {
        self.turn = (self.turn + 1) % self.reads.len().max(1);
        let read = self.reads.get_mut(self.turn)?;
        let second = unix_seconds();
        if read.second != second {
            let request = CosmosRequest::item(&self.link, read.number);
            let headers = self.headers.iter();
            let request = headers.fold(request, |request, (name, value)| {
                request.header(name, value.as_str())
            });
            read.bytes.clear();
            request.write(&mut read.bytes, &self.signer, second);
            read.second = second;
        }
        Some(&read.bytes)
    }

    fn accepts(&mut self, answer: RawAnswer<'_>) -> bool {
        // The baseline answers with one item to all.
        answer.status == 200 && answer.body.starts_with(br#"{"id":"i"#)
    }
}

/// Creates of items with a partition key each.
pub struct Creates {
    posts: DocumentPosts,
    /// First characters of the ids: differs between connections and rounds.
    prefix: String,
    look: Look,
    count: u32,
    random: Random,
    body: Vec<u8>,
}

impl Creates {
    /// One script for each connection; `round` must differ between loads of one container.
    pub fn spread(
        signer: &Signer,
        container: &str,
        look: Look,
        round: u32,
        connections: u32,
    ) -> Scripts {
        scripts(0..connections, |connection| Self {
            posts: DocumentPosts::new(signer, container),
            prefix: format!("r{round:03}c{connection:04}n"),
            look,
            count: 0,
            random: Random::new(u64::from(round) << 32 | u64::from(connection)),
            body: Vec::new(),
        })
    }
}

impl Script for Creates {
    fn next(&mut self) -> Option<&[u8]> {
        self.count += 1;
        let id = format!("{}{:08}", self.prefix, self.count);
        self.body.clear();
        self.look.write(
            &mut self.body,
            self.count,
            (&id, &id),
            None,
            &mut self.random,
        );
        Some(self.posts.create(&id, &self.body))
    }

    fn accepts(&mut self, answer: RawAnswer<'_>) -> bool {
        answer.status == 201
    }
}

/// When the items of a batch fall due: the second is known but for the time the write took.
#[derive(Debug, Default)]
pub struct DueBounds {
    /// No read may miss the items before this second.
    pub earliest: AtomicU64,
    /// No read may see the items from this second on.
    pub latest: AtomicU64,
}

/// What is loaded into a container, shared by the connections that load it.
pub struct Cargo {
    pub container: &'static str,
    /// Number of the first item; a multiple of [`BATCH_ITEMS`].
    pub first_item: u32,
    pub batches: u32,
    pub look: Look,
    pub due: Due,
    next_batch: AtomicU32,
    is_late: AtomicBool,
}

/// When loaded items expire.
pub enum Due {
    /// Without a ttl of their own.
    Inherit,
    /// All of them after the same time.
    After(u64),
    /// Spread over this many seconds from a second on, whenever they were written.
    At {
        second: u64,
        spread_seconds: u64,
        bounds: Vec<DueBounds>,
    },
}

impl Cargo {
    pub fn new(container: &'static str, first_item: u32, items: u32, due: Due) -> Arc<Self> {
        Self::looking(Look::Payload, container, first_item, items, due)
    }

    pub fn looking(
        look: Look,
        container: &'static str,
        first_item: u32,
        items: u32,
        due: Due,
    ) -> Arc<Self> {
        Arc::new(Self {
            container,
            first_item,
            batches: items.div_ceil(BATCH_ITEMS),
            look,
            due,
            next_batch: AtomicU32::new(0),
            is_late: AtomicBool::new(false),
        })
    }

    /// Of each batch, if its items are due at a second.
    pub fn bounds(&self) -> &[DueBounds] {
        match &self.due {
            Due::At { bounds, .. } => bounds,
            _ => &[],
        }
    }

    /// Whether items were left out because their second had come.
    pub fn is_late(&self) -> bool {
        self.is_late.load(Ordering::Relaxed)
    }

    /// One script for each connection.
    pub fn scripts(self: &Arc<Self>, signer: &Signer, connections: u32) -> Scripts {
        scripts(0..connections, |connection| Batches {
            signer: signer.clone(),
            link: container_link(self.container),
            cargo: Arc::clone(self),
            batch: 0,
            ttl: None,
            random: Random::new(u64::from(self.first_item) << 32 | u64::from(connection)),
            body: Vec::new(),
            request: Vec::new(),
        })
    }
}

/// Transactional batches that load a container.
struct Batches {
    signer: Signer,
    link: String,
    cargo: Arc<Cargo>,
    batch: u32,
    ttl: Option<u64>,
    random: Random,
    body: Vec<u8>,
    request: Vec<u8>,
}

impl Batches {
    /// The bounds of the current batch, if its items are due at a second.
    fn bounds(&self) -> Option<&DueBounds> {
        self.cargo.bounds().get(self.batch as usize)
    }

    fn prepare(&mut self, now: u64) {
        let first = self.cargo.first_item + self.batch * BATCH_ITEMS;
        let key = item::partition_key(first);
        self.body.clear();
        let (ttl, random, look) = (self.ttl, &mut self.random, self.cargo.look);
        write_creates(
            &mut self.body,
            first..first + BATCH_ITEMS,
            |body, number| {
                look.write(body, number, (&item::id(number), &key), ttl, random);
            },
        );
        self.request.clear();
        let request = CosmosRequest::batch(&self.link, &key, &self.body);
        request.write(&mut self.request, &self.signer, now);
    }
}

impl Script for Batches {
    fn next(&mut self) -> Option<&[u8]> {
        self.batch = self.cargo.next_batch.fetch_add(1, Ordering::Relaxed);
        if self.batch >= self.cargo.batches {
            return None;
        }
        let now = unix_seconds();
        self.ttl = match &self.cargo.due {
            Due::Inherit => None,
            Due::After(seconds) => Some(*seconds),
            Due::At {
                second,
                spread_seconds,
                ..
            } => {
                let due = second + u64::from(self.batch) % spread_seconds;
                if due <= now + 1 {
                    self.cargo.is_late.store(true, Ordering::Relaxed);
                    return None;
                }
                Some(due - now)
            }
        };
        if let (Some(bounds), Some(ttl)) = (self.bounds(), self.ttl) {
            bounds.earliest.store(now + ttl, Ordering::Relaxed);
        }
        self.prepare(now);
        Some(&self.request)
    }

    fn accepts(&mut self, answer: RawAnswer<'_>) -> bool {
        if let (Some(bounds), Some(ttl)) = (self.bounds(), self.ttl) {
            let latest = unix_seconds() + ttl;
            bounds.latest.store(latest, Ordering::Relaxed);
        }
        answer.status == 200
    }
}
