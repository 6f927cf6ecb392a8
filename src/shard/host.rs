//! The shards of a node: opens them on a fixed set of arbiters, rebuilds an actor that panicked, bounds what may wait for one.

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
use tokio::sync::oneshot;
use tracing::{error, info, warn};

use super::{
    actor::{ChangeDefaultTtl, Close, Farewell, Perform, Shard, Wake},
    commit::Reply,
    facts::ShardFacts,
    index_work::ChangeIndex,
    leadership::{Follow, Lead},
    replica::{self, Replica},
    split,
    state::ShardState,
    transaction::Operation,
    view::{Counters, ShardView},
};
use crate::{
    clock::Clock,
    cluster::{GroupId, NodeId, driver::Driver, group_log::Begin, snapshots::Snapshots},
    model::{
        catalog::Catalog,
        epk::Epk,
        error::{Error, ErrorKind, Result},
        indexing_policy::IndexingPolicy,
        rid::ContainerRid,
        ttl::DefaultTtl,
    },
    store::{Batch, Engine, EngineError, SharedResources, engine::Durability},
};

/// How long a client should wait when a queue is full.
const QUEUE_FULL_RETRY_MS: u32 = 50;

/// How often it is looked whether the last reader has let go of an engine.
const REOPEN_POLL: Duration = Duration::from_millis(1);
/// How often it is looked whether a full disk has room again.
const FULL_DISK_POLL: Duration = Duration::from_secs(1);

/// Bounds on what may be under way.
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
    folder: PathBuf,
    admission: Admission,
    bytes_under_way: AtomicUsize,
    /// `None`: the shards of this node are on no other.
    groups: Option<Groups>,
    /// Replicas whose files are about to go.
    leaving: Mutex<HashSet<GroupId>>,
}

/// What the shards of a node in a cluster need to take part in their groups.
pub struct Groups {
    pub driver: Driver,
    pub snapshots: Arc<Snapshots>,
    /// Whether a node is connected to this one.
    pub connected: Box<dyn Fn(NodeId) -> bool + Send + Sync>,
    /// The version of the catalog that filled this node when it had nothing; 0 if none did.
    pub filled: Box<dyn Fn() -> u64 + Send + Sync>,
}

/// One shard as the rest of the node knows it.
pub struct ShardHandle {
    pub facts: ShardFacts,
    host: Arc<ShardHost>,
    link: ArcSwap<Link>,
    /// Set when the shard is closed for good, so that no rebuild brings it back.
    closed: AtomicBool,
    requests_under_way: AtomicUsize,
    /// There in a cluster only.
    replica: OnceLock<Arc<Replica>>,
    begin: Begin,
    /// Nodes that had replicas when this one was opened.
    pub(super) peers: Vec<NodeId>,
    /// Set while it is being cut in two: an actor that is built anew meanwhile decides nothing.
    splitting: AtomicBool,
    /// In a cluster: what its own replica was cut into, before the catalog says so.
    parts: OnceLock<Vec<Arc<ShardHandle>>>,
    /// What it was cut into.
    heirs: OnceLock<Vec<Arc<ShardHandle>>>,
    /// What was there before the heirs were: hands over what comes late, until the shard is closed.
    retired: OnceLock<Arc<Link>>,
    /// The last default that the shard was told of. One that it could not store then, it is told again when it is rebuilt.
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
    Elsewhere(Option<NodeId>),
}

impl ShardHost {
    pub fn new(
        arbiters: Vec<ArbiterHandle>,
        shared: SharedResources,
        clock: Clock,
        folder: &Path,
        admission: Admission,
        groups: Option<Groups>,
    ) -> Arc<Self> {
        Arc::new(Self {
            groups,
            arbiters,
            next_arbiter: AtomicUsize::new(0),
            next_remote: AtomicUsize::new(0),
            shared,
            clock,
            folder: folder.to_owned(),
            admission,
            bytes_under_way: AtomicUsize::new(0),
            leaving: Mutex::default(),
        })
    }

    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Opens a shard, or makes it. A damaged one is there too, and answers every request with what is wrong.
    pub fn open(
        self: &Arc<Self>,
        facts: ShardFacts,
        default: DefaultTtl,
        policy: &IndexingPolicy,
    ) -> Arc<ShardHandle> {
        let opened = self.open_view(&facts, default, Some(policy));
        self.start(facts, Begin::Blank, &[], opened)
    }

    /// Opens this node's replica of a shard, or makes it.
    pub fn open_replica(
        self: &Arc<Self>,
        facts: ShardFacts,
        begin: Begin,
        replicas: &[NodeId],
    ) -> Arc<ShardHandle> {
        // An earlier replica of it may still be on its way out.
        while self.leaving().contains(&group_of(&facts)) {
            std::thread::sleep(REOPEN_POLL);
        }
        let opened = self
            .take_fetched(&facts)
            // All replicas begin the same, whenever they begin; the first leader gives the shard what the catalog says.
            .and_then(|()| self.open_view(&facts, DefaultTtl::Off, None));
        self.start(facts, begin, replicas, opened)
    }

    /// A shard of which other nodes have replicas.
    pub fn remote(self: &Arc<Self>, facts: ShardFacts, replicas: Vec<NodeId>) -> Arc<ShardHandle> {
        if let Some(groups) = &self.groups {
            // A crash may have left the log of a replica that was here.
            groups.driver.remove(group_of(&facts));
        }
        self.handle(facts, Begin::Blank, &[], Link::Remote(replicas))
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
        begin: Begin,
        replicas: &[NodeId],
        opened: Result<Arc<ShardView>, EngineError>,
    ) -> Arc<ShardHandle> {
        let starting = Link::Down(Error::unavailable("the shard is starting"));
        let handle = self.handle(facts, begin, replicas, starting);
        match opened {
            Ok(view) => {
                start_actor(&handle, Arc::clone(&view));
                // A crash may have come between the split of a shard and the making of its parts.
                if let Err(failure) = handle.part(&view) {
                    handle.fail(&failure);
                }
            }
            Err(failure) => handle.fail(&failure),
        }
        handle
    }

    fn handle(
        self: &Arc<Self>,
        facts: ShardFacts,
        begin: Begin,
        replicas: &[NodeId],
        link: Link,
    ) -> Arc<ShardHandle> {
        Arc::new(ShardHandle {
            facts,
            host: Arc::clone(self),
            link: ArcSwap::from_pointee(link),
            closed: AtomicBool::new(false),
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

    /// A crash between the moment when the log went over to a snapshot and the one when the engine did is made good.
    fn take_fetched(&self, facts: &ShardFacts) -> Result<(), EngineError> {
        let Some(groups) = &self.groups else {
            return Ok(());
        };
        let (folder, group) = (self.shard_folder(facts), group_of(facts));
        if !groups.snapshots.has_fetched(group) {
            return Ok(());
        }
        let applied = match folder.exists() {
            true => replica::applied(&Engine::open(&folder, &self.shared)?)?,
            false => 0,
        };
        if let Some(files) = groups.snapshots.pending(group, applied)? {
            swap_folder(&files, &folder)?;
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
        let engine = Engine::open(&self.shard_folder(facts), &self.shared)?;
        if engine.torn_bytes() > 0 {
            warn!(
                container = %facts.container,
                range = facts.range_id,
                torn_bytes = engine.torn_bytes(),
                "dropped an unfinished record at the end of the journal"
            );
        }
        let state = match ShardState::load(&engine)? {
            Some(state) => state,
            None => begin(&engine, facts, default, policy)?,
        };
        let view = ShardView::new(facts.clone(), Arc::new(engine), self.clock.clone(), state);
        let micros = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX);
        view.counters
            .recovery_micros
            .store(micros, Ordering::Relaxed);
        Ok(Arc::new(view))
    }

    /// Makes the folder of a shard that another one is cut into. The other one decides nothing meanwhile.
    pub fn make_part(
        &self,
        parent: &ShardView,
        part: &ShardFacts,
        origin: &[NodeId],
    ) -> Result<(), EngineError> {
        let folder = self.shard_folder(part);
        split::make_part(parent, part, &folder, &self.shared, origin)
    }

    /// The version of the catalog by which this node may have had things that it does not have any more.
    pub(super) fn filled(&self) -> u64 {
        let groups = self.groups.as_ref();
        groups.map_or(0, |groups| (groups.filled)())
    }

    pub(super) fn has_folder(&self, part: &ShardFacts) -> bool {
        self.shard_folder(part).exists()
    }

    /// Removes the folder of a part that did not come about.
    pub fn remove_part(&self, part: &ShardFacts) {
        if let Err(failure) = std::fs::remove_dir_all(self.shard_folder(part)) {
            warn!(container = %part.container, range = part.range_id, %failure, "files of a split that did not come about are left behind");
        }
    }

    fn shard_folder(&self, facts: &ShardFacts) -> PathBuf {
        self.shards_folder()
            .join(folder_name(facts.container, facts.range_id))
    }

    fn shards_folder(&self) -> PathBuf {
        self.folder.join("shards")
    }

    /// Removes folders that no container of the catalog owns, or that this node (in a cluster) is to have nothing of: what a crash in the middle of making or removing leaves.
    pub fn remove_orphans(&self, catalog: &Catalog, node: Option<NodeId>) -> std::io::Result<()> {
        let entries = match std::fs::read_dir(self.shards_folder()) {
            Ok(entries) => entries.collect::<std::io::Result<Vec<_>>>()?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        };
        // A folder full of shards without a catalog is not garbage: the catalog is lost.
        if catalog.version == 0 && !entries.is_empty() {
            let message = format!(
                "{} holds shards, but there is no catalog beside it",
                self.shards_folder().display()
            );
            return Err(std::io::Error::new(
                std::io::ErrorKind::InvalidData,
                message,
            ));
        }
        let containers = catalog
            .databases
            .values()
            .flat_map(|database| database.containers.values());
        let owned: HashSet<String> = containers
            .flat_map(|container| {
                let ranges = container.ranges.iter();
                ranges
                    .filter(|range| node.is_none_or(|node| range.is_here(node)))
                    .map(|range| folder_name(container.rid, range.id))
            })
            .collect();
        for entry in entries {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            let ahead = self.groups.is_some() && is_ahead(catalog, &name);
            if !owned.contains(name.as_ref()) && !ahead {
                info!(folder = %entry.path().display(), "removing a shard that no container owns");
                std::fs::remove_dir_all(entry.path())?;
            }
        }
        Ok(())
    }

    fn arbiter(&self) -> &ArbiterHandle {
        let next = self.next_arbiter.fetch_add(1, Ordering::Relaxed);
        self.arbiters
            .get(next % self.arbiters.len().max(1))
            .expect("a host has at least one arbiter")
    }
}

/// The state of a shard that is made now. The first commit makes it durable, with what it rests on.
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
    engine.write(batch, Durability::Buffered)?;
    Ok(state)
}

/// The Raft group of a shard.
fn group_of(facts: &ShardFacts) -> GroupId {
    group_of_range(facts.container, facts.range_id)
}

/// The Raft group of a container's range.
pub fn group_of_range(container: ContainerRid, range: u32) -> GroupId {
    let ContainerRid { database, ordinal } = container;
    GroupId {
        container: u64::from(database.0) << 32 | u64::from(ordinal),
        range,
    }
}

/// A resource id has no slash; its padding is left out.
fn folder_name(container: ContainerRid, range_id: u32) -> String {
    format!("{}-{range_id}", container.to_text().trim_end_matches('='))
}

/// Whether a folder is that of a range which the catalog does not know yet: this node's replica was split, and news of the catalog have not come that far.
fn is_ahead(catalog: &Catalog, name: &str) -> bool {
    let Some((container, range)) = name.rsplit_once('-') else {
        return false;
    };
    let databases = catalog.databases.values();
    let mut containers = databases.flat_map(|database| database.containers.values());
    let known = containers.find(|known| known.rid.to_text().trim_end_matches('=') == container);
    known
        .zip(range.parse().ok())
        .is_some_and(|(known, range): (_, u32)| range > known.highest_range())
}

/// Starts the actor of a shard on one of the arbiters, and again whenever it panics.
fn start_actor(handle: &Arc<ShardHandle>, view: Arc<ShardView>) {
    let weak = Arc::downgrade(handle);
    let farewell = Farewell(Some(Box::new(move || {
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
        None => Shard::open(Arc::clone(&view), farewell),
        Some((replica, _)) => Shard::open_replica(Arc::clone(&view), farewell, Arc::clone(replica)),
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
                view,
                address: address.clone(),
                leader: match &replica {
                    None => Leader::Here,
                    Some(_) => Leader::Elsewhere(None),
                },
            }));
            match replica {
                None => {}
                Some((replica, true)) => {
                    if let Err(failure) = replica.join(handle.begin.clone()) {
                        handle.fail(&failure);
                    }
                }
                Some((replica, false)) => replica.begin_again(),
            }
            // Whoever closed the shard while it was being rebuilt spoke to the actor that is gone.
            if handle.closed.load(Ordering::SeqCst) {
                handle.link.store(Arc::new(Link::Down(closed())));
                let (closed, _) = oneshot::channel();
                address.do_send(Close { closed });
            }
        }
        Err(failure) => handle.fail(&failure),
    }
}

/// A shard actor is gone: it panicked, or it asks for a new engine because the old one met a full disk.
fn rebuild(handle: &Arc<ShardHandle>) {
    let Ok(view) = handle.view() else { return };
    view.counters.restarts.fetch_add(1, Ordering::Relaxed);
    let rebuilt = Arc::clone(handle);
    // Not here: this may run while a panic unwinds.
    if view.disk_full() {
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

/// Opens the engine anew: after a full disk it takes no writes any more. Whoever reads in between is told to try again.
fn reopen(handle: &Arc<ShardHandle>, view: Arc<ShardView>) {
    handle.link.store(Arc::new(Link::Down(Error::unavailable(
        "the shard is being reopened after the disk was full; try again",
    ))));
    if let Some(replica) = handle.replica() {
        replica.set_view(None);
    }
    let counted = release(view);
    loop {
        // The default and the policy are the stored ones: the shard is not new.
        match handle.host.open_view(&handle.facts, DefaultTtl::Off, None) {
            Ok(view) => {
                view.counters.continue_from(&counted);
                warn!(
                    range = handle.facts.range_id,
                    "the disk has room again; writes are taken"
                );
                return start_actor(handle, view);
            }
            Err(EngineError::Full(_)) => std::thread::sleep(FULL_DISK_POLL),
            Err(failure) => return handle.fail(&failure),
        }
    }
}

/// Waits until the last reader has let go of an engine, and closes it. What it has counted.
fn release(view: Arc<ShardView>) -> Arc<Counters> {
    while Arc::strong_count(&view) > 1 {
        std::thread::sleep(REOPEN_POLL);
    }
    Arc::clone(&view.counters)
}

/// Puts a folder in the place of another. After a crash in between there is at least one of them, and who looks for the second finds it.
fn swap_folder(new: &Path, place: &Path) -> std::io::Result<()> {
    let old = place.with_extension("old");
    if old.exists() {
        std::fs::remove_dir_all(&old)?;
    }
    if place.exists() {
        std::fs::rename(place, &old)?;
    }
    let parent = place.parent().unwrap_or(place);
    std::fs::create_dir_all(parent)?;
    std::fs::rename(new, place)?;
    std::fs::File::open(parent)?.sync_all()?;
    if old.exists() {
        std::fs::remove_dir_all(&old)?;
    }
    Ok(())
}

fn closed() -> Error {
    Error::unavailable("the shard is closed")
}

/// A place in a shard's queue; given back when dropped.
pub struct Permit<'a> {
    handle: &'a ShardHandle,
    bytes: usize,
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        self.handle
            .requests_under_way
            .fetch_sub(1, Ordering::Relaxed);
        self.handle
            .host
            .bytes_under_way
            .fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl ShardHandle {
    /// Refuses every request from now on, saying why.
    fn fail(&self, failure: &EngineError) {
        let ShardFacts {
            container,
            range_id,
            ..
        } = &self.facts;
        error!(%container, range = range_id, %failure, "shard cannot be opened");
        let error = Error::unavailable(format!(
            "partition key range {range_id} cannot be served: {failure}"
        ));
        self.link.store(Arc::new(Link::Down(error)));
    }

    /// What can be read of the shard.
    pub fn view(&self) -> Result<Arc<ShardView>> {
        match &**self.link.load() {
            Link::Up { view, .. } => Ok(Arc::clone(view)),
            Link::Remote(nodes) => Err(self.elsewhere(nodes)),
            Link::Down(error) => Err(error.clone()),
        }
    }

    /// Reads without taking a share of the view.
    pub fn with_view<T>(&self, read: impl FnOnce(&ShardView) -> Result<T>) -> Result<T> {
        match &**self.link.load() {
            Link::Up { view, .. } => read(view),
            Link::Remote(nodes) => Err(self.elsewhere(nodes)),
            Link::Down(error) => Err(error.clone()),
        }
    }

    pub(super) fn set_splitting(&self, splitting: bool) {
        self.splitting.store(splitting, Ordering::SeqCst);
    }

    pub(super) fn filled(&self) -> u64 {
        self.host.filled()
    }

    /// What this node's replica was cut into; the catalog may not know of it yet.
    pub fn parts(&self) -> &[Arc<ShardHandle>] {
        self.parts.get().map_or(&[], Vec::as_slice)
    }

    pub(super) fn put_parts(&self, open: impl FnOnce(&Arc<ShardHost>) -> Vec<Arc<ShardHandle>>) {
        self.parts.get_or_init(|| open(&self.host));
    }

    /// What it was cut into; nothing while it is whole.
    pub fn heirs(&self) -> &[Arc<ShardHandle>] {
        self.heirs.get().map_or(&[], Vec::as_slice)
    }

    /// The one of them that owns a key.
    pub fn heir(&self, place: &[u8]) -> Option<&Arc<ShardHandle>> {
        let mut heirs = self.heirs().iter();
        heirs.find(|heir| heir.facts.range.contains(place))
    }

    /// From now on the range is gone, and these are in its place. The actor, which must hand over what waits.
    pub(super) fn put_heirs(&self, heirs: Vec<Arc<ShardHandle>>) -> Option<Addr<Shard>> {
        // Only the first of two splits can have come about.
        let _ = self.heirs.set(heirs);
        let gone = Error::new(
            ErrorKind::RangeGone,
            format!("partition key range {} was split", self.facts.range_id),
        );
        let before = self.link.swap(Arc::new(Link::Down(gone)));
        match &**self.retired.get_or_init(|| before) {
            Link::Up { address, .. } => Some(address.clone()),
            Link::Remote(_) | Link::Down(_) => None,
        }
    }

    /// Takes in a request that waited elsewhere.
    pub(super) fn take_in(&self, request: Perform) {
        match &**self.link.load() {
            Link::Up { view, address, .. } => {
                if view.intake.push(request) {
                    address.do_send(Wake);
                }
            }
            Link::Remote(nodes) => {
                let _ = request.reply.send(Err(self.elsewhere(nodes)));
            }
            Link::Down(error) => {
                let _ = request.reply.send(Err(error.clone()));
            }
        }
    }

    /// Where its writes are decided; `None` while the shard is down.
    pub fn leader(&self) -> Option<Leader> {
        match &**self.link.load() {
            Link::Up { leader, .. } => Some(*leader),
            Link::Remote(nodes) => Some(Leader::Elsewhere(self.host.reachable(nodes))),
            Link::Down(_) => None,
        }
    }

    /// That one of some nodes must answer what this one cannot.
    pub fn elsewhere(&self, nodes: &[NodeId]) -> Error {
        Error::elsewhere(self.host.reachable(nodes))
    }

    /// The nodes that have the shard, where this one has not.
    pub fn remote(&self) -> Option<Vec<NodeId>> {
        match &**self.link.load() {
            Link::Remote(nodes) => Some(nodes.clone()),
            Link::Up { .. } | Link::Down(_) => None,
        }
    }

    /// The nodes that answer for the shard while this one cannot: it has no replica, or one that waits to be filled.
    pub fn held_by_others(&self) -> Option<Vec<NodeId>> {
        let blank = self.replica().is_some_and(|replica| !replica.is_filled());
        self.remote().or_else(|| blank.then(|| self.peers.clone()))
    }

    /// Goes on from the engine in a folder, which is moved to the place of the old one. Whoever reads in between is told to try again. Waits for readers and for the disk.
    pub(super) fn replace_engine(self: &Arc<Self>, files: &Path) -> Result<(), EngineError> {
        if !self.heirs().is_empty() {
            return Err(EngineError::Io(
                "the shard was split; its parts are filled".into(),
            ));
        }
        let filling = || Link::Down(Error::unavailable("the shard is being filled; try again"));
        let (closing, done) = oneshot::channel();
        if self.send(Close { closed: closing }).is_ok() {
            // An actor that is gone already has nothing to finish.
            let _ = done.blocking_recv();
        }
        let view = self.view().ok();
        self.link.store(Arc::new(filling()));
        if let Some(replica) = self.replica() {
            replica.set_view(None);
        }
        let counted = view.map(release);
        swap_folder(files, &self.host.shard_folder(&self.facts))?;
        let view = self.host.open_view(&self.facts, DefaultTtl::Off, None)?;
        if let Some(counted) = counted {
            view.counters.continue_from(&counted);
        }
        start_actor(self, Arc::clone(&view));
        // The others may have been split before they filled this one.
        self.part(&view)
    }

    pub(super) fn replica(&self) -> Option<Arc<Replica>> {
        self.replica.get().cloned()
    }

    fn set_leader(&self, next: Leader) {
        self.link.rcu(|link| match &**link {
            Link::Up { view, address, .. } => Arc::new(Link::Up {
                view: Arc::clone(view),
                address: address.clone(),
                leader: next,
            }),
            Link::Remote(_) | Link::Down(_) => Arc::clone(link),
        });
    }

    /// This node decides from now on, in this term.
    pub(super) fn lead(&self, term: u64) {
        if self.send(Lead { term }).is_ok() {
            self.set_leader(Leader::Here);
        }
    }

    /// Another node decides from now on, or none.
    pub(super) fn follow(&self, leader: Option<NodeId>) {
        self.set_leader(Leader::Elsewhere(leader));
        let _ = self.send(Follow { leader });
    }

    /// How many requests wait for the shard.
    pub fn requests_under_way(&self) -> usize {
        self.requests_under_way.load(Ordering::Relaxed)
    }

    fn admit(&self, bytes: usize) -> Result<Permit<'_>> {
        let permit = Permit {
            handle: self,
            bytes,
        };
        let requests = self.requests_under_way.fetch_add(1, Ordering::Relaxed);
        let bytes_before = self
            .host
            .bytes_under_way
            .fetch_add(bytes, Ordering::Relaxed);
        let admission = self.host.admission;
        if requests >= admission.shard_requests_max
            || bytes_before + bytes > admission.node_bytes_max
        {
            let mut error = Error::new(
                ErrorKind::Overloaded,
                format!(
                    "too many requests wait for partition key range {}: {requests} are under way",
                    self.facts.range_id
                ),
            );
            error.retry_after_ms = Some(QUEUE_FULL_RETRY_MS);
            return Err(error);
        }
        Ok(permit)
    }

    /// Carries out changes to items of one partition key; answers when they are durable.
    pub async fn perform(
        &self,
        place: Epk,
        operations: Vec<Operation>,
        atomic: bool,
        bytes: usize,
    ) -> Result<Reply> {
        if self.closed.load(Ordering::SeqCst) {
            return match self.heir(&place) {
                Some(heir) => Box::pin(heir.perform(place, operations, atomic, bytes)).await,
                None => Err(closed()),
            };
        }
        let _permit = self.admit(bytes)?;
        let (reply, answer) = oneshot::channel();
        let request = Perform {
            place,
            operations,
            atomic,
            reply,
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
                leader: Leader::Elsewhere(node),
                ..
            } => {
                // A replica that waits to be filled does not know who leads; the others do.
                let peers = self.replica().filter(|replica| !replica.is_filled());
                return Err(match (node, peers) {
                    (None, Some(_)) => self.elsewhere(&self.peers),
                    (node, _) => Error::elsewhere(*node),
                });
            }
            Link::Remote(nodes) => return Err(self.elsewhere(nodes)),
            Link::Down(error) => Some((request, error.clone())),
        };
        if let Some((request, error)) = refused {
            let Perform {
                place, operations, ..
            } = request;
            return match self.heir(&place) {
                Some(heir) => Box::pin(heir.perform(place, operations, atomic, bytes)).await,
                None => Err(error),
            };
        }
        answer.await.map_err(|_| self.restarting())?
    }

    /// Changes the default time to live; in force when this returns.
    pub async fn change_default_ttl(&self, default: DefaultTtl, at: i64) -> Result<()> {
        *self
            .last_default
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Some(default);
        let (reply, answer) = oneshot::channel();
        self.send(ChangeDefaultTtl { default, at, reply })?;
        answer.await.map_err(|_| self.restarting())??;
        Ok(())
    }

    fn last_default(&self) -> Option<DefaultTtl> {
        *self
            .last_default
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// The default that is in force on the shard; `None` when it is down.
    pub fn default_ttl(&self) -> Option<DefaultTtl> {
        self.with_view(|view| Ok(view.state().rules.default)).ok()
    }

    /// Gives a shard that was just opened the default that the catalog has.
    pub fn catch_up_default_ttl(&self, default: DefaultTtl) {
        let Ok(view) = self.view() else { return };
        if view.state().rules.default == default {
            return;
        }
        let (reply, answer) = oneshot::channel();
        let at = self.host.clock.now();
        let caught_up = self.send(ChangeDefaultTtl { default, at, reply });
        match caught_up.and_then(|()| answer.blocking_recv().map_err(|_| self.restarting())?) {
            Ok(_) => {
                info!(container = %self.facts.container, range = self.facts.range_id, ?default, "shard caught up with the catalog")
            }
            Err(failure) => {
                error!(range = self.facts.range_id, %failure, "shard could not catch up with the catalog")
            }
        }
    }

    /// Changes the indexing policy; durable when this returns, though the new index may not be complete.
    pub async fn change_index(&self, policy: &IndexingPolicy, rebuild: bool) -> Result<()> {
        let (reply, answer) = oneshot::channel();
        let policy = policy.clone();
        self.send(ChangeIndex {
            policy,
            rebuild,
            reply,
        })?;
        answer.await.map_err(|_| self.restarting())??;
        Ok(())
    }

    /// Gives a shard that was just opened the indexing policy that the catalog has, in a new index if that is asked for.
    pub fn catch_up_index(&self, policy: &IndexingPolicy, rebuild: bool) {
        let (reply, answer) = oneshot::channel();
        let caught_up = self.send(ChangeIndex {
            policy: policy.clone(),
            rebuild,
            reply,
        });
        if let Err(failure) =
            caught_up.and_then(|()| answer.blocking_recv().map_err(|_| self.restarting())?)
        {
            error!(range = self.facts.range_id, %failure, "shard could not catch up with the catalog's indexing policy");
        }
    }

    /// Whether some node takes writes of the shard, as far as is known.
    pub fn check_led(&self) -> Result<()> {
        match self.leader() {
            Some(Leader::Here) => self.check_writable(),
            Some(Leader::Elsewhere(Some(_))) => Ok(()),
            Some(Leader::Elsewhere(None)) | None => Err(Error::elsewhere(None)),
        }
    }

    /// Whether the shard takes writes, as far as is known.
    pub fn check_writable(&self) -> Result<()> {
        self.with_view(ShardView::check_writable)
    }

    /// Finishes what is under way and lets go of the files.
    pub async fn close(&self) {
        let Some(view) = self.finish().await else {
            return;
        };
        let flushed = tokio::task::spawn_blocking(move || {
            let flushed = view.engine.flush();
            // Nobody waits at the end of the node for files that are being rewritten.
            view.engine.halt();
            flushed
        })
        .await;
        if let Ok(Err(failure)) = flushed {
            warn!(range = self.facts.range_id, %failure, "the write buffer could not be handed to the disk; the journal has it");
        }
    }

    /// Ends the actor after what it has accepted is committed. What it leaves; `None` when the shard was down.
    async fn finish(&self) -> Option<Arc<ShardView>> {
        self.closed.store(true, Ordering::SeqCst);
        let link = match self.retired.get() {
            Some(retired) => Arc::clone(retired),
            None => self.link.load_full(),
        };
        let view = match &*link {
            Link::Up { view, address, .. } => {
                let (closing, done) = oneshot::channel();
                address.do_send(Close { closed: closing });
                // An actor that is gone already has nothing to finish.
                let _ = done.await;
                Some(Arc::clone(view))
            }
            Link::Remote(_) | Link::Down(_) => None,
        };
        if self.heirs().is_empty() {
            self.link.store(Arc::new(Link::Down(closed())));
        }
        view
    }

    /// Its files are about to go: whoever opens a replica of the shard again waits for that.
    pub fn note_leaving(&self) {
        self.host.leaving().insert(group_of(&self.facts));
    }

    /// Closes the shard and removes its files.
    pub async fn destroy(&self) -> std::io::Result<()> {
        let removed = self.close_and_remove().await;
        self.host.leaving().remove(&group_of(&self.facts));
        removed
    }

    async fn close_and_remove(&self) -> std::io::Result<()> {
        if let Some(replica) = self.replica.get() {
            replica.leave();
        }
        let view = self.finish().await;
        let folder = self.host.shard_folder(&self.facts);
        tokio::task::spawn_blocking(move || {
            if let Some(view) = view {
                view.engine.halt();
            }
            std::fs::remove_dir_all(folder)
        })
        .await??;
        info!(container = %self.facts.container, range = self.facts.range_id, "shard removed");
        Ok(())
    }

    pub(super) fn send<M>(&self, message: M) -> Result<()>
    where
        M: Message<Result = ()> + Send + 'static,
        Shard: Handler<M>,
    {
        match &**self.link.load() {
            Link::Up { address, .. } => {
                address.do_send(message);
                Ok(())
            }
            Link::Remote(nodes) => Err(self.elsewhere(nodes)),
            Link::Down(error) => Err(error.clone()),
        }
    }

    fn restarting(&self) -> Error {
        Error::unavailable(format!(
            "partition key range {} is restarting; whether the write was kept is not known",
            self.facts.range_id
        ))
    }
}
