//! Expiry: what readers see of it, what is scheduled, how late the purger is.

use std::{
    sync::{LazyLock, Mutex, PoisonError},
    time::{Duration, Instant},
};

use metrics::{Counter, Histogram};

use super::{labels::Horizon, table};

static CHECKED: LazyLock<Counter> = LazyLock::new(|| table::ANSWERS_CHECKED.counter(&[]));
static LATE: LazyLock<Counter> = LazyLock::new(|| table::ANSWERS_LATE.counter(&[]));
static PURGE_LAG: LazyLock<Histogram> = LazyLock::new(|| table::PURGE_LAG.histogram(&[]));
static CLOCK_JUMPS: LazyLock<Counter> = LazyLock::new(|| table::CLOCK_JUMPS.counter(&[]));
static SCHEDULED: LazyLock<Vec<Counter>> = LazyLock::new(|| {
    let horizons = Horizon::TEXTS.iter();
    horizons
        .map(|horizon| table::SCHEDULED.counter(&[horizon]))
        .collect()
});
static VISIBLE_LAG: LazyLock<Highest> = LazyLock::new(|| Highest::new(Instant::now()));

/// Makes the series known before there is anything to count.
pub(super) fn register() {
    LazyLock::force(&CHECKED);
    LazyLock::force(&LATE);
    LazyLock::force(&PURGE_LAG);
    LazyLock::force(&CLOCK_JUMPS);
    LazyLock::force(&SCHEDULED);
}

/// An answer is complete and leaves at the second `now`; the first of its items to expire falls due at `due`.
pub fn answered(due: i64, now: i64) {
    CHECKED.increment(1);
    if now > due {
        LATE.increment(1);
        VISIBLE_LAG.note(now - due, Instant::now());
    }
}

/// By how many seconds answers were late in the last one to two windows, at most.
pub fn visible_lag_seconds() -> i64 {
    VISIBLE_LAG.highest(Instant::now())
}

/// This many items left the store, this long after the second in which they fell due.
pub fn purged(lag_seconds: f64, items: usize) {
    PURGE_LAG.record_many(lag_seconds, items);
}

/// An item was written that falls due in this many seconds; `None`: never.
pub fn scheduled(seconds: Option<i64>) {
    let horizon = match seconds {
        None => Horizon::Never,
        Some(..=60) => Horizon::Minute,
        Some(..=3_600) => Horizon::Hour,
        Some(..=86_400) => Horizon::Day,
        Some(..=604_800) => Horizon::Week,
        Some(_) => Horizon::Later,
    };
    if let Some(series) = SCHEDULED.get(horizon as usize) {
        series.increment(1);
    }
}

pub fn clock_jumped() {
    CLOCK_JUMPS.increment(1);
}

/// How long a highest value is remembered, at least; at most twice as long.
const WINDOW: Duration = Duration::from_secs(60);

/// The highest value of the last one to two windows: it goes back by itself, and whoever asks changes nothing for others who ask.
struct Highest(Mutex<Windows>);

struct Windows {
    begun: Instant,
    current: i64,
    previous: i64,
}

impl Highest {
    fn new(now: Instant) -> Self {
        Self(Mutex::new(Windows {
            begun: now,
            current: 0,
            previous: 0,
        }))
    }

    fn note(&self, value: i64, now: Instant) {
        self.at(now, |windows| windows.current = windows.current.max(value));
    }

    fn highest(&self, now: Instant) -> i64 {
        self.at(now, |windows| windows.current.max(windows.previous))
    }

    fn at<T>(&self, now: Instant, act: impl FnOnce(&mut Windows) -> T) -> T {
        let mut windows = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let passed = now.saturating_duration_since(windows.begun);
        if passed >= WINDOW {
            let previous = if passed < 2 * WINDOW {
                windows.current
            } else {
                0
            };
            *windows = Windows {
                begun: now,
                current: 0,
                previous,
            };
        }
        act(&mut windows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_is_remembered_for_a_window_and_then_forgotten() {
        let begun = Instant::now();
        let at = |seconds| begun + Duration::from_secs(seconds);
        let highest = Highest::new(begun);
        assert_eq!(highest.highest(at(1)), 0);
        highest.note(3, at(10));
        highest.note(2, at(11));
        assert_eq!(highest.highest(at(59)), 3);
        assert_eq!(highest.highest(at(70)), 3);
        highest.note(1, at(80));
        assert_eq!(highest.highest(at(129)), 3);
        assert_eq!(highest.highest(at(131)), 1);
        assert_eq!(highest.highest(at(900)), 0);
    }
}
