//! Connections of clients: how many are open, and why some were refused or closed.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::{labels::Refusal, table};

static OPEN: AtomicUsize = AtomicUsize::new(0);

pub(super) fn register() {
    for reason in Refusal::TEXTS {
        table::CONNECTIONS_REFUSED.counter(&[reason]).increment(0);
    }
}

/// Counts a connection that was refused, or closed through its peer's fault.
pub fn refused(reason: Refusal) {
    table::CONNECTIONS_REFUSED
        .counter(&[reason.text()])
        .increment(1);
}

/// Returns how many connections are open.
pub fn open() -> usize {
    OPEN.load(Ordering::Relaxed)
}

/// One open connection.
pub struct Open(());

impl Open {
    pub fn count() -> Self {
        OPEN.fetch_add(1, Ordering::Relaxed);
        Self(())
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        OPEN.fetch_sub(1, Ordering::Relaxed);
    }
}
