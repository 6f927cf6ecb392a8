//! The way into a shard: requests gather here, and the actor is woken for a group of them, not for each.

use std::sync::{Mutex, PoisonError};

use super::actor::Perform;

/// While a group is being committed, this many requests may gather before the actor begins to decide them; fewer wait for
/// the group to end, when the actor wakes up anyway.
const WAKE_AT: usize = 16;

#[derive(Default)]
pub struct Intake(Mutex<Gathered>);

#[derive(Default)]
struct Gathered {
    requests: Vec<Perform>,
    committing: bool,
}

impl Intake {
    /// Adds a request. Whether the actor must be woken.
    pub fn push(&self, request: Perform) -> bool {
        let mut gathered = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        gathered.requests.push(request);
        gathered.requests.len() == if gathered.committing { WAKE_AT } else { 1 }
    }

    /// Takes what has gathered.
    pub fn take(&self) -> Vec<Perform> {
        let mut gathered = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut gathered.requests)
    }

    /// A group is under way, or no longer: then the actor takes what has gathered.
    pub fn set_committing(&self, committing: bool) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .committing = committing;
    }
}
