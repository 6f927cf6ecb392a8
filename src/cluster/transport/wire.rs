//! Frames on a socket, and the reasons for which a connection ends.

use std::{fmt, io, time::Duration};

use serde::{Serialize, de::DeserializeOwned};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt as _},
    net::TcpStream,
};

use super::{
    frame::{FrameError, LENGTH_BYTES, Sealed},
    handshake::{AuthError, Dialing, Identity, NONCE_BYTES, Nonce, Session},
};
use crate::cluster::NodeId;

/// A buffer that one long frame has made larger than this is freed.
pub const BUFFER_BYTES_KEPT_MAX: usize = 1024 * 1024;
/// A peer that sends nothing for so long is gone, and so is one that receives nothing.
pub const PEER_TIMEOUT: Duration = Duration::from_secs(5);
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);

/// Why a connection ended.
#[derive(Debug)]
pub enum DisconnectReason {
    Frame(FrameError),
    Garbage(rmp_serde::decode::Error),
    Auth(AuthError),
    NotMember(NodeId),
    Io(io::Error),
    Timeout,
    /// A newer connection took its place, or the node stops.
    Replaced,
}

impl fmt::Display for DisconnectReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Frame(error) => error.fmt(f),
            Self::Garbage(error) => write!(f, "a frame's body cannot be read: {error}"),
            Self::Auth(error) => error.fmt(f),
            Self::NotMember(node) => write!(f, "node {node} is no member of the cluster"),
            Self::Io(error) => error.fmt(f),
            Self::Timeout => f.write_str("the other node is silent"),
            Self::Replaced => f.write_str("a newer connection took its place"),
        }
    }
}

impl From<FrameError> for DisconnectReason {
    fn from(error: FrameError) -> Self {
        Self::Frame(error)
    }
}

impl From<AuthError> for DisconnectReason {
    fn from(error: AuthError) -> Self {
        Self::Auth(error)
    }
}

impl From<io::Error> for DisconnectReason {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<tokio::time::error::Elapsed> for DisconnectReason {
    fn from(_: tokio::time::error::Elapsed) -> Self {
        Self::Timeout
    }
}

pub fn nonce() -> Nonce {
    rand::random::<[u8; NONCE_BYTES]>()
}

/// Reads a frame without its length into the buffer.
pub async fn read_frame(
    reader: &mut (impl AsyncReadExt + Unpin),
    opening: &Sealed,
    buffer: &mut Vec<u8>,
) -> Result<(), DisconnectReason> {
    let mut length = [0; LENGTH_BYTES];
    reader.read_exact(&mut length).await?;
    buffer.clear();
    buffer.resize(opening.length(length)?, 0);
    reader.read_exact(buffer).await?;
    Ok(())
}

/// Writes one value in one frame.
pub async fn write_value(
    stream: &mut TcpStream,
    sealing: &mut Sealed,
    value: &impl Serialize,
) -> Result<(), DisconnectReason> {
    let body = rmp_serde::to_vec(value).expect("a struct of numbers has a MessagePack form");
    let mut frame = Vec::new();
    sealing.seal(&body, &mut frame)?;
    Ok(stream.write_all(&frame).await?)
}

/// Reads one frame with one value.
pub async fn read_value<T: DeserializeOwned>(
    stream: &mut TcpStream,
    opening: &mut Sealed,
) -> Result<T, DisconnectReason> {
    let mut buffer = Vec::new();
    read_frame(stream, opening, &mut buffer).await?;
    rmp_serde::from_slice(opening.open(&buffer)?).map_err(DisconnectReason::Garbage)
}

/// Authenticates a connection that this side has opened to a node.
pub async fn authenticate(
    stream: &mut TcpStream,
    identity: &Identity,
    node: NodeId,
) -> Result<Session, DisconnectReason> {
    let cluster = identity.cluster;
    let (mut ours, mut theirs) = (Sealed::handshake(cluster), Sealed::handshake(cluster));
    let (dialing, hello) = Dialing::begin(identity, node, nonce());
    write_value(stream, &mut ours, &hello).await?;
    let challenge = read_value(stream, &mut theirs).await?;
    let (proof, session) = dialing.finish(&challenge)?;
    write_value(stream, &mut ours, &proof).await?;
    Ok(session)
}
