//! The connections to the other nodes: one a pair, authenticated, with bounded queues. What cannot be sent now is dropped: Raft says it again.
//!
//! Of two nodes the one with the higher id dials. A connection on which anything is wrong is closed and counted, and dialled again.

use std::{
    collections::BTreeMap,
    fmt, io,
    net::TcpListener,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use arc_swap::{ArcSwap, ArcSwapOption};
use serde::{Serialize, de::DeserializeOwned};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt as _, BufReader},
    net::TcpStream,
    runtime::Handle,
    sync::Semaphore,
    task::JoinSet,
    time::timeout,
};
use tracing::{debug, info, warn};

use super::{
    NodeId,
    frame::{FRAME_BYTES_MAX, LENGTH_BYTES, Refused, Sealed},
    handshake::{ANYBODY, Accepting, Dialing, Distrust, Identity, NONCE_BYTES, Nonce, Session},
    join::{self, Door},
    parcel::Parcel,
    queue::Queue,
};

/// What a parcel may hold so that its frame is not too long.
pub const PARCEL_BYTES_MAX: usize = FRAME_BYTES_MAX - 1024;
/// Frames are read together up to this size.
const READ_BYTES: usize = 64 * 1024;
/// A buffer that one long frame has made larger than this is given back.
pub(super) const KEPT_BUFFER_BYTES_MAX: usize = 1024 * 1024;
/// Callers that have not proved yet who they are.
const STRANGERS_MAX: usize = 64;
const GREETING_TIME_MAX: Duration = Duration::from_secs(5);
/// How long a node that wants to come in may take, with all that the cluster has to do for it.
const JOIN_TIME_MAX: Duration = Duration::from_secs(15);
const CONNECT_TIME_MAX: Duration = Duration::from_secs(2);
/// A node that says nothing for so long is gone, and so is one that listens to nothing.
pub(super) const SILENCE_MAX: Duration = Duration::from_secs(5);
const REDIAL_AFTER_MIN: Duration = Duration::from_millis(50);
const REDIAL_AFTER_MAX: Duration = Duration::from_secs(1);

/// What comes from another node.
#[derive(Debug, PartialEq)]
pub enum Arrival {
    Parcel(Parcel),
    /// The connection is gone.
    Gone,
}

/// Takes what comes from other nodes.
pub type Inbox = Box<dyn Fn(NodeId, Arrival) + Send + Sync>;

/// The connections of a node. They end when this is dropped.
pub struct Links {
    shared: Arc<Shared>,
    tasks: Arc<Mutex<JoinSet<()>>>,
    /// The event loop that carries the connections, once it does.
    event_loop: OnceLock<Handle>,
}

struct Shared {
    identity: Identity,
    /// Nodes come and go.
    peers: ArcSwap<BTreeMap<NodeId, Arc<Peer>>>,
    inbox: Inbox,
    door: Door,
    strangers: Semaphore,
    counts: Counts,
}

struct Peer {
    address: String,
    /// There while the node is connected.
    queue: ArcSwapOption<Queue>,
}

impl Peer {
    /// Puts a connection in the place of the one there was, which ends.
    fn set_queue(&self, queue: Option<Arc<Queue>>) {
        if let Some(before) = self.queue.swap(queue) {
            before.closed.notify_one();
        }
    }
}

/// What happened since the start.
#[derive(Debug, Default)]
pub struct Counts {
    /// Connections closed because of a frame that was garbage, too long, cut short, of another version or of another cluster.
    pub refused_frames: AtomicU64,
    /// Connections closed because the other side could not prove who it is.
    pub refused_nodes: AtomicU64,
    /// Connections closed at once because too many strangers were waiting.
    pub refused_strangers: AtomicU64,
    pub connected: AtomicU64,
    /// Parcels that found no connection or a full queue.
    pub dropped_parcels: AtomicU64,
}

impl Links {
    pub fn new(
        identity: Identity,
        peers: &BTreeMap<NodeId, String>,
        inbox: Inbox,
        door: Door,
    ) -> Self {
        let links = Self {
            shared: Arc::new(Shared {
                identity,
                peers: ArcSwap::default(),
                inbox,
                door,
                strangers: Semaphore::new(STRANGERS_MAX),
                counts: Counts::default(),
            }),
            tasks: Arc::default(),
            event_loop: OnceLock::new(),
        };
        links.set_peers(peers);
        links
    }

    /// From now on these are the other nodes, with their addresses: those that are new are dialled or may dial, connections to those that are gone end.
    pub fn set_peers(&self, peers: &BTreeMap<NodeId, String>) {
        let mut running = lock(&self.tasks);
        let before = self.shared.peers.load_full();
        let mut new = Vec::new();
        let others = peers
            .iter()
            .filter(|(node, _)| **node != self.shared.identity.node);
        let others = others.map(|(node, address)| {
            let known = before.get(node).filter(|peer| peer.address == *address);
            let peer = known.cloned().unwrap_or_else(|| {
                new.push(*node);
                Arc::new(Peer {
                    address: address.clone(),
                    queue: ArcSwapOption::empty(),
                })
            });
            (*node, peer)
        });
        let peers: BTreeMap<NodeId, Arc<Peer>> = others.collect();
        for (node, gone) in &*before {
            if !peers.get(node).is_some_and(|peer| Arc::ptr_eq(peer, gone)) {
                gone.set_queue(None);
            }
        }
        self.shared.peers.store(Arc::new(peers));
        if let Some(event_loop) = self.event_loop.get() {
            self.dial_from(&mut running, event_loop, &new);
        }
    }

    /// Dials those of some nodes that this node is to dial.
    fn dial_from(&self, running: &mut JoinSet<()>, event_loop: &Handle, nodes: &[NodeId]) {
        let own = self.shared.identity.node;
        for &node in nodes.iter().filter(|node| **node < own) {
            let shared = Arc::clone(&self.shared);
            running.spawn_on(async move { shared.keep_dialling(node).await }, event_loop);
        }
    }

    /// Listens and dials. Must be called on an event loop, which carries the connections.
    pub fn start(&self, listener: TcpListener) -> io::Result<()> {
        listener.set_nonblocking(true)?;
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let shared = Arc::clone(&self.shared);
        let tasks = Arc::downgrade(&self.tasks);
        let mut running = lock(&self.tasks);
        let event_loop = self.event_loop.get_or_init(Handle::current);
        running.spawn(async move {
            loop {
                let Ok((stream, _)) = listener.accept().await else {
                    // Out of file handles, most likely: others must end before this can go on.
                    tokio::time::sleep(REDIAL_AFTER_MIN).await;
                    continue;
                };
                let Some(tasks) = tasks.upgrade() else { return };
                let mut running = lock(&tasks);
                while running.try_join_next().is_some() {}
                let shared = Arc::clone(&shared);
                running.spawn(async move { shared.answer(stream).await });
            }
        });
        let peers: Vec<NodeId> = self.shared.peers.load().keys().copied().collect();
        self.dial_from(&mut running, event_loop, &peers);
        Ok(())
    }

    /// Sends a parcel. `false`: the node is not connected or does not keep up, and the parcel is gone.
    pub fn send(&self, to: NodeId, parcel: &Parcel) -> bool {
        let queue = self.put(to, parcel);
        queue.inspect(|queue| queue.flush()).is_some()
    }

    /// Sends a parcel together with those of other tasks of this thread. `false` as above.
    pub fn send_together(&self, to: NodeId, parcel: &Parcel) -> bool {
        let Some(queue) = self.put(to, parcel) else {
            return false;
        };
        match Handle::try_current() {
            // The first that has its turn after the others have had theirs sends what all of them have put there.
            Ok(thread) => drop(thread.spawn(async move { queue.flush() })),
            Err(_) => queue.flush(),
        }
        true
    }

    fn put(&self, to: NodeId, parcel: &Parcel) -> Option<Arc<Queue>> {
        let queue = self.shared.put(to, &parcel.encode());
        if queue.is_none() {
            let counts = &self.shared.counts;
            counts.dropped_parcels.fetch_add(1, Ordering::Relaxed);
        }
        queue
    }

    pub fn is_connected(&self, node: NodeId) -> bool {
        let peers = self.shared.peers.load();
        let peer = peers.get(&node);
        peer.is_some_and(|peer| peer.queue.load().is_some())
    }

    /// The nodes that are connected.
    pub fn connected(&self) -> Vec<NodeId> {
        let peers = self.shared.peers.load();
        let connected = peers.iter().filter(|(_, peer)| peer.queue.load().is_some());
        connected.map(|(node, _)| *node).collect()
    }

    pub fn counts(&self) -> &Counts {
        &self.shared.counts
    }
}

fn lock(tasks: &Mutex<JoinSet<()>>) -> std::sync::MutexGuard<'_, JoinSet<()>> {
    tasks.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Why a connection ended.
#[derive(Debug)]
pub(super) enum Ended {
    Frame(Refused),
    Garbage(rmp_serde::decode::Error),
    Distrust(Distrust),
    Stranger(NodeId),
    Io(io::Error),
    Silent,
    /// A newer connection took its place, or the node stops.
    Replaced,
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Frame(refused) => refused.fmt(f),
            Self::Garbage(failure) => write!(f, "a frame's body cannot be read: {failure}"),
            Self::Distrust(distrust) => distrust.fmt(f),
            Self::Stranger(node) => write!(f, "node {node} is no member of the cluster"),
            Self::Io(failure) => failure.fmt(f),
            Self::Silent => f.write_str("the other node is silent"),
            Self::Replaced => f.write_str("a newer connection took its place"),
        }
    }
}

impl From<Refused> for Ended {
    fn from(refused: Refused) -> Self {
        Self::Frame(refused)
    }
}

impl From<Distrust> for Ended {
    fn from(distrust: Distrust) -> Self {
        Self::Distrust(distrust)
    }
}

impl From<io::Error> for Ended {
    fn from(failure: io::Error) -> Self {
        Self::Io(failure)
    }
}

impl From<tokio::time::error::Elapsed> for Ended {
    fn from(_: tokio::time::error::Elapsed) -> Self {
        Self::Silent
    }
}

impl Shared {
    /// Puts the bytes of a parcel into the queue of a node.
    fn put(&self, to: NodeId, parcel: &[u8]) -> Option<Arc<Queue>> {
        let peers = self.peers.load();
        let queue = peers.get(&to)?.queue.load_full()?;
        let bytes = parcel.len();
        if bytes > PARCEL_BYTES_MAX {
            warn!(to, bytes, "a parcel is too long for a frame");
            return None;
        }
        queue.put(parcel).then_some(queue)
    }

    fn peer(&self, node: NodeId) -> Option<Arc<Peer>> {
        self.peers.load().get(&node).cloned()
    }

    async fn keep_dialling(&self, node: NodeId) {
        let Some(peer) = self.peer(node) else {
            return;
        };
        let mut pause = REDIAL_AFTER_MIN;
        // Until the node is gone, or is to be found elsewhere.
        while self.peer(node).is_some_and(|now| Arc::ptr_eq(&now, &peer)) {
            match self.dial(node, &peer.address).await {
                Ok((stream, session)) => {
                    let begun = tokio::time::Instant::now();
                    let ended = self.converse(stream, &session).await;
                    self.note(Some(node), &ended);
                    // A node that hangs up at once does so again.
                    pause = match begun.elapsed() < REDIAL_AFTER_MAX {
                        true => (pause * 2).min(REDIAL_AFTER_MAX),
                        false => REDIAL_AFTER_MIN,
                    };
                }
                Err(ended) => {
                    self.note(Some(node), &ended);
                    pause = (pause * 2).min(REDIAL_AFTER_MAX);
                }
            }
            tokio::time::sleep(pause).await;
        }
    }

    async fn dial(&self, node: NodeId, address: &str) -> Result<(TcpStream, Session), Ended> {
        let mut stream = timeout(CONNECT_TIME_MAX, TcpStream::connect(address)).await??;
        stream.set_nodelay(true)?;
        let greeting = async {
            let cluster = self.identity.cluster;
            let (mut ours, mut theirs) = (Sealed::greeting(cluster), Sealed::greeting(cluster));
            let (dialing, hello) = Dialing::begin(&self.identity, node, nonce());
            say(&mut stream, &mut ours, &hello).await?;
            let challenge = hear(&mut stream, &mut theirs).await?;
            let (proof, session) = dialing.finish(&challenge)?;
            say(&mut stream, &mut ours, &proof).await?;
            Ok::<_, Ended>(session)
        };
        let session = timeout(GREETING_TIME_MAX, greeting).await??;
        Ok((stream, session))
    }

    /// Serves a connection that another node has opened.
    async fn answer(&self, stream: TcpStream) {
        let Ok(stranger) = self.strangers.try_acquire() else {
            self.counts
                .refused_strangers
                .fetch_add(1, Ordering::Relaxed);
            return;
        };
        let greeted = timeout(GREETING_TIME_MAX, self.greet(stream)).await;
        let ended = match greeted {
            Ok(Ok((stream, session))) if session.peer == ANYBODY => {
                // It counts as a stranger until it is gone: it has proved the key, not who it is.
                let served = join::serve(stream, &session, self.identity.cluster, &self.door);
                match timeout(JOIN_TIME_MAX, served).await {
                    Ok(Ok(())) => return,
                    Ok(Err(ended)) => ended,
                    Err(_) => Ended::Silent,
                }
            }
            Ok(Ok((stream, session))) => {
                drop(stranger);
                let ended = self.converse(stream, &session).await;
                return self.note(Some(session.peer), &ended);
            }
            Ok(Err(ended)) => ended,
            Err(_) => Ended::Silent,
        };
        self.note(None, &ended);
    }

    async fn greet(&self, mut stream: TcpStream) -> Result<(TcpStream, Session), Ended> {
        stream.set_nodelay(true)?;
        let cluster = self.identity.cluster;
        let (mut ours, mut theirs) = (Sealed::greeting(cluster), Sealed::greeting(cluster));
        let hello = match hear(&mut stream, &mut theirs).await {
            Err(Ended::Frame(refused @ Refused::Cluster(_))) => {
                // Any frame tells the other side which cluster this is.
                say(&mut stream, &mut ours, &()).await?;
                return Err(refused.into());
            }
            heard => heard?,
        };
        let (accepting, challenge) = Accepting::begin(&self.identity, &hello, nonce())?;
        say(&mut stream, &mut ours, &challenge).await?;
        let session = accepting.finish(&hear(&mut stream, &mut theirs).await?)?;
        if session.peer != ANYBODY && self.peer(session.peer).is_none() {
            return Err(Ended::Stranger(session.peer));
        }
        Ok((stream, session))
    }

    /// Sends and receives until something is wrong.
    async fn converse(&self, stream: TcpStream, session: &Session) -> Ended {
        let node = session.peer;
        let Some(peer) = self.peer(node) else {
            return Ended::Stranger(node);
        };
        let cluster = self.identity.cluster;
        let receiving = Sealed::session(cluster, &session.receive);
        let sending = Sealed::session(cluster, &session.send);
        let (reader, writer) = stream.into_split();
        let reader = BufReader::with_capacity(READ_BYTES, reader);
        let queue = Arc::new(Queue::new(writer, sending));
        peer.set_queue(Some(Arc::clone(&queue)));
        self.counts.connected.fetch_add(1, Ordering::Relaxed);
        info!(node, "connected");
        let ended = tokio::select! {
            ended = self.receive(node, reader, receiving) => ended,
            ended = queue.keep_sending() => ended,
            () = queue.closed.notified() => Ended::Replaced,
        };
        // Unless a newer connection is there already.
        let ours = peer.queue.load_full();
        if ours.is_some_and(|ours| Arc::ptr_eq(&ours, &queue)) {
            peer.queue.store(None);
        }
        (self.inbox)(node, Arrival::Gone);
        ended
    }

    async fn receive(
        &self,
        node: NodeId,
        mut reader: impl AsyncReadExt + Unpin,
        mut opening: Sealed,
    ) -> Ended {
        let mut buffer = Vec::new();
        loop {
            let received = timeout(SILENCE_MAX, read_frame(&mut reader, &opening, &mut buffer));
            let parcel = match received.await {
                Ok(Ok(())) => opening
                    .open(&buffer)
                    .map_err(Ended::from)
                    .and_then(|body| Parcel::decode(body).map_err(Ended::Garbage)),
                Ok(Err(ended)) => Err(ended),
                Err(silence) => Err(silence.into()),
            };
            match parcel {
                Ok(Parcel::Alive) => {}
                Ok(parcel) => (self.inbox)(node, Arrival::Parcel(parcel)),
                Err(ended) => return ended,
            }
            if buffer.capacity() > KEPT_BUFFER_BYTES_MAX {
                buffer = Vec::new();
            }
        }
    }

    fn note(&self, node: Option<NodeId>, ended: &Ended) {
        let counts = &self.counts;
        let count = match ended {
            Ended::Frame(_) | Ended::Garbage(_) => &counts.refused_frames,
            Ended::Distrust(_) | Ended::Stranger(_) => &counts.refused_nodes,
            Ended::Io(_) | Ended::Silent | Ended::Replaced => {
                debug!(node, reason = %ended, "disconnected");
                return;
            }
        };
        count.fetch_add(1, Ordering::Relaxed);
        warn!(node, reason = %ended, "connection refused");
    }
}

pub(super) fn nonce() -> Nonce {
    rand::random::<[u8; NONCE_BYTES]>()
}

/// Reads a frame without its length into the buffer.
async fn read_frame(
    reader: &mut (impl AsyncReadExt + Unpin),
    opening: &Sealed,
    buffer: &mut Vec<u8>,
) -> Result<(), Ended> {
    let mut length = [0; LENGTH_BYTES];
    reader.read_exact(&mut length).await?;
    buffer.clear();
    buffer.resize(opening.length(length)?, 0);
    reader.read_exact(buffer).await?;
    Ok(())
}

pub(super) async fn say(
    stream: &mut TcpStream,
    sealing: &mut Sealed,
    words: &impl Serialize,
) -> Result<(), Ended> {
    let body = rmp_serde::to_vec(words).expect("a struct of numbers has a MessagePack form");
    let mut frame = Vec::new();
    sealing.seal(&body, &mut frame)?;
    Ok(stream.write_all(&frame).await?)
}

pub(super) async fn hear<T: DeserializeOwned>(
    stream: &mut TcpStream,
    opening: &mut Sealed,
) -> Result<T, Ended> {
    let mut buffer = Vec::new();
    read_frame(stream, opening, &mut buffer).await?;
    rmp_serde::from_slice(opening.open(&buffer)?).map_err(Ended::Garbage)
}
