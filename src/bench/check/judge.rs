//! What answers say against the model.

use std::sync::{Mutex, PoisonError, RwLock};
use std::time::Duration;

use super::default_ttl::{DefaultSeconds, DefaultTtls};
use super::model::{Expectation, ItemModel, Lifetime, Span, Ticket};
use super::seen::{Seen, written};
use super::server_clock::ServerClock;
use super::violation::{Evidence, ViolationKind, Violations, readable};
use crate::bench::histogram::Histogram;
use crate::bench::item::KnownItem;
use crate::client::connection::RawAnswer;

/// What an answer is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerVerdict {
    /// As it has to be.
    Right,
    /// The item is not there, and need not be.
    Gone,
    /// An older version than the one that must be there: lost, or only stale. Look again.
    Older,
    /// It contradicts the model, and was noted.
    Wrong,
    /// The server could not or would not.
    Failed,
}

/// How an item was found missing or gone.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Gone {
    /// Since this moment of the driver's clock, because its time was over.
    Expired(f64),
    Deleted,
}

/// How long items were seen after their second.
#[derive(Clone, Default)]
pub struct Lag {
    /// Of every read of an item that was due.
    pub seen: Histogram,
}

/// The model, the clocks, and what was found.
pub struct Checker {
    pub model: ItemModel,
    pub clock: ServerClock,
    pub violations: Violations,
    defaults: RwLock<DefaultTtls>,
    lag: Mutex<Lag>,
    item_bytes: usize,
}

/// One request and what came of it.
#[derive(Clone, Copy)]
pub struct Exchange<'a> {
    pub request: &'a [u8],
    pub answer: RawAnswer<'a>,
    /// On this machine's clock.
    pub answered: f64,
}

impl Checker {
    pub fn new(clock: ServerClock, default: DefaultSeconds, item_bytes: usize) -> Self {
        Self {
            model: ItemModel::default(),
            clock,
            violations: Violations::default(),
            defaults: RwLock::new(DefaultTtls::new(default)),
            lag: Mutex::new(Lag::default()),
            item_bytes,
        }
    }

    /// A change of the container's default is sent.
    pub fn default_sent(&self, default: DefaultSeconds, now: f64) {
        let mut defaults = self
            .defaults
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        defaults.sent(default, now);
    }

    /// It was answered.
    pub fn default_answered(&self, now: f64) {
        let mut defaults = self
            .defaults
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        defaults.answered(now);
    }

    /// A write of an item is sent.
    pub fn begin(&self, item: u64, life: Lifetime, now: f64) -> Ticket {
        self.model.begin(item, life, self.clock.earliest(now), now)
    }

    /// A write was answered with success: its second is in the answer, or between the two moments.
    pub fn written(&self, ticket: Ticket, sent: f64, exchange: &Exchange<'_>) {
        match written(exchange.answer.body) {
            Some(second) => self.done(ticket, (second, second), exchange),
            None => self.written_within(ticket, sent, exchange),
        }
    }

    /// The same for an answer that does not tell the second.
    pub fn written_within(&self, ticket: Ticket, sent: f64, exchange: &Exchange<'_>) {
        let earliest = self.clock.earliest(sent);
        let latest = self.clock.latest(exchange.answered);
        self.done(ticket, (earliest, latest), exchange);
    }

    fn done(&self, ticket: Ticket, seconds: (u64, u64), exchange: &Exchange<'_>) {
        let token = exchange.answer.header("x-ms-session-token");
        self.model.done(ticket, seconds, token, exchange.answered);
    }

    /// A write had no answer, or one that leaves open whether it happened.
    pub fn unknown(&self, ticket: Ticket, now: f64) {
        self.model.unknown(ticket, self.clock.latest(now), now);
    }

    /// Takes out how long items were seen after their second, since the last time.
    pub fn take_lag(&self) -> Lag {
        let mut lag = self.lag.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *lag)
    }

    /// A point read.
    pub fn read(&self, expected: &Expectation, exchange: &Exchange<'_>) -> AnswerVerdict {
        match exchange.answer.status {
            200 => match Seen::of(exchange.answer.body) {
                Some(seen) if seen.number == expected.item => {
                    self.seen(&seen, expected.floor, expected.sent, exchange)
                }
                _ => {
                    let what = format!("item {} came back as another one", expected.item);
                    self.note(ViolationKind::WrongContent, what, expected.sent, exchange)
                }
            },
            404 if is_session_unavailable(exchange) => AnswerVerdict::Failed,
            404 => self.missed(expected, u32::MAX, exchange),
            _ => AnswerVerdict::Failed,
        }
    }

    /// An item in a page of a query or a feed that was asked for at this moment.
    pub fn listed(&self, seen: &Seen<'_>, sent: f64, exchange: &Exchange<'_>) -> AnswerVerdict {
        let floor = self.model.with(seen.number, |item| item.floor_at(sent));
        match self.seen(seen, floor, sent, exchange) {
            AnswerVerdict::Older => {
                let what = self.older(seen.number, seen.version, floor);
                self.note(ViolationKind::StaleRead, what, sent, exchange)
            }
            verdict => verdict,
        }
    }

    /// An item in a page of the change feed.
    pub fn fed(&self, seen: &Seen<'_>, sent: f64, exchange: &Exchange<'_>) -> AnswerVerdict {
        self.model
            .with(seen.number, |item| item.fed = item.fed.max(seen.version));
        self.listed(seen, sent, exchange)
    }

    /// An item is not in the answer to this request. Whether it may be.
    pub fn missed(
        &self,
        expected: &Expectation,
        own_write: u32,
        exchange: &Exchange<'_>,
    ) -> AnswerVerdict {
        if self.must_be_there(expected, own_write, exchange.answered) {
            let what = format!(
                "item {} must be there (version {} or later was acknowledged{}) and is missing",
                expected.item,
                expected.floor + 1,
                self.due_shown(&expected.span),
            );
            return self.note(ViolationKind::LiveMissing, what, expected.sent, exchange);
        }
        if let Some(Gone::Expired(_)) = self.must_be_gone(expected) {
            self.record_lag(0.0);
        }
        AnswerVerdict::Gone
    }

    /// A write found an item there. Whether it may be.
    pub fn found(
        &self,
        expected: &Expectation,
        own_write: u32,
        exchange: &Exchange<'_>,
    ) -> AnswerVerdict {
        // Another connection's write in between may have brought it back.
        let last = self.model.with(expected.item, |item| item.last);
        if own_write != expected.last + 1 || last != own_write {
            return AnswerVerdict::Right;
        }
        let (kind, what) = match self.must_be_gone(expected) {
            None => return AnswerVerdict::Right,
            Some(Gone::Deleted) => (
                ViolationKind::WrongContent,
                format!("item {} must not be there, and is", expected.item),
            ),
            Some(Gone::Expired(since)) => {
                self.record_lag(expected.sent - since);
                let what = format!(
                    "item {} expired at {since:.3} and is still there",
                    expected.item
                );
                (ViolationKind::ExpiredSeen, what)
            }
        };
        self.note(kind, what, expected.sent, exchange)
    }

    /// What a reader saw after it had looked again: still the old version, or the right one.
    pub fn older_confirmed(
        &self,
        expected: &Expectation,
        version: u32,
        is_lost: bool,
        exchange: &Exchange<'_>,
    ) -> AnswerVerdict {
        let what = self.older(expected.item, version, expected.floor);
        let kind = if is_lost {
            ViolationKind::LostWrite
        } else {
            ViolationKind::StaleRead
        };
        self.note(kind, what, expected.sent, exchange)
    }

    /// Items that live for some time yet and that no reader of the change feed has seen in their
    /// latest version. All readers must have come to the end of the feed.
    pub fn unfed(&self, now: f64, exchange: &Exchange<'_>) -> u64 {
        let mut missing = 0;
        for number in self.model.items() {
            let expected = self.model.expect(number, now);
            let fed = self.model.with(number, |item| item.fed);
            if fed > expected.floor || !self.must_be_there(&expected, u32::MAX, exchange.answered) {
                continue;
            }
            let what = format!(
                "item {number} has version {} and the change feed showed {fed} to its end",
                expected.floor + 1,
            );
            self.note(ViolationKind::LiveMissing, what, now, exchange);
            missing += 1;
        }
        missing
    }

    fn seen(
        &self,
        seen: &Seen<'_>,
        floor: u32,
        sent: f64,
        exchange: &Exchange<'_>,
    ) -> AnswerVerdict {
        let (item, version) = (seen.number, seen.version);
        let gone = match seen.ttl {
            Some(ttl) => {
                let due = seen.written.saturating_add(u64::from(ttl));
                Some(self.clock.offset().surely_reached(due)).filter(|since| *since <= sent)
            }
            None => self.surely_gone(seen.written, sent),
        };
        if let Some(since) = gone {
            self.record_lag(sent - since);
            let what = format!(
                "item {item} of second {} expired at {since:.3} and was seen by a request of {sent:.3}",
                seen.written,
            );
            return self.note(ViolationKind::ExpiredSeen, what, sent, exchange);
        }
        let last = self.model.with(item, |item| item.last);
        let known = KnownItem {
            number: item,
            version,
            ttl: seen.ttl.map(u64::from),
            bytes: self.item_bytes,
        };
        if version == 0 || version > last || !known.has_payload(seen.payload) {
            let what = format!("item {item} shows version {version}, which was never written so");
            return self.note(ViolationKind::WrongContent, what, sent, exchange);
        }
        if version <= floor {
            return AnswerVerdict::Older;
        }
        AnswerVerdict::Right
    }

    fn older(&self, item: u64, version: u32, floor: u32) -> String {
        format!(
            "item {item} shows version {version}, but {} or later was acknowledged before it was read",
            floor + 1
        )
    }

    fn surely_gone(&self, written: u64, sent: f64) -> Option<f64> {
        let defaults = self.defaults.read().unwrap_or_else(PoisonError::into_inner);
        defaults.surely_gone(written, self.clock.offset(), sent)
    }

    fn lives(&self, span: &Span, answered: f64) -> bool {
        let defaults = self.defaults.read().unwrap_or_else(PoisonError::into_inner);
        let server = self.clock.offset();
        !span.may_be_absent
            && server.may_be_reached(span.earliest_due) > answered
            && (span.oldest_inheriting == u64::MAX
                || !defaults.may_be_gone(span.oldest_inheriting, server, answered))
    }

    /// Whether every version that was possible between request and answer lives beyond it.
    fn must_be_there(&self, expected: &Expectation, own_write: u32, answered: f64) -> bool {
        if !self.lives(&expected.span, answered) {
            return false;
        }
        let now = self.model.with(expected.item, |item| {
            (!item.has_forgotten(expected.last)).then(|| item.span(own_write))
        });
        now.is_some_and(|span| self.lives(&span, answered))
    }

    /// Whether no version that was possible when the request was sent can have been there.
    fn must_be_gone(&self, expected: &Expectation) -> Option<Gone> {
        let span = &expected.span;
        if !span.is_settled {
            return None;
        }
        let server = self.clock.offset();
        let own = span.latest_due.map(|due| server.surely_reached(due));
        if own.is_some_and(|since| since > expected.sent) {
            return None;
        }
        let inherited = match span.newest_inheriting {
            Some(written) => Some(self.surely_gone(written, expected.sent)?),
            None => None,
        };
        let since = own.into_iter().chain(inherited).max_by(f64::total_cmp);
        Some(since.map_or(Gone::Deleted, Gone::Expired))
    }

    fn due_shown(&self, span: &Span) -> String {
        match (span.earliest_due, span.oldest_inheriting) {
            (u64::MAX, u64::MAX) => ", it never expires".to_owned(),
            (u64::MAX, written) => format!(", it inherits from second {written}"),
            (due, _) => format!(", it is due in second {due}"),
        }
    }

    fn record_lag(&self, seconds: f64) {
        let mut lag = self.lag.lock().unwrap_or_else(PoisonError::into_inner);
        lag.seen.record(Duration::from_secs_f64(seconds.max(0.0)));
    }

    fn note(
        &self,
        kind: ViolationKind,
        what: String,
        sent: f64,
        exchange: &Exchange<'_>,
    ) -> AnswerVerdict {
        let answer = exchange.answer;
        let mut shown = readable(answer.head);
        shown.push_str("\n\n");
        shown.push_str(&readable(answer.body));
        self.violations.add(Evidence {
            kind,
            what,
            sent_unix_seconds: sent,
            answered_unix_seconds: exchange.answered,
            request: readable(exchange.request),
            answer: shown,
        });
        AnswerVerdict::Wrong
    }
}

/// 404 with the sub-status that says: this replica has not reached the session token yet.
fn is_session_unavailable(exchange: &Exchange<'_>) -> bool {
    exchange.answer.header("x-ms-substatus") == Some("1002")
}

#[cfg(test)]
#[path = "judge_tests.rs"]
mod tests;
