//! The catalog of a cluster: the state machine of the meta group. Each entry of its log is a whole
//! catalog, which is small.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use actix::Addr;
use arc_swap::ArcSwap;
use bytes::Bytes;
use tokio::sync::oneshot;

use super::{Coordinator, catalog_file, shared::Adopt};
use crate::{
    cluster::{
        ENTRY_BYTES_MAX, GroupId, NodeId,
        driver::{
            Driver,
            state_machine::{StateMachine, StateMachineError},
        },
        member::Member,
        raft::{
            group::{Committed, ProposeError, Role},
            log_disk::{InitialState, LogBatch, LogDisk, LogRecord},
            proposals::{ProposalOutcome, Proposals},
        },
        snapshots::Snapshots,
    },
    model::{
        catalog::{Catalog, Range},
        error::{Error, ErrorKind, Result},
    },
    router::RoutingTable,
    store::{
        EngineError,
        checked_file::{self, Magic},
        engine::Durability,
    },
};

/// A ReadIndex request that takes longer is repeated: the lease counts from the request.
const RENEW_TIMEOUT: Duration = Duration::from_secs(1);
/// How often a node renews its lease.
const RENEW_INTERVAL: Duration = Duration::from_millis(500);
/// How long a quorum may take to confirm that this node leads the catalog.
const CONFIRM_TIMEOUT: Duration = Duration::from_secs(2);
const CATCH_UP_INTERVAL: Duration = Duration::from_millis(5);
/// Containers are created and changed up to this size of the catalog. The rest of an entry is for
/// splits and moves.
const CATALOG_BYTES_MAX: usize = ENTRY_BYTES_MAX / 4 * 3;
/// Stores the version of the catalog that initialized this node: see [`Meta::initialized_at`].
const INITIALIZED_AT: &str = "filled";
const INITIALIZED_AT_MAGIC: Magic = *b"BOLIDEF1";

/// The settings of a node of a cluster.
#[derive(Clone, Debug)]
pub struct Own {
    pub node: NodeId,
    /// The nodes that bootstrap the cluster, with their addresses.
    pub members: BTreeMap<NodeId, String>,
    /// Replicas of each range of a new container.
    pub replication: usize,
}

pub struct Meta {
    pub own: Own,
    folder: PathBuf,
    pub driver: Driver,
    pub member: Arc<Member>,
    disk: Arc<dyn LogDisk>,
    snapshots: Arc<Snapshots>,
    /// Adopts committed catalogs.
    coordinator: OnceLock<Addr<Coordinator>>,
    /// The index of the last entry that is applied, and the version of the last catalog among them.
    applied: AtomicU64,
    version: AtomicU64,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    role: Role,
    /// The node leads, but has not applied all entries of earlier leaders.
    taking_over: bool,
    proposals: Proposals<oneshot::Sender<Result<()>>>,
}

impl Meta {
    pub fn new(
        own: Own,
        folder: PathBuf,
        member: Arc<Member>,
        disk: Arc<dyn LogDisk>,
        snapshots: Arc<Snapshots>,
    ) -> Arc<Self> {
        Arc::new(Self {
            own,
            folder,
            driver: member.driver.clone(),
            member,
            disk,
            snapshots,
            coordinator: OnceLock::new(),
            applied: AtomicU64::new(0),
            version: AtomicU64::new(0),
            inner: Mutex::default(),
        })
    }

    /// Installs a snapshot that the log has accepted before a crash and the catalog has not. Must
    /// be called before the catalog is read.
    pub fn recover(&self) -> Result<(), EngineError> {
        let persisted = self.disk.load(GroupId::META)?.unwrap_or_default();
        if let Some(files) = self.snapshots.pending(GroupId::META, persisted.applied)? {
            self.take(&files, persisted.truncated.index)?;
            self.snapshots.discard(GroupId::META);
        }
        Ok(())
    }

    /// Takes part in the meta group on behalf of a coordinator.
    pub fn join(
        self: &Arc<Self>,
        coordinator: Addr<Coordinator>,
        initial: InitialState,
    ) -> Result<(), EngineError> {
        // It is set once, before the group can commit anything.
        let _ = self.coordinator.set(coordinator);
        let persisted = self.disk.load(GroupId::META)?;
        let machine: Arc<dyn StateMachine> = Arc::clone(self) as _;
        let applied = persisted.map_or(0, |persisted| persisted.applied);
        self.applied.store(applied, Ordering::Release);
        self.driver.add(GroupId::META, machine, initial, applied);
        Ok(())
    }

    /// Returns the version of the catalog that initialized this node when it was empty. Other nodes
    /// have bootstrapped the groups of that time. This node may have voted in them before it lost
    /// its disk, so it must not bootstrap them.
    pub fn initialized_at(&self) -> u64 {
        initialized_at(&self.folder)
    }

    /// Returns the nodes of the cluster: those of the catalog, or before it names any, the
    /// founders.
    pub fn nodes(&self, catalog: &Catalog) -> Vec<NodeId> {
        match catalog.nodes.is_empty() {
            true => self.own.members.keys().copied().collect(),
            false => catalog.nodes.keys().copied().collect(),
        }
    }

    /// Tells the transport the addresses of the catalog's nodes. The settings of founders may be
    /// newer than the catalog.
    pub fn tell_members(&self, catalog: &Catalog) {
        if !catalog.nodes.is_empty() {
            let nodes = catalog.nodes.iter().map(|(node, record)| {
                let address = self.own.members.get(node).unwrap_or(&record.address);
                (*node, address.clone())
            });
            self.member.set_members(nodes.collect());
        }
    }

    /// Adds the founders to a catalog that names no nodes.
    pub fn name_nodes(&self, catalog: &mut Catalog) {
        if catalog.nodes.is_empty() {
            for (node, address) in &self.own.members {
                catalog.put_node(*node, address);
            }
        }
    }

    /// Returns how this node's replica of a range begins, if it has none yet.
    pub fn initial_state(&self, range: &Range) -> InitialState {
        let begun = range
            .begun
            .is_some_and(|version| version > self.initialized_at());
        if begun && range.replicas.contains(&self.own.node) {
            InitialState::Bootstrap(range.replicas.clone())
        } else {
            InitialState::Uninitialized
        }
    }

    /// Installs the catalog of a folder.
    fn take(&self, files: &Path, index: u64) -> Result<Catalog, EngineError> {
        let catalog = catalog_file::load(files)?;
        if catalog_file::load(&self.folder)?.version == 0 {
            let version = catalog.version.to_string();
            checked_file::replace(
                &self.folder.join(INITIALIZED_AT),
                &INITIALIZED_AT_MAGIC,
                version.as_bytes(),
            )?;
        }
        catalog_file::store(&self.folder, &catalog)?;
        self.note_applied(index)?;
        Ok(catalog)
    }

    fn note_applied(&self, index: u64) -> Result<(), EngineError> {
        let records = vec![(GroupId::META, LogRecord::Applied(index))];
        self.disk.write(LogBatch { records }, Durability::Buffered)
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn leader(&self) -> Option<NodeId> {
        self.inner().role.leader
    }

    /// Fails unless this node decides about the catalog.
    pub fn check_leads(&self) -> Result<()> {
        let inner = self.inner();
        let Role {
            is_leader, leader, ..
        } = inner.role;
        match (is_leader, inner.taking_over) {
            (true, false) => Ok(()),
            (true, true) => Err(Error::not_leader(None)),
            (false, _) => Err(Error::not_leader(leader)),
        }
    }

    /// Proposes a catalog, and returns when it is committed. An entry of the log cannot be taken
    /// back, so a change is proposed only after a quorum has confirmed that this node leads.
    /// Without one it fails, and nothing is changed.
    pub async fn propose(self: &Arc<Self>, catalog: &Catalog) -> Result<()> {
        let confirmed = self.driver.read_index(GroupId::META);
        let confirmed = tokio::time::timeout(CONFIRM_TIMEOUT, confirmed).await;
        if !matches!(confirmed, Ok(Some(_))) {
            return Err(Error::unavailable(
                "no majority of the nodes answers; nothing was changed",
            ));
        }
        let data = encode(catalog)?;
        if data.len() > ENTRY_BYTES_MAX {
            return Err(too_large(data.len(), ENTRY_BYTES_MAX));
        }
        let (committed, answer) = oneshot::channel();
        let term = self.inner().role.term;
        let meta = Arc::clone(self);
        let proposed = Box::new(move |proposed| meta.proposed(term, proposed, committed));
        self.driver
            .propose(GroupId::META, term, Bytes::from(data), proposed);
        answer.await.unwrap_or_else(|_| Err(unknown()))
    }

    fn proposed(
        &self,
        term: u64,
        proposed: std::result::Result<u64, ProposeError>,
        committed: oneshot::Sender<Result<()>>,
    ) {
        match proposed {
            Ok(index) => self.inner().proposals.add(index, term, committed),
            Err(ProposeError::TooLong(bytes)) => {
                let _ = committed.send(Err(too_large(bytes, ENTRY_BYTES_MAX)));
            }
            Err(ProposeError::NotLeader | ProposeError::Full) => {
                let _ = committed.send(Err(Error::not_leader(self.leader())));
            }
        }
    }

    /// Renews the lease of this node, for ever: it holds while the catalog is not long behind what
    /// a quorum has committed.
    pub async fn keep_lease(self: Arc<Self>, table: Arc<ArcSwap<RoutingTable>>) {
        loop {
            let requested = Instant::now();
            let renewed = async {
                let index = self.driver.read_index(GroupId::META).await?.index;
                while self.applied.load(Ordering::Acquire) < index
                    || table.load().catalog.version < self.version.load(Ordering::Acquire)
                {
                    tokio::time::sleep(CATCH_UP_INTERVAL).await;
                }
                self.driver.lease().renew(requested);
                Some(())
            };
            if let Ok(None) = tokio::time::timeout(RENEW_TIMEOUT, renewed).await {
                // The driver has stopped, or has not started.
                tokio::time::sleep(CATCH_UP_INTERVAL).await;
            }
            if self.driver.lease().holds() {
                tokio::time::sleep(RENEW_INTERVAL).await;
            }
        }
    }
}

/// Returns [`Meta::initialized_at`] of the node with this data folder. With a file that cannot be
/// read the node bootstraps nothing.
pub fn initialized_at(folder: &Path) -> u64 {
    match read_initialized_at(folder) {
        Ok(version) => version.unwrap_or(0),
        Err(_) => u64::MAX,
    }
}

/// Returns whether there is such a file. Fails with what is wrong with it.
pub fn verify_initialized_at(folder: &Path) -> Result<bool, String> {
    read_initialized_at(folder).map(|version| version.is_some())
}

fn read_initialized_at(folder: &Path) -> Result<Option<u64>, String> {
    let path = folder.join(INITIALIZED_AT);
    let contents = match checked_file::read(&path, &INITIALIZED_AT_MAGIC) {
        Ok(None) => return Ok(None),
        Ok(Some(contents)) => contents,
        // Before it had a checksum it was the number alone.
        Err(_) => std::fs::read(&path).map_err(|failure| failure.to_string())?,
    };
    let text = String::from_utf8_lossy(&contents);
    let version = text.parse().map_err(|_| format!("it holds {text:?}"))?;
    Ok(Some(version))
}

fn encode(catalog: &Catalog) -> Result<Vec<u8>> {
    rmp_serde::to_vec_named(catalog)
        .map_err(|failure| Error::internal(format!("the catalog cannot be encoded: {failure}")))
}

/// Refuses a change of a container that makes a catalog too large. One that makes it smaller is
/// taken.
pub fn check_growth(before: &Catalog, after: &Catalog) -> Result<()> {
    check_growth_to(before, after, CATALOG_BYTES_MAX)
}

fn check_growth_to(before: &Catalog, after: &Catalog, bytes_max: usize) -> Result<()> {
    let bytes = encode(after)?.len();
    if bytes > bytes_max && bytes >= encode(before)?.len() {
        return Err(too_large(bytes, bytes_max));
    }
    Ok(())
}

/// Each entry is a whole catalog.
fn too_large(bytes: usize, bytes_max: usize) -> Error {
    let message = format!(
        "Request size is too large: the catalog of the cluster would have {bytes} bytes, the limit is {bytes_max}; delete containers, or shorten their policies"
    );
    Error::new(ErrorKind::TooLarge, message)
}

fn unknown() -> Error {
    Error::unavailable(
        "the leader of the catalog has changed; whether the change was kept is not known",
    )
}

impl StateMachine for Meta {
    /// Nothing in a catalog expires.
    fn now(&self) -> i64 {
        0
    }

    fn apply(&self, entries: Vec<Committed>) -> Result<(), StateMachineError> {
        // The last one is all that counts: it was decided on top of those before it.
        if let Some(entry) = entries.iter().rfind(|entry| !entry.data.is_empty()) {
            let catalog: Catalog = rmp_serde::from_slice(&entry.data).map_err(|failure| {
                EngineError::Damaged(format!(
                    "entry {} of the catalog's log: {failure}",
                    entry.index
                ))
            })?;
            catalog_file::store(&self.folder, &catalog)?;
            self.version.store(catalog.version, Ordering::Release);
            if let Some(coordinator) = self.coordinator.get() {
                coordinator.do_send(Adopt(catalog));
            }
        }
        if let Some(last) = entries.last() {
            self.note_applied(last.index)?;
            self.applied.store(last.index, Ordering::Release);
        }
        let mut inner = self.inner();
        for entry in entries {
            inner.taking_over &= entry.term != inner.role.term;
            let leader = inner.role.leader.filter(|_| !inner.role.is_leader);
            for (outcome, committed) in inner.proposals.applied(entry.index, entry.term) {
                let _ = committed.send(match outcome {
                    ProposalOutcome::Committed => Ok(()),
                    // The next leader decides it anew.
                    ProposalOutcome::Superseded => Err(Error::not_leader(leader)),
                });
            }
        }
        Ok(())
    }

    fn sync(&self) -> Result<(), StateMachineError> {
        Ok(())
    }

    fn snapshot_to(&self, folder: &Path) -> Result<(), StateMachineError> {
        std::fs::create_dir_all(folder)?;
        let catalog = catalog_file::load(&self.folder)?;
        Ok(catalog_file::store(folder, &catalog)?)
    }

    fn install(&self, files: &Path, index: u64) -> Result<(), StateMachineError> {
        drop(self.inner().proposals.take_others(None));
        let catalog = self.take(files, index)?;
        self.version.store(catalog.version, Ordering::Release);
        self.applied.store(index, Ordering::Release);
        if let Some(coordinator) = self.coordinator.get() {
            coordinator.do_send(Adopt(catalog));
        }
        Ok(())
    }

    fn role(&self, role: Role) {
        let mut inner = self.inner();
        let is_same = role.is_leader && inner.role.is_leader && role.term == inner.role.term;
        inner.role = role;
        if !is_same {
            inner.taking_over = role.is_leader;
        }
    }

    /// Does nothing: the lease expires, and the node is not ready without the catalog.
    fn halted(&self, _why: &str) {}

    fn expire_proposals(&self) {
        let mut inner = self.inner();
        let leader_term = inner.role.is_leader.then_some(inner.role.term);
        // The outcome is unknown to the waiting callers.
        drop(inner.proposals.take_others(leader_term));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn catalog(nodes: u64) -> Catalog {
        let mut catalog = Catalog::default();
        (1..=nodes).for_each(|node| catalog.put_node(node, "10.0.0.1:8082"));
        catalog
    }

    #[test]
    fn a_catalog_grows_up_to_its_bound_and_shrinks_above_it() {
        let bytes_max = encode(&catalog(10)).unwrap().len();
        let check = |before, after| check_growth_to(&catalog(before), &catalog(after), bytes_max);
        assert_eq!(check(9, 10), Ok(()));
        assert_eq!(check(10, 11).unwrap_err().kind, ErrorKind::TooLarge);
        assert_eq!(check(13, 12), Ok(()));
        assert_eq!(check(12, 12).unwrap_err().kind, ErrorKind::TooLarge);
    }
}
