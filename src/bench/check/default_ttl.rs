//! What the container's default time to live was when, as far as the driver can know.

/// In seconds, or none: items that inherit never expire.
pub type Default = Option<u64>;

/// The defaults since the run began. Seconds are those of the server's clock; a change is in force
/// at the earliest when it was sent, at the latest when it was answered.
#[derive(Clone, Debug)]
pub struct DefaultTtls {
    periods: Vec<Period>,
}

#[derive(Clone, Copy, Debug)]
struct Period {
    default: Default,
    possible_from: u64,
    possible_until: u64,
    certain_from: u64,
    certain_until: u64,
}

impl DefaultTtls {
    pub fn new(default: Default) -> Self {
        Self {
            periods: vec![Period {
                default,
                possible_from: 0,
                possible_until: u64::MAX,
                certain_from: 0,
                certain_until: u64::MAX,
            }],
        }
    }

    /// A change was sent in this second at the earliest.
    pub fn sent(&mut self, default: Default, second: u64) {
        if let Some(last) = self.periods.last_mut() {
            last.certain_until = last.certain_until.min(second);
        }
        self.periods.push(Period {
            default,
            possible_from: second,
            possible_until: u64::MAX,
            certain_from: u64::MAX,
            certain_until: u64::MAX,
        });
    }

    /// The last change was answered in this second at the latest. Without an answer nothing is
    /// certain until the next change has one.
    pub fn answered(&mut self, second: u64) {
        if let Some((last, before)) = self.periods.split_last_mut() {
            last.certain_from = second;
            for period in before {
                period.possible_until = period.possible_until.min(second);
            }
        }
    }

    /// From which second on an item that inherits, written no later than `written`, is gone for
    /// sure; nothing if that has not happened up to `now`.
    pub fn surely_gone(&self, written: u64, now: u64) -> Option<u64> {
        let gone = self.periods.iter().filter_map(|period| {
            let due = written.checked_add(period.default?)?;
            let second = due.max(period.certain_from);
            (second <= period.certain_until.min(now)).then_some(second)
        });
        gone.min()
    }

    /// Whether an item that inherits, written no earlier than `written`, may have expired up to
    /// `now`.
    pub fn may_be_gone(&self, written: u64, now: u64) -> bool {
        self.periods.iter().any(|period| {
            let due = period
                .default
                .and_then(|default| written.checked_add(default));
            due.is_some_and(|due| {
                due <= period.possible_until.min(now) && period.possible_from <= now
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_default_decides_alone() {
        let defaults = DefaultTtls::new(Some(10));
        assert_eq!(defaults.surely_gone(100, 109), None);
        assert_eq!(defaults.surely_gone(100, 115), Some(110));
        assert!(!defaults.may_be_gone(100, 109));
        assert!(defaults.may_be_gone(100, 110));
        let off = DefaultTtls::new(None);
        assert_eq!(off.surely_gone(0, u64::MAX), None);
        assert!(!off.may_be_gone(0, u64::MAX));
    }

    #[test]
    fn expiry_is_final_when_the_default_is_raised() {
        let mut defaults = DefaultTtls::new(Some(10));
        defaults.sent(Some(1_000), 120);
        defaults.answered(121);
        // Due at 110 under the old default, long before the change.
        assert_eq!(defaults.surely_gone(100, 130), Some(110));
        // Due at 121 under the old default: depends on when the change took effect.
        assert_eq!(defaults.surely_gone(111, 130), None);
        assert!(defaults.may_be_gone(111, 130));
        // Due at 125 under the old default, which was no longer in force then.
        assert!(!defaults.may_be_gone(115, 130));
        assert_eq!(defaults.surely_gone(115, 1_115), Some(1_115));
    }

    #[test]
    fn a_lowered_default_takes_effect_between_request_and_answer() {
        let mut defaults = DefaultTtls::new(Some(1_000));
        defaults.sent(Some(5), 120);
        assert!(defaults.may_be_gone(100, 120));
        assert_eq!(defaults.surely_gone(100, 200), None);
        defaults.answered(122);
        assert_eq!(defaults.surely_gone(100, 200), Some(122));
        assert!(!defaults.may_be_gone(120, 124));
        assert!(defaults.may_be_gone(120, 125));
    }

    #[test]
    fn a_change_without_an_answer_leaves_both_possible() {
        let mut defaults = DefaultTtls::new(Some(5));
        defaults.sent(None, 120);
        assert!(defaults.may_be_gone(120, 125));
        assert_eq!(defaults.surely_gone(120, 300), None);
        defaults.sent(Some(7), 200);
        defaults.answered(200);
        assert_eq!(defaults.surely_gone(120, 300), Some(200));
        assert!(!defaults.may_be_gone(199, 205));
        assert!(defaults.may_be_gone(199, 206));
    }
}
