//! The series of each container. Handles are looked up when a container first needs them and kept: a request finds its own by index.

use std::{
    collections::HashMap,
    sync::{Arc, LazyLock, Mutex, OnceLock, PoisonError},
    time::Duration,
};

use metrics::{Counter, Histogram};

use super::{
    labels::{Operation, STATUSES, Throttle},
    table,
};

/// Containers with a label of their own; later ones share `other`. A name that had one keeps it until the process ends, so that
/// the number of series is bounded whatever is made and removed.
pub const CONTAINER_LABELS_MAX: usize = 64;
const OTHER: &str = "other";
/// The label of requests that are of no container.
const NONE: &str = "none";

/// What is counted for the requests of one container.
pub struct ContainerSeries {
    label: String,
    requests: [[OnceLock<Counter>; STATUSES.len()]; Operation::ALL.len()],
    durations: [OnceLock<Histogram>; Operation::ALL.len()],
    charge: OnceLock<Histogram>,
}

static NAMED: LazyLock<Mutex<HashMap<String, Arc<ContainerSeries>>>> =
    LazyLock::new(Mutex::default);
static OTHERS: LazyLock<Arc<ContainerSeries>> = LazyLock::new(|| ContainerSeries::new(OTHER));
static OF_NO_CONTAINER: LazyLock<Arc<ContainerSeries>> =
    LazyLock::new(|| ContainerSeries::new(NONE));

impl ContainerSeries {
    fn new(label: &str) -> Arc<Self> {
        Arc::new(Self {
            label: label.to_owned(),
            requests: Default::default(),
            durations: Default::default(),
            charge: OnceLock::new(),
        })
    }

    /// The series of a container; the same for every incarnation of its name.
    pub fn of(database: &str, container: &str) -> Arc<Self> {
        let mut named = NAMED.lock().unwrap_or_else(PoisonError::into_inner);
        let label = format!("{database}/{container}");
        if let Some(series) = named.get(&label) {
            return Arc::clone(series);
        }
        if named.len() >= CONTAINER_LABELS_MAX {
            return Arc::clone(&OTHERS);
        }
        let series = Self::new(&label);
        named.insert(label, Arc::clone(&series));
        series
    }

    /// The series of requests that are of no container.
    pub fn none() -> &'static Arc<Self> {
        &OF_NO_CONTAINER
    }

    /// The value of the label `container`.
    pub fn label(&self) -> &str {
        &self.label
    }

    pub(super) fn answered(
        &self,
        operation: Operation,
        status: usize,
        duration: Duration,
        charge: Option<f64>,
    ) {
        let place = operation as usize;
        if let Some(cell) = self.requests.get(place).and_then(|row| row.get(status)) {
            let status = STATUSES.get(status).copied().unwrap_or("other");
            let labels = [&self.label, operation.text(), status];
            cell.get_or_init(|| table::REQUESTS.counter(&labels))
                .increment(1);
        }
        if let Some(cell) = self.durations.get(place) {
            let labels = [&self.label, operation.text()];
            cell.get_or_init(|| table::REQUEST_DURATION.histogram(&labels))
                .record(duration);
        }
        if let Some(charge) = charge {
            let series = self
                .charge
                .get_or_init(|| table::REQUEST_CHARGE.histogram(&[&self.label]));
            series.record(charge);
        }
    }

    /// Rare, so nothing is kept for it.
    pub(super) fn throttled(&self, reason: Throttle) {
        table::REQUESTS_THROTTLED
            .counter(&[&self.label, reason.text()])
            .increment(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn containers_beyond_the_bound_share_a_label() {
        let first = ContainerSeries::of("bound", "first");
        assert_eq!(first.label(), "bound/first");
        let labels: Vec<String> = (0..2 * CONTAINER_LABELS_MAX)
            .map(|n| {
                ContainerSeries::of("bound", &n.to_string())
                    .label()
                    .to_owned()
            })
            .collect();
        let own = labels.iter().filter(|label| *label != OTHER).count();
        assert!(own < CONTAINER_LABELS_MAX, "{own}");
        assert_eq!(labels.last().map(String::as_str), Some(OTHER));
        assert_eq!(ContainerSeries::of("bound", "first").label(), "bound/first");
    }
}
