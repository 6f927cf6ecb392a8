//! The shards of a node: opens them on a fixed set of arbiters, rebuilds an actor that panicked,
//! bounds what may wait for one.

mod check;
pub mod folders;
mod handle;
mod opening;
mod perform;
pub mod progress;
mod reopen;
pub mod split;
pub(super) mod split_replica;

use std::{
    collections::HashSet,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use actix::prelude::*;
use arc_swap::ArcSwap;
use tokio::sync::{oneshot, watch};
use tracing::{error, warn};

use folders::ShardFolders;
use handle::closed;
pub use opening::Openings;
pub use perform::Changes;
pub use reopen::Afterwards;
use reopen::reopen;

use crate::{
    clock::Clock,
    cluster::{
        GroupId, NodeId, driver::Driver, raft::log_disk::InitialState, snapshots::Snapshots,
        time::timekeeper::Timekeeper,
    },
    model::{
        error::{Error, Result},
        indexing_policy::IndexingPolicy,
        rid::ContainerRid,
        ttl::DefaultTtl,
    },
    shard::{
        actor::{ChangeDefaultTtl, Close, ExitNotifier, Shard, Wake},
        commit::view::ShardView,
        replica::{self, Replica},
        state::{ShardState, facts::ShardFacts},
    },
    store::{
        Batch, Engine, EngineError, SharedResources,
        engine::{Durability, is_blank},
    },
};

/// A shard's newest `_ts` may be ahead of the clock by so much after a start: clocks are set right
/// by small steps.
const SECONDS_AHEAD_USUAL: i64 = 60;

/// How often it is looked whether the last reader has let go of an engine.
const REOPEN_POLL: Duration = Duration::from_millis(1);

/// Bounds on what may be in flight.
#[derive(Clone, Copy, Debug)]
pub struct Admission {
    pub shard_requests_max: usize,
    pub node_bytes_max: usize,
}

/// All shards of this node.
pub struct ShardHost {
    arbiters: Vec<ArbiterHandle>,
    next_arbiter: AtomicUsize,
    /// Spreads what other nodes must answer.
    next_remote: AtomicUsize,
    shared: SharedResources,
    clock: Clock,
    folders: ShardFolders,
    admission: Admission,
    bytes_under_way: AtomicUsize,
    /// `None`: the shards of this node are on no other.
    groups: Option<ClusterContext>,
    /// Replicas whose files are about to go.
    leaving: Mutex<HashSet<GroupId>>,
    openings: Arc<Openings>,
}

/// What the shards of a node need of its cluster.
pub struct ClusterContext {
    pub driver: Driver,
    pub snapshots: Arc<Snapshots>,
    pub time: Arc<Timekeeper>,
    /// Whether a node is connected to this one.
    pub connected: Box<dyn Fn(NodeId) -> bool + Send + Sync>,
    /// The version of the catalog that initialized this node when it was empty; 0 if none did.
    pub initialized_at: Box<dyn Fn() -> u64 + Send + Sync>,
}

/// One shard as the rest of the node knows it.
pub struct ShardHandle {
    pub facts: ShardFacts,
    host: Arc<ShardHost>,
    link: ArcSwap<Link>,
    /// Set when the shard is closed for good, so that no rebuild brings it back.
    closed: AtomicBool,
    /// Whether the shard could not be opened for want of something that may come back.
    starved: AtomicBool,
    /// Set until the shard is opened behind the start of the node.
    is_opening: watch::Sender<bool>,
    /// Held while the engine is opened late, so that its files are not removed meanwhile.
    opening: Arc<Mutex<()>>,
    requests_under_way: AtomicUsize,
    /// There in a cluster only.
    replica: OnceLock<Arc<Replica>>,
    begin: InitialState,
    /// Nodes that had replicas when this one was opened.
    pub(super) peers: Vec<NodeId>,
    /// Set while it is being cut in two: an actor that is built anew meanwhile decides nothing.
    splitting: AtomicBool,
    /// In a cluster: what its own replica was cut into, before the catalog says so.
    parts: OnceLock<Vec<Arc<ShardHandle>>>,
    /// What it was cut into.
    heirs: OnceLock<Vec<Arc<ShardHandle>>>,
    /// What was there before the children were: hands over what comes late, until the shard is
    /// closed.
    retired: OnceLock<Arc<Link>>,
    /// The last default that the shard was told of. One that it could not store then, it is told
    /// again when it is rebuilt.
    last_default: Mutex<Option<DefaultTtl>>,
}

enum Link {
    /// Other nodes have the shard.
    Remote(Vec<NodeId>),
    Up {
        view: Arc<ShardView>,
        address: Addr<Shard>,
        leader: Leader,
    },
    Down(Error),
}

/// Where the writes of a shard are decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leader {
    Here,
    /// On another node, if it is known which.
    Remote(Option<NodeId>),
}

impl ShardHost {
    pub fn new(
        arbiters: Vec<ArbiterHandle>,
        shared: SharedResources,
        clock: Clock,
        folders: ShardFolders,
        admission: Admission,
        groups: Option<ClusterContext>,
    ) -> Arc<Self> {
        Arc::new(Self {
            groups,
            arbiters,
            next_arbiter: AtomicUsize::new(0),
            next_remote: AtomicUsize::new(0),
            shared,
            clock,
            folders,
            admission,
            bytes_under_way: AtomicUsize::new(0),
            leaving: Mutex::default(),
            openings: Arc::default(),
        })
    }

    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Opens a shard that was made before. A damaged one is there too, and answers every request
    /// with what is wrong.
    pub fn open(
        self: &Arc<Self>,
        facts: ShardFacts,
        default: DefaultTtl,
        policy: &IndexingPolicy,
    ) -> Arc<ShardHandle> {
        let opened = self.open_view(&facts, default, Some(policy));
        self.start(facts, InitialState::Uninitialized, &[], opened)
    }

    /// Makes a shard.
    pub fn make(
        self: &Arc<Self>,
        facts: ShardFacts,
        default: DefaultTtl,
        policy: &IndexingPolicy,
    ) -> Arc<ShardHandle> {
        let begun = Instant::now();
        let opened = self
            .make_engine(&facts)
            .and_then(|engine| self.view_of(engine, begun, &facts, default, Some(policy)));
        self.start(facts, InitialState::Uninitialized, &[], opened)
    }

    fn make_engine(&self, facts: &ShardFacts) -> Result<Engine, EngineError> {
        let now = self.clock.now();
        self.folders.make(facts, &self.shared, now)
    }

    /// Opens this node's replica of a shard, or makes it.
    pub fn open_replica(
        self: &Arc<Self>,
        facts: ShardFacts,
        begin: InitialState,
        replicas: &[NodeId],
    ) -> Arc<ShardHandle> {
        // An earlier replica of it may still be on its way out.
        while self.leaving().contains(&group_of(&facts)) {
            std::thread::sleep(REOPEN_POLL);
        }
        // All replicas begin the same, whenever they begin; the first leader gives the shard what
        // the catalog says.
        let opened = self.open_stored(&facts, DefaultTtl::Off, None);
        let handle = self.start(facts, begin, replicas, opened);
        handle.open_when_possible(DefaultTtl::Off, None, Box::new(|_| ()));
        handle
    }

    fn open_stored(
        &self,
        facts: &ShardFacts,
        default: DefaultTtl,
        policy: Option<&IndexingPolicy>,
    ) -> Result<Arc<ShardView>, EngineError> {
        self.take_fetched(facts)?;
        // A replica that is missing gets a snapshot of the others.
        if self.groups.is_some() && is_blank(&self.shard_folder(facts))? {
            drop(self.make_engine(facts)?);
        }
        self.open_view(facts, default, policy)
    }

    /// A shard of which other nodes have replicas.
    pub fn remote(self: &Arc<Self>, facts: ShardFacts, replicas: Vec<NodeId>) -> Arc<ShardHandle> {
        if let Some(groups) = &self.groups {
            // A crash may have left the log of a replica that was here.
            groups.driver.remove(group_of(&facts));
        }
        self.handle(
            facts,
            InitialState::Uninitialized,
            &[],
            Link::Remote(replicas),
        )
    }

    /// Replicas whose files are about to go.
    fn leaving(&self) -> MutexGuard<'_, HashSet<GroupId>> {
        self.leaving.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One of some nodes, which can be reached if any can.
    pub fn reachable(&self, nodes: &[NodeId]) -> Option<NodeId> {
        let connected = |node: &NodeId| {
            let groups = self.groups.as_ref();
            groups.is_some_and(|groups| (groups.connected)(*node))
        };
        let count = nodes.iter().filter(|node| connected(node)).count();
        let turn = self.next_remote.fetch_add(1, Ordering::Relaxed) % count.max(1);
        let mut connected = nodes.iter().filter(|node| connected(node));
        connected.nth(turn).copied()
    }

    fn start(
        self: &Arc<Self>,
        facts: ShardFacts,
        begin: InitialState,
        replicas: &[NodeId],
        opened: Result<Arc<ShardView>, EngineError>,
    ) -> Arc<ShardHandle> {
        let starting = Link::Down(Error::unavailable("the shard is starting"));
        let handle = self.handle(facts, begin, replicas, starting);
        match opened {
            Ok(view) => start_opened(&handle, view),
            Err(failure) => handle.fail(&failure),
        }
        handle
    }

    fn handle(
        self: &Arc<Self>,
        facts: ShardFacts,
        begin: InitialState,
        replicas: &[NodeId],
        link: Link,
    ) -> Arc<ShardHandle> {
        Arc::new(ShardHandle {
            facts,
            host: Arc::clone(self),
            link: ArcSwap::from_pointee(link),
            closed: AtomicBool::new(false),
            starved: AtomicBool::new(false),
            is_opening: watch::Sender::new(false),
            opening: Arc::default(),
            requests_under_way: AtomicUsize::new(0),
            replica: OnceLock::new(),
            begin,
            peers: replicas.to_vec(),
            splitting: AtomicBool::new(false),
            parts: OnceLock::new(),
            heirs: OnceLock::new(),
            retired: OnceLock::new(),
            last_default: Mutex::new(None),
        })
    }

    /// A crash between the moment when the log went over to a snapshot and the one when the engine
    /// did is made good.
    fn take_fetched(&self, facts: &ShardFacts) -> Result<(), EngineError> {
        let Some(groups) = &self.groups else {
            return Ok(());
        };
        let (folder, group) = (self.shard_folder(facts), group_of(facts));
        if !groups.snapshots.has_fetched(group) {
            return Ok(());
        }
        let applied = match is_blank(&folder)? {
            true => 0,
            false => replica::applied(&self.folders.open(facts, &self.shared, true)?)?,
        };
        if let Some(files) = groups.snapshots.pending(group, applied)? {
            self.folders.mark(&files, facts)?;
            self.folders.replace(facts, &files)?;
            groups.snapshots.discard(group);
        }
        Ok(())
    }

    fn open_view(
        &self,
        facts: &ShardFacts,
        default: DefaultTtl,
        policy: Option<&IndexingPolicy>,
    ) -> Result<Arc<ShardView>, EngineError> {
        let begun = Instant::now();
        let is_replica = self.groups.is_some();
        let engine = self.folders.open(facts, &self.shared, is_replica)?;
        // A replica begins with what its log says; a standalone shard has its state since it was
        // made.
        if !is_replica && ShardState::load(&engine)?.is_none() {
            return Err(EngineError::Damaged(
                "the shard has lost its state: files of its engine are missing".to_owned(),
            ));
        }
        self.view_of(engine, begun, facts, default, policy)
    }

    /// Returns the view of a shard whose engine was begun to be opened at a moment.
    fn view_of(
        &self,
        engine: Engine,
        begun: Instant,
        facts: &ShardFacts,
        default: DefaultTtl,
        policy: Option<&IndexingPolicy>,
    ) -> Result<Arc<ShardView>, EngineError> {
        if engine.torn_bytes() > 0 {
            warn!(
                container = %facts.container,
                range = facts.range_id,
                torn_bytes = engine.torn_bytes(),
                "dropped an unfinished record at the end of the WAL"
            );
        }
        let state = match ShardState::load(&engine)? {
            Some(state) => state,
            None => begin(&engine, facts, default, policy)?,
        };
        let clock = match &self.groups {
            None => {
                if self.clock.has_lost_floor() {
                    self.clock.raise(state.ts);
                }
                self.clock.clone()
            }
            Some(groups) => {
                let clock = self.clock.of_group(groups.time.offset(group_of(facts)));
                // Not behind the log, whatever the nodes have heard of each other by now.
                clock.raise(state.ts);
                clock
            }
        };
        let view = ShardView::new(facts.clone(), Arc::new(engine), clock, state);
        if view.seconds_ahead() > SECONDS_AHEAD_USUAL {
            warn!(
                container = %facts.container,
                range = facts.range_id,
                seconds_ahead = view.seconds_ahead(),
                "the shard was written to under a clock that was ahead: items that are written now expire late by as much"
            );
        }
        let micros = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX);
        let recovery = &view.counters.recovery_micros;
        recovery.store(micros, Ordering::Relaxed);
        Ok(Arc::new(view))
    }

    /// Makes the folder of a shard that another one is cut into. The other one decides nothing
    /// meanwhile.
    pub fn make_part(
        &self,
        parent: &ShardView,
        part: &ShardFacts,
        origin: &[NodeId],
    ) -> Result<(), EngineError> {
        let folder = self.shard_folder(part);
        self.folders.clear_way(&folder, self.clock.now())?;
        let mark = |unfinished: &Path| self.folders.mark(unfinished, part).map(drop);
        self.folders.begin_copy(&folder)?;
        split::make_part(parent, part, &folder, &self.shared, origin, mark)?;
        self.folders.end_copy(&folder)?;
        Ok(())
    }

    /// Returns the version of the catalog by which this node may have had things that it does not
    /// have any more.
    pub(super) fn initialized_at(&self) -> u64 {
        let groups = self.groups.as_ref();
        groups.map_or(0, |groups| (groups.initialized_at)())
    }

    pub(super) fn has_folder(&self, part: &ShardFacts) -> bool {
        self.shard_folder(part).exists()
    }

    /// Removes the folder of a part that did not come about.
    pub fn remove_part(&self, part: &ShardFacts) {
        self.folders.forget(part);
        match std::fs::remove_dir_all(self.shard_folder(part)) {
            Err(failure) if failure.kind() != std::io::ErrorKind::NotFound => {
                warn!(container = %part.container, range = part.range_id, %failure, "files of a split that did not come about are left behind");
            }
            _ => {}
        }
    }

    fn shard_folder(&self, facts: &ShardFacts) -> PathBuf {
        self.folders.of(facts)
    }

    fn arbiter(&self) -> &ArbiterHandle {
        let next = self.next_arbiter.fetch_add(1, Ordering::Relaxed);
        self.arbiters
            .get(next % self.arbiters.len().max(1))
            .expect("a host has at least one arbiter")
    }
}

/// Returns the state of a shard that is made now.
fn begin(
    engine: &Engine,
    facts: &ShardFacts,
    default: DefaultTtl,
    policy: Option<&IndexingPolicy>,
) -> Result<ShardState, EngineError> {
    let state = ShardState::new(facts.first_ordinal(), default);
    let Some(policy) = policy else {
        return Ok(state);
    };
    let mut batch = Batch::default();
    let state = state.with_index(policy, &mut batch);
    engine.write(batch, Durability::Synced)?;
    Ok(state)
}

/// Returns the Raft group of a shard.
fn group_of(facts: &ShardFacts) -> GroupId {
    group_of_range(facts.container, facts.range_id)
}

/// Returns the Raft group of a container's range.
pub fn group_of_range(container: ContainerRid, range: u32) -> GroupId {
    let ContainerRid { database, ordinal } = container;
    GroupId {
        container: u64::from(database.0) << 32 | u64::from(ordinal),
        range,
    }
}

/// Starts the actor of a shard that was down until now.
fn start_opened(handle: &Arc<ShardHandle>, view: Arc<ShardView>) {
    start_actor(handle, Arc::clone(&view));
    // A crash may have come between the split of a shard and the making of its parts.
    if let Err(failure) = handle.part(&view) {
        handle.fail(&failure);
    }
}

/// Starts the actor of a shard on one of the arbiters, and again whenever it panics.
fn start_actor(handle: &Arc<ShardHandle>, view: Arc<ShardView>) {
    let weak = Arc::downgrade(handle);
    let exit_notifier = ExitNotifier(Some(Box::new(move || {
        if let Some(handle) = weak.upgrade() {
            rebuild(&handle);
        }
    })));
    let replica = handle.host.groups.as_ref().map(|groups| {
        let first = handle.replica.get().is_none();
        let replica = handle.replica.get_or_init(|| {
            let group = group_of(&handle.facts);
            let weak = Arc::downgrade(handle);
            Replica::new(group, groups.driver.clone(), Arc::clone(&view), weak)
        });
        if !first {
            replica.set_view(Some(Arc::clone(&view)));
        }
        (Arc::clone(replica), first)
    });
    let opened = match &replica {
        None => Shard::open(Arc::clone(&view), exit_notifier),
        Some((replica, _)) => {
            let replica = Arc::clone(replica);
            Shard::open_replica(Arc::clone(&view), exit_notifier, replica)
        }
    };
    match opened {
        Ok(shard) => {
            let shard = if handle.splitting.load(Ordering::SeqCst) {
                shard.held()
            } else {
                shard
            };
            let address = Shard::start_in_arbiter(handle.host.arbiter(), |_| shard);
            if let Some(default) = handle.last_default() {
                let (reply, _) = oneshot::channel();
                let at = handle.host.clock.now();
                address.do_send(ChangeDefaultTtl { default, at, reply });
            }
            // What gathered while nobody was there to be woken.
            address.do_send(Wake);
            handle.link.store(Arc::new(Link::Up {
                view: Arc::clone(&view),
                address: address.clone(),
                leader: match &replica {
                    None => Leader::Here,
                    Some(_) => Leader::Remote(None),
                },
            }));
            match replica {
                None => {}
                Some((replica, true)) => {
                    if let Err(failure) = replica.join(&view.engine, handle.begin.clone()) {
                        handle.fail(&failure);
                    }
                }
                Some((replica, false)) => replica.begin_again(),
            }
            // A close while the shard was being rebuilt went to the actor that is gone.
            if handle.closed.load(Ordering::SeqCst) {
                handle.link.store(Arc::new(Link::Down(closed())));
                let (closed, _) = oneshot::channel();
                address.do_send(Close { closed });
            }
        }
        Err(failure) => handle.fail(&failure),
    }
}

/// A shard actor is gone: it panicked, or it asks for a new engine because the old one ran out of
/// something.
fn rebuild(handle: &Arc<ShardHandle>) {
    let Ok(view) = handle.view() else { return };
    view.counters.restarts.fetch_add(1, Ordering::Relaxed);
    let rebuilt = Arc::clone(handle);
    // Not here: this may run while a panic unwinds.
    if view.shortage().is_some() {
        // Waits for the last reader and for the disk.
        std::thread::spawn(move || reopen(&rebuilt, view));
        return;
    }
    let ShardFacts {
        container,
        range_id,
        ..
    } = &handle.facts;
    error!(%container, range = range_id, "shard actor panicked; rebuilding it from disk");
    handle
        .host
        .arbiter()
        .spawn_fn(move || start_actor(&rebuilt, view));
}
