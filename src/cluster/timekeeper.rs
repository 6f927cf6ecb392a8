//! Keeps the time that the nodes agree on: reads this node's clocks, and tells whoever gives out the time.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{
    NodeId,
    shared_time::{SharedTime, Times, Voters},
};

/// The clocks of this node, in milliseconds.
pub trait Clocks: Send + Sync {
    fn monotonic(&self) -> i64;
    fn wall(&self) -> i64;
    /// The time is from now on the monotonic clock and this offset.
    fn steer(&self, offset: i64);
}

pub struct Timekeeper {
    clocks: Box<dyn Clocks>,
    shared: Mutex<SharedTime>,
}

impl Timekeeper {
    pub fn new(clocks: Box<dyn Clocks>, node: NodeId) -> Self {
        Self {
            clocks,
            shared: Mutex::new(SharedTime::new(node)),
        }
    }

    /// From now on these are the voters of the groups that the node has a replica of.
    pub fn set_groups(&self, groups: Voters) {
        self.shared().set_groups(groups);
    }

    fn shared(&self) -> MutexGuard<'_, SharedTime> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What goes with a parcel for a node.
    pub fn tell(&self, to: NodeId) -> Times {
        let mut shared = self.shared();
        let times = shared.tell(to, self.clocks.monotonic(), self.clocks.wall());
        self.steer(&shared);
        times
    }

    /// What came with a parcel; before anything is made of the parcel.
    pub fn hear(&self, from: NodeId, times: Times) {
        let mut shared = self.shared();
        shared.hear(from, times, self.clocks.monotonic());
        self.steer(&shared);
    }

    fn steer(&self, shared: &SharedTime) {
        if let Some(offset) = shared.offset() {
            self.clocks.steer(offset);
        }
    }
}
