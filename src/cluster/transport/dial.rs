//! Outgoing connections. Of two nodes the one with the higher id dials.

use std::{sync::Arc, time::Duration};

use tokio::{net::TcpStream, time::timeout};

use super::{
    handshake::Session,
    peers::Peers,
    wire::{CONNECT_TIMEOUT, DisconnectReason, HANDSHAKE_TIMEOUT, authenticate},
};
use crate::cluster::NodeId;

const REDIAL_INTERVAL_MIN: Duration = Duration::from_millis(50);
const REDIAL_INTERVAL_MAX: Duration = Duration::from_secs(1);

/// Keeps a connection to a node until the node leaves or changes its address.
pub async fn keep_dialing(peers: &Peers, node: NodeId) {
    let Some(peer) = peers.peer(node) else {
        return;
    };
    let mut interval = REDIAL_INTERVAL_MIN;
    while peers.peer(node).is_some_and(|now| Arc::ptr_eq(&now, &peer)) {
        match dial(peers, node, &peer.address).await {
            Ok((stream, session)) => {
                let begun = tokio::time::Instant::now();
                let reason = peers.serve(stream, &session).await;
                peers.note_disconnect(Some(node), &reason);
                // A node that hangs up at once does so again.
                interval = match begun.elapsed() < REDIAL_INTERVAL_MAX {
                    true => (interval * 2).min(REDIAL_INTERVAL_MAX),
                    false => REDIAL_INTERVAL_MIN,
                };
            }
            Err(reason) => {
                peers.note_disconnect(Some(node), &reason);
                interval = (interval * 2).min(REDIAL_INTERVAL_MAX);
            }
        }
        tokio::time::sleep(interval).await;
    }
}

async fn dial(
    peers: &Peers,
    node: NodeId,
    address: &str,
) -> Result<(TcpStream, Session), DisconnectReason> {
    let mut stream = timeout(CONNECT_TIMEOUT, TcpStream::connect(address)).await??;
    stream.set_nodelay(true)?;
    let handshake = authenticate(&mut stream, &peers.identity, node);
    let session = timeout(HANDSHAKE_TIMEOUT, handshake).await??;
    Ok((stream, session))
}
