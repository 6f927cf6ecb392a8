//! The way into a shard: requests gather here, and the actor is woken for a group of them, not for each.

use std::sync::{Mutex, PoisonError};

use super::actor::Perform;

#[derive(Default)]
pub struct Intake(Mutex<Gathered>);

#[derive(Default)]
struct Gathered {
    requests: Vec<Perform>,
    /// The actor is woken when this many have gathered; 0 counts as 1.
    wake_at: usize,
}

impl Intake {
    /// Adds a request. Whether the actor must be woken.
    pub fn push(&self, request: Perform) -> bool {
        let mut gathered = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        gathered.requests.push(request);
        gathered.requests.len() == gathered.wake_at.max(1)
    }

    /// Takes what has gathered, and says how many more the actor is to be woken for.
    pub fn take(&self, wake_at: usize) -> Vec<Perform> {
        let mut gathered = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        gathered.wake_at = wake_at;
        std::mem::take(&mut gathered.requests)
    }

    /// Gives back the last ones that were taken: they come before those that have gathered since.
    pub fn put_back(&self, mut requests: Vec<Perform>) {
        let mut gathered = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        requests.append(&mut gathered.requests);
        gathered.requests = requests;
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        let gathered = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        gathered.requests.len()
    }

    /// Changes how many the actor is to be woken for. Whoever was there before has woken it already.
    pub fn wake_at(&self, count: usize) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .wake_at = count;
    }
}
