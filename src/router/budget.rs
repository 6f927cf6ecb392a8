//! Provisioned throughput as a bucket of request units that fills up every second: one for each offer, however many containers
//! draw on it.

use std::{
    collections::HashMap,
    sync::{Arc, LazyLock, Mutex},
};

use crate::model::{
    error::{Error, ErrorKind},
    offer::Offer,
    rid::{ContainerRid, DatabaseRid},
};

/// The buckets in use, by the resource ids of their offers.
#[derive(Default)]
pub struct Budgets(HashMap<String, Arc<Budget>>);

impl Budgets {
    /// The bucket that a container's requests draw on: of its own offer, or of the one that its database shares out.
    pub fn of(
        &mut self,
        offers: &HashMap<&str, &Offer>,
        database: DatabaseRid,
        container: ContainerRid,
    ) -> Arc<Budget> {
        if offers.is_empty() {
            return Budget::unlimited();
        }
        let own = offers.get(&*container.self_link());
        match own.or_else(|| offers.get(&*database.self_link())) {
            Some(offer) => {
                let units = offer.throughput.request_units_per_second();
                self.of_offer(&offer.rid, units)
            }
            None => Budget::unlimited(),
        }
    }

    /// The bucket of an offer. It stays the same until the offer changes, so that no change of the catalog fills it up.
    pub fn of_offer(&mut self, rid: &str, per_second: u32) -> Arc<Budget> {
        let per_second = Some(f64::from(per_second));
        match self.0.get(rid) {
            Some(budget) if budget.per_second == per_second => Arc::clone(budget),
            _ => {
                let budget = Arc::new(Budget::new(per_second));
                self.0.insert(rid.to_owned(), Arc::clone(&budget));
                budget
            }
        }
    }

    /// Forgets the buckets that nobody draws on any more.
    pub fn retain_shared(&mut self) {
        self.0.retain(|_, budget| Arc::strong_count(budget) > 1);
    }
}

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
    /// Lets everybody in. The same for all containers, so that it can be told from another one.
    pub fn unlimited() -> Arc<Self> {
        static UNLIMITED: LazyLock<Arc<Budget>> = LazyLock::new(|| Arc::new(Budget::new(None)));
        Arc::clone(&UNLIMITED)
    }

    fn new(per_second: Option<f64>) -> Self {
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
                "Request rate is large: the {per_second} provisioned request units of this second are spent"
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
    use crate::model::offer::Throughput;

    #[test]
    fn a_container_draws_on_its_own_offer_or_on_that_of_its_database() {
        let database = DatabaseRid(1);
        let container = |ordinal| ContainerRid { database, ordinal };
        let offer = |rid: &str, resource: String| Offer {
            rid: rid.to_owned(),
            resource_rid: String::new(),
            resource,
            throughput: Throughput::default(),
        };
        let shared = offer("shared", database.self_link());
        let own = offer("own", container(1).self_link());
        let offers = [&shared, &own].map(|offer| (&*offer.resource, offer));
        let offers = HashMap::from(offers);
        let mut budgets = Budgets::default();
        let [one, two, three] = [1, 2, 3].map(|ordinal| {
            let container = container(ordinal);
            budgets.of(&offers, database, container)
        });
        assert!(Arc::ptr_eq(&two, &three) && !Arc::ptr_eq(&one, &two));
        // The next version of the catalog finds the same ones.
        assert!(Arc::ptr_eq(
            &one,
            &budgets.of(&offers, database, container(1))
        ));
        let free = budgets.of(&HashMap::new(), database, container(1));
        assert!(Arc::ptr_eq(&free, &Budget::unlimited()));
    }

    #[test]
    fn a_spent_second_is_refused_and_the_next_one_is_not() {
        let budget = Budget::new(Some(400.0));
        assert!(budget.admit(10).is_ok());
        budget.spend(400.0);
        let error = budget.admit(10).unwrap_err();
        assert_eq!((error.status(), error.substatus()), (429, 3200));
        assert!(error.retry_after_ms.is_some_and(|wait| wait > 0));
        assert!(budget.admit(11).is_ok());
    }

    #[test]
    fn a_debt_is_paid_before_anything_is_let_in() {
        let budget = Budget::new(Some(400.0));
        assert!(budget.admit(10).is_ok());
        budget.spend(1_300.0);
        assert!(budget.admit(11).is_err());
        assert!(budget.admit(12).is_err());
        assert!(budget.admit(13).is_ok());
    }

    #[test]
    fn one_offer_has_one_bucket_until_it_changes() {
        let mut budgets = Budgets::default();
        let first = budgets.of_offer("a", 400);
        assert!(first.admit(10).is_ok());
        first.spend(500.0);
        assert!(budgets.of_offer("a", 400).admit(10).is_err());
        assert!(budgets.of_offer("b", 400).admit(10).is_ok());
        assert!(budgets.of_offer("a", 800).admit(10).is_ok());
        drop(first);
        budgets.retain_shared();
        assert!(budgets.0.is_empty());
    }

    #[test]
    fn without_enforcement_nothing_is_refused() {
        let budget = Budget::new(None);
        budget.spend(1e9);
        assert!(budget.admit(10).is_ok());
    }
}
