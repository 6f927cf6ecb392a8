//! Splits in a cluster. The catalog says first that a range is to be cut, where, and into what. The leader of its group then has the log say so, and every replica makes its
//! parts when it comes to that entry (`shard::parting`). When the nodes have them, the catalog names the parts in the place of the range, which is what clients see.
//!
//! Each step follows from the catalog and from the logs alone, so whoever leads goes on where another one has ended. Nothing is ever taken back.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use actix::{fut, prelude::*};
use arc_swap::ArcSwap;
use futures_util::future::join_all;
use serde::de::DeserializeOwned;
use tokio::time::Instant;
use tracing::{info, warn};

use super::{
    Coordinator,
    actor::remove_shards,
    meta::Meta,
    questions::{self, Question, Sizes},
    shared::wait_for_nodes,
};
use crate::{
    cluster::NodeId,
    model::{
        catalog::{Catalog, Container, Cut, no_range},
        epk::Epk,
        error::{Error, Result},
        partition_key::PartitionKeyDefinition,
        rid::ContainerRid,
    },
    router::RoutingTable,
    shard::{
        host::{Leader, ShardHandle, group_of_range},
        split,
    },
    telemetry,
};

/// How often it is looked how far a split has come.
const LOOK_EVERY: Duration = Duration::from_millis(25);
/// How long a node may take to say whether it has the parts, and how large its shards are.
const ASK_TIME_MAX: Duration = Duration::from_millis(500);
/// How long the others wait for a replica that does not split: the shard takes no writes meanwhile.
const STRAGGLERS_TIME: Duration = Duration::from_secs(1);
/// How long whoever asked for a split waits for it.
const DONE_TIME_MAX: Duration = Duration::from_secs(60);
const DONE_POLL: Duration = Duration::from_millis(10);
/// How long a shard that was split hands on what comes late. No node answers by the catalog before after that.
const LATECOMERS_TIME: Duration = Duration::from_secs(5);

/// What a coordinator knows of the splits that the catalog wants.
#[derive(Default)]
pub(super) struct Cuts {
    watch: Option<SpawnHandle>,
    asking: bool,
    asking_sizes: bool,
    /// Since when a majority has the parts of a shard, and others have not.
    mostly_since: Option<Instant>,
}

impl Cuts {
    fn is_patience_over(&mut self) -> bool {
        let since = *self.mostly_since.get_or_insert_with(Instant::now);
        since.elapsed() > STRAGGLERS_TIME
    }
}

/// A range that is to be cut.
type Wanted = (ContainerRid, u32, Cut);

fn wanted(catalog: &Catalog) -> Vec<Wanted> {
    let databases = catalog.databases.values();
    let containers = databases.flat_map(|database| database.containers.values());
    let ranges = containers
        .flat_map(|container| container.ranges.iter().map(|range| (container.rid, range)));
    ranges
        .filter_map(|(rid, range)| Some((rid, range.id, range.cut.clone()?)))
        .collect()
}

pub(super) fn is_being_cut(container: &Container) -> bool {
    container.ranges.iter().any(|range| range.cut.is_some())
}

/// A crash may have left the logs of ranges that were split before.
pub(super) fn forget_cut(meta: &Meta, container: &Container) {
    let ranges = container.ranges.iter();
    let past: BTreeSet<u32> = ranges.flat_map(|range| range.parents.clone()).collect();
    for range in past {
        meta.driver.remove(group_of_range(container.rid, range));
    }
}

/// Has the catalog say that a range is to be cut.
#[derive(Message)]
#[rtype(result = "Result<()>")]
struct Plan {
    container: ContainerRid,
    range_id: u32,
    at: Epk,
}

impl Handler<Plan> for Coordinator {
    type Result = AtomicResponse<Self, Result<()>>;

    fn handle(&mut self, plan: Plan, _: &mut Self::Context) -> Self::Result {
        let mut catalog = Catalog::clone(&self.catalog);
        let planned = self.check_leads().and_then(|()| {
            let everywhere = self.meta.as_ref().map(|meta| meta.nodes(&catalog));
            let Plan {
                container,
                range_id,
                at,
            } = &plan;
            catalog.plan_cut(*container, *range_id, at, &everywhere.unwrap_or_default())
        });
        AtomicResponse::new(match planned {
            Ok(cut) => {
                info!(container = %plan.container, range = plan.range_id, parts = ?cut.parts, "shard is to be split");
                self.store(catalog)
            }
            Err(error) => Box::pin(fut::ready(Err(error))),
        })
    }
}

impl Coordinator {
    /// Whether a range can be cut now.
    pub(super) fn check_cut(&self, meta: &Meta, shard: &ShardHandle) -> Result<()> {
        meta.check_leads()?;
        if let Some((container, range, _)) = wanted(&self.catalog).first() {
            return Err(Error::unavailable(format!(
                "partition key range {range} of '{container}' is being split; try again when that is done"
            )));
        }
        shard.check_led()
    }

    /// Cuts a shard of the cluster about in its middle. The ids of its parts, when every node knows them.
    pub(super) fn cut_in_cluster(
        &self,
        meta: Arc<Meta>,
        container: &Container,
        shard: Arc<ShardHandle>,
        address: Addr<Self>,
    ) -> impl Future<Output = Result<Vec<u32>>> + 'static {
        let (rid, range_id) = (container.rid, shard.facts.range_id);
        let definition = container.definition.partition_key.clone();
        let table = self.table();
        async move {
            let at = middle(&meta, &shard, definition).await?;
            let plan = Plan {
                container: rid,
                range_id,
                at,
            };
            let gone = |_| Error::unavailable("the node is stopping");
            address.send(plan).await.map_err(gone)??;
            until_cut(&meta, &table, rid, range_id).await
        }
    }

    /// Looks after the splits that the catalog wants, while there are any.
    pub(super) fn watch_cuts(&mut self, context: &mut Context<Self>) {
        if self.cuts.watch.is_none() && !wanted(&self.catalog).is_empty() {
            self.cuts.watch = Some(context.run_interval(LOOK_EVERY, Self::look_after_cuts));
        }
    }

    fn look_after_cuts(&mut self, context: &mut Context<Self>) {
        let wanted = wanted(&self.catalog);
        let Some(meta) = self.meta.clone().filter(|_| !wanted.is_empty()) else {
            if let Some(watch) = self.cuts.watch.take() {
                context.cancel_future(watch);
            }
            return;
        };
        for (rid, range_id, cut) in &wanted {
            if let Ok(shard) = self.shard(*rid, *range_id)
                && shard.leader() == Some(Leader::Here)
                && !shard.is_cut()
            {
                shard.cut(cut);
            }
        }
        if self.cuts.asking || meta.check_leads().is_err() {
            return;
        }
        self.cuts.asking = true;
        let table = self.table();
        let asked = async move { carried_out(&meta, &table.load_full(), wanted).await };
        context.spawn(asked.into_actor(self).map(|carried, coordinator, context| {
            coordinator.cuts.asking = false;
            let Carried { mut out, mostly } = carried;
            // Whoever does not come is filled by the others.
            if mostly.is_empty() {
                coordinator.cuts.mostly_since = None;
            } else if coordinator.cuts.is_patience_over() {
                out.extend(mostly);
            }
            coordinator.name_parts(&out, context);
        }));
    }

    /// Asks the other nodes how large the shards are that this one has no replica of.
    pub(super) fn ask_sizes(&mut self, context: &mut Context<Self>) {
        let mut shards = self.shards.values().flatten();
        let some_remote = shards.any(|shard| shard.remote().is_some());
        let Some(meta) = self.meta.clone().filter(|_| some_remote) else {
            return;
        };
        if std::mem::replace(&mut self.cuts.asking_sizes, true) {
            return;
        }
        let nodes = meta.nodes(&self.catalog);
        let asked = async move {
            let asked = nodes.iter().map(|&node| sizes_at(&meta, node));
            join_all(asked).await.into_iter().flatten()
        };
        context.spawn(asked.into_actor(self).map(|sizes, coordinator, _| {
            coordinator.cuts.asking_sizes = false;
            coordinator.splits.remote = sizes
                .filter_map(|(container, range, bytes)| {
                    Some(((ContainerRid::parse(&container)?, range), bytes))
                })
                .collect();
        }));
    }

    /// Names the parts of ranges in their place.
    fn name_parts(&mut self, cut: &[Wanted], context: &mut Context<Self>) {
        let mut catalog = Catalog::clone(&self.catalog);
        let mut named = Vec::new();
        for (rid, range_id, _) in cut {
            // One of a container that was removed meanwhile is of no concern any more.
            if let Ok(parts) = catalog.carry_out_cut(*rid, *range_id) {
                named.push((*rid, *range_id, parts.map(|part| part.id)));
            }
        }
        if named.is_empty() || self.check_leads().is_err() {
            return;
        }
        context.wait(self.store(catalog).map(|stored, _, _| match stored {
            Ok(()) => {
                for (container, range, parts) in named {
                    telemetry::splits::done();
                    info!(%container, range, ?parts, "shard split");
                }
            }
            Err(failure) => warn!(%failure, "the parts of a shard could not be named yet"),
        }));
    }
}

pub(super) fn is_part_of(part: &ShardHandle, whole: &ShardHandle) -> bool {
    part.facts.parents.contains(&whole.facts.range_id)
}

/// Shards and what they were cut into, by the ids of their ranges.
pub(super) fn all_of(shards: &[Arc<ShardHandle>]) -> BTreeMap<u32, Arc<ShardHandle>> {
    let all = shards.iter().flat_map(ShardHandle::with_parts);
    all.map(|shard| (shard.facts.range_id, shard)).collect()
}

/// A shard that was split, and what is in its place.
pub(super) type Split = (Arc<ShardHandle>, Vec<Arc<ShardHandle>>);

/// Lets shards that were split hand over what waits for them, and removes them some time later.
pub(super) fn retire(cut: Vec<Split>) {
    for (shard, heirs) in cut {
        let is_here = shard.remote().is_none();
        shard.retire(heirs);
        if !is_here {
            continue;
        }
        actix::spawn(async move {
            tokio::time::sleep(LATECOMERS_TIME).await;
            remove_shards(vec![shard]).await;
        });
    }
}

/// Where a shard is to be cut, as its leader says: what it has in memory goes to the disk at that, which shortens the moment of the split.
async fn middle(
    meta: &Meta,
    shard: &ShardHandle,
    definition: PartitionKeyDefinition,
) -> Result<Epk> {
    match shard.leader() {
        Some(Leader::Here) => middle_here(shard, definition).await,
        // A node that has no replica knows one that has; that one can tell as well.
        Some(Leader::Remote(Some(node))) => {
            let question = Question::Middle {
                container: shard.facts.container.to_text(),
                range: shard.facts.range_id,
            };
            let answer = meta.member.request(node, question.encode()).await;
            let silent = |_| Error::unavailable(format!("node {node} does not answer"));
            questions::decode_answer(&answer.map_err(silent)?)
        }
        Some(Leader::Remote(None)) | None => Err(Error::not_leader(None)),
    }
}

pub(super) async fn middle_here(
    shard: &ShardHandle,
    definition: PartitionKeyDefinition,
) -> Result<Epk> {
    let view = shard.view()?;
    let middle = tokio::task::spawn_blocking(move || split::middle(&view, &definition));
    middle
        .await
        .map_err(|failure| Error::internal(format!("a split was cut off: {failure}")))?
}

/// Waits until the catalog names the parts of a range, and no node answers by what was before.
async fn until_cut(
    meta: &Meta,
    table: &ArcSwap<RoutingTable>,
    rid: ContainerRid,
    range_id: u32,
) -> Result<Vec<u32>> {
    let deadline = Instant::now() + DONE_TIME_MAX;
    loop {
        let catalog = Arc::clone(&table.load().catalog);
        let container = catalog.container_by_rid(rid);
        let container = container.ok_or_else(|| no_range(range_id))?;
        let mut ranges = container.ranges.iter();
        if ranges.all(|range| range.id != range_id) {
            wait_for_nodes(meta, rid, &catalog, Instant::now()).await;
            let parts = container.ranges.iter();
            let parts = parts.filter(|range| range.parents.last() == Some(&range_id));
            return Ok(parts.map(|range| range.id).collect());
        }
        if Instant::now() > deadline {
            return Err(Error::unavailable(format!(
                "the split of partition key range {range_id} is under way, but takes long"
            )));
        }
        tokio::time::sleep(DONE_POLL).await;
    }
}

/// What the nodes say of the splits that are wanted.
#[derive(Default)]
struct Carried {
    /// Everybody has the parts.
    out: Vec<Wanted>,
    /// A majority has.
    mostly: Vec<Wanted>,
}

/// Which of these splits the nodes have carried out.
async fn carried_out(meta: &Meta, table: &RoutingTable, wanted: Vec<Wanted>) -> Carried {
    let mut carried = Carried::default();
    for (rid, range_id, cut) in wanted {
        let question = Question::Parted {
            container: rid.to_text(),
            range: range_id,
        };
        let nodes = &cut.replicas;
        let asked = nodes
            .iter()
            .map(|&node| has_parts(meta, table, node, &question));
        let have = join_all(asked).await.into_iter().filter(|has| *has).count();
        if have == nodes.len() {
            carried.out.push((rid, range_id, cut));
        } else if have > nodes.len() / 2 {
            carried.mostly.push((rid, range_id, cut));
        }
    }
    carried
}

async fn has_parts(meta: &Meta, table: &RoutingTable, node: NodeId, question: &Question) -> bool {
    if node == meta.member.node {
        return question.parted(table);
    }
    ask(meta, node, question).await == Some(true)
}

async fn sizes_at(meta: &Meta, node: NodeId) -> Sizes {
    if node == meta.member.node {
        return Sizes::default();
    }
    let answer = ask(meta, node, &Question::Sizes).await;
    answer.unwrap_or_default()
}

/// What another node answers soon.
async fn ask<T: DeserializeOwned>(meta: &Meta, node: NodeId, question: &Question) -> Option<T> {
    let asked = meta.member.request(node, question.encode());
    let answer = tokio::time::timeout(ASK_TIME_MAX, asked).await;
    rmp_serde::from_slice(&answer.ok()?.ok()?).ok()
}
