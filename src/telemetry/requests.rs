//! Requests: each is watched from its headers to its answer.

use std::{
    cell::{Cell, OnceCell},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Instant,
};

use super::{
    containers::ContainerSeries,
    expiry,
    labels::{Operation, STATUS_CODES, Throttle},
};

/// The requests under way on one worker: a counter of its own for each, so that workers do not wait for each other's.
pub struct InFlight(Arc<AtomicUsize>);

static WORKERS: Mutex<Vec<Arc<AtomicUsize>>> = Mutex::new(Vec::new());

impl InFlight {
    pub fn of_a_new_worker() -> Self {
        let count = Arc::default();
        let mut workers = WORKERS.lock().unwrap_or_else(PoisonError::into_inner);
        workers.push(Arc::clone(&count));
        Self(count)
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let mut workers = WORKERS.lock().unwrap_or_else(PoisonError::into_inner);
        workers.retain(|count| !Arc::ptr_eq(count, &self.0));
    }
}

/// Requests under way on all workers.
pub fn in_flight() -> usize {
    let workers = WORKERS.lock().unwrap_or_else(PoisonError::into_inner);
    workers
        .iter()
        .map(|count| count.load(Ordering::Relaxed))
        .sum()
}

/// One request while it is under way. Dropped without an answer, it is counted as one whose client did not wait.
pub struct Watch<'a> {
    worker: &'a InFlight,
    started: Instant,
    operation: Cell<Operation>,
    container: OnceCell<Arc<ContainerSeries>>,
    /// When the first item of the answer falls due.
    first_due: Cell<Option<i64>>,
    answered: Cell<bool>,
}

impl<'a> Watch<'a> {
    pub fn start(worker: &'a InFlight) -> Self {
        worker.0.fetch_add(1, Ordering::Relaxed);
        Self {
            worker,
            started: Instant::now(),
            operation: Cell::new(Operation::Unknown),
            container: OnceCell::new(),
            first_due: Cell::new(None),
            answered: Cell::new(false),
        }
    }

    pub fn operation(&self, operation: Operation) {
        self.operation.set(operation);
    }

    /// The container that the request is of; the first one that is named counts.
    pub fn container(&self, series: &Arc<ContainerSeries>) {
        self.container.get_or_init(|| Arc::clone(series));
    }

    pub fn throttled(&self, reason: Throttle) {
        self.series().throttled(reason);
    }

    /// The first item of the answer to expire falls due at this second.
    pub fn hands_out(&self, first_due: Option<i64>) {
        self.first_due.set(first_due);
    }

    /// The answer is complete. The clock is read once more for those that hand out items that expire.
    pub fn answered(&self, status: u16, charge: f64, now: impl FnOnce() -> i64) {
        self.answered.set(true);
        if let Some(due) = self.first_due.get() {
            expiry::answered(due, now());
        }
        self.record(status_place(status), Some(charge));
    }

    fn record(&self, status: usize, charge: Option<f64>) {
        let operation = self.operation.get();
        self.series()
            .answered(operation, status, self.started.elapsed(), charge);
    }

    fn series(&self) -> &Arc<ContainerSeries> {
        self.container.get().unwrap_or(ContainerSeries::none())
    }
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        self.worker.0.fetch_sub(1, Ordering::Relaxed);
        if !self.answered.get() {
            self.record(GONE, None);
        }
    }
}

/// Where the two values stand that are no status codes: behind the codes.
const GONE: usize = STATUS_CODES.len();
const OTHER: usize = GONE + 1;

fn status_place(status: u16) -> usize {
    STATUS_CODES
        .iter()
        .position(|code| *code == status)
        .unwrap_or(OTHER)
}

#[cfg(test)]
mod tests {
    use super::{super::labels::STATUSES, *};

    #[test]
    fn status_codes_have_their_places() {
        for code in STATUS_CODES {
            assert_eq!(STATUSES[status_place(code)], code.to_string());
        }
        assert_eq!(STATUSES[status_place(299)], "other");
        assert_eq!(STATUSES[GONE], "gone");
    }

    #[test]
    fn requests_under_way_are_those_not_dropped() {
        let worker = InFlight::of_a_new_worker();
        let one = Watch::start(&worker);
        let two = Watch::start(&worker);
        assert!(in_flight() >= 2);
        drop(two);
        one.answered(200, 1.0, || 0);
        assert_eq!(worker.0.load(Ordering::Relaxed), 1);
        drop(one);
        assert_eq!(worker.0.load(Ordering::Relaxed), 0);
    }
}
