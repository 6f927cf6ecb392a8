//! Writes the items that are there before a run begins.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::shared::{RunState, retry_after};
use crate::bench::check::{Exchange, Lifetime, Ticket};
use crate::bench::item;
use crate::bench::load::{Script, Scripts, scripts};
use crate::bench::request::{CosmosRequest, write_creates};
use crate::bench::workload::PARTITION_ITEMS;
use crate::client::connection::RawAnswer;
use crate::client::{Signer, unix_time};

/// The last batches must be in this long before all items fall due, in seconds.
const DUE_MARGIN_SECONDS: u64 = 2;
/// Characters of a refusal that are told.
const REFUSAL_CHARS_MAX: usize = 300;

/// Transactional batches, each of one partition key.
pub struct Loader {
    shared: Arc<RunState>,
    signer: Signer,
    next_batch: Arc<AtomicU64>,
    tickets: Vec<Ticket>,
    sent: f64,
    request: Vec<u8>,
    /// The last batch was throttled and is sent again after this.
    again: Option<Duration>,
    must_repeat: bool,
}

impl Loader {
    /// One script for each connection; the signers are theirs.
    pub fn spread(shared: &Arc<RunState>, signers: &[Signer]) -> Scripts {
        let next_batch = Arc::new(AtomicU64::new(0));
        scripts(signers, |signer| Self {
            shared: Arc::clone(shared),
            signer: signer.clone(),
            next_batch: Arc::clone(&next_batch),
            tickets: Vec::new(),
            sent: 0.0,
            request: Vec::new(),
            again: None,
            must_repeat: false,
        })
    }

    /// The ttl of an item that is written now.
    fn ttl(&self, number: u64, second: u64) -> Option<u64> {
        let part = &self.shared.workload.items;
        let one_in = part.stay_one_in.map(u64::from);
        match (self.shared.due_second, one_in) {
            (Some(_), Some(one_in)) if number.is_multiple_of(one_in) => None,
            (Some(due), _) => Some(due.saturating_sub(second)),
            (None, _) => part.ttl.map(u64::from),
        }
    }

    fn prepare(&mut self, first: u64, count: u64) {
        self.sent = unix_time();
        let second = self.sent as u64;
        let numbers = first..first + count;
        let ttls: Vec<_> = numbers.clone().map(|n| self.ttl(n, second)).collect();
        self.tickets.clear();
        let mut body = Vec::new();
        let (shared, tickets) = (&self.shared, &mut self.tickets);
        let numbered = numbers.zip(ttls);
        write_creates(&mut body, numbered, |body, (number, ttl)| {
            let life = ttl.map_or(Lifetime::Inherits, |ttl| Lifetime::After(ttl as u32));
            let ticket = shared.begin(number, life, self.sent);
            tickets.push(ticket);
            shared.item(number, ticket.version, ttl).write(body);
        });
        self.request.clear();
        let request = CosmosRequest::batch(&shared.link, &item::partition_key(first), &body);
        request.write(&mut self.request, &self.signer, second);
    }
}

impl Script for Loader {
    fn next(&mut self) -> Option<&[u8]> {
        if std::mem::take(&mut self.must_repeat) {
            return Some(&self.request);
        }
        let batch = self.next_batch.fetch_add(1, Ordering::Relaxed);
        let (first, items) = (batch * PARTITION_ITEMS, self.shared.workload.items.count);
        let count = u64::from(items).saturating_sub(first).min(PARTITION_ITEMS);
        if count == 0 || self.shared.refusal().is_some() {
            return None;
        }
        let latest = unix_time() as u64 + DUE_MARGIN_SECONDS;
        if self.shared.due_second.is_some_and(|due| due < latest) {
            self.shared.refuse(format!(
                "the load was not done when its items expired: raise items.due_together_seconds \
                 or lower items.count ({items})"
            ));
            return None;
        }
        self.prepare(first, count);
        Some(&self.request)
    }

    fn accepts(&mut self, answer: RawAnswer<'_>) -> bool {
        match answer.status {
            // A server that is no store but answers: only the driver itself is of interest.
            200 | 201 if !self.shared.is_checked => true,
            200 => {
                let exchange = Exchange {
                    request: &self.request,
                    answer,
                    answered: unix_time(),
                };
                for ticket in &self.tickets {
                    self.shared
                        .checker
                        .written_within(*ticket, self.sent, &exchange);
                }
                true
            }
            429 => {
                self.again = Some(retry_after(&answer));
                self.must_repeat = true;
                true
            }
            status => {
                let body = String::from_utf8_lossy(answer.body);
                let body: String = body.chars().take(REFUSAL_CHARS_MAX).collect();
                self.shared.refuse(format!(
                    "a batch of the load was answered with {status}: {body}"
                ));
                false
            }
        }
    }

    fn goes_on(&self) -> bool {
        self.must_repeat
    }

    fn pause(&mut self) -> Option<Duration> {
        self.again.take()
    }
}
