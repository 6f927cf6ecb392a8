//! The model: of every item, the writes that may be its latest.
//!
//! Each write of an item gets a number, which is also in the item. A write that was answered
//! supersedes all that had been answered before it was sent; writes that were in flight together
//! may have happened in either order, so both stay possible. "Not there" is a version too.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Locks over which the items are spread.
const SHARDS: u64 = 256;
/// How long after its connection broke a write may still take effect.
const GRACE_SECONDS: f64 = 30.0;

/// How long a version lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lifetime {
    /// As long as the container's default says.
    Inherits,
    After(u32),
    /// Not at all: the item is not there.
    Absent,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum WriteOutcome {
    InFlight,
    Done,
    /// It had no answer. From this moment on it has happened or will not.
    Unknown(f64),
}

#[derive(Clone, Copy, Debug)]
struct Version {
    number: u32,
    life: Lifetime,
    outcome: WriteOutcome,
    /// The earliest and the latest second that `_ts` may be.
    written: (u64, u64),
}

#[derive(Clone, Debug)]
pub(super) struct Item {
    /// The highest number given out.
    pub last: u32,
    /// Versions up to this one are superseded, since this moment.
    pub floor: u32,
    pub floor_since: f64,
    /// What the floor was before, and since when.
    pub floor_before: (u32, f64),
    /// Those above the floor.
    versions: Vec<Version>,
    token: Option<Arc<str>>,
    /// The highest version that a reader of the change feed has seen.
    pub fed: u32,
}

impl Default for Item {
    fn default() -> Self {
        Self {
            last: 0,
            floor: 0,
            floor_since: 0.0,
            floor_before: (0, 0.0),
            versions: vec![Version {
                number: 0,
                life: Lifetime::Absent,
                outcome: WriteOutcome::Done,
                written: (0, 0),
            }],
            token: None,
            fed: 0,
        }
    }
}

/// A write that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    pub item: u64,
    pub version: u32,
    /// What it supersedes once it is answered.
    supersedes: u32,
}

/// The soonest and the latest that the possible versions of an item can end.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Span {
    pub may_be_absent: bool,
    pub earliest_due: u64,
    pub oldest_inheriting: u64,
    /// Nothing is in flight that could bring it back.
    pub is_settled: bool,
    pub latest_due: Option<u64>,
    pub newest_inheriting: Option<u64>,
}

impl Span {
    /// Of no version at all.
    const NONE: Self = Self {
        may_be_absent: false,
        earliest_due: u64::MAX,
        oldest_inheriting: u64::MAX,
        is_settled: true,
        latest_due: None,
        newest_inheriting: None,
    };
}

/// What was known of an item when a request for it was sent.
#[derive(Clone, Debug)]
pub struct Expectation {
    pub item: u64,
    pub sent: f64,
    /// The session token of its latest write.
    pub token: Option<Arc<str>>,
    /// Versions up to this one must not be seen.
    pub(super) floor: u32,
    pub(super) last: u32,
    pub(super) span: Span,
}

impl Ticket {
    /// For a run that checks nothing.
    pub const fn unchecked(item: u64) -> Self {
        Self {
            item,
            version: 1,
            supersedes: 0,
        }
    }
}

impl Expectation {
    /// For a run that checks nothing.
    pub fn unchecked(item: u64, sent: f64) -> Self {
        Self {
            item,
            sent,
            token: None,
            floor: 0,
            last: 0,
            span: Span::NONE,
        }
    }
}

impl Item {
    /// The possible versions, without this one.
    pub fn span(&self, without: u32) -> Span {
        let mut span = Span::NONE;
        for version in self.versions.iter().filter(|v| v.number != without) {
            span.is_settled &= version.outcome == WriteOutcome::Done;
            let (low, high) = version.written;
            match version.life {
                Lifetime::Absent => span.may_be_absent = true,
                Lifetime::Inherits => {
                    span.oldest_inheriting = span.oldest_inheriting.min(low);
                    span.newest_inheriting = span.newest_inheriting.max(Some(high));
                }
                Lifetime::After(ttl) => {
                    let due = |written: u64| written.saturating_add(u64::from(ttl));
                    span.earliest_due = span.earliest_due.min(due(low));
                    span.latest_due = span.latest_due.max(Some(due(high)));
                }
            }
        }
        span
    }

    /// Whether a write that began after `last` has been superseded or refused since: then what was
    /// possible in between is not known.
    pub fn has_forgotten(&self, last: u32) -> bool {
        let since = self.versions.iter().filter(|v| v.number > last).count();
        u64::from(self.last) > u64::from(last) + since as u64
    }

    /// The floor as it was at this moment, or lower.
    pub fn floor_at(&self, moment: f64) -> u32 {
        match (self.floor_since <= moment, self.floor_before) {
            (true, _) => self.floor,
            (false, (floor, since)) if since <= moment => floor,
            _ => 0,
        }
    }

    fn settle(&mut self, now: f64) {
        for version in &mut self.versions {
            if matches!(version.outcome, WriteOutcome::Unknown(until) if until <= now) {
                version.outcome = WriteOutcome::Done;
            }
        }
    }

    fn raise_floor(&mut self, floor: u32, now: f64) {
        if floor <= self.floor && self.versions.first().is_some_and(|v| v.number > floor) {
            return;
        }
        self.floor_before = (self.floor, self.floor_since);
        self.floor = floor.max(self.floor);
        self.floor_since = now;
        self.versions.retain(|version| version.number > floor);
    }
}

/// All items of a container.
pub struct ItemModel {
    shards: Vec<Mutex<HashMap<u64, Item>>>,
}

impl Default for ItemModel {
    fn default() -> Self {
        let shards = (0..SHARDS).map(|_| Mutex::new(HashMap::new()));
        Self {
            shards: shards.collect(),
        }
    }
}

impl ItemModel {
    fn shard(&self, item: u64) -> MutexGuard<'_, HashMap<u64, Item>> {
        let index = (item % SHARDS) as usize;
        let shard = self.shards.get(index).expect("there are SHARDS shards");
        shard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn with<T>(&self, item: u64, look: impl FnOnce(&mut Item) -> T) -> T {
        look(self.shard(item).entry(item).or_default())
    }

    /// What is known of an item as a request for it is sent.
    pub fn expect(&self, item: u64, now: f64) -> Expectation {
        self.with(item, |known| {
            known.settle(now);
            Expectation {
                item,
                sent: now,
                token: known.token.clone(),
                floor: known.floor,
                last: known.last,
                span: known.span(u32::MAX),
            }
        })
    }

    /// A write is sent; the server's clock shows this second at the earliest.
    pub fn begin(&self, item: u64, life: Lifetime, earliest: u64, now: f64) -> Ticket {
        self.with(item, |known| {
            known.settle(now);
            known.last += 1;
            let version = known.last;
            let open = known
                .versions
                .iter()
                .find(|v| v.outcome != WriteOutcome::Done);
            let supersedes = open.map_or(version, |v| v.number) - 1;
            known.versions.push(Version {
                number: version,
                life,
                outcome: WriteOutcome::InFlight,
                written: (earliest, u64::MAX),
            });
            Ticket {
                item,
                version,
                supersedes,
            }
        })
    }

    /// A write was answered. `written` are the first and the last second that `_ts` may be.
    pub fn done(&self, ticket: Ticket, written: (u64, u64), token: Option<&str>, now: f64) {
        self.with(ticket.item, |known| {
            for version in &mut known.versions {
                if version.number == ticket.version {
                    version.outcome = WriteOutcome::Done;
                    version.written = written;
                }
            }
            if ticket.version == known.last || known.token.is_none() {
                known.token = token.map(Arc::from);
            }
            known.raise_floor(ticket.supersedes, now);
        });
    }

    /// The server said that a write did not happen.
    pub fn refused(&self, ticket: Ticket) {
        self.with(ticket.item, |known| {
            known.versions.retain(|v| v.number != ticket.version);
        });
    }

    /// Whether a write happened is not known; if it did, no later than in `latest` plus the grace.
    pub fn unknown(&self, ticket: Ticket, latest: u64, now: f64) {
        self.with(ticket.item, |known| {
            for version in &mut known.versions {
                if version.number == ticket.version {
                    version.outcome = WriteOutcome::Unknown(now + GRACE_SECONDS);
                    version.written.1 = latest + GRACE_SECONDS as u64;
                }
            }
        });
    }

    /// The numbers of all items that were ever written, in order.
    pub fn items(&self) -> Vec<u64> {
        let mut items: Vec<u64> = Vec::new();
        for shard in &self.shards {
            items.extend(shard.lock().unwrap_or_else(PoisonError::into_inner).keys());
        }
        items.sort_unstable();
        items
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(model: &ItemModel, life: Lifetime, second: u64) -> Ticket {
        let ticket = model.begin(1, life, second, second as f64);
        model.done(ticket, (second, second), Some("0:1#1"), second as f64);
        ticket
    }

    #[test]
    fn a_write_supersedes_what_was_answered_before_it_was_sent() {
        let model = ItemModel::default();
        assert!(model.expect(1, 0.0).span.may_be_absent);
        write(&model, Lifetime::After(5), 10);
        let expected = model.expect(1, 11.0);
        assert_eq!((expected.floor, expected.span.may_be_absent), (0, false));
        assert_eq!(expected.span.earliest_due, 15);
        write(&model, Lifetime::After(5), 12);
        let expected = model.expect(1, 13.0);
        assert_eq!((expected.floor, expected.span.earliest_due), (1, 17));
        assert_eq!(expected.token.as_deref(), Some("0:1#1"));
    }

    #[test]
    fn writes_that_overlap_stay_possible_both() {
        let model = ItemModel::default();
        write(&model, Lifetime::Inherits, 1);
        let first = model.begin(1, Lifetime::After(5), 10, 10.0);
        let second = model.begin(1, Lifetime::Inherits, 10, 10.0);
        model.done(second, (10, 10), None, 10.5);
        model.done(first, (10, 10), None, 10.6);
        let expected = model.expect(1, 11.0);
        assert_eq!(expected.floor, 1);
        assert!(expected.span.newest_inheriting.is_some() && expected.span.is_settled);
        assert_eq!(expected.span.latest_due, Some(15));
        write(&model, Lifetime::Inherits, 12);
        assert_eq!(model.expect(1, 13.0).floor, 3);
    }

    #[test]
    fn a_write_without_an_answer_may_be_there_or_not_for_a_while() {
        let model = ItemModel::default();
        let ticket = model.begin(1, Lifetime::Inherits, 10, 10.0);
        model.unknown(ticket, 11, 11.0);
        let span = model.expect(1, 12.0).span;
        assert!(span.may_be_absent && !span.is_settled);
        let later = 11.0 + GRACE_SECONDS;
        assert!(model.expect(1, later).span.is_settled);
        write(&model, Lifetime::Inherits, 100);
        assert_eq!(model.expect(1, 101.0).floor, 1);
        assert!(!model.expect(1, 101.0).span.may_be_absent);
    }

    #[test]
    fn a_refused_write_leaves_no_trace_but_its_number() {
        let model = ItemModel::default();
        let before = write(&model, Lifetime::Inherits, 1);
        let ticket = model.begin(1, Lifetime::Absent, 2, 2.0);
        assert!(model.expect(1, 2.0).span.may_be_absent);
        let last = model.expect(1, 2.0).last;
        model.refused(ticket);
        assert!(!model.expect(1, 3.0).span.may_be_absent);
        assert_eq!(model.expect(1, 3.0).last, last);
        assert!(model.with(1, |item| item.has_forgotten(before.version)));
        assert!(!model.with(1, |item| item.has_forgotten(last)));
    }

    #[test]
    fn the_floor_of_a_moment_ago_is_known() {
        let model = ItemModel::default();
        for second in [10, 20, 30] {
            write(&model, Lifetime::Inherits, second);
        }
        let floor = |moment| model.with(1, |item| item.floor_at(moment));
        assert_eq!((floor(31.0), floor(29.0), floor(19.0)), (2, 1, 0));
    }
}
