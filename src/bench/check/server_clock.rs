//! What the servers' clocks may show at a moment of this machine's clock.

use std::sync::{Mutex, PoisonError};

/// How old the second in a server's `date` header may be, in seconds: servers keep it for a while.
const DATE_AGE_MAX: f64 = 1.0;
/// How far the clocks may be apart before anything was heard from a server.
const OFFSET_MAX: f64 = 900.0;

/// How far the server's clock is ahead of ours, at the least and at the most.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClockOffset {
    pub low: f64,
    pub high: f64,
}

impl ClockOffset {
    const NONE: Self = Self {
        low: 0.0,
        high: 0.0,
    };

    /// Returns the moment of our clock at which the server's has surely come to this second.
    pub fn surely_reached(self, second: u64) -> f64 {
        second as f64 - self.low
    }

    /// Returns the first moment of our clock at which the server's may have come to this second.
    pub fn may_be_reached(self, second: u64) -> f64 {
        second as f64 - self.high
    }
}

/// One offset for each endpoint. On this machine there is none.
#[derive(Debug)]
pub struct ServerClock {
    offsets: Mutex<Vec<ClockOffset>>,
    /// All endpoints are on this machine: nothing has to be learnt.
    is_own: bool,
}

impl ServerClock {
    /// For servers on this machine.
    #[cfg(test)]
    pub fn own() -> Self {
        Self::new(&[true])
    }

    /// For each endpoint, whether it is on this machine.
    pub fn new(own: &[bool]) -> Self {
        let offset = |is_own: &bool| match is_own {
            true => ClockOffset::NONE,
            false => ClockOffset {
                low: -OFFSET_MAX,
                high: OFFSET_MAX,
            },
        };
        Self {
            offsets: Mutex::new(own.iter().map(offset).collect()),
            is_own: own.iter().all(|is_own| *is_own),
        }
    }

    /// Whether answers say something that is not known yet.
    pub fn learns(&self) -> bool {
        !self.is_own
    }

    /// An endpoint answered with this second in its `date` header; sent and answered are ours.
    pub fn learn(&self, endpoint: usize, date: u64, sent: f64, answered: f64) {
        let date = date as f64;
        let mut offsets = self.offsets.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(offset) = offsets.get_mut(endpoint)
            && offset.low < offset.high
        {
            // The header was made before the answer came, and not much before the request went.
            offset.low = offset.low.max(date - answered);
            offset.high = offset.high.min(date + 1.0 + DATE_AGE_MAX - sent);
        }
    }

    /// Returns how far the clock of any server may be ahead of ours.
    pub fn offset(&self) -> ClockOffset {
        if self.is_own {
            return ClockOffset::NONE;
        }
        let offsets = self.offsets.lock().unwrap_or_else(PoisonError::into_inner);
        let low = offsets.iter().map(|offset| offset.low);
        let high = offsets.iter().map(|offset| offset.high);
        ClockOffset {
            low: low.fold(f64::INFINITY, f64::min),
            high: high.fold(f64::NEG_INFINITY, f64::max),
        }
    }

    /// The earliest second that any server may have shown at this moment or later.
    pub fn earliest(&self, moment: f64) -> u64 {
        (moment + self.offset().low).max(0.0) as u64
    }

    /// The latest second that any server may have shown at this moment or earlier.
    pub fn latest(&self, moment: f64) -> u64 {
        (moment + self.offset().high) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machines_clock_is_known_to_the_second() {
        let clock = ServerClock::own();
        clock.learn(0, 5, 100.0, 100.1);
        assert_eq!(clock.earliest(100.9), 100);
        assert_eq!(clock.latest(100.9), 100);
        assert!(!clock.learns());
    }

    #[test]
    fn another_clock_is_learnt_from_the_dates_of_its_answers() {
        let clock = ServerClock::new(&[false]);
        assert!(clock.learns());
        // The server is 50 s ahead; its header may be up to a second old.
        for step in 0..200_u32 {
            let sent = 1_000.0 + f64::from(step) * 0.013;
            let answered = sent + 0.004;
            let date = (sent + 0.002 + 50.0 - f64::from(step % 2)).floor() as u64;
            clock.learn(0, date, sent, answered);
        }
        let (earliest, latest) = (clock.earliest(2_000.5), clock.latest(2_000.5));
        assert!((2_049..=2_050).contains(&earliest), "{earliest}");
        assert!((2_050..=2_052).contains(&latest), "{latest}");
    }

    #[test]
    fn with_several_servers_the_slowest_and_the_fastest_count() {
        let clock = ServerClock::new(&[true, false]);
        clock.learn(1, 110, 100.0, 100.0);
        assert_eq!(clock.earliest(100.0), 100);
        assert_eq!(clock.latest(100.0), 112);
    }
}
