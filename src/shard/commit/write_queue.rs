//! The write queue of a shard: requests gather here, and the actor is woken for a group of them,
//! not for each.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::oneshot;

use super::group::Reply;
use crate::{
    model::{epk::Epk, error::Result},
    shard::decide::{answer::AnswerBudget, transaction::Operation},
};

/// A request for changes; all operations are on one partition key.
pub struct Perform {
    /// Where the items of that key are kept.
    pub place: Epk,
    pub operations: Vec<Operation>,
    /// All or nothing; otherwise each operation stands alone.
    pub atomic: bool,
    pub reply: oneshot::Sender<Result<Reply>>,
    /// Takes the operations back, without a reply, if their conditions were evaluated for versions
    /// that are not the newest any more.
    pub stale: Option<oneshot::Sender<Vec<Operation>>>,
    /// The room for items in the answer; `None`: as much as there is.
    pub answer: Option<Arc<AnswerBudget>>,
}

#[derive(Default)]
pub(in crate::shard) struct WriteQueue(Mutex<Gathered>);

#[derive(Default)]
struct Gathered {
    requests: Vec<Perform>,
    /// The actor is woken when this many have gathered; 0 counts as 1.
    wake_at: usize,
}

impl WriteQueue {
    /// Adds a request. Returns whether the actor must be woken.
    pub fn push(&self, request: Perform) -> bool {
        let mut gathered = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        gathered.requests.push(request);
        gathered.requests.len() == gathered.wake_at.max(1)
    }

    /// Takes what has gathered, and sets how many more the actor is to be woken for.
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

    /// Returns how many wait.
    pub fn len(&self) -> usize {
        let gathered = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        gathered.requests.len()
    }

    /// Changes how many the actor is to be woken for. Requests that were there before have woken it
    /// already.
    pub fn wake_at(&self, count: usize) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .wake_at = count;
    }
}
