//! How fresh a replica is, and how a reader waits until it is fresh enough.

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
    cluster::raft::read_index::ReadIndex,
    model::error::{Error, Result},
};

/// How long a reader waits for the read index, and for this replica to apply it.
const READ_INDEX_TIMEOUT: Duration = Duration::from_secs(5);

/// How fresh a read must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freshness {
    /// The state of this replica, once it has caught up after the node was away.
    Any,
    /// At most so far behind, in log entries and in time.
    Bounded { entries: u64, time: Duration },
    /// All that was acknowledged before the read.
    Newest,
}

/// The safe time of a strong read: the leader and a quorum had reached it. `None` for other reads,
/// and on a standalone node.
pub type SafeTime = Option<i64>;

/// What a replica knows of its freshness.
pub(super) struct Currency {
    start: Instant,
    applied: AtomicU64,
    waiting: Mutex<Vec<(u64, oneshot::Sender<()>)>>,
    /// The epoch of the node's lease in which the replica has caught up.
    caught_up: AtomicU64,
    /// All that was committed by this time is applied, in milliseconds after the start.
    confirmed: AtomicU64,
    /// The last read index.
    read_index: AtomicU64,
}

impl Default for Currency {
    fn default() -> Self {
        Self {
            start: Instant::now(),
            applied: AtomicU64::new(0),
            waiting: Mutex::default(),
            caught_up: AtomicU64::new(0),
            confirmed: AtomicU64::new(0),
            read_index: AtomicU64::new(0),
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

    /// Notes that the entries up to this one are visible.
    pub fn set_applied(&self, index: u64) {
        self.applied.store(index, Ordering::Release);
        let mut waiting = self.waiting();
        for (_, reader) in waiting.extract_if(.., |(wanted, _)| *wanted <= index) {
            let _ = reader.send(());
        }
    }

    /// Waits until an index is applied.
    pub async fn reach(&self, index: u64) {
        let (reader, reached) = oneshot::channel();
        {
            let mut waiting = self.waiting();
            // Under the lock, so that `set_applied` finds the reader.
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
                let behind = self.read_index.load(Ordering::Acquire);
                let age = self.millis(now).saturating_sub(confirmed);
                caught_up
                    && u128::from(age) < time.as_millis()
                    && behind.saturating_sub(self.applied()) <= entries
            }
        }
    }

    /// Notes that all that was committed at the time of a request is applied.
    fn confirm(&self, requested: Instant, index: u64, epoch: u64) {
        self.read_index.fetch_max(index, Ordering::AcqRel);
        self.confirmed
            .fetch_max(self.millis(requested), Ordering::AcqRel);
        self.caught_up.store(epoch, Ordering::Release);
    }
}

/// No quorum confirms the read index.
fn unconfirmed() -> Error {
    Error::unavailable(
        "no quorum of the replicas confirms the read index of the partition key range; try again",
    )
}

impl Replica {
    async fn read_index(&self) -> Result<ReadIndex> {
        let answer = timeout(READ_INDEX_TIMEOUT, self.driver.read_index(self.group)).await;
        answer.ok().flatten().ok_or_else(unconfirmed)
    }

    /// Waits until this replica is fresh enough.
    async fn freshen(&self, freshness: Freshness) -> Result<SafeTime> {
        let lease = self.driver.lease();
        let epoch = lease.epoch();
        if !lease.holds() {
            return Err(Error::not_leader(None));
        }
        let requested = Instant::now();
        if self.currency.is(freshness, epoch, requested) {
            return Ok(None);
        }
        let ReadIndex {
            index,
            time,
            safe_time,
            ..
        } = self.read_index().await?;
        let reached = timeout(READ_INDEX_TIMEOUT, self.currency.reach(index)).await;
        reached.map_err(|_| {
            Error::unavailable(format!(
                "this replica of the partition key range is behind entry {index} of its log; try again"
            ))
        })?;
        // Its children may have been written to since; this node does not know them yet.
        if freshness == Freshness::Newest && self.is_cut() {
            return Err(Error::not_leader(None));
        }
        self.currency.confirm(requested, index, epoch);
        if freshness != Freshness::Newest {
            return Ok(None);
        }
        // A quorum has acknowledged the leader's time, so it holds here, too.
        self.view()?.clock.raise(time);
        Ok(Some(safe_time))
    }

    /// Waits until the safe time has reached the time that a read has used here.
    async fn commit_wait(&self, mut safe_time: i64) -> Result<()> {
        let read_time = self.view()?.clock.now();
        let waited = async {
            while safe_time < read_time {
                safe_time = self.read_index().await?.safe_time;
            }
            Ok(())
        };
        timeout(READ_INDEX_TIMEOUT, waited)
            .await
            .map_err(|_| unconfirmed())?
    }
}

impl ShardHandle {
    /// Waits until this replica is fresh enough. A standalone shard always is.
    pub async fn freshen(&self, freshness: Freshness) -> Result<SafeTime> {
        match self.replica() {
            None => Ok(None),
            // Other nodes answer until it is initialized by a snapshot.
            Some(replica) if !replica.is_initialized() => Err(self.not_leader(&self.peers)),
            Some(replica) => replica.freshen(freshness).await,
        }
    }

    /// Commit wait: waits until every later strong read uses a time no earlier than the one that a
    /// read has used here. Usually that holds at once. If the clock has ticked over during the
    /// read, it takes one more ReadIndex round trip.
    pub async fn commit_wait(&self, safe_time: i64) -> Result<()> {
        match self.replica() {
            None => Ok(()),
            Some(replica) => replica.commit_wait(safe_time).await,
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
        currency.read_index.store(151, Ordering::Relaxed);
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
