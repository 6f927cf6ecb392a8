//! One bound at run time: reserve before growing, give back by dropping.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use crate::model::error::{Error, ErrorKind};

const RETRY_AFTER_MS: u32 = 1_000;

/// A bound on the bytes that one kind of work holds at a time in this node.
#[derive(Debug)]
pub struct MemoryBudget {
    consumer: &'static str,
    bytes_max: usize,
    reserved: AtomicUsize,
}

impl MemoryBudget {
    /// `consumer` completes the sentence "… hold more than … bytes".
    pub fn new(consumer: &'static str, bytes_max: usize) -> Arc<Self> {
        Arc::new(Self {
            consumer,
            bytes_max,
            reserved: AtomicUsize::new(0),
        })
    }

    pub fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    pub fn reserved(&self) -> usize {
        self.reserved.load(Ordering::Relaxed)
    }

    /// Reserves bytes; `None` when that would be more than the bound.
    pub fn reserve(self: &Arc<Self>, bytes: usize) -> Option<Reservation> {
        let mut reservation = Reservation {
            budget: Arc::clone(self),
            bytes: 0,
        };
        reservation.resize(bytes).then_some(reservation)
    }

    /// Returns the answer to a request for which nothing is left: 429, to be retried.
    pub fn exhausted(&self) -> Error {
        let mut error = Error::new(
            ErrorKind::Overloaded,
            format!(
                "{} hold the {} bytes that they may hold together on this node; try again",
                self.consumer, self.bytes_max
            ),
        );
        error.retry_after_ms = Some(RETRY_AFTER_MS);
        error
    }
}

/// A part of a budget; given back when it is dropped.
#[derive(Debug)]
pub struct Reservation {
    budget: Arc<MemoryBudget>,
    bytes: usize,
}

impl Reservation {
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Grows or shrinks to `bytes`. Returns false, and changes nothing, when the budget does not
    /// have them.
    pub fn resize(&mut self, bytes: usize) -> bool {
        let reserved = &self.budget.reserved;
        if bytes <= self.bytes {
            reserved.fetch_sub(self.bytes - bytes, Ordering::Relaxed);
        } else {
            let more = bytes - self.bytes;
            let grown = reserved.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |reserved| {
                reserved
                    .checked_add(more)
                    .filter(|all| *all <= self.budget.bytes_max)
            });
            if grown.is_err() {
                return false;
            }
        }
        self.bytes = bytes;
        true
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.resize(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bound_is_shared_and_given_back() {
        let budget = MemoryBudget::new("the tests in flight", 100);
        let mut one = budget.reserve(60).unwrap();
        assert!(budget.reserve(41).is_none());
        let mut two = budget.reserve(40).unwrap();
        assert!(!two.resize(41));
        assert_eq!((two.bytes(), budget.reserved()), (40, 100));
        assert!(one.resize(10) && two.resize(90));
        drop((one, two));
        assert_eq!(budget.reserved(), 0);
        let refused = budget.exhausted();
        assert_eq!(
            (refused.status(), refused.retry_after_ms),
            (429, Some(1_000))
        );
        assert!(
            refused.message.contains("the 100 bytes"),
            "{}",
            refused.message
        );
    }
}
