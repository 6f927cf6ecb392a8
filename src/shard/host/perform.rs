//! The way of a client's changes into a shard: judges conditions, admits, and sends the request to the actor or on to an heir.

use std::sync::Arc;

use tokio::sync::{Semaphore, oneshot};

use super::{Leader, Link, ShardHandle, handle::closed};
use crate::{
    model::{
        epk::Epk,
        error::{Error, Result},
    },
    shard::{
        actor::{Perform, Wake},
        answer::AnswerBudget,
        commit::Reply,
        guard,
        transaction::Operation,
    },
};

/// How often the conditions of a request are judged when others write its items meanwhile.
const JUDGEMENTS_MAX: usize = 4;
/// Requests whose conditions are judged at a time; each may keep a core busy.
const JUDGES_MAX: usize = 4;
static JUDGES: Semaphore = Semaphore::const_new(JUDGES_MAX);

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
        if guard::any(&changes.operations) {
            return Box::pin(self.perform_guarded(place, changes)).await;
        }
        self.submit(place, changes, None).await
    }

    /// Judges the conditions of patches before the actor sees them, and again when the items have changed meanwhile.
    async fn perform_guarded(&self, place: Epk, mut changes: Changes) -> Result<Reply> {
        let (atomic, bytes) = (changes.atomic, changes.bytes);
        let answer = changes.answer.clone();
        for _ in 1..JUDGEMENTS_MAX {
            changes.operations = self.judge(&place, changes.operations, bytes).await?;
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
        changes.operations = self.judge(&place, changes.operations, bytes).await?;
        self.submit(place, changes, None).await
    }

    /// Judges conditions on the blocking pool, if this node decides.
    async fn judge(
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
        let _turn = JUDGES.acquire().await.map_err(stopping)?;
        let place = place.clone();
        tokio::task::spawn_blocking(move || {
            guard::judge(&view, &place, &mut operations);
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
                if view.intake.push(request) {
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
