//! Requests to other nodes and their responses, over the existing connections.

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
    connections::Connections,
    message::{PeerMessage, PeerRequest},
};
use crate::cluster::NodeId;

const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);

/// Why a call failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallError {
    /// The request did not leave this node.
    NotSent,
    /// There is no response. Whether the other node has done what it was asked is unknown.
    NoResponse,
}

type Waiting = HashMap<u64, (NodeId, oneshot::Sender<Bytes>)>;

#[derive(Default)]
pub struct Calls {
    sent: AtomicU64,
    waiting: Mutex<Waiting>,
}

impl Calls {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a request to a node and waits for the response.
    pub async fn call(
        self: &Arc<Self>,
        connections: &Connections,
        node: NodeId,
        request: PeerRequest,
    ) -> Result<Bytes, CallError> {
        let id = self.sent.fetch_add(1, Ordering::Relaxed);
        let (responded, response) = oneshot::channel();
        self.waiting().insert(id, (node, responded));
        // Also when the caller drops the future.
        let _guard = RemoveOnDrop(Arc::clone(self), id);
        let message = PeerMessage::Request(id, request);
        if !connections.send_together(node, &message) {
            return Err(CallError::NotSent);
        }
        match tokio::time::timeout(RESPONSE_TIMEOUT, response).await {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(_)) | Err(_) => Err(CallError::NoResponse),
        }
    }

    /// Handles a response of a node.
    pub fn responded(&self, by: NodeId, id: u64, response: Bytes) {
        let caller = {
            let mut waiting = self.waiting();
            // A node responds for itself only.
            let is_theirs = waiting.get(&id).is_some_and(|(node, _)| *node == by);
            is_theirs.then(|| waiting.remove(&id)).flatten()
        };
        // Without the lock, for the task that this wakes.
        if let Some((_, caller)) = caller {
            let _ = caller.send(response);
        }
    }

    /// Fails the calls to a node whose connection broke.
    pub fn disconnected(&self, node: NodeId) {
        self.waiting().retain(|_, (callee, _)| *callee != node);
    }
}

struct RemoveOnDrop(Arc<Calls>, u64);

impl Drop for RemoveOnDrop {
    fn drop(&mut self) {
        self.0.waiting().remove(&self.1);
    }
}
