//! Notices when the wall clock is ahead of where it should be: since the start by the monotonic clock, at start by the stored second.

use std::time::Duration;

use super::whole_seconds;

/// Compares the wall clock with the monotonic one.
///
/// A jump forward pauses purging until an operator confirms it or it has lasted: a broken clock must not destroy data.
pub struct JumpGuard {
    bound: Duration,
    hold: Duration,
    /// Wall seconds minus monotonic seconds, as trusted.
    offset: i64,
    suspect_since: Option<Duration>,
}

/// What the guard found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Steady,
    /// The wall clock is this many seconds ahead of where it should be.
    Suspect {
        ahead_seconds: i64,
    },
    /// A suspect jump has lasted long enough to be believed, or went away.
    Settled,
}

impl JumpGuard {
    /// Trusts that the wall clock shows about `expected` now.
    pub fn new(bound: Duration, hold: Duration, expected: i64, monotonic: Duration) -> Self {
        Self {
            bound,
            hold,
            offset: expected - whole_seconds(monotonic),
            suspect_since: None,
        }
    }

    /// Takes one reading of both clocks.
    pub fn observe(&mut self, wall: i64, monotonic: Duration) -> Verdict {
        let offset = wall - whole_seconds(monotonic);
        let ahead_seconds = offset - self.offset;
        if ahead_seconds <= self.bound_seconds() {
            // Small corrections are followed, so that they do not add up to a jump.
            self.offset = offset;
            return if self.suspect_since.take().is_some() {
                Verdict::Settled
            } else {
                Verdict::Steady
            };
        }
        let since = *self.suspect_since.get_or_insert(monotonic);
        if monotonic.saturating_sub(since) >= self.hold {
            self.confirm(wall, monotonic);
            return Verdict::Settled;
        }
        Verdict::Suspect { ahead_seconds }
    }

    /// An operator says that the time is right.
    pub fn confirm(&mut self, wall: i64, monotonic: Duration) {
        self.offset = wall - whole_seconds(monotonic);
        self.suspect_since = None;
    }

    pub fn bound_seconds(&self) -> i64 {
        whole_seconds(self.bound)
    }

    /// Returns how long a suspect time must still last to be believed.
    pub fn hold_left(&self, monotonic: Duration) -> Option<Duration> {
        let since = self.suspect_since?;
        Some(self.hold.saturating_sub(monotonic.saturating_sub(since)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUND: Duration = Duration::from_secs(60);
    const HOLD: Duration = Duration::from_secs(300);

    fn guard() -> JumpGuard {
        JumpGuard::new(BOUND, HOLD, 1_000, Duration::ZERO)
    }

    #[test]
    fn a_jump_is_suspect_until_it_has_lasted() {
        let mut guard = guard();
        let seconds = Duration::from_secs;
        assert_eq!(guard.observe(1_010, seconds(10)), Verdict::Steady);
        assert_eq!(
            guard.observe(1_111, seconds(11)),
            Verdict::Suspect { ahead_seconds: 100 }
        );
        assert_eq!(
            guard.observe(1_400, seconds(300)),
            Verdict::Suspect { ahead_seconds: 100 }
        );
        assert_eq!(guard.hold_left(seconds(300)), Some(seconds(11)));
        assert_eq!(guard.observe(1_411, seconds(311)), Verdict::Settled);
        assert_eq!(guard.observe(1_412, seconds(312)), Verdict::Steady);
        assert_eq!(guard.hold_left(seconds(312)), None);
    }

    #[test]
    fn a_wall_clock_that_is_far_from_the_stored_second_is_suspect_from_the_start_on() {
        let day = 86_400;
        let mut guard = guard();
        let suspect = Verdict::Suspect { ahead_seconds: day };
        assert_eq!(guard.observe(1_000 + day, Duration::ZERO), suspect);
        let later = Duration::from_secs(299);
        assert_eq!(guard.observe(1_299 + day, later), suspect);
        assert_eq!(guard.observe(1_300 + day, HOLD), Verdict::Settled);
        let mut near = JumpGuard::new(BOUND, HOLD, 1_000, Duration::ZERO);
        assert_eq!(near.observe(1_060, Duration::ZERO), Verdict::Steady);
    }

    #[test]
    fn a_jump_that_is_taken_back_or_confirmed_settles() {
        let mut guard = guard();
        let seconds = Duration::from_secs;
        assert!(matches!(
            guard.observe(9_000, seconds(1)),
            Verdict::Suspect { .. }
        ));
        assert_eq!(guard.observe(1_002, seconds(2)), Verdict::Settled);
        assert!(matches!(
            guard.observe(9_000, seconds(3)),
            Verdict::Suspect { .. }
        ));
        guard.confirm(9_001, seconds(4));
        assert_eq!(guard.observe(9_002, seconds(5)), Verdict::Steady);
    }

    #[test]
    fn small_corrections_do_not_add_up_to_a_jump() {
        let mut guard = guard();
        for step in 1..100 {
            assert_eq!(
                guard.observe(1_000 + step * 31, Duration::from_secs(step as u64)),
                Verdict::Steady
            );
        }
    }
}
