//! This node in its cluster: its identity, from its settings or from a cluster that it has joined,
//! and all that makes it a member.

use std::{
    collections::BTreeMap,
    fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use actix::{Addr, Arbiter};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot};
use tracing::{error, info, warn};

use super::{
    ExitCode, Failure, engine_options,
    identity::{DataFolder, RAFT},
    listen, privacy,
};
use crate::{
    clock::{self, Clock, kept_floor::KeptFloor},
    cluster::{
        GroupId, NodeId,
        member::{Member, MemberConfig, RequestHandlers},
        raft::log_store::LogStore,
        snapshots::Snapshots,
        time::timekeeper::{Clocks, Offset, Timekeeper},
        transport::{
            handshake::{ClusterKey, Identity, UNKNOWN_NODE, cluster_id},
            join::{self, JoinError, JoinRequest},
            message::Reply,
        },
    },
    config::{Cluster, Settings},
    coordinator::{Coordinator, catalog_file, meta::Meta},
    gateway::{health::node_orders, http::server},
    store::{
        SharedResources, engine::is_blank, identity::Membership,
        recorded_sequences::RecordedSequences, wal_check::Expected,
    },
};

/// Forwarded requests of other nodes that may be queued.
const FORWARDED_MAX: usize = 4096;
/// How long a node tries to join a cluster that does not answer, or cannot decide.
const JOIN_TIMEOUT: Duration = Duration::from_secs(60);
/// How long the others may take at a start to say whether this node is still a member.
const MEMBER_CHECK_TIMEOUT: Duration = Duration::from_secs(3);
/// How often a node without a leader asks whether it is still a member.
const MEMBER_CHECK_INTERVAL: Duration = Duration::from_secs(5);
const JOIN_INTERVAL: Duration = Duration::from_secs(1);
/// The file with the id that the cluster has assigned to this node.
const ASSIGNED: &str = "node";

/// This node as a member of its cluster.
pub struct Joined {
    pub member: Arc<Member>,
    /// The nodes that bootstrap the cluster; none if this one joined later.
    pub founders: BTreeMap<NodeId, String>,
    pub log: Arc<LogStore>,
    pub snapshots: Arc<Snapshots>,
    pub time: Arc<Timekeeper>,
    pub sent_on: server::SentOn,
    /// Takes the orders that other nodes pass on, as soon as it is there.
    pub coordinator: Arc<OnceLock<Addr<Coordinator>>>,
    pub member_check: MemberCheck,
}

/// This node's clocks, as the cluster sees them.
struct NodeClocks {
    clock: Clock,
    kept: Option<KeptFloor>,
    /// A time that is ahead of the machine's clock by more is suspect.
    jump_bound_millis: i64,
}

impl Clocks for NodeClocks {
    fn monotonic(&self) -> i64 {
        self.clock.monotonic_millis()
    }

    fn wall(&self) -> i64 {
        i64::try_from(clock::wall().as_millis()).unwrap_or(i64::MAX)
    }

    fn offset(&self) -> Offset {
        clock::unsteered()
    }

    /// A suspect time is not persisted, as in the clock: a restart with a corrected clock undoes
    /// it.
    fn persist(&self, floor: i64) -> bool {
        let ahead = self.monotonic() + floor - self.wall();
        let Some(kept) = &self.kept else {
            return true;
        };
        if ahead > self.jump_bound_millis || self.clock.purging_paused() {
            return false;
        }
        if let Err(failure) = kept.keep(floor) {
            // Tried again when there is more to keep, not with every message.
            error!(%failure, "cannot persist the agreed time");
        }
        true
    }
}

/// Opens the agreed time, no earlier than what an earlier process has persisted.
fn timekeeper(settings: &Settings, clock: &Clock, node: NodeId) -> Timekeeper {
    let kept = KeptFloor::open(&settings.storage.data_path, clock);
    let stored = Some(clock.issued()).filter(|second| *second > 0);
    let stored = stored.map(|second| second.saturating_mul(1_000) - clock.monotonic_millis());
    let floor = kept.as_ref().and_then(KeptFloor::load).max(stored);
    let jump_bound = settings.ttl.clock_jump_bound_seconds;
    let clocks = NodeClocks {
        clock: clock.clone(),
        kept,
        jump_bound_millis: i64::try_from(jump_bound)
            .map_or(i64::MAX, |bound| bound.saturating_mul(1_000)),
    };
    let time = Timekeeper::new(Box::new(clocks), node, floor);
    clock.steer_by(time.offset(GroupId::META));
    time
}

/// The id and the address of a node that has joined, as stored in the data folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct AssignedId {
    node: NodeId,
    address: String,
}

impl AssignedId {
    fn load(folder: &Path) -> Result<Option<Self>, Failure> {
        let path = folder.join(ASSIGNED);
        match fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map(Some).map_err(|failure| {
                let message = format!("'{}' cannot be read: {failure}", path.display());
                Failure::new(ExitCode::DataDamaged, message)
            }),
            Err(failure) if failure.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(failure) => Err(Failure::data("cannot read", &path, &failure)),
        }
    }

    fn store(&self, folder: &Path) -> Result<(), Failure> {
        let path = folder.join(ASSIGNED);
        // A crash leaves all of it or nothing.
        let next = path.with_extension("next");
        let written = fs::File::create(&next).and_then(|mut file| {
            file.write_all(&serde_json::to_vec(self)?)?;
            file.sync_all()?;
            fs::rename(&next, &path)?;
            fs::File::open(folder)?.sync_all()
        });
        written.map_err(|failure| Failure::data("cannot write", &path, &failure))
    }
}

/// Returns whether a data folder has the file with an assigned id. Fails with what is wrong with
/// it.
pub fn verify(folder: &Path) -> Result<bool, String> {
    let assigned = AssignedId::load(folder).map_err(|failure| failure.message)?;
    Ok(assigned.is_some())
}

/// Returns whether the node is one of a cluster.
pub fn is_member(settings: &Settings) -> bool {
    let cluster = &settings.cluster;
    cluster.node != 0
        || !cluster.join.is_empty()
        || settings.storage.data_path.join(ASSIGNED).exists()
}

fn wrong(message: String) -> Failure {
    Failure::new(ExitCode::Configuration, message)
}

fn key(cluster: &Cluster) -> Result<ClusterKey, Failure> {
    let key_file = cluster.key_file.as_deref().ok_or_else(|| {
        wrong("cluster.key_file is missing: the nodes of a cluster share a secret".to_owned())
    })?;
    privacy::warn_of_readable_secret("cluster key file", key_file);
    let secret = fs::read(key_file).map_err(|failure| {
        wrong(format!(
            "cannot read cluster.key_file '{}': {failure} (`bolide key` makes a key)",
            key_file.display()
        ))
    })?;
    ClusterKey::new(secret.trim_ascii()).ok_or_else(|| {
        wrong(format!(
            "cluster.key_file '{}' has too few bytes: 32 are the least (`bolide key` makes a key)",
            key_file.display()
        ))
    })
}

/// The identity of the node, and the other nodes.
struct NodeIdentity {
    node: NodeId,
    address: String,
    founders: BTreeMap<NodeId, String>,
    /// All known nodes.
    members: BTreeMap<NodeId, String>,
}

/// Returns the identity of the node: as assigned by the cluster, from the settings, or by joining.
async fn identify(settings: &Settings, key: &ClusterKey) -> Result<NodeIdentity, Failure> {
    let (cluster, folder) = (&settings.cluster, &settings.storage.data_path);
    let listed = cluster.addresses();
    let catalog = catalog_file::load(folder)
        .map_err(|failure| Failure::data("cannot read the catalog in", folder, &failure))?;
    let mut known: BTreeMap<NodeId, String> = catalog
        .nodes
        .iter()
        .map(|(node, record)| (*node, record.address.clone()))
        .collect();
    // The settings may know better where a node is now.
    for (node, address) in &mut known {
        if let Some(listed) = listed.get(node) {
            address.clone_from(listed);
        }
    }
    let left = |node: NodeId| {
        wrong(format!(
            "node {node} has left the cluster '{}': with an empty data folder and cluster.join it can come back under another number",
            cluster.name
        ))
    };
    if let Some(AssignedId { node, address }) = AssignedId::load(folder)? {
        if cluster.node != 0 && cluster.node != node {
            return Err(wrong(format!(
                "cluster.node is {}, but the data folder '{}' is that of node {node}",
                cluster.node,
                folder.display()
            )));
        }
        let address = own_address(cluster, node).unwrap_or(address);
        if !known.is_empty() {
            if !known.contains_key(&node) {
                return Err(left(node));
            }
            return Ok(NodeIdentity {
                node,
                address,
                founders: BTreeMap::new(),
                members: known,
            });
        }
        // It has joined, and has received nothing since.
        return join_running(settings, key, join_request(node, address)).await;
    }
    if cluster.join.is_empty() {
        let address = listed.get(&cluster.node).cloned().ok_or_else(|| {
            wrong(format!(
                "cluster.members '{}' does not name this node, {}",
                cluster.members, cluster.node
            ))
        })?;
        let members = match known.contains_key(&cluster.node) {
            true => known,
            false if known.is_empty() => listed.clone(),
            false => return Err(left(cluster.node)),
        };
        return Ok(NodeIdentity {
            node: cluster.node,
            address,
            founders: listed,
            members,
        });
    }
    if catalog.version > 0 {
        return Err(wrong(format!(
            "the data folder '{}' has a catalog of its own: a node joins a cluster with an empty one",
            folder.display()
        )));
    }
    let address = own_address(cluster, cluster.node).ok_or_else(|| {
        wrong("cluster.address is missing: it says where the other nodes reach this one".to_owned())
    })?;
    let node = cluster.node;
    join_running(settings, key, join_request(node, address)).await
}

fn join_request(node: NodeId, address: String) -> JoinRequest {
    JoinRequest {
        node,
        address,
        asks_only: false,
    }
}

/// Returns the address of a node in the settings.
fn own_address(cluster: &Cluster, node: NodeId) -> Option<String> {
    match cluster.address.as_str() {
        "" => cluster.addresses().remove(&node),
        address => Some(address.to_owned()),
    }
}

/// Returns the identity of a node that knows the key and has no id.
fn unknown_identity(settings: &Settings, key: &ClusterKey) -> Identity {
    Identity {
        cluster: cluster_id(&settings.cluster.name),
        node: UNKNOWN_NODE,
        key: key.clone(),
    }
}

/// Asks the others whether this node is still a member.
pub struct MemberCheck {
    identity: Identity,
    node: NodeId,
}

impl MemberCheck {
    async fn is_taken_out(&self, members: &BTreeMap<NodeId, String>) -> bool {
        let others = members.iter().filter(|(node, _)| **node != self.node);
        let asked = others
            .map(|(_, address)| Box::pin(join::is_removed(&self.identity, address, self.node)));
        let answers = futures_util::future::join_all(asked).await;
        answers.contains(&true)
    }

    /// Waits until another node says that this one was taken out. Asks while the catalog has no
    /// leader: a member that is connected hears of it by itself.
    pub async fn until_taken_out(self, member: Arc<Member>, meta: Arc<Meta>) {
        loop {
            tokio::time::sleep(MEMBER_CHECK_INTERVAL).await;
            if meta.leader().is_none() && self.is_taken_out(&member.members()).await {
                return;
            }
        }
    }
}

/// Returns the failure of a node that was removed from the cluster.
pub fn taken_out(settings: &Settings, node: NodeId) -> Failure {
    wrong(format!(
        "node {node} was taken out of the cluster '{}': with an empty data folder and cluster.join it can come back under another number",
        settings.cluster.name
    ))
}

/// Joins a running cluster.
async fn join_running(
    settings: &Settings,
    key: &ClusterKey,
    request: JoinRequest,
) -> Result<NodeIdentity, Failure> {
    let cluster = &settings.cluster;
    if cluster.join.is_empty() {
        return Err(wrong(
            "cluster.join is missing: the cluster was joined, but nothing of it has arrived yet"
                .to_owned(),
        ));
    }
    let identity = unknown_identity(settings, key);
    let deadline = Instant::now() + JOIN_TIMEOUT;
    let welcome = loop {
        match join::join(&identity, &cluster.join, &request).await {
            Ok(welcome) => break welcome,
            Err(JoinError::Later(why)) if Instant::now() < deadline => {
                warn!(%why, "not let in yet; trying again");
                tokio::time::sleep(JOIN_INTERVAL).await;
            }
            Err(why) => {
                return Err(wrong(format!(
                    "this node cannot join the cluster '{}': {why}",
                    cluster.name
                )));
            }
        }
    };
    info!(node = welcome.node, address = %request.address, "let into the cluster");
    let assigned = AssignedId {
        node: welcome.node,
        address: request.address,
    };
    assigned.store(&settings.storage.data_path)?;
    Ok(NodeIdentity {
        node: assigned.node,
        address: assigned.address,
        founders: BTreeMap::new(),
        members: welcome.nodes,
    })
}

/// Listens to the other nodes and dials them.
pub async fn join_cluster(
    settings: &Settings,
    data_folder: DataFolder,
    sequences: &RecordedSequences,
    clock: Clock,
) -> Result<Joined, Failure> {
    let key = key(&settings.cluster)?;
    let NodeIdentity {
        node,
        address,
        founders,
        members,
    } = identify(settings, &key).await?;
    let member_check = MemberCheck {
        identity: unknown_identity(settings, &key),
        node,
    };
    let asked = tokio::time::timeout(MEMBER_CHECK_TIMEOUT, member_check.is_taken_out(&members));
    if asked.await == Ok(true) {
        return Err(taken_out(settings, node));
    }
    data_folder.settle(Some(Membership {
        cluster: settings.cluster.name.clone(),
        node,
    }))?;
    let (host, port) = address.rsplit_once(':').unwrap_or((&address, ""));
    let listener = listen(
        host,
        port.parse().unwrap_or(0),
        "cluster.address (or cluster.members)",
    )?;
    let identity = Identity {
        cluster: cluster_id(&settings.cluster.name),
        node,
        key,
    };
    let (log, snapshots) = open_logs(settings, sequences)?;
    let (forwarded, sent_on) = mpsc::channel(FORWARDED_MAX);
    let time = Arc::new(timekeeper(settings, &clock, node));
    let coordinator = Arc::new(OnceLock::<Addr<Coordinator>>::new());
    let (commander, doorkeeper) = (Arc::clone(&coordinator), Arc::clone(&coordinator));
    let admitting = Arc::new(OnceLock::<Arc<Member>>::new());
    let member_there = Arc::clone(&admitting);
    let handlers = RequestHandlers {
        // A request over the bound gets no response, and is repeated.
        requests: Box::new(move |_, question, reply| drop(forwarded.try_send((question, reply)))),
        orders: Box::new(move |_, order: Bytes, reply: Reply| {
            if let Some(commander) = commander.get() {
                tokio::spawn(node_orders::obey(commander.clone(), order, reply));
            }
        }),
        join: Box::new(move |request, reply| {
            if let Some((coordinator, member)) = doorkeeper.get().zip(member_there.get()) {
                let (coordinator, member) = (coordinator.clone(), Arc::clone(member));
                tokio::spawn(node_orders::admit(member, coordinator, request, reply));
            }
        }),
    };
    let config = MemberConfig {
        identity,
        founders: founders.clone(),
        members,
        listener,
        disk: Arc::clone(&log) as _,
        snapshots: Arc::clone(&snapshots),
        time: Arc::clone(&time),
    };
    let (started, member) = oneshot::channel();
    Arbiter::new().spawn_fn(move || {
        let _ = started.send(Member::start(config, handlers));
    });
    match member.await {
        Ok(Ok(member)) => {
            let member = Arc::new(member);
            let _ = admitting.set(Arc::clone(&member));
            Ok(Joined {
                member,
                founders,
                log,
                snapshots,
                time,
                sent_on,
                coordinator,
                member_check,
            })
        }
        Ok(Err(failure)) => Err(Failure::new(ExitCode::Failure, failure)),
        Err(failure) => Err(Failure::new(ExitCode::Failure, failure)),
    }
}

fn open_logs(
    settings: &Settings,
    sequences: &RecordedSequences,
) -> Result<(Arc<LogStore>, Arc<Snapshots>), Failure> {
    let data: &PathBuf = &settings.storage.data_path;
    let folder = data.join(RAFT);
    let shared = SharedResources::of_raft_log(engine_options(&settings.storage));
    // It has one incarnation for as long as the data folder lasts.
    let expected = Expected {
        sequence: sequences.sequence(RAFT, 0),
        has_raft_log: false,
    };
    let is_new = expected.sequence == 0;
    let opened = is_blank(&folder).and_then(|blank| match blank && is_new {
        true => LogStore::open(&folder, &shared),
        false => LogStore::open_existing(&folder, &shared, expected),
    });
    let log = opened.map_err(|failure| {
        let message = format!("cannot open the Raft log '{}': {failure}", folder.display());
        Failure::new(ExitCode::DataDamaged, message)
    })?;
    if log.torn_bytes() > 0 {
        let torn_bytes = log.torn_bytes();
        warn!(
            torn_bytes,
            "dropped an unfinished record at the end of the Raft log's WAL"
        );
    }
    sequences.follow(RAFT, 0, log.durable());
    let log = Arc::new(log);
    let folder = data.join("snapshots");
    let snapshots = Snapshots::open(&folder, Arc::clone(&log) as _)
        .map_err(|failure| Failure::data("cannot open", &folder, &failure))?;
    Ok((log, Arc::new(snapshots)))
}

/// Takes part in the catalog's group, as soon as it is known whether this node bootstraps it.
pub fn begin_catalog(meta: &Arc<Meta>, coordinator: Addr<Coordinator>, joined: &Joined) {
    let _ = joined.coordinator.set(coordinator.clone());
    let (meta, member, log) = (
        Arc::clone(meta),
        Arc::clone(&joined.member),
        Arc::clone(&joined.log),
    );
    actix::spawn(async move {
        let initial = member.initial_state(&*log).await;
        if let Err(failure) = initial.and_then(|initial| meta.join(coordinator, initial)) {
            error!(%failure, "this node cannot take part in the catalog");
        }
    });
}
