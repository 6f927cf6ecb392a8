//! The memory of one query, as the allocator counts it, and whether anybody waits for the query.
//!
//! A query is worked on in turns, each on some thread. What a thread was given minus what it gave
//! back during the turns is what the query holds, as long as everything else on that thread is
//! left out: the engine fills its block cache there, and unfinished pages of others are dropped.

use std::{
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use tokio::sync::OwnedSemaphorePermit;

use super::{
    memory::{HeavySlot, Started},
    scheduler::QueryScheduler,
};
use crate::{
    memory::{
        Reservation,
        allocator::{net_bytes, purge},
    },
    model::error::{Error, Result},
    sql::{Guard, parsed_size},
    telemetry::queries,
};

/// What a query holds before anything is reserved for it: most hold less.
const UNRESERVED_BYTES: usize = 64 * 1024;
/// Memory for requests of at least this many bytes is reserved before they are read.
const RESERVED_BODY_BYTES_MIN: usize = 16 * 1024;
/// How long a query waits for others that are heavy before it is refused.
const HEAVY_WAIT_MAX: Duration = Duration::from_secs(2);
/// How often a query that waits looks whether its client is still there.
const WAITING_CHECK: Duration = Duration::from_millis(20);

pub struct QueryMeter {
    scheduler: Arc<QueryScheduler>,
    /// Gone when nobody waits for the answer.
    alive: Mutex<Weak<()>>,
    /// The right to use the processor, during a turn; a query that waits gives it back.
    turn: Mutex<Option<OwnedSemaphorePermit>>,
    may_wait: AtomicBool,
    /// Bytes held when the last turn ended.
    settled: AtomicI64,
    /// The thread's counter when the turn began, moved on by what the turn does for others.
    origin: AtomicI64,
    /// Bytes that the selection of items holds, which is left out otherwise.
    selection: AtomicUsize,
    /// What the query is estimated to hold, where the allocator does not count.
    estimate: AtomicUsize,
    /// Bytes that may be held without asking.
    granted: AtomicUsize,
    grant: Mutex<Grant>,
}

struct Grant {
    reservation: Reservation,
    heavy: Option<HeavySlot>,
}

impl fmt::Debug for QueryMeter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueryMeter")
            .field("settled", &self.settled)
            .field("granted", &self.granted)
            .finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl QueryMeter {
    pub fn new(scheduler: &Arc<QueryScheduler>, alive: Weak<()>) -> Result<Arc<Self>> {
        let budget = scheduler.memory().budget();
        let reservation = budget.reserve(0).ok_or_else(|| budget.exhausted())?;
        Ok(Arc::new(Self {
            scheduler: Arc::clone(scheduler),
            alive: Mutex::new(alive),
            turn: Mutex::default(),
            may_wait: AtomicBool::new(false),
            settled: AtomicI64::new(0),
            origin: AtomicI64::new(0),
            selection: AtomicUsize::new(0),
            estimate: AtomicUsize::new(0),
            granted: AtomicUsize::new(UNRESERVED_BYTES),
            grant: Mutex::new(Grant {
                reservation,
                heavy: None,
            }),
        }))
    }

    pub fn scheduler(&self) -> &Arc<QueryScheduler> {
        &self.scheduler
    }

    /// Reads a query from a request, on an event loop's thread: a short text or a long list of
    /// parameters may take many times its bytes.
    pub fn prepare<T>(&self, body: &[u8], read: impl FnOnce() -> Result<T>) -> Result<T> {
        self.begin_slice(None);
        if body.len() >= RESERVED_BODY_BYTES_MIN {
            self.check_memory(parsed_size(body))?;
        }
        let query = read()?;
        self.check_memory(0)?;
        self.end_slice();
        Ok(query)
    }

    pub fn alive(&self) -> Weak<()> {
        lock(&self.alive).clone()
    }

    /// Names who waits for the answer from now on.
    pub fn set_alive(&self, alive: Weak<()>) {
        *lock(&self.alive) = alive;
    }

    pub fn is_abandoned(&self) -> bool {
        lock(&self.alive).strong_count() == 0
    }

    /// Begins a turn on this thread. With a permit the thread may wait; without one it is an
    /// event loop's.
    pub fn begin_slice(&self, permit: Option<OwnedSemaphorePermit>) {
        self.may_wait.store(permit.is_some(), Relaxed);
        *lock(&self.turn) = permit;
        self.origin.store(net_bytes().unwrap_or(0), Relaxed);
    }

    /// Ends the turn.
    pub fn end_slice(&self) {
        self.selection.store(0, Relaxed);
        if let Some(net) = net_bytes() {
            let gained = net.wrapping_sub(self.origin.load(Relaxed));
            self.settled.fetch_add(gained, Relaxed);
            self.origin.store(net, Relaxed);
        }
        lock(&self.turn).take();
    }

    /// Gives back what is not held, after the last turn of a page.
    pub fn release_surplus(&self) {
        let held = self.held();
        let mut grant = lock(&self.grant);
        let reserved = match held {
            held if held <= UNRESERVED_BYTES => 0,
            held => held.min(grant.reservation.bytes()),
        };
        if grant.reservation.bytes() != reserved {
            grant.reservation.resize(reserved);
            queries::reserved(self.scheduler.memory().budget().reserved());
        }
        self.granted.store(reserved.max(UNRESERVED_BYTES), Relaxed);
        if grant.heavy.take().is_some() {
            purge();
        }
    }

    /// Bytes that are reserved for the query.
    pub fn reserved(&self) -> usize {
        lock(&self.grant).reservation.bytes()
    }

    /// Does work whose memory is not the query's.
    #[inline]
    pub fn outside<T>(&self, work: impl FnOnce() -> T) -> T {
        let before = net_bytes();
        let done = work();
        if let (Some(before), Some(after)) = (before, net_bytes()) {
            self.origin.fetch_add(after.wrapping_sub(before), Relaxed);
        }
        done
    }

    /// Whether the allocator counts; if not, estimates are to be set.
    pub fn counts(&self) -> bool {
        net_bytes().is_some()
    }

    /// Sets what the selection of items holds.
    pub fn set_selection(&self, bytes: usize) {
        self.selection.store(bytes, Relaxed);
    }

    /// Sets what is estimated to be held, where the allocator does not count.
    pub fn set_estimate(&self, bytes: usize) {
        self.estimate.store(bytes, Relaxed);
    }

    fn held(&self) -> usize {
        let counted = match net_bytes() {
            Some(net) => {
                let gained = net.wrapping_sub(self.origin.load(Relaxed));
                let held = self.settled.load(Relaxed).wrapping_add(gained);
                usize::try_from(held).unwrap_or(0)
            }
            None => self.estimate.load(Relaxed),
        };
        counted.saturating_add(self.selection.load(Relaxed))
    }

    /// Fails when the query holds too much with `more_bytes` that it is about to take.
    #[inline]
    pub fn check_memory(&self, more_bytes: usize) -> Result<()> {
        let wanted = self.held().saturating_add(more_bytes);
        if wanted <= self.granted.load(Relaxed) {
            return Ok(());
        }
        let grown = self.grow(wanted);
        match &grown {
            Ok(()) => queries::reserved(self.scheduler.memory().budget().reserved()),
            Err(_) => queries::refused(),
        }
        grown
    }

    /// Reserves what the query is about to hold.
    #[cold]
    fn grow(&self, wanted: usize) -> Result<()> {
        let memory = self.scheduler.memory();
        if wanted > memory.query_bytes_max() {
            return Err(memory.too_large());
        }
        let mut grant = lock(&self.grant);
        if wanted <= memory.light_bytes_max() {
            // A list that grows takes half as much again at once.
            let bytes = wanted
                .saturating_add(wanted / 2)
                .clamp(wanted, memory.light_bytes_max());
            while !grant.reservation.resize(bytes) {
                if !self.outside(|| self.scheduler.evict_oldest()) {
                    return Err(memory.budget().exhausted());
                }
            }
        } else if grant.heavy.is_none() {
            grant.heavy = Some(self.become_heavy(&mut grant.reservation)?);
        }
        self.granted.store(grant.reservation.bytes(), Relaxed);
        Ok(())
    }

    fn become_heavy(&self, reservation: &mut Reservation) -> Result<HeavySlot> {
        let memory = self.scheduler.memory();
        if let Some(slot) = self.start_heavy(reservation) {
            return Ok(slot);
        }
        let queue = self.may_wait.load(Relaxed).then(|| memory.join_queue());
        let queue = queue.flatten().ok_or_else(|| memory.busy())?;
        // Others use the processor meanwhile.
        lock(&self.turn).take();
        let deadline = Instant::now() + HEAVY_WAIT_MAX;
        while Instant::now() < deadline {
            queue.wait(WAITING_CHECK);
            self.check_alive()?;
            if let Some(slot) = self.start_heavy(reservation) {
                return Ok(slot);
            }
        }
        Err(memory.busy())
    }

    fn start_heavy(&self, reservation: &mut Reservation) -> Option<HeavySlot> {
        loop {
            match self.scheduler.memory().start_heavy(reservation) {
                Started::Heavy(slot) => return Some(slot),
                Started::TooMany => return None,
                Started::NoMemory => {
                    if !self.outside(|| self.scheduler.evict_oldest()) {
                        return None;
                    }
                }
            }
        }
    }

    fn check_alive(&self) -> Result<()> {
        if self.is_abandoned() {
            return Err(abandoned());
        }
        Ok(())
    }
}

impl Guard for QueryMeter {
    fn check(&self, more_bytes: usize) -> Result<()> {
        self.check_memory(more_bytes)?;
        self.check_alive()
    }
}

impl Drop for QueryMeter {
    fn drop(&mut self) {
        let grant = self.grant.get_mut().unwrap_or_else(PoisonError::into_inner);
        let is_heavy = grant.heavy.take().is_some();
        if grant.reservation.bytes() > 0 {
            grant.reservation.resize(0);
            queries::reserved(self.scheduler.memory().budget().reserved());
        }
        if is_heavy {
            purge();
        }
    }
}

pub fn abandoned() -> Error {
    Error::unavailable("the client is gone; its query was stopped")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{memory::MIB, sql::Query};
    use serde_json::json;
    use std::hint::black_box;

    /// A node whose queries may hold 32 MB each and 64 MB together.
    fn scheduler() -> Arc<QueryScheduler> {
        Arc::new(QueryScheduler::new(32 * MIB, 64 * MIB))
    }

    fn meter(scheduler: &Arc<QueryScheduler>) -> (Arc<QueryMeter>, Arc<()>) {
        let alive = Arc::new(());
        let meter = QueryMeter::new(scheduler, Arc::downgrade(&alive)).unwrap();
        meter.begin_slice(None);
        (meter, alive)
    }

    fn takes(bytes: usize) -> Vec<u8> {
        black_box(vec![1; bytes])
    }

    #[test]
    fn what_the_allocator_gives_is_what_a_query_holds() {
        if net_bytes().is_none() {
            return;
        }
        let scheduler = scheduler();
        let (meter, _alive) = meter(&scheduler);
        let first = takes(MIB);
        meter.check_memory(0).unwrap();
        assert!((MIB..2 * MIB).contains(&scheduler.memory().budget().reserved()));
        // The engine's blocks stay in its cache.
        let block = meter.outside(|| takes(40 * MIB));
        meter.check_memory(0).unwrap();
        meter.end_slice();
        drop(block);
        // What was made on one thread is freed on another, between turns.
        meter.begin_slice(None);
        drop(first);
        meter.end_slice();
        meter.release_surplus();
        assert_eq!(scheduler.memory().budget().reserved(), 0);
    }

    #[test]
    fn more_than_the_bound_of_a_query_is_refused_before_it_is_made() {
        let scheduler = scheduler();
        let (meter, _alive) = meter(&scheduler);
        let refused = meter.check_memory(33 * MIB).unwrap_err();
        assert_eq!(refused.status(), 400);
        assert!(refused.message.contains("33554432"), "{}", refused.message);
        assert_eq!(scheduler.memory().budget().reserved(), 0);
    }

    #[test]
    fn a_query_that_would_grow_is_refused_while_others_are_heavy() {
        let scheduler = scheduler();
        let (one, _one_alive) = meter(&scheduler);
        let (two, _two_alive) = meter(&scheduler);
        let (three, _three_alive) = meter(&scheduler);
        one.check_memory(20 * MIB).unwrap();
        two.check_memory(20 * MIB).unwrap();
        // Those two may grow to their bounds, so nothing is left.
        let refused = three.check_memory(20 * MIB).unwrap_err();
        assert_eq!(
            (refused.status(), refused.retry_after_ms),
            (429, Some(1_000))
        );
        let refused = three.check_memory(MIB).unwrap_err();
        assert_eq!(refused.status(), 429);
        three.check_memory(UNRESERVED_BYTES / 2).unwrap();
        one.check_memory(30 * MIB).unwrap();
        drop(one);
        three.check_memory(20 * MIB).unwrap();
    }

    #[test]
    fn a_query_waits_for_a_heavy_one_to_end() {
        let scheduler = scheduler();
        let (one, _one_alive) = meter(&scheduler);
        let (two, _two_alive) = meter(&scheduler);
        one.check_memory(20 * MIB).unwrap();
        two.check_memory(20 * MIB).unwrap();
        let (three, _three_alive) = meter(&scheduler);
        let permit = Arc::new(tokio::sync::Semaphore::new(1));
        let turn = Arc::clone(&permit).try_acquire_owned().unwrap();
        let waits = std::thread::spawn({
            let three = Arc::clone(&three);
            move || {
                three.begin_slice(Some(turn));
                three.check_memory(20 * MIB)
            }
        });
        // The waiting one gives its turn to others.
        while permit.available_permits() == 0 {
            std::thread::yield_now();
        }
        drop(two);
        waits.join().unwrap().unwrap();
    }

    #[test]
    fn what_one_item_makes_is_refused_while_it_is_made() {
        if net_bytes().is_none() {
            return;
        }
        let item = json!({
            "arr": (0..2_000).collect::<Vec<_>>(),
            "text": "x,".repeat(200_000),
            "long": "y".repeat(100_000),
        });
        let pairs = "FROM c JOIN a IN c.arr JOIN b IN c.arr";
        for text in [
            "SELECT VALUE ARRAY(SELECT VALUE [a, b] FROM a IN c.arr JOIN b IN c.arr) FROM c".into(),
            format!("SELECT DISTINCT VALUE a * 2000 + b {pairs}"),
            format!("SELECT COUNT(1) AS n {pairs} GROUP BY a * 2000 + b"),
            format!("SELECT VALUE a {pairs} ORDER BY c.long"),
            format!("SELECT VALUE c.long {pairs}"),
            format!("SELECT VALUE MAKELIST(c.long) {pairs}"),
            "SELECT VALUE STRINGSPLIT(c.text, ',') FROM c JOIN a IN c.arr".into(),
            "SELECT VALUE StringToArray(CONCAT('[', REPLICATE('1,', 5000), '1]')) FROM c JOIN a IN c.arr".into(),
        ] {
            let query = Query::parse(&text, &[]).unwrap();
            let scheduler = scheduler();
            let (meter, _alive) = meter(&scheduler);
            let guard = Arc::clone(&meter) as Arc<dyn Guard>;
            let items = [item.clone()].into_iter();
            let refused = query.execute_guarded(items, guard).unwrap_err();
            assert_eq!(refused.status(), 400, "{text}");
            let names_the_bound = refused.message.contains("limits.query_bytes_max");
            assert!(names_the_bound, "{text}: {}", refused.message);
            drop(meter);
            assert_eq!(scheduler.memory().budget().reserved(), 0, "{text}");
        }
    }

    #[test]
    fn a_query_whose_client_is_gone_stops_within_a_slice() {
        let scheduler = scheduler();
        let (meter, alive) = meter(&scheduler);
        let guard: &dyn Guard = &*meter;
        guard.check(0).unwrap();
        drop(alive);
        let stopped = guard.check(0).unwrap_err();
        assert!(stopped.message.contains("gone"), "{}", stopped.message);
    }
}
