//! The lease of a node to serve requests: it had all of the catalog's committed changes not long
//! ago.
//!
//! A node requests the read index of the catalog's group from time to time, and its lease counts
//! from the moment of the request. So it misses no change for longer than [`LEASE`]: a change of
//! the catalog is in effect on all nodes when each has said so, or when that time has passed.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

/// How long a node serves requests after it was last known to be up to date.
pub const LEASE: Duration = Duration::from_secs(3);
/// Clocks of two nodes may run at rates that differ a little.
pub const LEASE_MARGIN: Duration = Duration::from_millis(300);

pub struct Lease {
    start: Instant,
    /// Milliseconds after the start; 0 when there was none yet.
    until: AtomicU64,
    epoch: AtomicU64,
}

impl Default for Lease {
    fn default() -> Self {
        Self {
            start: Instant::now(),
            until: AtomicU64::new(0),
            epoch: AtomicU64::new(0),
        }
    }
}

impl Lease {
    fn millis(&self, moment: Instant) -> u64 {
        let passed = moment.saturating_duration_since(self.start);
        u64::try_from(passed.as_millis()).unwrap_or(u64::MAX)
    }

    pub fn holds(&self) -> bool {
        self.holds_at(Instant::now())
    }

    fn holds_at(&self, now: Instant) -> bool {
        self.millis(now) < self.until.load(Ordering::Acquire)
    }

    /// Returns a number that changes whenever the lease has expired: replicas may be stale since
    /// then.
    pub fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    /// Renews the lease: the node has all that was committed at the time of its request.
    pub fn renew(&self, requested: Instant) {
        self.renew_at(requested, Instant::now());
    }

    fn renew_at(&self, requested: Instant, now: Instant) {
        let until = self.millis(requested + LEASE);
        if !self.holds_at(now) && self.millis(now) < until {
            self.epoch.fetch_add(1, Ordering::AcqRel);
        }
        self.until.fetch_max(until, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_counts_from_the_request_not_from_the_answer() {
        let lease = Lease::default();
        let start = lease.start;
        assert!(!lease.holds_at(start));
        lease.renew_at(start, start + Duration::from_secs(1));
        assert!(lease.holds_at(start + LEASE - Duration::from_millis(1)));
        assert!(!lease.holds_at(start + LEASE));
        // An answer that comes too late gives nothing.
        let late = start + 3 * LEASE;
        lease.renew_at(start + LEASE, late);
        assert!(!lease.holds_at(late));
    }

    #[test]
    fn the_epoch_changes_when_the_lease_has_expired() {
        let lease = Lease::default();
        let start = lease.start;
        let seconds = Duration::from_secs;
        lease.renew_at(start, start);
        let first = lease.epoch();
        lease.renew_at(start + seconds(1), start + seconds(1));
        assert_eq!(lease.epoch(), first);
        lease.renew_at(start + seconds(60), start + seconds(60));
        assert_ne!(lease.epoch(), first);
    }
}
