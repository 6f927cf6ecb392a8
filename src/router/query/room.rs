//! What the queries of a node share: turns on the processor, a bound on memory, and work that waits for its next page.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use tokio::sync::{Semaphore, SemaphorePermit};

use super::run::Run;
use crate::model::error::{Error, ErrorKind, Result};

/// Queries that begin at the same time. A short one never waits behind a long one: it is over in its first turn.
const FIRST_TURNS_MAX: usize = 64;
/// Bytes that all queries together hold between their turns.
const HELD_BYTES_MAX: usize = 512 * 1024 * 1024;
/// Unfinished pages that are kept for clients to come back for.
const KEPT_MAX: usize = 64;
/// How long an unfinished page is kept.
const KEPT_TIME_MAX: Duration = Duration::from_secs(120);

pub struct QueryRoom {
    first_turns: Semaphore,
    later_turns: Semaphore,
    held_bytes: AtomicUsize,
    kept: Mutex<HashMap<u64, Kept>>,
}

struct Kept {
    run: Box<Run>,
    since: Instant,
}

impl Default for QueryRoom {
    fn default() -> Self {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        Self {
            first_turns: Semaphore::new(FIRST_TURNS_MAX),
            // Half of the cores stay free for short work, whatever long queries there are.
            later_turns: Semaphore::new((cores / 2).max(1)),
            held_bytes: AtomicUsize::new(0),
            kept: Mutex::default(),
        }
    }
}

impl QueryRoom {
    /// Waits for a turn on the processor.
    pub async fn turn(&self, first: bool) -> Result<SemaphorePermit<'_>> {
        let turns = if first {
            &self.first_turns
        } else {
            &self.later_turns
        };
        let turn = turns.acquire().await;
        turn.map_err(|_| Error::internal("the turns of queries were closed"))
    }

    /// Keeps an unfinished page; gives the ticket for it.
    pub fn keep(&self, run: Box<Run>) -> u64 {
        let ticket = rand::random();
        if let Ok(mut kept) = self.kept.lock() {
            kept.retain(|_, kept| kept.since.elapsed() < KEPT_TIME_MAX);
            if kept.len() >= KEPT_MAX {
                let oldest = kept.iter().min_by_key(|(_, kept)| kept.since);
                if let Some(oldest) = oldest.map(|(ticket, _)| *ticket) {
                    kept.remove(&oldest);
                }
            }
            let since = Instant::now();
            kept.insert(ticket, Kept { run, since });
        }
        ticket
    }

    pub fn take(&self, ticket: u64) -> Option<Box<Run>> {
        let kept = self.kept.lock().ok()?.remove(&ticket)?;
        Some(kept.run)
    }
}

/// A query's share of the memory; given back when it is dropped.
pub struct Share {
    room: Arc<QueryRoom>,
    bytes: usize,
}

impl Share {
    pub fn new(room: Arc<QueryRoom>) -> Self {
        Self { room, bytes: 0 }
    }

    pub fn room(&self) -> &Arc<QueryRoom> {
        &self.room
    }

    /// Says how much is held now; refuses when all queries together hold too much.
    pub fn hold(&mut self, bytes: usize) -> Result<()> {
        let held = &self.room.held_bytes;
        let grows = bytes > self.bytes;
        let before = if grows {
            held.fetch_add(bytes - self.bytes, Ordering::Relaxed)
        } else {
            held.fetch_sub(self.bytes - bytes, Ordering::Relaxed)
        };
        let all = before.saturating_add(bytes).saturating_sub(self.bytes);
        self.bytes = bytes;
        if grows && all > HELD_BYTES_MAX {
            let mut error = Error::new(
                ErrorKind::Overloaded,
                format!("the queries under way hold more than {HELD_BYTES_MAX} bytes; try again"),
            );
            error.retry_after_ms = Some(1_000);
            return Err(error);
        }
        Ok(())
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.room
            .held_bytes
            .fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_shared_and_given_back() {
        let room = Arc::new(QueryRoom::default());
        let mut one = Share::new(Arc::clone(&room));
        let mut two = Share::new(Arc::clone(&room));
        one.hold(HELD_BYTES_MAX - 10).unwrap();
        two.hold(10).unwrap();
        let error = two.hold(11).unwrap_err();
        assert_eq!((error.status(), error.retry_after_ms), (429, Some(1_000)));
        one.hold(5).unwrap();
        two.hold(1_000).unwrap();
        drop((one, two));
        assert_eq!(room.held_bytes.load(Ordering::Relaxed), 0);
    }
}
