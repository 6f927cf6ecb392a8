//! A worker: a thread that serves its share of the connections and looks after their deadlines.

use std::{
    cell::Cell,
    io::Write as _,
    net::{Shutdown, SocketAddr, TcpStream},
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{
    sync::{mpsc, oneshot},
    time::{Instant, MissedTickBehavior, interval},
};
use tracing::debug;

use super::{
    Handler,
    activity::{Activity, Deadlines, Order, TICK, Tick},
    connection::{self, Protocols},
};
use crate::telemetry::{
    connections::{self, Open},
    labels::Refusal,
};

/// What a client gets when there are too many connections, and none can be closed for it.
const FULL: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";

/// A connection that is counted until it is dropped.
pub struct Counted {
    counts: [Arc<AtomicUsize>; 2],
    _open: Open,
}

impl Counted {
    /// Counts a connection for its worker and for all of them.
    pub fn new(worker: &Arc<AtomicUsize>, all: &Arc<AtomicUsize>) -> Self {
        let counts = [Arc::clone(worker), Arc::clone(all)];
        for count in &counts {
            count.fetch_add(1, Ordering::Relaxed);
        }
        Self {
            counts,
            _open: Open::count(),
        }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        for count in &self.counts {
            count.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// What a worker is told.
pub enum Message {
    Connection {
        socket: TcpStream,
        peer: SocketAddr,
        counted: Counted,
        /// There are too many: another one must be closed for it.
        is_full: bool,
    },
    /// Finish the requests in flight, for so long; then close all connections.
    Stop(Duration, oneshot::Sender<()>),
}

pub struct Worker<H> {
    pub handler: Rc<H>,
    pub protocols: Rc<Protocols>,
    pub deadlines: Deadlines,
    clock: Rc<Cell<Tick>>,
    connections: Vec<Rc<Activity>>,
}

impl<H: Handler> Worker<H> {
    pub fn new(handler: H, protocols: Protocols, deadlines: Deadlines) -> Self {
        Self {
            handler: Rc::new(handler),
            protocols: Rc::new(protocols),
            deadlines,
            clock: Rc::default(),
            connections: Vec::new(),
        }
    }

    /// Serves until it is told to stop.
    pub async fn run(mut self, mut inbox: mpsc::UnboundedReceiver<Message>) {
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                message = inbox.recv() => match message {
                    Some(Message::Connection { socket, peer, counted, is_full }) => {
                        if !is_full || self.close_one() {
                            self.spawn(socket, peer, counted);
                        } else {
                            refuse(socket, !self.protocols.has_tls());
                        }
                    }
                    Some(Message::Stop(patience, done)) => {
                        self.stop(patience, &mut ticks).await;
                        let _ = done.send(());
                        return;
                    }
                    None => return,
                },
                _ = ticks.tick() => self.look(),
            }
        }
    }

    fn spawn(&mut self, socket: TcpStream, peer: SocketAddr, counted: Counted) {
        let activity = Rc::new(Activity::new(Rc::clone(&self.clock)));
        self.connections.push(Rc::clone(&activity));
        let (protocols, handler) = (Rc::clone(&self.protocols), Rc::clone(&self.handler));
        actix_rt::spawn(async move {
            let _ended = Ended(Rc::clone(&activity), counted);
            connection::serve(protocols, handler, socket, peer, activity).await;
        });
    }

    /// Lets the coarse clock go on, and closes what is overdue.
    fn look(&mut self) {
        self.clock.set(self.clock.get().wrapping_add(1));
        let deadlines = self.deadlines;
        self.connections.retain(|connection| {
            if connection.has_ended() {
                return false;
            }
            if let Some((order, refusal)) = connection.judge(&deadlines) {
                if let Some(refusal) = refusal {
                    debug!(why = refusal.text(), "connection closed");
                    connections::refused(refusal);
                }
                connection.give(order);
                return order != Order::Close;
            }
            true
        });
    }

    /// Closes the connection that is missed least. Returns whether there was one.
    fn close_one(&mut self) -> bool {
        let alive = self.connections.iter().enumerate();
        let alive = alive.filter(|(_, connection)| !connection.has_ended());
        let ranked = alive.filter_map(|(place, one)| Some((one.spare_rank()?, place)));
        let Some((_, place)) = ranked.max() else {
            return false;
        };
        let connection = self.connections.swap_remove(place);
        connections::refused(Refusal::Displaced);
        connection.give(Order::Close);
        true
    }

    async fn stop(&mut self, patience: Duration, ticks: &mut tokio::time::Interval) {
        for connection in &self.connections {
            connection.give(Order::Finish);
        }
        let deadline = Instant::now() + patience;
        loop {
            self.connections
                .retain(|connection| !connection.has_ended());
            if self.connections.is_empty() || Instant::now() >= deadline {
                break;
            }
            ticks.tick().await;
            self.look();
        }
        for connection in self.connections.drain(..) {
            connection.give(Order::Close);
        }
        // They are dropped when their tasks are polled once more.
        tokio::task::yield_now().await;
    }
}

/// Says that a connection has ended, however it did.
struct Ended(
    Rc<Activity>,
    #[expect(dead_code, reason = "counts until it is dropped")] Counted,
);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.set_ended();
    }
}

/// Turns a connection away: quickly, and without waiting for anything.
fn refuse(mut socket: TcpStream, is_plain: bool) {
    connections::refused(Refusal::Full);
    if is_plain {
        // It is not blocking: what does not go out at once does not go out.
        let _ = socket.write(FULL);
        let _ = socket.shutdown(Shutdown::Write);
    }
}
