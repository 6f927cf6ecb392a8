//! Keeps the time that the nodes agree on: reads this node's clocks, and tells whoever gives out the time of a group.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicI64, Ordering},
    },
};

use super::{
    GroupId, NodeId,
    shared_time::{SharedTime, Times, Voters},
};

/// The clocks of this node, in milliseconds.
pub trait Clocks: Send + Sync {
    fn monotonic(&self) -> i64;
    fn wall(&self) -> i64;
    /// The offset of a group that has no time yet.
    fn offset(&self) -> Offset;
    /// Keeps what was heard of the time, as an offset, for the next life of the node. `false`: not now.
    fn keep(&self, floor: i64) -> bool;
}

/// What to add to the monotonic clock of this node to get the time of a group.
pub type Offset = Arc<AtomicI64>;

pub struct Timekeeper {
    clocks: Box<dyn Clocks>,
    inner: Mutex<Inner>,
}

struct Inner {
    shared: SharedTime,
    offsets: BTreeMap<GroupId, Offset>,
    kept: Option<i64>,
}

impl Inner {
    /// Nobody is told that something was heard before it is kept, unless it is not to be kept.
    fn keep(&mut self, clocks: &dyn Clocks) {
        if let Some(floor) = self.shared.floor()
            && Some(floor) > self.kept
            && clocks.keep(floor)
        {
            self.kept = Some(floor);
        }
    }

    fn spread_news(&mut self) {
        for (group, offset) in self.shared.take_news().into_iter().flatten() {
            if let Some(shown) = self.offsets.get(group) {
                shown.store(*offset, Ordering::Relaxed);
            }
        }
    }
}

impl Timekeeper {
    /// `floor` is what the node has heard of the time in an earlier life, as an offset.
    pub fn new(clocks: Box<dyn Clocks>, node: NodeId, floor: Option<i64>) -> Self {
        Self {
            clocks,
            inner: Mutex::new(Inner {
                shared: SharedTime::new(node, floor),
                offsets: BTreeMap::new(),
                kept: None,
            }),
        }
    }

    /// From now on these are the voters of the groups that the node has a replica of.
    pub fn set_groups(&self, groups: Voters) {
        let mut inner = self.inner();
        inner.shared.set_groups(groups);
        inner.spread_news();
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The time of a group, from now on.
    pub fn offset(&self, group: GroupId) -> Offset {
        let mut inner = self.inner();
        // Those that nobody looks at any more go.
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

    /// What goes with a parcel for a node.
    pub fn tell(&self, to: NodeId) -> Times {
        let mut inner = self.inner();
        let (monotonic, wall) = (self.clocks.monotonic(), self.clocks.wall());
        let times = inner.shared.tell(to, monotonic, wall);
        inner.keep(&*self.clocks);
        inner.spread_news();
        times
    }

    /// What came with a parcel; before anything is made of the parcel.
    pub fn hear(&self, from: NodeId, times: Times) {
        let mut inner = self.inner();
        inner.shared.hear(from, times, self.clocks.monotonic());
        inner.keep(&*self.clocks);
        inner.spread_news();
    }
}
