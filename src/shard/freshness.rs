//! How new a replica is, and how it gets as new as a reader wants.

use std::{
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::{sync::oneshot, time::timeout};

use super::{host::ShardHandle, replica::Replica};
use crate::{
    cluster::group::ReadAt,
    model::error::{Error, Result},
};

/// How long a reader waits for a majority to confirm what is newest, and for this replica to have it.
const PATIENCE: Duration = Duration::from_secs(5);

/// How new what a reader sees must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freshness {
    /// As this replica has it, once it has caught up after the node was away.
    Any,
    /// At most so much behind, in entries of the log and in time.
    Bounded { entries: u64, time: Duration },
    /// All that anybody was told of before the reader asked.
    Newest,
}

/// A time that had come for the whole group when a reader asked for what is newest; `None`: the reader wanted less, or there is one node only.
pub type SureTime = Option<i64>;

/// What a replica knows of how new it is.
pub(super) struct Currency {
    start: Instant,
    applied: AtomicU64,
    waiting: Mutex<Vec<(u64, oneshot::Sender<()>)>>,
    /// The lease of the node in which the replica has caught up.
    caught_up: AtomicU64,
    /// The last time, in milliseconds after the start, of which it is known that all that was committed by then is applied.
    confirmed: AtomicU64,
    /// The last index that the leader has told.
    told: AtomicU64,
}

impl Default for Currency {
    fn default() -> Self {
        Self {
            start: Instant::now(),
            applied: AtomicU64::new(0),
            waiting: Mutex::default(),
            caught_up: AtomicU64::new(0),
            confirmed: AtomicU64::new(0),
            told: AtomicU64::new(0),
        }
    }
}

impl Currency {
    fn waiting(&self) -> MutexGuard<'_, Vec<(u64, oneshot::Sender<()>)>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn millis(&self, moment: Instant) -> u64 {
        let passed = moment.saturating_duration_since(self.start);
        u64::try_from(passed.as_millis()).unwrap_or(u64::MAX)
    }

    pub fn applied(&self) -> u64 {
        self.applied.load(Ordering::Acquire)
    }

    /// The entries up to this one are visible.
    pub fn set_applied(&self, index: u64) {
        self.applied.store(index, Ordering::Release);
        let mut waiting = self.waiting();
        for (_, reader) in waiting.extract_if(.., |(wanted, _)| *wanted <= index) {
            let _ = reader.send(());
        }
    }

    pub async fn reach(&self, index: u64) {
        let (reader, reached) = oneshot::channel();
        {
            let mut waiting = self.waiting();
            // Under the lock, so that whoever applies it meanwhile finds the reader.
            if self.applied() >= index {
                return;
            }
            waiting.retain(|(_, reader)| !reader.is_closed());
            waiting.push((index, reader));
        }
        let _ = reached.await;
    }

    fn is(&self, freshness: Freshness, epoch: u64, now: Instant) -> bool {
        let caught_up = self.caught_up.load(Ordering::Acquire) == epoch;
        match freshness {
            Freshness::Newest => false,
            Freshness::Any => caught_up,
            Freshness::Bounded { entries, time } => {
                let confirmed = self.confirmed.load(Ordering::Acquire);
                let behind = self.told.load(Ordering::Acquire);
                let age = self.millis(now).saturating_sub(confirmed);
                caught_up
                    && u128::from(age) < time.as_millis()
                    && behind.saturating_sub(self.applied()) <= entries
            }
        }
    }

    /// All that was committed when somebody asked is applied.
    fn confirm(&self, asked: Instant, index: u64, epoch: u64) {
        self.told.fetch_max(index, Ordering::AcqRel);
        self.confirmed
            .fetch_max(self.millis(asked), Ordering::AcqRel);
        self.caught_up.store(epoch, Ordering::Release);
    }
}

/// No majority answers for long.
fn unconfirmed() -> Error {
    Error::unavailable(
        "no majority of the replicas confirms what is newest in the partition key range; try again",
    )
}

impl Replica {
    async fn newest(&self) -> Result<ReadAt> {
        let answer = timeout(PATIENCE, self.driver.read_index(self.group)).await;
        answer.ok().flatten().ok_or_else(unconfirmed)
    }

    /// Waits until this replica is as new as a reader wants.
    async fn freshen(&self, freshness: Freshness) -> Result<SureTime> {
        let lease = self.driver.lease();
        let epoch = lease.epoch();
        if !lease.holds() {
            return Err(Error::not_leader(None));
        }
        let asked = Instant::now();
        if self.currency.is(freshness, epoch, asked) {
            return Ok(None);
        }
        let ReadAt {
            index, time, sure, ..
        } = self.newest().await?;
        let reached = timeout(PATIENCE, self.currency.reach(index)).await;
        reached.map_err(|_| {
            Error::unavailable(format!(
                "this replica of the partition key range is behind entry {index} of its log; try again"
            ))
        })?;
        // Its parts may have been written to since; this node does not know them yet.
        if freshness == Freshness::Newest && self.is_cut() {
            return Err(Error::not_leader(None));
        }
        self.currency.confirm(asked, index, epoch);
        if freshness != Freshness::Newest {
            return Ok(None);
        }
        // A majority of the voters has heard of the leader's time, so it holds here, too.
        self.view()?.clock.raise(time);
        Ok(Some(sure))
    }

    /// Waits until the time by which a reader has judged here has come for the whole group; `sure` is one that has.
    async fn settle(&self, mut sure: i64) -> Result<()> {
        let judged = self.view()?.clock.now();
        let settled = async {
            while sure < judged {
                sure = self.newest().await?.sure;
            }
            Ok(())
        };
        timeout(PATIENCE, settled)
            .await
            .map_err(|_| unconfirmed())?
    }
}

impl ShardHandle {
    /// Waits until what can be read here is as new as a reader wants. On a node of its own it always is.
    pub async fn freshen(&self, freshness: Freshness) -> Result<SureTime> {
        match self.replica() {
            None => Ok(None),
            // The others fill it; until then they answer.
            Some(replica) if !replica.is_filled() => Err(self.not_leader(&self.peers)),
            Some(replica) => replica.freshen(freshness).await,
        }
    }

    /// Waits until nobody who asks for what is newest from now on judges by an earlier time than somebody who has read here. A second ends seldom between the question and
    /// the answer; then this asks once more.
    pub async fn settle(&self, sure: i64) -> Result<()> {
        match self.replica() {
            None => Ok(()),
            Some(replica) => replica.settle(sure).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDED: Freshness = Freshness::Bounded {
        entries: 100,
        time: Duration::from_secs(5),
    };

    #[test]
    fn bounded_staleness_counts_time_and_entries_and_a_lost_lease() {
        let currency = Currency::default();
        let start = currency.start;
        let seconds = |seconds| start + Duration::from_secs(seconds);
        assert!(
            !currency.is(Freshness::Any, 1, start),
            "it has not caught up"
        );
        currency.set_applied(50);
        currency.confirm(seconds(1), 50, 1);
        assert!(currency.is(Freshness::Any, 1, seconds(100)));
        assert!(currency.is(BOUNDED, 1, seconds(5)));
        assert!(!currency.is(BOUNDED, 1, seconds(6)), "too long ago");
        assert!(!currency.is(Freshness::Newest, 1, seconds(1)));
        currency.told.store(151, Ordering::Relaxed);
        assert!(!currency.is(BOUNDED, 1, seconds(5)), "too much behind");
        currency.set_applied(51);
        assert!(currency.is(BOUNDED, 1, seconds(5)));
        assert!(
            !currency.is(Freshness::Any, 2, seconds(5)),
            "the node was away"
        );
    }

    #[tokio::test]
    async fn readers_wait_until_what_they_want_is_applied() {
        let currency = Currency::default();
        currency.set_applied(3);
        currency.reach(3).await;
        let both = async {
            tokio::task::yield_now().await;
            currency.set_applied(4);
            currency.set_applied(5);
        };
        tokio::join!(currency.reach(5), currency.reach(4), both);
        assert!(currency.waiting().is_empty());
    }
}
