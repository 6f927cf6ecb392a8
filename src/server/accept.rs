//! The accept loop: hands each connection to the worker with the fewest, and keeps their number
//! below what the process may have open.

use std::{
    io,
    net::TcpListener,
    sync::{Arc, atomic::AtomicUsize, atomic::Ordering},
    time::Duration,
};

use tokio::{
    sync::{mpsc, oneshot},
    time::{Instant, sleep},
};
use tracing::{debug, warn};

use super::worker::{Counted, Message};
use crate::telemetry::{connections, labels::Refusal};

/// Connections over the bound that workers turn away with an answer; more are closed unheard.
const TURNED_AWAY_MAX: usize = 64;
/// How long the loop rests when the system gives it no connection.
const REST: Duration = Duration::from_millis(100);
/// How often the operator is told that it does not.
const WARN_EVERY: Duration = Duration::from_secs(10);

/// A worker as the accept loop sees it.
pub struct Target {
    pub inbox: mpsc::UnboundedSender<Message>,
    pub connections: Arc<AtomicUsize>,
}

/// Accepts until it is told to stop.
pub async fn accept(
    listener: TcpListener,
    targets: Vec<Target>,
    connections_max: usize,
    mut stop: oneshot::Receiver<()>,
) {
    let listener = match tokio::net::TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(failure) => {
            tracing::error!(%failure, "the listener cannot be watched");
            return;
        }
    };
    let all = Arc::new(AtomicUsize::new(0));
    let mut warned: Option<Instant> = None;
    loop {
        let accepted = tokio::select! {
            biased;
            _ = &mut stop => return,
            accepted = listener.accept() => accepted,
        };
        let (socket, peer) = match accepted {
            Ok(accepted) => accepted,
            // It was gone before it was taken.
            Err(failure) if failure.kind() == io::ErrorKind::ConnectionAborted => continue,
            Err(failure) => {
                if warned.is_none_or(|last| last.elapsed() > WARN_EVERY) {
                    warned = Some(Instant::now());
                    warn!(%failure, "cannot accept connections; it is tried again");
                }
                sleep(REST).await;
                continue;
            }
        };
        let open = all.load(Ordering::Relaxed);
        if open >= connections_max + TURNED_AWAY_MAX {
            connections::refused(Refusal::Full);
            continue;
        }
        // It leaves this thread's event loop for its worker's.
        let socket = match socket.set_nodelay(true).and_then(|()| socket.into_std()) {
            Ok(socket) => socket,
            Err(failure) => {
                debug!(%peer, %failure, "connection lost");
                continue;
            }
        };
        let fewest = targets
            .iter()
            .min_by_key(|target| target.connections.load(Ordering::Relaxed));
        let Some(target) = fewest else { return };
        let message = Message::Connection {
            socket,
            peer,
            counted: Counted::new(&target.connections, &all),
            is_full: open >= connections_max,
        };
        if target.inbox.send(message).is_err() {
            return;
        }
    }
}
