//! How a node joins a running cluster. It knows the address of one node and the cluster's key. It
//! proves the key, asks for an id, and receives the list of nodes. After that it is a member
//! without data.
//!
//! The handshake is that of [`super::handshake`], between unknown nodes. The request and its
//! response follow, one sealed frame each.

use std::{collections::BTreeMap, fmt, io, time::Duration};

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tokio::{io::AsyncWriteExt as _, net::TcpStream, sync::oneshot, time::timeout};

use super::{
    frame::{FrameError, Sealed},
    handshake::{AuthError, Identity, Session, UNKNOWN_NODE},
    message::Reply,
    wire::{CONNECT_TIMEOUT, DisconnectReason, authenticate, read_value, write_value},
};
use crate::cluster::NodeId;

/// How long the cluster may take to agree.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(15);

/// Asks to join a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinRequest {
    /// The id that the node would like; 0: the cluster may choose.
    pub node: NodeId,
    /// Where the others reach it.
    pub address: String,
    /// Asks only whether the node is still a member; nothing is changed.
    #[serde(default)]
    pub asks_only: bool,
}

/// The id of the node, and the addresses of all nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Welcome {
    pub node: NodeId,
    pub nodes: BTreeMap<NodeId, String>,
}

/// What a cluster answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum JoinResponse {
    Welcome(Welcome),
    /// The request must change first.
    Refused(String),
    /// The cluster cannot decide now.
    Later(String),
    /// The node was a member and was removed.
    #[serde(rename = "TakenOut")]
    Removed,
}

/// Answers a request by calling back once, with an encoded [`JoinResponse`].
pub type JoinHandler = Box<dyn Fn(JoinRequest, Reply) + Send + Sync>;

impl JoinResponse {
    pub fn encode(&self) -> Bytes {
        rmp_serde::to_vec(self)
            .expect("an enum of numbers and texts has a MessagePack form")
            .into()
    }
}

/// Why a node could not join.
#[derive(Debug)]
pub enum JoinError {
    /// The cluster's name or its key differs, or the request cannot be granted. A retry does not
    /// help.
    Refused(String),
    /// No node answers, or the cluster cannot decide now.
    Later(String),
}

impl fmt::Display for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Refused(why) | Self::Later(why)) = self;
        f.write_str(why)
    }
}

/// Asks the node at an address to join its cluster. `identity` is that of an unknown node, with the
/// cluster's name and key.
pub async fn join(
    identity: &Identity,
    address: &str,
    request: &JoinRequest,
) -> Result<Welcome, JoinError> {
    let reason = match timeout(RESPONSE_TIMEOUT, send(identity, address, request)).await {
        Ok(Ok(JoinResponse::Welcome(welcome))) => return Ok(welcome),
        Ok(Ok(JoinResponse::Refused(why))) => return Err(JoinError::Refused(why)),
        Ok(Ok(JoinResponse::Later(why))) => return Err(JoinError::Later(why)),
        Ok(Ok(JoinResponse::Removed)) => {
            let why = format!("node {} was taken out", request.node);
            return Err(JoinError::Refused(why));
        }
        Ok(Err(reason)) => reason,
        Err(elapsed) => elapsed.into(),
    };
    Err(match reason {
        DisconnectReason::Frame(FrameError::Cluster(_)) => {
            JoinError::Refused(format!("the node at {address} belongs to another cluster"))
        }
        DisconnectReason::Auth(AuthError::Proof) => JoinError::Refused(format!(
            "the node at {address} does not know this node's cluster key"
        )),
        DisconnectReason::Frame(error) => {
            JoinError::Refused(format!("the node at {address}: {error}"))
        }
        reason => JoinError::Later(format!("the node at {address} does not answer: {reason}")),
    })
}

/// Asks the node at an address whether a node was removed from the cluster. Returns `false` also if
/// it does not answer.
pub async fn is_removed(identity: &Identity, address: &str, node: NodeId) -> bool {
    let request = JoinRequest {
        node,
        address: String::new(),
        asks_only: true,
    };
    let response = timeout(RESPONSE_TIMEOUT, send(identity, address, &request)).await;
    matches!(response, Ok(Ok(JoinResponse::Removed)))
}

async fn send(
    identity: &Identity,
    address: &str,
    request: &JoinRequest,
) -> Result<JoinResponse, DisconnectReason> {
    let mut stream = timeout(CONNECT_TIMEOUT, TcpStream::connect(address)).await??;
    stream.set_nodelay(true)?;
    let session = authenticate(&mut stream, identity, UNKNOWN_NODE).await?;
    let mut ours = Sealed::session(identity.cluster, &session.send);
    let mut theirs = Sealed::session(identity.cluster, &session.receive);
    write_value(&mut stream, &mut ours, request).await?;
    read_value(&mut stream, &mut theirs).await
}

/// Serves a node that has proved the key and wants to join.
pub async fn serve(
    mut stream: TcpStream,
    session: &Session,
    cluster: u64,
    handler: &JoinHandler,
) -> Result<(), DisconnectReason> {
    let mut ours = Sealed::session(cluster, &session.send);
    let mut theirs = Sealed::session(cluster, &session.receive);
    let request = read_value(&mut stream, &mut theirs).await?;
    let (reply, response) = oneshot::channel();
    handler(
        request,
        Box::new(move |response| {
            let _ = reply.send(response);
        }),
    );
    let stopping = |_| io::Error::other("the node is stopping");
    let response: Bytes = response.await.map_err(stopping)?;
    let mut frame = Vec::new();
    ours.seal(&response, &mut frame)?;
    Ok(stream.write_all(&frame).await?)
}
