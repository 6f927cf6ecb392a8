//! The change feed, latest version: every live item once, at its last change, in the order of
//! changes.

use std::sync::Arc;

use bytes::Bytes;

use super::{
    answer::{AnswerBudget, Overflow},
    view::ShardView,
};
use crate::{
    expiry::earlier,
    model::{
        epk::EpkRange,
        error::{Error, Result},
    },
    store::{
        document::{Stored, VersionRef},
        keys::{self, Position},
    },
};

/// Entries that a page may step over (other keys, expired items) before it is handed out short.
const PAGE_EXAMINED_MAX: usize = 20_000;

/// Where a reader begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// After the transaction with this LSN; 0 is the beginning.
    After(u64),
    /// With changes that are made from now on.
    Now,
    /// With changes at or after this second.
    Time(i64),
}

pub struct FeedPage {
    pub items: Vec<Stored<Bytes>>,
    /// The LSN after which the next page begins.
    pub after: u64,
    /// The page is empty only because the work for one page was used up: ask again.
    pub more: bool,
    /// When the first of the items expires.
    pub first_due: Option<i64>,
    /// The room that the items take, for as long as they are there.
    pub room: Arc<AnswerBudget>,
}

/// Changes to items of `range`. A transaction is never split over two pages.
pub fn page(
    view: &ShardView,
    range: &EpkRange,
    start: Start,
    items_max: usize,
    bytes_max: usize,
) -> Result<FeedPage> {
    let room = AnswerBudget::new(Overflow::Fail);
    let committed = view.lsn();
    let begin = match start {
        Start::After(lsn) => Position::after_lsn(lsn),
        Start::Now => {
            return Ok(FeedPage {
                items: Vec::new(),
                after: committed,
                more: false,
                first_due: None,
                room,
            });
        }
        Start::Time(ts) => first_at_or_after(view, ts)?,
    };
    let mut scan = view.engine.scan(
        &keys::feed(begin),
        &keys::feed(Position::after_lsn(committed)),
    );
    let mut items: Vec<Stored<Bytes>> = Vec::new();
    let mut bytes = 0;
    let mut first_due = None;
    let mut last_lsn = begin.lsn.saturating_sub(1);
    for examined in 0.. {
        let Some((key, value)) = scan.entry()? else {
            break;
        };
        let (position, version) = keys::feed_position(key)
            .zip(VersionRef::decode(value))
            .ok_or_else(damaged)?;
        let size = version.size as usize;
        let begins = position.lsn != last_lsn;
        let full = items.len() >= items_max || bytes + size > bytes_max;
        let ends = begins && ((full && !items.is_empty()) || examined >= PAGE_EXAMINED_MAX);
        let is_wanted = range.contains(version.place());
        if ends || is_wanted && !take_room(&room, size, items.is_empty(), begins)? {
            return Ok(FeedPage {
                items,
                after: last_lsn,
                more: true,
                first_due,
                room,
            });
        }
        last_lsn = position.lsn;
        if is_wanted {
            match view.live(version.document_key)? {
                Some(stored) if stored.header.position == position => {
                    bytes += stored.body().len();
                    let due = view.expiry_of(stored.header.ts, stored.header.ttl);
                    first_due = earlier(first_due, due);
                    items.push(stored);
                }
                // A later write has moved the item further down the feed.
                _ => room.give_back(size),
            }
        }
        scan.advance();
    }
    Ok(FeedPage {
        items,
        after: committed,
        more: false,
        first_due,
        room,
    })
}

/// Makes room for an item before it is read. Returns false if the page must end before it, because
/// too many bytes are in flight. The rest of a transaction comes with its beginning.
fn take_room(room: &AnswerBudget, bytes: usize, is_first: bool, begins: bool) -> Result<bool> {
    match room.take_for_page(bytes) {
        Ok(()) => Ok(true),
        Err(busy) if is_first => Err(busy),
        Err(_) if begins => Ok(false),
        Err(_) => {
            room.take_beyond(bytes);
            Ok(true)
        }
    }
}

/// Returns the first change at or after a second, by bisection: time order is feed order.
fn first_at_or_after(view: &ShardView, ts: i64) -> Result<Position> {
    let (mut low, mut high) = (0_u64, view.lsn().saturating_add(1));
    while low < high {
        let middle = low + (high - low) / 2;
        let scan = view.engine.scan(
            &keys::feed(Position {
                lsn: middle,
                index: 0,
            }),
            keys::FEED_END,
        );
        let found = match scan.entry()? {
            Some((key, value)) => {
                let (position, version) = keys::feed_position(key)
                    .zip(VersionRef::decode(value))
                    .ok_or_else(damaged)?;
                (version.ts < ts).then_some(position.lsn)
            }
            None => None,
        };
        match found {
            Some(before) => low = before + 1,
            None => high = middle,
        }
    }
    Ok(Position { lsn: low, index: 0 })
}

fn damaged() -> Error {
    Error::unavailable("the files are damaged: an entry of the change feed cannot be read")
}
