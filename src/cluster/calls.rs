//! Questions to other nodes and their answers, over the connections that are there.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use tokio::sync::oneshot;

use super::{
    NodeId,
    links::Links,
    parcel::{Parcel, Question},
};

/// How long an answer may take.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(10);

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoAnswer {
    /// The question did not leave this node.
    NotAsked,
    /// Whether the other node has done what it was asked is not known.
    Lost,
}

#[derive(Default)]
pub struct Calls {
    asked: AtomicU64,
    waiting: Mutex<HashMap<u64, (NodeId, oneshot::Sender<Bytes>)>>,
}

impl Calls {
    fn waiting(&self) -> MutexGuard<'_, HashMap<u64, (NodeId, oneshot::Sender<Bytes>)>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub async fn ask(
        self: &Arc<Self>,
        links: &Links,
        node: NodeId,
        question: Question,
    ) -> Result<Bytes, NoAnswer> {
        let number = self.asked.fetch_add(1, Ordering::Relaxed);
        let (answered, answer) = oneshot::channel();
        self.waiting().insert(number, (node, answered));
        // Also when the caller loses patience.
        let _forgetting = Forgetting(Arc::clone(self), number);
        let parcel = Parcel::Question(number, question);
        if !links.send_together(node, &parcel) {
            return Err(NoAnswer::NotAsked);
        }
        match tokio::time::timeout(ANSWER_TIME_MAX, answer).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(_)) | Err(_) => Err(NoAnswer::Lost),
        }
    }

    pub fn answered(&self, by: NodeId, number: u64, answer: Bytes) {
        let asked = {
            let mut waiting = self.waiting();
            // A node answers for itself only.
            let is_theirs = waiting.get(&number).is_some_and(|(node, _)| *node == by);
            is_theirs.then(|| waiting.remove(&number)).flatten()
        };
        // Whoever is woken by this finds the lock free.
        if let Some((_, answered)) = asked {
            let _ = answered.send(answer);
        }
    }

    /// The connection is gone, and all answers that were to come over it.
    pub fn lost(&self, node: NodeId) {
        self.waiting().retain(|_, (asked, _)| *asked != node);
    }
}

struct Forgetting(Arc<Calls>, u64);

impl Drop for Forgetting {
    fn drop(&mut self) {
        self.0.waiting().remove(&self.1);
    }
}
