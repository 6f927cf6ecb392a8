//! Incoming connections: of members, and of nodes that want to join.

use std::{sync::atomic::Ordering, time::Duration};

use tokio::{net::TcpStream, time::timeout};

use super::{
    frame::{FrameError, Sealed},
    handshake::{Accepting, Session, UNKNOWN_NODE},
    join,
    peers::Peers,
    wire::{DisconnectReason, HANDSHAKE_TIMEOUT, nonce, read_value, write_value},
};

/// How long a join may take, with all that the cluster has to do for it.
const JOIN_TIMEOUT: Duration = Duration::from_secs(15);

/// Serves a connection that another node has opened, until it ends.
pub async fn serve(peers: &Peers, stream: TcpStream) {
    let Ok(permit) = peers.unauthenticated.try_acquire() else {
        let refused = &peers.counts.refused_strangers;
        refused.fetch_add(1, Ordering::Relaxed);
        return;
    };
    let reason = match timeout(HANDSHAKE_TIMEOUT, accept(peers, stream)).await {
        Ok(Ok((stream, session))) if session.peer == UNKNOWN_NODE => {
            // It keeps its permit: it has proved the key, not who it is.
            let cluster = peers.identity.cluster;
            let served = join::serve(stream, &session, cluster, &peers.join_handler);
            match timeout(JOIN_TIMEOUT, served).await {
                Ok(Ok(())) => return,
                Ok(Err(reason)) => reason,
                Err(elapsed) => elapsed.into(),
            }
        }
        Ok(Ok((stream, session))) => {
            drop(permit);
            let reason = peers.serve(stream, &session).await;
            return peers.note_disconnect(Some(session.peer), &reason);
        }
        Ok(Err(reason)) => reason,
        Err(elapsed) => elapsed.into(),
    };
    peers.note_disconnect(None, &reason);
}

/// Authenticates the other side.
async fn accept(
    peers: &Peers,
    mut stream: TcpStream,
) -> Result<(TcpStream, Session), DisconnectReason> {
    stream.set_nodelay(true)?;
    let cluster = peers.identity.cluster;
    let (mut ours, mut theirs) = (Sealed::handshake(cluster), Sealed::handshake(cluster));
    let hello = match read_value(&mut stream, &mut theirs).await {
        Err(DisconnectReason::Frame(error @ FrameError::Cluster(_))) => {
            // Any frame tells the other side which cluster this is.
            write_value(&mut stream, &mut ours, &()).await?;
            return Err(error.into());
        }
        hello => hello?,
    };
    let (accepting, challenge) = Accepting::begin(&peers.identity, &hello, nonce())?;
    write_value(&mut stream, &mut ours, &challenge).await?;
    let proof = read_value(&mut stream, &mut theirs).await?;
    let session = accepting.finish(&proof)?;
    if session.peer != UNKNOWN_NODE && peers.peer(session.peer).is_none() {
        return Err(DisconnectReason::NotMember(session.peer));
    }
    Ok((stream, session))
}
