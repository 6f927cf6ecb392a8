//! What the container's default time to live was when, as far as the driver can know.

use super::server_clock::ClockOffset;

/// In seconds, or none: items that inherit never expire.
pub type DefaultSeconds = Option<u64>;

/// The defaults since the run began. A change is in force at the earliest when it was sent, at the
/// latest when it was answered. Both are moments of the driver's clock, not seconds: a request
/// that was sent earlier in the second of the answer may have been served before the change.
#[derive(Clone, Debug)]
pub struct DefaultTtls {
    periods: Vec<Period>,
}

#[derive(Clone, Copy, Debug)]
struct Period {
    default: DefaultSeconds,
    possible_from: f64,
    possible_until: f64,
    certain_from: f64,
    certain_until: f64,
}

impl DefaultTtls {
    pub fn new(default: DefaultSeconds) -> Self {
        Self {
            periods: vec![Period {
                default,
                possible_from: f64::NEG_INFINITY,
                possible_until: f64::INFINITY,
                certain_from: f64::NEG_INFINITY,
                certain_until: f64::INFINITY,
            }],
        }
    }

    /// A change is sent at this moment.
    pub fn sent(&mut self, default: DefaultSeconds, moment: f64) {
        if let Some(last) = self.periods.last_mut() {
            last.certain_until = last.certain_until.min(moment);
        }
        self.periods.push(Period {
            default,
            possible_from: moment,
            possible_until: f64::INFINITY,
            certain_from: f64::INFINITY,
            certain_until: f64::INFINITY,
        });
    }

    /// The last change was answered before this moment. Without an answer nothing is certain until
    /// the next change has one.
    pub fn answered(&mut self, moment: f64) {
        if let Some((last, before)) = self.periods.split_last_mut() {
            last.certain_from = moment;
            for period in before {
                period.possible_until = period.possible_until.min(moment);
            }
        }
    }

    /// Returns the moment from which on an item that inherits, written in this second or earlier,
    /// is gone for sure for requests that are sent after it; none if that is later than `sent`.
    pub fn surely_gone(&self, written: u64, server: ClockOffset, sent: f64) -> Option<f64> {
        let gone = self.periods.iter().filter_map(|period| {
            let due = written.checked_add(period.default?)?;
            let moment = server.surely_reached(due).max(period.certain_from);
            (moment <= period.certain_until.min(sent)).then_some(moment)
        });
        gone.min_by(f64::total_cmp)
    }

    /// Returns whether an item that inherits, written in this second or later, may have expired
    /// before an answer that came at `answered`.
    pub fn may_be_gone(&self, written: u64, server: ClockOffset, answered: f64) -> bool {
        self.periods.iter().any(|period| {
            let due = period
                .default
                .and_then(|default| written.checked_add(default));
            due.is_some_and(|due| {
                server.may_be_reached(due) <= period.possible_until.min(answered)
                    && period.possible_from <= answered
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The server's clock is the driver's.
    const SAME: ClockOffset = ClockOffset {
        low: 0.0,
        high: 0.0,
    };

    #[test]
    fn one_default_decides_alone() {
        let defaults = DefaultTtls::new(Some(10));
        assert_eq!(defaults.surely_gone(100, SAME, 109.999), None);
        assert_eq!(defaults.surely_gone(100, SAME, 115.0), Some(110.0));
        assert!(!defaults.may_be_gone(100, SAME, 109.999));
        assert!(defaults.may_be_gone(100, SAME, 110.0));
        let off = DefaultTtls::new(None);
        assert_eq!(off.surely_gone(0, SAME, f64::MAX), None);
        assert!(!off.may_be_gone(0, SAME, f64::MAX));
    }

    #[test]
    fn a_clock_that_is_not_known_widens_both_ways() {
        let defaults = DefaultTtls::new(Some(10));
        let server = ClockOffset {
            low: -2.0,
            high: 3.0,
        };
        assert_eq!(defaults.surely_gone(100, server, 111.9), None);
        assert_eq!(defaults.surely_gone(100, server, 112.0), Some(112.0));
        assert!(!defaults.may_be_gone(100, server, 106.9));
        assert!(defaults.may_be_gone(100, server, 107.0));
    }

    #[test]
    fn expiry_is_final_when_the_default_is_raised() {
        let mut defaults = DefaultTtls::new(Some(10));
        defaults.sent(Some(1_000), 120.5);
        defaults.answered(121.5);
        // Due at 110 under the old default, long before the change.
        assert_eq!(defaults.surely_gone(100, SAME, 130.0), Some(110.0));
        // Due at 121 under the old default: depends on when the change took effect.
        assert_eq!(defaults.surely_gone(111, SAME, 130.0), None);
        assert!(defaults.may_be_gone(111, SAME, 130.0));
        // Due at 125 under the old default, which was no longer in force then.
        assert!(!defaults.may_be_gone(115, SAME, 130.0));
        assert_eq!(defaults.surely_gone(115, SAME, 1_115.0), Some(1_115.0));
    }

    #[test]
    fn a_lowered_default_takes_effect_between_request_and_answer() {
        let mut defaults = DefaultTtls::new(Some(1_000));
        defaults.sent(Some(5), 120.25);
        assert!(!defaults.may_be_gone(100, SAME, 120.0));
        assert!(defaults.may_be_gone(100, SAME, 120.5));
        assert_eq!(defaults.surely_gone(100, SAME, 200.0), None);
        defaults.answered(122.5);
        assert_eq!(defaults.surely_gone(100, SAME, 200.0), Some(122.5));
        assert!(!defaults.may_be_gone(120, SAME, 124.9));
        assert!(defaults.may_be_gone(120, SAME, 125.0));
    }

    /// The answer to a lowered default came at 567.7: a read that was sent at 567.673 may have been
    /// served before the change, one that was sent at 567.71 was not.
    #[test]
    fn a_request_sent_before_the_answer_in_the_same_second_is_not_sent_after_it() {
        let mut defaults = DefaultTtls::new(None);
        defaults.sent(Some(5), 567.6);
        defaults.answered(567.7);
        assert_eq!(defaults.surely_gone(500, SAME, 567.673), None);
        assert_eq!(defaults.surely_gone(500, SAME, 567.71), Some(567.7));
    }

    /// The change that raises the default is sent at 567.4: an item that is due in second 567 was
    /// gone before, one that is due in second 568 depends on the answer.
    #[test]
    fn a_raised_default_saves_nothing_that_was_due_before_it_was_sent() {
        let mut defaults = DefaultTtls::new(Some(7));
        defaults.sent(None, 567.4);
        defaults.answered(567.9);
        assert_eq!(defaults.surely_gone(560, SAME, 567.95), Some(567.0));
        assert_eq!(defaults.surely_gone(561, SAME, 600.0), None);
        assert!(!defaults.may_be_gone(561, SAME, 600.0));
    }

    #[test]
    fn a_change_without_an_answer_leaves_both_possible() {
        let mut defaults = DefaultTtls::new(Some(5));
        defaults.sent(None, 120.0);
        assert!(defaults.may_be_gone(120, SAME, 125.0));
        assert_eq!(defaults.surely_gone(120, SAME, 300.0), None);
        defaults.sent(Some(7), 200.0);
        defaults.answered(200.5);
        assert_eq!(defaults.surely_gone(120, SAME, 300.0), Some(200.5));
        assert!(!defaults.may_be_gone(199, SAME, 205.9));
        assert!(defaults.may_be_gone(199, SAME, 206.0));
    }
}
