//! The query scheduler of a node: permits to use the processor, the bound on memory, and unfinished
//! pages that wait for their clients.

use std::{
    any::Any,
    collections::HashMap,
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::memory::QueryMemory;
use crate::model::error::{Error, Result};

/// Queries that begin at the same time. A short one never waits behind a long one: it is over in its first slice.
const FIRST_SLICES_MAX: usize = 64;
/// UnfinishedPage pages that are kept for clients to come back for.
const KEPT_MAX: usize = 64;
/// How long an unfinished page is kept.
const KEPT_TIME_MAX: Duration = Duration::from_secs(120);

pub struct QueryScheduler {
    first_slices: Arc<Semaphore>,
    later_slices: Arc<Semaphore>,
    memory: Arc<QueryMemory>,
    kept: Mutex<HashMap<u64, Kept>>,
}

/// A page that was not finished in the time of one request.
pub trait KeptPage: Any + Send {
    /// Returns the bytes of the node's memory that are reserved for it.
    fn reserved(&self) -> usize;
}

struct Kept {
    page: Box<dyn KeptPage>,
    since: Instant,
}

impl QueryScheduler {
    pub fn new(query_bytes_max: usize, queries_bytes_max: usize) -> Self {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        Self {
            first_slices: Arc::new(Semaphore::new(FIRST_SLICES_MAX)),
            // Half of the cores stay free for short work, whatever long queries there are.
            later_slices: Arc::new(Semaphore::new((cores / 2).max(1))),
            memory: Arc::new(QueryMemory::new(query_bytes_max, queries_bytes_max)),
            kept: Mutex::default(),
        }
    }

    pub fn memory(&self) -> &Arc<QueryMemory> {
        &self.memory
    }

    /// Waits for the permit to use the processor for one slice of a query.
    pub async fn permit(&self, first: bool) -> Result<OwnedSemaphorePermit> {
        let permits = if first {
            &self.first_slices
        } else {
            &self.later_slices
        };
        let permit = Arc::clone(permits).acquire_owned().await;
        permit.map_err(|_| Error::internal("the query scheduler was closed"))
    }

    /// Keeps an unfinished page and returns the ticket for it.
    pub fn keep(&self, page: Box<dyn KeptPage>) -> u64 {
        let ticket = rand::random();
        if let Ok(mut kept) = self.kept.lock() {
            kept.retain(|_, kept| kept.since.elapsed() < KEPT_TIME_MAX);
            if kept.len() >= KEPT_MAX {
                remove_oldest(&mut kept);
            }
            let since = Instant::now();
            kept.insert(ticket, Kept { page, since });
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
            let holding = kept.iter().filter(|(_, kept)| kept.page.reserved() > 0);
            let oldest = holding.min_by_key(|(_, kept)| kept.since);
            let oldest = oldest.map(|(ticket, _)| *ticket);
            oldest.and_then(|ticket| kept.remove(&ticket))
        };
        // Dropped when others can look for theirs again.
        oldest.is_some()
    }

    /// Takes an unfinished page back.
    pub fn take(&self, ticket: u64) -> Option<Box<dyn KeptPage>> {
        let kept = self.kept.lock().ok()?.remove(&ticket)?;
        Some(kept.page)
    }
}

fn remove_oldest(kept: &mut HashMap<u64, Kept>) -> bool {
    let oldest = kept.iter().min_by_key(|(_, kept)| kept.since);
    let oldest = oldest.map(|(ticket, _)| *ticket);
    oldest.is_some_and(|ticket| kept.remove(&ticket).is_some())
}
