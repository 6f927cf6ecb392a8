//! Readers that look whether items are there until their second, and gone from it on.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::item::{BATCH_ITEMS, Random};
use super::load::{Script, Scripts, scripts};
use super::report::CaseReport;
use super::report::Unit::Count;
use super::request::{CosmosRequest, container_link};
use super::scripts::Cargo;
use crate::client::connection::RawAnswer;
use crate::client::{Signer, unix_seconds};

/// What the readers saw.
#[derive(Default)]
pub struct Findings {
    alive: AtomicU64,
    gone: AtomicU64,
    seen_after: AtomicU64,
    missed_before: AtomicU64,
    unexpected: AtomicU64,
}

impl Findings {
    /// Adds them to a case. Reads that contradict the second of an item must not be there.
    pub fn report(&self, case: CaseReport<'_>) {
        let get = |count: &AtomicU64| count.load(Ordering::Relaxed) as f64;
        let shown = [
            ("reads that found a doomed item alive", &self.alive),
            ("reads that found one gone", &self.gone),
        ];
        for (figure, count) in shown {
            case.show(figure, get(count), Count);
        }
        for (figure, count) in [
            ("reads that saw one after its second", &self.seen_after),
            (
                "reads that missed one before its second",
                &self.missed_before,
            ),
            ("other answers to these reads", &self.unexpected),
        ] {
            case.at_most(figure, get(count), Count, 0.0);
        }
    }
}

/// Reads of doomed items at random.
pub struct Doomed {
    signer: Signer,
    link: String,
    cargo: Arc<Cargo>,
    findings: Arc<Findings>,
    random: Random,
    batch: u32,
    sent_second: u64,
    request: Vec<u8>,
}

impl Doomed {
    /// One script for each connection.
    pub fn spread(
        signer: &Signer,
        cargo: &Arc<Cargo>,
        findings: &Arc<Findings>,
        connections: u32,
    ) -> Scripts {
        scripts(0..connections, |connection| Self {
            signer: signer.clone(),
            link: container_link(cargo.container),
            cargo: Arc::clone(cargo),
            findings: Arc::clone(findings),
            random: Random::new(u64::from(connection)),
            batch: 0,
            sent_second: 0,
            request: Vec::new(),
        })
    }

    /// The counter that an answer belongs to. `answered` is the second in which it came.
    fn judge(&self, answer: RawAnswer<'_>, answered: u64) -> &AtomicU64 {
        let findings = &self.findings;
        let bounds = self.cargo.bounds().get(self.batch as usize);
        match answer.status {
            // The item says itself when it is due. The server looked at its clock after we sent.
            200 => match due_second(answer.body) {
                Some(due) if due <= self.sent_second => &findings.seen_after,
                Some(_) => &findings.alive,
                None => &findings.unexpected,
            },
            404 => match bounds {
                Some(bounds) if answered < bounds.earliest.load(Ordering::Relaxed) => {
                    &findings.missed_before
                }
                _ => &findings.gone,
            },
            _ => &findings.unexpected,
        }
    }
}

impl Script for Doomed {
    fn next(&mut self) -> Option<&[u8]> {
        self.batch = self.random.below(self.cargo.batches);
        let number =
            self.cargo.first_item + self.batch * BATCH_ITEMS + self.random.below(BATCH_ITEMS);
        self.sent_second = unix_seconds();
        self.request.clear();
        CosmosRequest::item(&self.link, number).write(
            &mut self.request,
            &self.signer,
            self.sent_second,
        );
        Some(&self.request)
    }

    fn accepts(&mut self, answer: RawAnswer<'_>) -> bool {
        let counter = self.judge(answer, unix_seconds());
        counter.fetch_add(1, Ordering::Relaxed);
        true
    }
}

/// `_ts` and `ttl` of an item added up.
fn due_second(body: &[u8]) -> Option<u64> {
    let item: serde_json::Value = serde_json::from_slice(body).ok()?;
    let field = |name| item.get(name).and_then(serde_json::Value::as_u64);
    field("_ts")?.checked_add(field("ttl")?)
}

#[cfg(test)]
mod tests {
    use super::super::scripts::{Due, DueBounds};
    use super::*;

    #[test]
    fn answers_are_judged_by_the_second_of_the_item() {
        let bounds = DueBounds::default();
        bounds.earliest.store(110, Ordering::Relaxed);
        let due = Due::At {
            second: 110,
            spread_seconds: 1,
            bounds: vec![bounds],
        };
        let findings = Arc::new(Findings::default());
        let mut doomed = Doomed {
            signer: Signer::new("").unwrap(),
            link: String::new(),
            cargo: Cargo::new("c", 0, 100, due),
            findings: Arc::clone(&findings),
            random: Random::new(0),
            batch: 0,
            sent_second: 0,
            request: Vec::new(),
        };
        let item = br#"{"ttl":10,"_ts":100}"#.as_slice();
        let found = &findings;
        let table = [
            (109, 110, 200, item, &found.alive),
            (110, 110, 200, item, &found.seen_after),
            (120, 120, 200, item, &found.seen_after),
            (109, 110, 404, item, &found.gone),
            (109, 109, 404, item, &found.missed_before),
            (109, 109, 200, b"{}", &found.unexpected),
            (109, 109, 503, item, &found.unexpected),
        ];
        for (sent, answered, status, body, expected) in table {
            doomed.sent_second = sent;
            let answer = RawAnswer {
                status,
                body,
                ..RawAnswer::default()
            };
            let counter = doomed.judge(answer, answered);
            assert!(
                std::ptr::eq(counter, expected),
                "{sent} {answered} {status}"
            );
        }
    }
}
