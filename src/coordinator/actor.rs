//! The coordinator actor: one change of the catalog at a time.

use std::{collections::HashMap, io, path::PathBuf, sync::Arc};

use actix::prelude::*;
use arc_swap::ArcSwap;
use futures_util::future::join_all;
use serde_json::{Map, Value};
use tracing::{info, warn};

use super::{
    catalog_file,
    cluster_split::{Cuts, forget_cut, is_being_cut},
    meta::Meta,
    progress,
    shared::{place_shards, tell_aims},
    split::Splits,
};
use crate::{
    clock::Clock,
    model::{
        catalog::{Catalog, Container, Range},
        container::ContainerDefinition,
        error::{Error, ErrorKind, Result},
        indexing_policy::{IndexingMode, IndexingPolicy, PathKey},
        item::EtagCondition,
        names::check_resource_name,
        offer::{Migration, Throughput},
        rid::{ContainerRid, OfferRid},
        ttl::DefaultTtl,
    },
    router::{RoutingTable, budget::Budgets},
    shard::{
        facts::ShardFacts,
        host::{Afterwards, ShardHandle, ShardHost},
        progress::index_progress,
        suspect::suspect_time,
    },
    store::descriptors,
};

/// How containers are made.
#[derive(Clone, Copy, Debug)]
pub struct Policy {
    /// 0: one shard for each 10,000 request units begun.
    pub shards_per_container: u32,
    /// A shard with more bytes of items is split; 0: never.
    pub shard_bytes_max: u64,
    pub enforce_throughput: bool,
}

pub struct Coordinator {
    pub(super) folder: PathBuf,
    pub(super) catalog: Arc<Catalog>,
    pub(super) host: Arc<ShardHost>,
    pub(super) shards: Shards,
    /// In a cluster: how the nodes agree on the catalog.
    pub(super) meta: Option<Arc<Meta>>,
    pub(super) table: Arc<ArcSwap<RoutingTable>>,
    pub(super) budgets: Budgets,
    pub(super) policy: Policy,
    pub(super) splits: Splits,
    pub(super) cuts: Cuts,
    /// The other nodes are being asked how far moves are.
    pub(super) looking_after_moves: bool,
}

/// Shards by container, in key order.
pub(super) type Shards = HashMap<ContainerRid, Vec<Arc<ShardHandle>>>;

impl Coordinator {
    /// Opens the catalog of a data folder, and the shards in it or begins to. Waits for the disk: not for an event loop.
    pub fn open(
        folder: PathBuf,
        host: Arc<ShardHost>,
        policy: Policy,
        meta: Option<Arc<Meta>>,
    ) -> io::Result<Self> {
        let catalog = catalog_file::load(&folder)?;
        if let Some(meta) = &meta {
            tell_aims(meta, &catalog);
        }
        let node = meta.as_ref().map(|meta| meta.own.node);
        host.sort_out_folders(&catalog, node)?;
        // Replicas must be there for their groups, and where the clock's file is lost the newest write of all shards stands in for it.
        let opens_later = meta.is_none() && !host.clock().has_lost_floor();
        let mut shards = Shards::new();
        for container in catalog.containers() {
            let opened = match &meta {
                None => open_shards(&host, container, opens_later),
                Some(meta) => {
                    forget_cut(meta, container);
                    place_shards(&host, meta, container, &[])
                }
            };
            shards.insert(container.rid, opened);
        }
        host.open_waiting();
        let mut coordinator = Self {
            folder,
            catalog: Arc::new(catalog),
            host,
            shards,
            meta,
            table: Arc::default(),
            budgets: Budgets::default(),
            policy,
            splits: Splits::default(),
            cuts: Cuts::default(),
            looking_after_moves: false,
        };
        coordinator.publish();
        Ok(coordinator)
    }

    pub fn table(&self) -> Arc<ArcSwap<RoutingTable>> {
        Arc::clone(&self.table)
    }

    pub fn host(&self) -> Arc<ShardHost> {
        Arc::clone(&self.host)
    }

    pub fn meta(&self) -> Option<Arc<Meta>> {
        self.meta.clone()
    }

    /// Whether the catalog is changed here.
    pub(super) fn check_leads(&self) -> Result<()> {
        self.meta.as_ref().map_or(Ok(()), |meta| meta.check_leads())
    }

    fn clock(&self) -> &Clock {
        self.host.clock()
    }

    /// Stores a changed catalog, then puts it in force.
    pub(super) fn store(&self, catalog: Catalog) -> ResponseActFuture<Self, Result<()>> {
        if let Some(meta) = &self.meta {
            let meta = Arc::clone(meta);
            let proposed = async move { meta.propose(&catalog).await.map(|()| catalog) };
            let adopted =
                proposed
                    .into_actor(self)
                    .then(|proposed, coordinator, _| match proposed {
                        Ok(catalog) => coordinator.adopt(catalog),
                        Err(error) => Box::pin(actix::fut::ready(Err(error))),
                    });
            return Box::pin(adopted);
        }
        let folder = self.folder.clone();
        let stored = tokio::task::spawn_blocking(move || {
            catalog_file::store(&folder, &catalog).map(|()| catalog)
        });
        Box::pin(
            stored
                .into_actor(self)
                .map(|stored, coordinator, _| match stored {
                    Ok(Ok(catalog)) => {
                        coordinator.catalog = Arc::new(catalog);
                        coordinator.publish();
                        Ok(())
                    }
                    Ok(Err(failure)) => Err(storage_error(&failure)),
                    Err(failure) => Err(Error::internal(format!(
                        "the catalog could not be stored: {failure}"
                    ))),
                }),
        )
    }
}

impl Actor for Coordinator {
    type Context = Context<Self>;

    /// Goes on following what a restart has interrupted.
    fn started(&mut self, context: &mut Self::Context) {
        self.keep_aligned(context);
        self.keep_small(context);
        self.watch_cuts(context);
        for (&rid, shards) in &self.shards {
            let shards = shards.clone();
            actix::spawn(async move {
                for shard in &shards {
                    shard.opened().await;
                }
                if index_progress(&shards).0 < 100 {
                    progress::follow(rid, shards).await;
                }
            });
        }
    }
}

/// Opens the shards of a container, now or later.
fn open_shards(host: &Arc<ShardHost>, container: &Container, later: bool) -> Vec<Arc<ShardHandle>> {
    let default = container.definition.default_ttl;
    let policy = &container.definition.indexing_policy;
    // A crash between storing the catalog and telling the shards leaves them behind it. In a cluster their leaders see to that.
    let afterwards = || -> Afterwards {
        let policy = policy.clone();
        Box::new(move |shard| catch_up(shard, &policy, default))
    };
    let open = |facts| match later {
        true => host.open_later(facts, default, policy, afterwards()),
        false => {
            let shard = host.open(facts, default, policy);
            shard.go_on_with(default, policy, afterwards());
            shard
        }
    };
    all_facts_of(container).map(open).collect()
}

fn make_shards(host: &Arc<ShardHost>, container: &Container) -> Vec<Arc<ShardHandle>> {
    let ContainerDefinition {
        default_ttl,
        indexing_policy,
        ..
    } = &container.definition;
    let facts = all_facts_of(container);
    facts
        .map(|facts| host.make(facts, *default_ttl, indexing_policy))
        .collect()
}

fn all_facts_of(container: &Container) -> impl Iterator<Item = ShardFacts> {
    let ranges = container.ranges.iter();
    ranges.map(|range| facts_of(container, range))
}

pub(super) fn facts_of(container: &Container, range: &Range) -> ShardFacts {
    ShardFacts {
        container: container.rid,
        range_id: range.id,
        range: range.keys.clone(),
        parents: range.parents.clone(),
        partition_key_paths: container.definition.partition_key.paths.clone(),
        unique_keys: container.definition.unique_keys.clone(),
    }
}

fn storage_error(failure: &io::Error) -> Error {
    let full = failure.kind() == io::ErrorKind::StorageFull;
    let kind = if full {
        ErrorKind::InsufficientStorage
    } else {
        ErrorKind::Unavailable
    };
    Error::new(kind, format!("the catalog could not be stored: {failure}"))
}

pub(super) type Changed = AtomicResponse<Coordinator, Result<()>>;

fn refuse(error: Error) -> Changed {
    AtomicResponse::new(Box::pin(actix::fut::ready(Err(error))))
}

#[derive(Message)]
#[rtype(result = "Result<()>")]
pub struct CreateDatabase {
    pub id: String,
    pub throughput: Option<Throughput>,
}

impl Handler<CreateDatabase> for Coordinator {
    type Result = Changed;

    fn handle(&mut self, request: CreateDatabase, _: &mut Self::Context) -> Self::Result {
        if let Err(error) = self.check_leads() {
            return refuse(error);
        }
        let mut catalog = Catalog::clone(&self.catalog);
        let changed = check_resource_name("database", &request.id).and_then(|()| {
            catalog.create_database(&request.id, request.throughput, self.clock().now())
        });
        match changed {
            Ok(()) => AtomicResponse::new(self.store(catalog)),
            Err(error) => refuse(error),
        }
    }
}

#[derive(Message)]
#[rtype(result = "Result<()>")]
pub struct DeleteDatabase {
    pub id: String,
    pub if_match: Option<EtagCondition>,
}

impl Handler<DeleteDatabase> for Coordinator {
    type Result = Changed;

    fn handle(&mut self, request: DeleteDatabase, _: &mut Self::Context) -> Self::Result {
        if let Err(error) = self.check_leads() {
            return refuse(error);
        }
        let mut catalog = Catalog::clone(&self.catalog);
        match catalog.delete_database(&request.id, request.if_match.as_ref()) {
            Ok(database) => {
                self.store_and_remove(catalog, database.containers.into_values().collect())
            }
            Err(error) => refuse(error),
        }
    }
}

#[derive(Message)]
#[rtype(result = "Result<()>")]
pub struct CreateContainer {
    pub database: String,
    pub definition: ContainerDefinition,
    pub throughput: Option<Throughput>,
}

impl Handler<CreateContainer> for Coordinator {
    type Result = Changed;

    fn handle(&mut self, request: CreateContainer, _: &mut Self::Context) -> Self::Result {
        if let Err(error) = self.check_leads() {
            return refuse(error);
        }
        let CreateContainer {
            database,
            mut definition,
            throughput,
        } = request;
        definition.indexing_policy.path_key = Some(PathKey::from_bytes(rand::random()));
        let shards = match self.policy.shards_per_container {
            0 => throughput.as_ref().map_or(1, Throughput::shard_count),
            fixed => fixed,
        };
        if let Err(error) = descriptors::check_room(shards.into()) {
            return refuse(error);
        }
        let mut catalog = Catalog::clone(&self.catalog);
        let id = definition.id.clone();
        let container = match catalog.create_container(
            &database,
            definition,
            throughput,
            shards,
            self.clock().now(),
        ) {
            Ok(container) => container.clone(),
            Err(error) => return refuse(error),
        };
        let rid = container.rid;
        if let Some(meta) = &self.meta {
            meta.name_nodes(&mut catalog);
            if let Err(error) = catalog.place(&database, &id, meta.own.replication) {
                return refuse(error);
            }
            return self.store_new(catalog, rid);
        }
        let host = Arc::clone(&self.host);
        let opened = tokio::task::spawn_blocking(move || make_shards(&host, &container));
        let future = opened.into_actor(self).then(move |opened, coordinator, _| {
            let shards = opened.unwrap_or_default();
            // Nothing half-done is left behind: a container whose shards cannot be made is not made.
            let failure = shards.iter().find_map(|shard| shard.view().err());
            if shards.is_empty() || failure.is_some() {
                let error =
                    failure.unwrap_or_else(|| Error::internal("the shards could not be opened"));
                let removal = async move {
                    remove_shards(shards).await;
                    Err(error)
                };
                return Box::pin(removal.into_actor(coordinator))
                    as ResponseActFuture<Self, Result<()>>;
            }
            coordinator.shards.insert(rid, shards);
            Box::pin(
                coordinator
                    .store(catalog)
                    .then(move |stored, coordinator, _| {
                        let orphans = if stored.is_err() {
                            coordinator.shards.remove(&rid)
                        } else {
                            None
                        };
                        async move {
                            remove_shards(orphans.unwrap_or_default()).await;
                            stored
                        }
                        .into_actor(coordinator)
                    }),
            )
        });
        AtomicResponse::new(Box::pin(future))
    }
}

/// Replaces a container's policies. Every shard has the new time to live when the answer leaves.
#[derive(Message)]
#[rtype(result = "Result<()>")]
pub struct ReplaceContainer {
    pub database: String,
    pub id: String,
    pub body: Map<String, Value>,
    pub if_match: Option<EtagCondition>,
}

impl Handler<ReplaceContainer> for Coordinator {
    type Result = Changed;

    fn handle(&mut self, request: ReplaceContainer, _: &mut Self::Context) -> Self::Result {
        if let Err(error) = self.check_leads() {
            return refuse(error);
        }
        let ReplaceContainer {
            database,
            id,
            body,
            if_match,
        } = request;
        let mut catalog = Catalog::clone(&self.catalog);
        let now = self.clock().now();
        let changed = catalog.container(&database, &id).and_then(|container| {
            if is_being_cut(container) {
                // A shard that is being split takes no change, and its parts are there in a moment.
                return Err(Error::not_leader(None));
            }
            Ok((
                container.rid,
                container.definition.clone(),
                container.definition.replaced_by(&body)?,
            ))
        });
        let (rid, before, definition) = match changed {
            Ok(changed) => changed,
            Err(error) => return refuse(error),
        };
        let shards = self.shards.get(&rid).cloned().unwrap_or_default();
        let mut broadcast = Broadcast::between(&before, &definition);
        // A shard that could not take the last change has another chance when the client tries again.
        let default = definition.default_ttl;
        let lags = |shard: &Arc<ShardHandle>| shard.default_ttl().is_some_and(|old| old != default);
        if shards.iter().any(lags) {
            broadcast.default = Some(default);
        }
        if broadcast.default.is_some()
            && before.default_ttl != DefaultTtl::Off
            && let Some(suspicion) = self.clock().suspicion()
            && shards.iter().any(|shard| shard.has_overdue())
        {
            return refuse(suspect_time(suspicion));
        }
        if let Err(error) =
            catalog.replace_container(&database, &id, definition, if_match.as_ref(), now)
        {
            return refuse(error);
        }
        if broadcast.is_empty() {
            return AtomicResponse::new(self.store(catalog));
        }
        // A shard that takes no writes cannot take the new rule: better to change nothing.
        let writable = |shard: &Arc<ShardHandle>| match self.meta {
            None => shard.check_writable(),
            Some(_) => shard.check_led(),
        };
        if let Some(error) = shards.iter().find_map(|shard| writable(shard).err()) {
            return refuse(error);
        }
        if self.meta.is_some() {
            return self.store_changed(catalog, rid);
        }
        let future = self.store(catalog).then(move |stored, coordinator, _| {
            async move {
                stored?;
                broadcast.send(rid, &shards, now).await
            }
            .into_actor(coordinator)
        });
        AtomicResponse::new(Box::pin(future))
    }
}

/// Gives a shard that was just opened what the catalog has.
fn catch_up(shard: &Arc<ShardHandle>, policy: &IndexingPolicy, default: DefaultTtl) {
    let rebuild = shard
        .view()
        .is_ok_and(|view| rebuilds(policy.mode, view.state().rules.default, default));
    shard.catch_up_index(policy, rebuild);
    shard.catch_up_default_ttl(default);
}

/// A consistent index is built anew when time to live is switched on, a lazy one whenever it changes.
pub(super) fn rebuilds(mode: IndexingMode, old: DefaultTtl, new: DefaultTtl) -> bool {
    match mode {
        IndexingMode::Consistent => old == DefaultTtl::Off && new != DefaultTtl::Off,
        IndexingMode::Lazy => old != new,
        IndexingMode::None => false,
    }
}

/// What a change of a container's policies means for its shards.
struct Broadcast {
    default: Option<DefaultTtl>,
    /// A new index, and whether it begins anew even where the policy is the same.
    index: Option<(IndexingPolicy, bool)>,
}

impl Broadcast {
    fn between(before: &ContainerDefinition, after: &ContainerDefinition) -> Self {
        let (old, new) = (before.default_ttl, after.default_ttl);
        let policy = &after.indexing_policy;
        let rebuild = rebuilds(policy.mode, old, new);
        Self {
            default: (old != new).then_some(new),
            index: (rebuild || before.indexing_policy != *policy)
                .then(|| (policy.clone(), rebuild)),
        }
    }

    fn is_empty(&self) -> bool {
        self.default.is_none() && self.index.is_none()
    }

    /// Tells every shard and waits for all answers.
    async fn send(self, rid: ContainerRid, shards: &[Arc<ShardHandle>], now: i64) -> Result<()> {
        // The index first: a shard that has the old default after a crash is known to need both.
        if let Some((policy, rebuild)) = &self.index {
            let changes = shards
                .iter()
                .map(|shard| shard.change_index(policy, *rebuild));
            first_failure(join_all(changes).await)?;
            info!(container = %rid, shards = shards.len(), mode = policy.mode.name(), rebuild, "index changes on every shard");
            actix::spawn(progress::follow(rid, shards.to_vec()));
        }
        if let Some(default) = self.default {
            let changes = shards
                .iter()
                .map(|shard| shard.change_default_ttl(default, now));
            first_failure(join_all(changes).await)?;
            info!(container = %rid, shards = shards.len(), ?default, "default time to live changed");
        }
        Ok(())
    }
}

fn first_failure(answers: Vec<Result<()>>) -> Result<()> {
    answers
        .into_iter()
        .find_map(Result::err)
        .map_or(Ok(()), Err)
}

#[derive(Message)]
#[rtype(result = "Result<()>")]
pub struct DeleteContainer {
    pub database: String,
    pub id: String,
    pub if_match: Option<EtagCondition>,
}

impl Handler<DeleteContainer> for Coordinator {
    type Result = Changed;

    fn handle(&mut self, request: DeleteContainer, _: &mut Self::Context) -> Self::Result {
        if let Err(error) = self.check_leads() {
            return refuse(error);
        }
        let mut catalog = Catalog::clone(&self.catalog);
        match catalog.delete_container(&request.database, &request.id, request.if_match.as_ref()) {
            Ok(container) => self.store_and_remove(catalog, vec![container]),
            Err(error) => refuse(error),
        }
    }
}

#[derive(Message)]
#[rtype(result = "Result<()>")]
pub struct ReplaceOffer {
    pub rid: OfferRid,
    pub body: Map<String, Value>,
    pub migration: Option<Migration>,
    pub if_match: Option<EtagCondition>,
}

impl Handler<ReplaceOffer> for Coordinator {
    type Result = Changed;

    fn handle(&mut self, request: ReplaceOffer, _: &mut Self::Context) -> Self::Result {
        if let Err(error) = self.check_leads() {
            return refuse(error);
        }
        let mut catalog = Catalog::clone(&self.catalog);
        let changed = catalog
            .offer(request.rid)
            .and_then(|record| record.offer.replaced_by(&request.body, request.migration))
            .and_then(|offer| {
                catalog.replace_offer(
                    request.rid,
                    offer,
                    request.if_match.as_ref(),
                    self.clock().now(),
                )
            });
        match changed {
            Ok(()) => AtomicResponse::new(self.store(catalog)),
            Err(error) => refuse(error),
        }
    }
}

impl Coordinator {
    /// Stores a catalog without some containers, then removes their shards; the space is back at once.
    fn store_and_remove(&self, catalog: Catalog, containers: Vec<Arc<Container>>) -> Changed {
        let future = self.store(catalog).map(move |stored, coordinator, _| {
            if stored.is_ok() {
                let shards: Vec<_> = containers
                    .iter()
                    .filter_map(|container| coordinator.shards.remove(&container.rid))
                    .flatten()
                    .collect();
                // Nobody waits for the files to go: the container is gone when the answer leaves.
                actix::spawn(remove_shards(shards));
            }
            stored
        });
        AtomicResponse::new(Box::pin(future))
    }
}

pub(super) async fn remove_shards(shards: Vec<Arc<ShardHandle>>) {
    for shard in shards {
        if let Err(failure) = shard.destroy().await {
            warn!(container = %shard.facts.container, range = shard.facts.range_id, %failure, "files of a removed shard are left behind");
        }
    }
}
