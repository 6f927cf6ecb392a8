//! A bound on bytes that many hold together.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

/// How many bytes may be held, and how many are.
pub struct ByteBudget {
    held: AtomicUsize,
    max: usize,
}

impl ByteBudget {
    pub fn new(max: usize) -> Arc<Self> {
        let held = AtomicUsize::new(0);
        Arc::new(Self { held, max })
    }

    pub fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    pub fn max(&self) -> usize {
        self.max
    }

    /// Takes bytes if that many are left.
    pub fn take(self: &Arc<Self>, bytes: usize) -> Option<Reserved> {
        let mut reserved = Reserved {
            budget: Arc::clone(self),
            bytes: 0,
        };
        reserved.grow(bytes).then_some(reserved)
    }

    /// Takes bytes whether they are left or not.
    pub fn take_beyond(self: &Arc<Self>, bytes: usize) -> Reserved {
        self.held.fetch_add(bytes, Ordering::Relaxed);
        Reserved {
            budget: Arc::clone(self),
            bytes,
        }
    }
}

/// Bytes that were taken from a budget; dropped, they are given back.
pub struct Reserved {
    budget: Arc<ByteBudget>,
    bytes: usize,
}

impl Reserved {
    /// Takes more bytes if that many are left. Returns whether it did.
    pub fn grow(&mut self, bytes: usize) -> bool {
        let before = self.budget.held.fetch_add(bytes, Ordering::Relaxed);
        let fits = before.saturating_add(bytes) <= self.budget.max;
        match fits {
            true => self.bytes += bytes,
            // What is refused is not held against others.
            false => {
                self.budget.held.fetch_sub(bytes, Ordering::Relaxed);
            }
        }
        fits
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.budget.held.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_taken_comes_back() {
        let budget = ByteBudget::new(10);
        let mut first = budget.take(6).unwrap();
        assert!(budget.take(5).is_none());
        assert_eq!(budget.held(), 6);
        assert!(first.grow(4));
        assert!(!first.grow(1));
        assert_eq!(budget.held(), 10);
        drop(first);
        assert_eq!(budget.held(), 0);
        let beyond = budget.take_beyond(20);
        assert!(budget.take(1).is_none());
        drop(beyond);
        assert_eq!(budget.held(), 0);
    }
}
