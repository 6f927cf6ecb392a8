//! A container's provisioned throughput as a bucket of request units that fills up every second.

use std::sync::Mutex;

use crate::model::error::{Error, ErrorKind};

/// Request units, spent after the fact: a request is let in while the bucket is not overdrawn.
pub struct Budget {
    /// `None`: not enforced.
    per_second: Option<f64>,
    bucket: Mutex<Bucket>,
}

struct Bucket {
    second: i64,
    left: f64,
}

impl Budget {
    pub fn new(per_second: Option<u32>) -> Self {
        let per_second = per_second.map(f64::from);
        Self {
            per_second,
            bucket: Mutex::new(Bucket {
                second: i64::MIN,
                left: 0.0,
            }),
        }
    }

    /// Lets a request in, or says when to come back.
    pub fn admit(&self, now: i64) -> Result<(), Error> {
        let Some(per_second) = self.per_second else {
            return Ok(());
        };
        let Ok(mut bucket) = self.bucket.lock() else {
            return Ok(());
        };
        if bucket.second < now {
            // Units that were not used are lost; a debt is carried on.
            let debt = bucket.left.min(0.0);
            let seconds = (now.saturating_sub(bucket.second)) as f64;
            bucket.left = (debt + per_second * seconds).min(per_second);
            bucket.second = now;
        }
        if bucket.left > 0.0 {
            return Ok(());
        }
        let wait_ms = 1_000.0 * (1.0 - bucket.left / per_second);
        let mut error = Error::new(
            ErrorKind::TooManyRequests,
            format!(
                "Request rate is large: the container's {per_second} request units of this second are spent"
            ),
        );
        error.retry_after_ms = Some(wait_ms.min(60_000.0) as u32);
        Err(error)
    }

    /// Takes what a request has cost.
    pub fn spend(&self, charge: f64) {
        if self.per_second.is_some()
            && let Ok(mut bucket) = self.bucket.lock()
        {
            bucket.left -= charge;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spent_second_is_refused_and_the_next_one_is_not() {
        let budget = Budget::new(Some(400));
        assert!(budget.admit(10).is_ok());
        budget.spend(400.0);
        let error = budget.admit(10).unwrap_err();
        assert_eq!((error.status(), error.substatus()), (429, 3200));
        assert!(error.retry_after_ms.is_some_and(|wait| wait > 0));
        assert!(budget.admit(11).is_ok());
    }

    #[test]
    fn a_debt_is_paid_before_anything_is_let_in() {
        let budget = Budget::new(Some(400));
        assert!(budget.admit(10).is_ok());
        budget.spend(1_300.0);
        assert!(budget.admit(11).is_err());
        assert!(budget.admit(12).is_err());
        assert!(budget.admit(13).is_ok());
    }

    #[test]
    fn without_enforcement_nothing_is_refused() {
        let budget = Budget::new(None);
        budget.spend(1e9);
        assert!(budget.admit(10).is_ok());
    }
}
