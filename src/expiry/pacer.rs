//! How much of its time the purger may take.

use std::time::Duration;

/// The share of time that the purger may work while it keeps up, in percent.
const DUTY_PERCENT_MIN: u64 = 25;
/// The share it may take when it has fallen far behind.
const DUTY_PERCENT_MAX: u64 = 75;
/// How many more percent each second of lag adds.
const DUTY_PERCENT_PER_LAG_SECOND: u64 = 1;

/// Returns the share of time that the purger may work, in percent: more when expiry has fallen
/// behind, less when users are at work.
pub fn duty_percent(lag_seconds: i64, users_waiting: bool) -> u64 {
    let lag = u64::try_from(lag_seconds).unwrap_or(0);
    let mut duty =
        (DUTY_PERCENT_MIN + lag.saturating_mul(DUTY_PERCENT_PER_LAG_SECOND)).min(DUTY_PERCENT_MAX);
    if users_waiting {
        duty /= 2;
    }
    duty
}

/// Returns how long to rest after a slice that took `worked`.
pub fn rest_after(worked: Duration, duty_percent: u64) -> Duration {
    let duty = duty_percent.clamp(1, 100);
    worked.mul_f64((100 - duty) as f64 / duty as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_works_more_the_further_it_is_behind_and_half_as_much_beside_users() {
        let lags = [-5, 0, 10, 49, 50, i64::MAX];
        assert_eq!(
            lags.map(|lag| duty_percent(lag, false)),
            [25, 25, 35, 74, 75, 75]
        );
        assert_eq!(
            lags.map(|lag| duty_percent(lag, true)),
            [12, 12, 17, 37, 37, 37]
        );
    }

    #[test]
    fn rest_and_work_have_the_shares_that_the_duty_says() {
        let worked = Duration::from_millis(100);
        let rests = [0, 25, 50, 100, 200].map(|duty| rest_after(worked, duty).as_millis());
        assert_eq!(rests, [9_900, 300, 100, 0, 0]);
    }
}
