//! Keeps the agreed time: reads this node's clocks, and publishes the offset of each group.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicI64, Ordering},
    },
};

use super::shared_time::{SharedTime, TimeSync, Voters};
use crate::cluster::{GroupId, NodeId};

/// The clocks of this node, in milliseconds.
pub trait Clocks: Send + Sync {
    fn monotonic(&self) -> i64;
    fn wall(&self) -> i64;
    /// Returns the offset of a group that has no time yet.
    fn offset(&self) -> Offset;
    /// Persists the highest proposed time, as an offset. Returns `false` if it must not be
    /// persisted now.
    fn persist(&self, floor: i64) -> bool;
}

/// The difference between the time of a group and the monotonic clock of this node.
pub type Offset = Arc<AtomicI64>;

pub struct Timekeeper {
    clocks: Box<dyn Clocks>,
    inner: Mutex<Inner>,
}

struct Inner {
    shared: SharedTime,
    offsets: BTreeMap<GroupId, Offset>,
    persisted: Option<i64>,
}

impl Inner {
    /// Persists the floor before anything acknowledges it, unless it must not be persisted.
    fn persist(&mut self, clocks: &dyn Clocks) {
        if let Some(floor) = self.shared.floor()
            && Some(floor) > self.persisted
            && clocks.persist(floor)
        {
            self.persisted = Some(floor);
        }
    }

    fn publish(&mut self) {
        for (group, offset) in self.shared.take_changes().into_iter().flatten() {
            if let Some(shown) = self.offsets.get(group) {
                shown.store(*offset, Ordering::Relaxed);
            }
        }
    }
}

impl Timekeeper {
    /// `floor` is the offset that an earlier process has persisted.
    pub fn new(clocks: Box<dyn Clocks>, node: NodeId, floor: Option<i64>) -> Self {
        Self {
            clocks,
            inner: Mutex::new(Inner {
                shared: SharedTime::new(node, floor),
                offsets: BTreeMap::new(),
                persisted: None,
            }),
        }
    }

    /// Sets the voters of the groups that the node has a replica of.
    pub fn set_groups(&self, groups: Voters) {
        let mut inner = self.inner();
        inner.shared.set_groups(groups);
        inner.publish();
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the offset of a group, which stays up to date.
    pub fn offset(&self, group: GroupId) -> Offset {
        let mut inner = self.inner();
        // Drops offsets that are no longer used.
        inner
            .offsets
            .retain(|_, offset| Arc::strong_count(offset) > 1);
        let known = inner.shared.offset(group);
        let offset = inner.offsets.entry(group);
        let offset = offset.or_insert_with(|| self.clocks.offset());
        if let Some(known) = known {
            offset.store(known, Ordering::Relaxed);
        }
        Arc::clone(offset)
    }

    /// Returns what goes with a message to a node.
    pub fn outgoing(&self, to: NodeId) -> TimeSync {
        let mut inner = self.inner();
        let (monotonic, wall) = (self.clocks.monotonic(), self.clocks.wall());
        let sync = inner.shared.outgoing(to, monotonic, wall);
        inner.persist(&*self.clocks);
        inner.publish();
        sync
    }

    /// Handles what came with a message, before the message itself is handled.
    pub fn receive(&self, from: NodeId, sync: TimeSync) {
        let mut inner = self.inner();
        inner.shared.receive(from, sync, self.clocks.monotonic());
        inner.persist(&*self.clocks);
        inner.publish();
    }
}
