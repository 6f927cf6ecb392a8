//! What all connections of a run share.

use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, PoisonError};

use crate::bench::check::{Checker, Exchange, Expectation, Lifetime, Ticket};
use crate::bench::item::KnownItem;
use crate::bench::workload::{Inserted, Workload, WorkloadOperation};
use crate::client::connection::RawAnswer;

pub struct RunState {
    pub workload: Workload,
    /// The path of the container, without its leading slash.
    pub link: String,
    pub checker: Checker,
    /// Without it answers are taken as they come.
    pub is_checked: bool,
    pub inserted: Inserted,
    /// Those of the workload, as the tallies have them.
    pub operations: Vec<WorkloadOperation>,
    /// How often each of them is done, in relation to their sum.
    shares: Vec<u32>,
    pub shares_sum: u32,
    /// All items fall due in this second.
    pub due_second: Option<u64>,
    /// The readers of the change feed should come to its end.
    pub drains: AtomicBool,
    /// Why a load cannot go on.
    refusal: Mutex<Option<String>>,
}

impl RunState {
    pub fn new(workload: Workload, link: String, checker: Checker, is_checked: bool) -> Self {
        let shares = workload.operations.iter();
        let done = shares.filter(|(_, share)| **share > 0);
        let (operations, shares): (Vec<WorkloadOperation>, Vec<u32>) = done.unzip();
        Self {
            operations,
            shares_sum: shares.iter().sum(),
            shares,
            inserted: Inserted::new(0, workload.keys.recent_seconds),
            link,
            checker,
            is_checked,
            due_second: None,
            drains: AtomicBool::new(false),
            refusal: Mutex::new(None),
            workload,
        }
    }

    /// The operations with their shares.
    pub fn shares(&self) -> impl Iterator<Item = (WorkloadOperation, u32)> {
        let operations = self.operations.iter().copied();
        operations.zip(self.shares.iter().copied())
    }

    /// The item as it is written.
    pub fn item(&self, number: u64, version: u32, ttl: Option<u64>) -> KnownItem {
        KnownItem {
            number,
            version,
            ttl,
            bytes: self.workload.items.bytes,
        }
    }

    /// What is known of an item as a request for it is sent.
    pub fn expect(&self, number: u64, now: f64) -> Expectation {
        match self.is_checked {
            true => self.checker.model.expect(number, now),
            false => Expectation::unchecked(number, now),
        }
    }

    /// A write of an item is sent.
    pub fn begin(&self, number: u64, life: Lifetime, now: f64) -> Ticket {
        match self.is_checked {
            true => self.checker.begin(number, life, now),
            false => Ticket::unchecked(number),
        }
    }

    /// The first reason counts.
    pub fn refuse(&self, reason: String) {
        let mut refusal = self.refusal.lock().unwrap_or_else(PoisonError::into_inner);
        refusal.get_or_insert(reason);
    }

    pub fn refusal(&self) -> Option<String> {
        self.refusal
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Learns the server's clock from an answer, where it is another machine's.
    pub fn learn(&self, endpoint: usize, sent: f64, exchange: &Exchange<'_>) {
        if self.checker.clock.learns()
            && let Some(date) = date_of(&exchange.answer)
        {
            let clock = &self.checker.clock;
            clock.learn(endpoint, date, sent, exchange.answered);
        }
    }
}

fn date_of(answer: &RawAnswer<'_>) -> Option<u64> {
    let date = httpdate::parse_http_date(answer.header("date")?).ok()?;
    let since = date.duration_since(std::time::UNIX_EPOCH).ok()?;
    Some(since.as_secs())
}

/// How long the server asks a refused client to wait.
pub fn retry_after(answer: &RawAnswer<'_>) -> std::time::Duration {
    let asked = answer.header("x-ms-retry-after-ms");
    let asked = asked.and_then(|text| text.parse::<f64>().ok());
    std::time::Duration::from_secs_f64((asked.unwrap_or(10.0) / 1e3).clamp(0.001, 5.0))
}
