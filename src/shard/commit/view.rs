//! Reads of a shard on the caller's thread, from what is committed. A message to the actor and back
//! costs more than the read itself, and a read must not wait behind writes.

use std::{ops::Deref, sync::Arc};

use bytes::Bytes;

use super::core::ShardCore;
pub use super::core::{Counters, Shortage};
use crate::{
    clock::Clock,
    expiry::{Backlog, backlog, earlier},
    model::{
        epk::{Epk, EpkRange},
        error::{Error, Result},
        item::EtagCondition,
    },
    shard::{
        decide::{
            answer::{AnswerBudget, Overflow},
            purge::EngineLanes,
            transaction::{self, Done},
        },
        state::{ShardState, facts::ShardFacts},
    },
    store::{Engine, EngineError, document::Stored, index_entry, keys},
};

/// Dead entries that a page may step over before it is handed out short.
const PAGE_EXAMINED_MAX: usize = 20_000;

/// Items for one answer, bounded in number and size.
pub struct Page {
    pub items: Vec<PageItem>,
    /// When the first of the items expires.
    pub first_due: Option<i64>,
    /// The room that its items take, for as long as they are there.
    pub room: Arc<AnswerBudget>,
    bytes: usize,
    items_max: usize,
    bytes_max: usize,
}

#[derive(Debug)]
pub struct PageItem {
    pub range_id: u32,
    pub key: Vec<u8>,
    pub stored: Stored<Bytes>,
}

impl Page {
    pub fn new(items_max: usize, bytes_max: usize) -> Self {
        Self {
            items: Vec::new(),
            first_due: None,
            room: AnswerBudget::new(Overflow::Fail),
            bytes: 0,
            items_max,
            bytes_max,
        }
    }

    /// Returns whether an item of this size fits; the first one always does.
    pub fn has_room_for(&self, bytes: usize) -> bool {
        self.items.is_empty()
            || (self.items.len() < self.items_max && self.bytes + bytes <= self.bytes_max)
    }

    /// Makes room for an item. Returns false if the page must end before it, because too many bytes
    /// are in flight; fails if it would be the first.
    fn take_room(&self, bytes: usize) -> Result<bool> {
        match self.room.take_for_page(bytes) {
            Err(busy) if self.items.is_empty() => Err(busy),
            taken => Ok(taken.is_ok()),
        }
    }

    fn push(&mut self, item: PageItem, due: Option<i64>) {
        self.first_due = earlier(self.first_due, due);
        self.bytes += item.stored.body().len();
        self.items.push(item);
    }
}

/// The reader of a shard. It dereferences to the state that it shares with the actor and the commit
/// log.
pub struct ShardView {
    core: ShardCore,
}

impl Deref for ShardView {
    type Target = ShardCore;

    fn deref(&self) -> &ShardCore {
        &self.core
    }
}

impl ShardView {
    pub fn new(facts: ShardFacts, engine: Arc<Engine>, clock: Clock, state: ShardState) -> Self {
        Self {
            core: ShardCore::new(facts, engine, clock, state),
        }
    }

    /// Returns by how many seconds the newest `_ts` is ahead of the clock. `_ts` never goes back
    /// within a shard, so what is written meanwhile gets it, and expires late.
    pub fn seconds_ahead(&self) -> i64 {
        (self.state().ts - self.clock.now()).max(0)
    }

    /// Counts what has expired and is not purged.
    pub fn expiry_backlog(&self) -> std::result::Result<Backlog, EngineError> {
        self.count_expired(usize::MAX)
    }

    /// Returns whether anything has expired and is not purged.
    pub fn has_expired(&self) -> std::result::Result<bool, EngineError> {
        Ok(self.count_expired(1)?.items > 0)
    }

    /// Counts what has expired and is not purged, up to so many items of each lane.
    fn count_expired(&self, items_max: usize) -> std::result::Result<Backlog, EngineError> {
        let (state, now) = (self.state(), self.clock.now());
        let lanes = EngineLanes(&self.engine);
        backlog(&lanes, &state.rules, state.cursors, now, items_max)
    }

    /// Returns the live document under a key, at this very second.
    pub fn live(&self, key: &[u8]) -> Result<Option<Stored<Bytes>>> {
        let Some(bytes) = self.engine.get(key)? else {
            return Ok(None);
        };
        let stored = decode(Bytes::copy_from_slice(&bytes))?;
        Ok(self
            .is_live_document(&stored, self.clock.now())
            .then_some(stored))
    }

    /// Reads one item.
    pub fn read(
        &self,
        place: &[u8],
        id: &str,
        if_none_match: Option<&EtagCondition>,
    ) -> Result<Done> {
        let live = self
            .live(&keys::document(place, id))?
            .ok_or_else(|| transaction::missing(id))?;
        let due = self.expiry_of(live.header.ts, live.header.ttl);
        Ok(Done {
            due,
            ..transaction::read(live, if_none_match)
        })
    }

    /// Returns the id of the live item of a partition key that has this ordinal: by the index where
    /// it knows, else by a look at all of them.
    pub fn id_of(&self, place: &Epk, ordinal: u64) -> Result<Option<String>> {
        let known = self.engine.get(&keys::resource(ordinal))?;
        let known = known.as_deref().and_then(index_entry::resource_parts);
        let (from, to) = keys::document_range(place, &place.successor());
        if let Some((_, key)) =
            known.filter(|(_, key)| (from.as_slice()..to.as_slice()).contains(key))
            && self
                .live(key)?
                .is_some_and(|stored| stored.header.ordinal == ordinal)
        {
            return Ok(keys::document_id(key, place).map(str::to_owned));
        }
        let now = self.clock.now();
        let mut scan = self.engine.scan(&from, &to);
        while let Some((key, value)) = scan.entry()? {
            let stored = decode(value)?;
            if stored.header.ordinal == ordinal && self.is_live_document(&stored, now) {
                return Ok(keys::document_id(key, place).map(str::to_owned));
            }
            scan.advance();
        }
        Ok(None)
    }

    fn is_live_document<B: AsRef<[u8]>>(&self, stored: &Stored<B>, now: i64) -> bool {
        self.is_live(stored.header.ts, stored.header.ttl, now)
    }

    /// Adds the live documents of a range to a page, in key order from `from` on, without those
    /// that `skip` names. Returns the key to go on from when the page is full, or after much work
    /// without result.
    pub fn fill(
        &self,
        page: &mut Page,
        range: &EpkRange,
        from: Option<&[u8]>,
        skip: impl Fn(&[u8]) -> bool,
    ) -> Result<Option<Vec<u8>>> {
        let (start, to) = keys::document_range(&range.min, &range.max);
        let from = from.map_or(start.as_slice(), |from| from.max(start.as_slice()));
        let now = self.clock.now();
        let mut scan = self.engine.scan(from, &to);
        for examined in 0.. {
            let Some((key, value)) = scan.entry()? else {
                break;
            };
            let stored = decode(value)?;
            if self.is_live_document(&stored, now) && !skip(key) {
                let bytes = stored.body().len();
                if !page.has_room_for(bytes) || !page.take_room(bytes)? {
                    return Ok(Some(key.to_vec()));
                }
                let stored = decode(Bytes::copy_from_slice(value))?;
                let due = self.expiry_of(stored.header.ts, stored.header.ttl);
                let item = PageItem {
                    range_id: self.facts.range_id,
                    key: key.to_vec(),
                    stored,
                };
                page.push(item, due);
            } else if examined >= PAGE_EXAMINED_MAX {
                return Ok(Some(key.to_vec()));
            }
            scan.advance();
        }
        Ok(None)
    }
}

pub fn decode<B: AsRef<[u8]>>(bytes: B) -> Result<Stored<B>> {
    Stored::decode(bytes)
        .ok_or_else(|| Error::unavailable("the files are damaged: a stored item cannot be read"))
}
