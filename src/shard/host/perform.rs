//! The way of a client's changes into a shard: evaluates conditions, admits, and sends the request
//! to the actor or on to a child.

use std::sync::Arc;

use tokio::sync::{Semaphore, oneshot};

use super::{Leader, Link, ShardHandle, handle::closed};
use crate::{
    model::{
        epk::Epk,
        error::{Error, Result},
    },
    shard::{
        actor::Wake,
        answer::AnswerBudget,
        commit::{Reply, write_queue::Perform},
        decide::conditions,
        transaction::Operation,
    },
};

/// How often the conditions of a request are evaluated when others write its items meanwhile.
const EVALUATIONS_MAX: usize = 4;
/// Requests whose conditions are evaluated at a time; each may keep a core busy.
const EVALUATORS_MAX: usize = 4;
static EVALUATORS: Semaphore = Semaphore::const_new(EVALUATORS_MAX);

/// What a client wants of the items of one partition key.
pub struct Changes {
    pub operations: Vec<Operation>,
    /// All or nothing; otherwise each operation stands alone.
    pub atomic: bool,
    /// Size of the request, for admission.
    pub bytes: usize,
    /// The room for items in the answer; `None` for a single operation.
    pub answer: Option<Arc<AnswerBudget>>,
}

impl ShardHandle {
    /// Carries out changes to items of one partition key; answers when they are durable.
    pub async fn perform(&self, place: Epk, changes: Changes) -> Result<Reply> {
        if conditions::any(&changes.operations) {
            return Box::pin(self.perform_guarded(place, changes)).await;
        }
        self.submit(place, changes, None).await
    }

    /// Evaluates the conditions of patches before the actor sees them, and again when the items
    /// have changed meanwhile.
    async fn perform_guarded(&self, place: Epk, mut changes: Changes) -> Result<Reply> {
        let (atomic, bytes) = (changes.atomic, changes.bytes);
        let answer = changes.answer.clone();
        for _ in 1..EVALUATIONS_MAX {
            changes.operations = self
                .evaluate_conditions(&place, changes.operations, bytes)
                .await?;
            let (stale, mut back) = oneshot::channel();
            let answered = self.submit(place.clone(), changes, Some(stale)).await;
            let Ok(operations) = back.try_recv() else {
                return answered;
            };
            changes = Changes {
                operations,
                atomic,
                bytes,
                answer: answer.clone(),
            };
        }
        changes.operations = self
            .evaluate_conditions(&place, changes.operations, bytes)
            .await?;
        self.submit(place, changes, None).await
    }

    /// Evaluates conditions on the blocking pool, if this node decides.
    async fn evaluate_conditions(
        &self,
        place: &Epk,
        mut operations: Vec<Operation>,
        bytes: usize,
    ) -> Result<Vec<Operation>> {
        let (Some(Leader::Here), Ok(view)) = (self.leader(), self.view()) else {
            return Ok(operations);
        };
        let _permit = self.admit(bytes)?;
        let stopping = |_| Error::unavailable("the node is stopping");
        let _turn = EVALUATORS.acquire().await.map_err(stopping)?;
        let place = place.clone();
        tokio::task::spawn_blocking(move || {
            let read = |id: &str| view.read(&place, id, None);
            conditions::evaluate(&mut operations, view.clock.now(), read);
            operations
        })
        .await
        .map_err(|failure| Error::internal(format!("a condition was cut off: {failure}")))
    }

    async fn submit(
        &self,
        place: Epk,
        changes: Changes,
        stale: Option<oneshot::Sender<Vec<Operation>>>,
    ) -> Result<Reply> {
        if self.closed.load(std::sync::atomic::Ordering::SeqCst) {
            return match self.heir(&place) {
                Some(heir) => Box::pin(heir.perform(place, changes)).await,
                None => Err(closed()),
            };
        }
        let Changes {
            operations,
            atomic,
            bytes,
            answer,
        } = changes;
        let _permit = self.admit(bytes)?;
        let (reply, answered) = oneshot::channel();
        let request = Perform {
            place,
            operations,
            atomic,
            reply,
            stale,
            answer,
        };
        let refused = match &**self.link.load() {
            Link::Up {
                view,
                address,
                leader: Leader::Here,
            } => {
                if view.write_queue.push(request) {
                    address.do_send(Wake);
                }
                None
            }
            Link::Up {
                leader: Leader::Remote(node),
                ..
            } => {
                // A replica that waits for its first snapshot does not know the leader; the others do.
                let peers = self.replica().filter(|replica| !replica.is_initialized());
                return Err(match (node, peers) {
                    (None, Some(_)) => self.not_leader(&self.peers),
                    (node, _) => Error::not_leader(*node),
                });
            }
            Link::Remote(nodes) => return Err(self.not_leader(nodes)),
            Link::Down(error) => Some((request, error.clone())),
        };
        if let Some((request, error)) = refused {
            let Perform {
                place,
                operations,
                answer,
                ..
            } = request;
            let changes = Changes {
                operations,
                atomic,
                bytes,
                answer,
            };
            return match self.heir(&place) {
                Some(heir) => Box::pin(heir.perform(place, changes)).await,
                None => Err(error),
            };
        }
        answered.await.map_err(|_| self.restarting())?
    }
}
