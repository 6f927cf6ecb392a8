//! The memory that the queries of a node share: a bound for all, a bound for each, and few that
//! grow at a time.

use std::{
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use crate::{
    memory::{MIB, MemoryBudget, Reservation},
    model::error::{Error, ErrorKind},
};

/// What a query may hold before it counts as heavy, and as a part of its bound.
const LIGHT_BYTES_MAX: usize = 16 * MIB;
const LIGHT_PART: usize = 8;
/// Heavy queries in flight for each core.
const HEAVY_PER_CORE: usize = 2;
/// ScopePart of all memory of queries that those may hold that wait to become heavy.
const WAITING_PART: usize = 4;
const RETRY_AFTER_MS: u32 = 1_000;

/// Bounds of the memory of queries. A query that is about to hold more than a little becomes
/// heavy first: it reserves all that it may ever hold, so that no query fails halfway because
/// others have grown meanwhile.
pub struct QueryMemory {
    budget: Arc<MemoryBudget>,
    query_bytes_max: usize,
    light_bytes_max: usize,
    heavy_max: usize,
    waiting_max: usize,
    heavy: Mutex<HeavyQueries>,
    changed: Condvar,
}

#[derive(Default)]
struct HeavyQueries {
    running: usize,
    waiting: usize,
}

impl QueryMemory {
    pub fn new(query_bytes_max: usize, queries_bytes_max: usize) -> Self {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let light_bytes_max = LIGHT_BYTES_MAX.min(query_bytes_max / LIGHT_PART);
        let waiting_max = queries_bytes_max / WAITING_PART / light_bytes_max.max(1);
        Self {
            budget: MemoryBudget::new("the queries in flight", queries_bytes_max),
            query_bytes_max: query_bytes_max.min(queries_bytes_max),
            light_bytes_max,
            heavy_max: cores * HEAVY_PER_CORE,
            waiting_max: waiting_max.max(1),
            heavy: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    pub fn budget(&self) -> &Arc<MemoryBudget> {
        &self.budget
    }

    pub fn query_bytes_max(&self) -> usize {
        self.query_bytes_max
    }

    pub fn light_bytes_max(&self) -> usize {
        self.light_bytes_max
    }

    fn lock(&self) -> MutexGuard<'_, HeavyQueries> {
        self.heavy.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a query heavy: its reservation becomes its whole bound. `None` when as many are
    /// heavy as may be, or when the budget does not have that much.
    pub fn start_heavy(self: &Arc<Self>, reservation: &mut Reservation) -> Started {
        let mut heavy = self.lock();
        if heavy.running >= self.heavy_max {
            return Started::TooMany;
        }
        if !reservation.resize(self.query_bytes_max) {
            return Started::NoMemory;
        }
        heavy.running += 1;
        Started::Heavy(HeavySlot(Arc::clone(self)))
    }

    /// Joins those that wait to become heavy; `None` when they are too many.
    pub fn join_queue(self: &Arc<Self>) -> Option<Waiting> {
        let mut heavy = self.lock();
        if heavy.waiting >= self.waiting_max {
            return None;
        }
        heavy.waiting += 1;
        Some(Waiting(Arc::clone(self)))
    }

    /// Returns the answer to a query that cannot become heavy now: 429, to be retried.
    pub fn busy(&self) -> Error {
        let mut error = Error::new(
            ErrorKind::Overloaded,
            format!(
                "the query holds {} bytes and needs more, and as many such queries are in flight \
                 as the memory of the node allows; try again, or narrow it with WHERE, TOP or LIMIT",
                self.light_bytes_max
            ),
        );
        error.retry_after_ms = Some(RETRY_AFTER_MS);
        error
    }

    /// Returns the answer to a query that needs more than a query may hold.
    pub fn too_large(&self) -> Error {
        Error::bad_request(format!(
            "the query must hold more than {} bytes at a time; narrow it with WHERE, TOP or LIMIT, \
             or make fewer values of one item (the bound is limits.query_bytes_max)",
            self.query_bytes_max
        ))
    }
}

pub enum Started {
    Heavy(HeavySlot),
    TooMany,
    NoMemory,
}

/// The right to be heavy; given back when it is dropped.
pub struct HeavySlot(Arc<QueryMemory>);

impl Drop for HeavySlot {
    fn drop(&mut self) {
        self.0.lock().running -= 1;
        self.0.changed.notify_all();
    }
}

/// A place among those that wait to become heavy.
pub struct Waiting(Arc<QueryMemory>);

impl Waiting {
    /// Waits until a heavy query ends, or for the given time.
    pub fn wait(&self, time: Duration) {
        let heavy = self.0.lock();
        // A spurious or missed wake-up only means one more look.
        let _ = self.0.changed.wait_timeout(heavy, time);
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.lock().waiting -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_queries_are_heavy_and_each_of_them_may_reach_its_bound() {
        let memory = Arc::new(QueryMemory::new(30 * MIB, 100 * MIB));
        let reserve = || memory.budget().reserve(0).unwrap();
        let mut slots = Vec::new();
        loop {
            let mut reservation = reserve();
            match memory.start_heavy(&mut reservation) {
                Started::Heavy(slot) => slots.push((slot, reservation)),
                Started::TooMany | Started::NoMemory => break,
            }
            assert!(slots.len() <= 3);
        }
        assert!(memory.budget().reserved() >= 30 * MIB);
        slots.pop();
        assert!(matches!(
            memory.start_heavy(&mut reserve()),
            Started::Heavy(_)
        ));
        slots.clear();
        assert_eq!(memory.budget().reserved(), 0);
        assert_eq!(memory.lock().running, 0);
    }

    #[test]
    fn those_that_wait_hold_a_part_of_the_memory_only() {
        let memory = Arc::new(QueryMemory::new(32 * MIB, 64 * MIB));
        let queue: Vec<_> = std::iter::from_fn(|| memory.join_queue()).collect();
        assert_eq!(queue.len(), 4);
        assert!(queue.len() * memory.light_bytes_max() <= 64 * MIB / WAITING_PART);
        drop(queue);
        assert!(memory.join_queue().is_some());
    }

    #[test]
    fn refusals_name_the_bound_and_who_must_act() {
        let memory = QueryMemory::new(32 * MIB, 64 * MIB);
        let refused = memory.too_large();
        assert_eq!(refused.status(), 400);
        assert!(refused.message.contains("33554432 bytes"));
        let refused = memory.busy();
        assert_eq!(
            (refused.status(), refused.retry_after_ms),
            (429, Some(1_000))
        );
    }
}
