//! What the queries of a node share: turns on the processor, a bound on memory, and work that waits for its next page.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::{memory::QueryMemory, run::Run};
use crate::model::error::{Error, Result};

/// Queries that begin at the same time. A short one never waits behind a long one: it is over in its first turn.
const FIRST_TURNS_MAX: usize = 64;
/// Unfinished pages that are kept for clients to come back for.
const KEPT_MAX: usize = 64;
/// How long an unfinished page is kept.
const KEPT_TIME_MAX: Duration = Duration::from_secs(120);

pub struct QueryRoom {
    first_turns: Arc<Semaphore>,
    later_turns: Arc<Semaphore>,
    memory: Arc<QueryMemory>,
    kept: Mutex<HashMap<u64, Kept>>,
}

struct Kept {
    run: Box<Run>,
    since: Instant,
}

impl QueryRoom {
    pub fn new(query_bytes_max: usize, queries_bytes_max: usize) -> Self {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        Self {
            first_turns: Arc::new(Semaphore::new(FIRST_TURNS_MAX)),
            // Half of the cores stay free for short work, whatever long queries there are.
            later_turns: Arc::new(Semaphore::new((cores / 2).max(1))),
            memory: Arc::new(QueryMemory::new(query_bytes_max, queries_bytes_max)),
            kept: Mutex::default(),
        }
    }

    pub fn memory(&self) -> &Arc<QueryMemory> {
        &self.memory
    }

    /// Waits for a turn on the processor.
    pub async fn turn(&self, first: bool) -> Result<OwnedSemaphorePermit> {
        let turns = if first {
            &self.first_turns
        } else {
            &self.later_turns
        };
        let turn = Arc::clone(turns).acquire_owned().await;
        turn.map_err(|_| Error::internal("the turns of queries were closed"))
    }

    /// Keeps an unfinished page; gives the ticket for it.
    pub fn keep(&self, run: Box<Run>) -> u64 {
        let ticket = rand::random();
        if let Ok(mut kept) = self.kept.lock() {
            kept.retain(|_, kept| kept.since.elapsed() < KEPT_TIME_MAX);
            if kept.len() >= KEPT_MAX {
                remove_oldest(&mut kept);
            }
            let since = Instant::now();
            kept.insert(ticket, Kept { run, since });
        }
        ticket
    }

    /// Evicts the unfinished page that has waited longest of those for which memory is reserved;
    /// its client begins again. Returns false if there is none.
    pub fn evict_oldest(&self) -> bool {
        let oldest = {
            let Ok(mut kept) = self.kept.lock() else {
                return false;
            };
            let holding = kept.iter().filter(|(_, kept)| kept.run.reserved() > 0);
            let oldest = holding.min_by_key(|(_, kept)| kept.since);
            let oldest = oldest.map(|(ticket, _)| *ticket);
            oldest.and_then(|ticket| kept.remove(&ticket))
        };
        // Dropped when others can look for theirs again.
        oldest.is_some()
    }

    pub fn take(&self, ticket: u64) -> Option<Box<Run>> {
        let kept = self.kept.lock().ok()?.remove(&ticket)?;
        Some(kept.run)
    }
}

fn remove_oldest(kept: &mut HashMap<u64, Kept>) -> bool {
    let oldest = kept.iter().min_by_key(|(_, kept)| kept.since);
    let oldest = oldest.map(|(ticket, _)| *ticket);
    oldest.is_some_and(|ticket| kept.remove(&ticket).is_some())
}
