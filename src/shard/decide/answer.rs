//! The bytes of items in the answer to a batch, or in a page of a feed: bounded for one answer, and for all
//! answers in flight together.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use super::transaction::Done;
use crate::model::error::{Error, ErrorKind, Result};

/// Items in the answer to one batch.
pub const ANSWER_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Items in the answers to all batches that are decided, put together or being sent, and in all pages that are put together,
/// unless the node's memory is small.
const IN_FLIGHT_BYTES_MAX: usize = 64 * 1024 * 1024;
/// How long a client should wait when too many answers are in flight.
const RETRY_MS: u32 = 100;

/// The items of all answers of a node.
#[derive(Debug)]
struct InFlight {
    bytes: AtomicUsize,
    bytes_max: AtomicUsize,
}

impl InFlight {
    const fn new() -> Self {
        Self {
            bytes: AtomicUsize::new(0),
            bytes_max: AtomicUsize::new(IN_FLIGHT_BYTES_MAX),
        }
    }
}

static IN_FLIGHT: InFlight = InFlight::new();

/// Sets how many bytes of items the answers in flight may have.
pub fn set_in_flight_bytes_max(bytes: usize) {
    IN_FLIGHT.bytes_max.store(bytes, Ordering::Relaxed);
}

/// What happens to an item for which the answer has no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overflow {
    /// The operation fails, and the transaction with it.
    Fail,
    /// A read fails; a write is answered without its item.
    LeaveOut,
    /// No items are wanted at all.
    Minimal,
}

/// The room for items in the answer to one batch, or in one page. What it takes is given back when the answer is gone.
#[derive(Debug)]
pub struct AnswerBudget {
    overflow: Overflow,
    taken: AtomicUsize,
    /// Set once an item had no room.
    is_full: AtomicBool,
    in_flight: &'static InFlight,
}

impl AnswerBudget {
    pub fn new(overflow: Overflow) -> Arc<Self> {
        Arc::new(Self {
            overflow,
            taken: AtomicUsize::new(0),
            is_full: AtomicBool::new(false),
            in_flight: &IN_FLIGHT,
        })
    }

    /// Returns the bytes of items that the answer has.
    pub fn taken(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }

    /// Fails once an item had no room: what is read later need not be looked up.
    pub fn check_reads(&self) -> Result<()> {
        match self.is_full.load(Ordering::Relaxed) {
            true => Err(too_large()),
            false => Ok(()),
        }
    }

    /// Makes room for the item in the result of an operation, or decides what becomes of it.
    pub fn admit(&self, mut done: Done, reads: bool) -> Result<Done> {
        let Some(body) = &done.body else {
            return Ok(done);
        };
        if self.overflow == Overflow::Minimal {
            done.body = None;
            return Ok(done);
        }
        match self.take(body.len()) {
            Err(_) if self.overflow == Overflow::LeaveOut && !reads => done.body = None,
            taken => taken?,
        }
        Ok(done)
    }

    fn take(&self, bytes: usize) -> Result<()> {
        let taken = self.taken.fetch_add(bytes, Ordering::Relaxed);
        if taken + bytes > ANSWER_BYTES_MAX {
            self.taken.fetch_sub(bytes, Ordering::Relaxed);
            self.is_full.store(true, Ordering::Relaxed);
            return Err(too_large());
        }
        let shared = self.take_of_all(bytes);
        if shared.is_err() {
            self.taken.fetch_sub(bytes, Ordering::Relaxed);
        }
        shared
    }

    /// Takes bytes of what all answers share.
    fn take_of_all(&self, bytes: usize) -> Result<()> {
        let in_flight = self.in_flight.bytes.fetch_add(bytes, Ordering::Relaxed);
        let bytes_max = self.in_flight.bytes_max.load(Ordering::Relaxed);
        if in_flight + bytes <= bytes_max {
            return Ok(());
        }
        self.in_flight.bytes.fetch_sub(bytes, Ordering::Relaxed);
        let mut error = Error::new(
            ErrorKind::Overloaded,
            format!("the answers in flight have more than {bytes_max} bytes of items"),
        );
        error.retry_after_ms = Some(RETRY_MS);
        Err(error)
    }

    /// Makes room for an item of a page; how large that may be is for its reader to say.
    pub fn take_for_page(&self, bytes: usize) -> Result<()> {
        self.take_of_all(bytes)?;
        self.taken.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }

    /// Makes room for what a page must have, however much is in flight.
    pub fn take_beyond(&self, bytes: usize) {
        self.in_flight.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.taken.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Gives room back that turned out not to be needed.
    pub fn give_back(&self, bytes: usize) {
        self.in_flight.bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.taken.fetch_sub(bytes, Ordering::Relaxed);
    }
}

fn too_large() -> Error {
    Error::new(
        ErrorKind::TooLarge,
        format!(
            "the items in the answer to the batch have more than {ANSWER_BYTES_MAX} bytes; read fewer of them at a time"
        ),
    )
}

impl Drop for AnswerBudget {
    fn drop(&mut self) {
        let taken = self.taken();
        self.in_flight.bytes.fetch_sub(taken, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    const LARGE: usize = ANSWER_BYTES_MAX / 2;

    fn budget(overflow: Overflow) -> AnswerBudget {
        sharing(overflow, Box::leak(Box::new(InFlight::new())))
    }

    fn sharing(overflow: Overflow, in_flight: &'static InFlight) -> AnswerBudget {
        AnswerBudget {
            overflow,
            taken: AtomicUsize::new(0),
            is_full: AtomicBool::new(false),
            in_flight,
        }
    }

    fn done() -> Done {
        Done {
            status: 200,
            etag: None,
            body: Some(Bytes::from(vec![b'x'; LARGE])),
            charge: 1.0,
            due: None,
        }
    }

    fn status(budget: &AnswerBudget, reads: bool) -> (u16, bool) {
        match budget.admit(done(), reads) {
            Ok(done) => (done.status, done.body.is_some()),
            Err(error) => (error.status(), false),
        }
    }

    #[test]
    fn an_answer_without_room_fails_reads_and_leaves_the_items_of_writes_out() {
        for (overflow, read, write) in [
            (Overflow::Fail, (413, false), (413, false)),
            (Overflow::LeaveOut, (413, false), (200, false)),
        ] {
            let budget = budget(overflow);
            assert_eq!(status(&budget, true), (200, true));
            assert_eq!(status(&budget, false), (200, true));
            assert_eq!(status(&budget, true), read);
            assert_eq!(status(&budget, false), write);
            assert_eq!(budget.taken(), 2 * LARGE);
            assert_eq!(budget.check_reads().unwrap_err().status(), 413);
        }
        let minimal = budget(Overflow::Minimal);
        assert_eq!(status(&minimal, true), (200, false));
        assert_eq!(minimal.taken(), 0);
        assert_eq!(minimal.check_reads(), Ok(()));
    }

    #[test]
    fn answers_in_flight_are_bounded_and_give_back_what_they_took() {
        let first = budget(Overflow::Fail);
        let in_flight = first.in_flight;
        let next = || sharing(Overflow::Fail, in_flight);
        assert_eq!(status(&first, true), (200, true));
        let others: Vec<_> = (1..IN_FLIGHT_BYTES_MAX / LARGE).map(|_| next()).collect();
        for other in &others {
            assert_eq!(status(other, true), (200, true));
        }
        let late = next();
        assert_eq!(status(&late, true), (429, false));
        assert_eq!(late.take_for_page(LARGE).unwrap_err().status(), 429);
        drop(first);
        late.take_for_page(LARGE).unwrap();
        late.give_back(LARGE);
        assert_eq!(status(&late, true), (200, true));
        drop((others, late));
        assert_eq!(in_flight.bytes.load(Ordering::Relaxed), 0);
    }
}
