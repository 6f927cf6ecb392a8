//! The coordinator of a node in a cluster: puts catalogs in force that the meta group has committed, and brings the shards that this node leads in line with them.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    sync::Arc,
    time::Duration,
};

use actix::{fut, prelude::*};
use futures_util::{StreamExt as _, future::join_all, stream::FuturesUnordered};
use tokio::time::Instant;
use tracing::{info, warn};

use super::{
    Coordinator,
    actor::{Changed, Shards, facts_of, rebuilds, remove_shards},
    cluster_split::{Split, all_of, is_part_of, retire},
    meta::{Meta, check_growth},
    questions::Question,
};
use crate::{
    cluster::{
        GroupId, NodeId,
        lease::{LEASE, LEASE_MARGIN},
        raft::planner::TargetConfig,
    },
    model::{
        catalog::{Catalog, Container, Range},
        error::{Error, Result},
        rid::ContainerRid,
    },
    shard::{
        host::{Leader, ShardHandle, ShardHost, group_of_range},
        view::ShardView,
    },
};

/// How often it is looked whether shards that this node leads are in line with the catalog.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// How long a change may take to be in force on all shards.
const IN_FORCE_TIME_MAX: Duration = Duration::from_secs(5);
/// More voters would make changes of the catalog slower and hardly safer; the other nodes have it without a say.
const META_VOTERS_MAX: usize = 5;
const IN_FORCE_POLL: Duration = Duration::from_millis(5);

/// A catalog that the meta group has committed.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Adopt(pub Catalog);

impl Handler<Adopt> for Coordinator {
    type Result = AtomicResponse<Self, ()>;

    fn handle(&mut self, Adopt(catalog): Adopt, _: &mut Self::Context) -> Self::Result {
        AtomicResponse::new(Box::pin(self.adopt(catalog).map(|adopted, _, _| {
            if let Err(failure) = adopted {
                warn!(%failure, "a catalog could not be put in force");
            }
        })))
    }
}

impl Coordinator {
    /// Puts a committed catalog in force: shards that are new are there before it names them, those that are gone go after it.
    pub(super) fn adopt(&mut self, catalog: Catalog) -> ResponseActFuture<Self, Result<()>> {
        if catalog.version <= self.catalog.version {
            return Box::pin(fut::ready(Ok(())));
        }
        let Some(meta) = self.meta.clone() else {
            return Box::pin(fut::ready(Ok(())));
        };
        meta.tell_members(&catalog);
        // Groups that are begun know who is to lead them.
        tell_aims(&meta, &catalog);
        let (host, before) = (Arc::clone(&self.host), self.shards.clone());
        let placed = tokio::task::spawn_blocking(move || {
            let placed = catalog.containers().map(|one| {
                let before = before.get(&one.rid).map_or(&[][..], Vec::as_slice);
                (one.rid, place_shards(&host, &meta, one, before))
            });
            let placed = placed.collect::<Shards>();
            let removed = before.iter().filter(|(rid, _)| !placed.contains_key(rid));
            // No parts are made of what is removed.
            removed.for_each(|(_, shards)| shards.iter().for_each(|shard| shard.seal()));
            (placed, catalog)
        });
        Box::pin(placed.into_actor(self).map(|placed, coordinator, context| {
            let (placed, catalog) = placed.map_err(|failure| {
                Error::internal(format!("the shards could not be opened: {failure}"))
            })?;
            let before = std::mem::replace(&mut coordinator.shards, placed);
            coordinator.catalog = Arc::new(catalog);
            let (cut, gone) = coordinator.gone(before);
            gone.iter().for_each(|shard| shard.note_leaving());
            coordinator.publish();
            retire(cut);
            coordinator.align();
            coordinator.watch_cuts(context);
            // Nobody waits for the files to go.
            actix::spawn(remove_shards(gone));
            Ok(())
        }))
    }

    /// The replicas that were here and are not any more: those that were split, each with its heirs, and the others.
    fn gone(&self, before: Shards) -> (Vec<Split>, Vec<Arc<ShardHandle>>) {
        let here: HashSet<*const ShardHandle> =
            self.shards.values().flatten().map(Arc::as_ptr).collect();
        let (mut cut, mut gone) = (Vec::new(), Vec::new());
        for (rid, before) in before {
            let now = self.shards.get(&rid).map_or(&[][..], Vec::as_slice);
            for shard in all_of(&before).into_values() {
                if here.contains(&Arc::as_ptr(&shard)) {
                    continue;
                }
                let heirs = now.iter().filter(|heir| is_part_of(heir, &shard));
                let heirs: Vec<_> = heirs.cloned().collect();
                // A part of what the catalog still has as a whole waits for its time.
                let waits = now.iter().any(|whole| is_part_of(&shard, whole));
                if !heirs.is_empty() {
                    cut.push((shard, heirs));
                } else if !waits && shard.remote().is_none() {
                    gone.push(shard);
                }
            }
        }
        (cut, gone)
    }

    /// Looks after the shards that this node leads, from now on.
    pub(super) fn keep_aligned(&self, context: &mut Context<Self>) {
        if self.meta.is_some() {
            context.run_interval(LOOK_EVERY, |coordinator, context| {
                coordinator.align();
                coordinator.name_nodes(context);
                coordinator.look_after_moves(context);
            });
        }
    }

    /// The first catalog of a cluster names its nodes.
    fn name_nodes(&self, context: &mut Context<Self>) {
        let Some(meta) = &self.meta else { return };
        if self.catalog.nodes.is_empty() && meta.check_leads().is_ok() {
            let mut catalog = Catalog::clone(&self.catalog);
            meta.name_nodes(&mut catalog);
            context.wait(self.store(catalog).map(|stored, _, _| {
                if let Err(failure) = stored {
                    warn!(%failure, "the nodes could not be recorded yet");
                }
            }));
        }
    }

    /// Gives the shards that this node leads what the catalog says of them.
    fn align(&self) {
        for container in self
            .catalog
            .databases
            .values()
            .flat_map(|one| one.containers.values())
        {
            for shard in self.shards.get(&container.rid).into_iter().flatten() {
                if leads_behind(shard, container) {
                    actix::spawn(bring_in_line(Arc::clone(shard), Arc::clone(container)));
                }
            }
        }
    }

    /// A container in a cluster is made when a majority has it, and answers when each of its shards has a leader.
    pub(super) fn store_new(&mut self, catalog: Catalog, rid: ContainerRid) -> Changed {
        self.store_and_wait(catalog, rid, false, |shard, container| {
            shard.check_led().is_ok() && has_all(shard, container)
        })
    }

    /// A change of a container answers when all its shards have it and no node answers by what was before.
    pub(super) fn store_changed(&mut self, catalog: Catalog, rid: ContainerRid) -> Changed {
        self.store_and_wait(catalog, rid, true, has_all)
    }

    fn store_and_wait(
        &mut self,
        catalog: Catalog,
        rid: ContainerRid,
        everywhere: bool,
        is_done: impl Fn(&ShardHandle, &Container) -> bool + 'static,
    ) -> Changed {
        if let Err(error) = check_growth(&self.catalog, &catalog) {
            return AtomicResponse::new(Box::pin(fut::ready(Err(error))));
        }
        AtomicResponse::new(Box::pin(self.store(catalog).then(
            move |stored, coordinator, _| {
                let shards = coordinator.shards.get(&rid).cloned().unwrap_or_default();
                let databases = coordinator.catalog.databases.values();
                let container = databases
                    .flat_map(|one| one.containers.values())
                    .find(|container| container.rid == rid)
                    .cloned();
                let catalog = Arc::clone(&coordinator.catalog);
                let meta = coordinator.meta.clone();
                let committed = Instant::now();
                async move {
                    stored?;
                    let Some((container, meta)) = container.zip(meta) else {
                        return Ok(());
                    };
                    wait(&shards, &container, is_done).await?;
                    wait_for_others(&meta, &shards, &container, catalog.version).await?;
                    if everywhere {
                        wait_for_nodes(&meta, rid, &catalog, committed).await;
                    }
                    Ok(())
                }
                .into_actor(coordinator)
            },
        )))
    }
}

/// The shards of a container as a catalog places them: replicas of this node, and what other nodes have. What is here already stays.
pub(super) fn place_shards(
    host: &Arc<ShardHost>,
    meta: &Meta,
    container: &Container,
    before: &[Arc<ShardHandle>],
) -> Vec<Arc<ShardHandle>> {
    for shard in before {
        let mut ranges = container.ranges.iter();
        if ranges.all(|range| range.id != shard.facts.range_id) {
            shard.seal();
        }
    }
    let known = all_of(before);
    let place = |range: &Range| {
        let known = known.get(&range.id).cloned();
        let here = range.is_here(meta.own.node);
        let stays = known.filter(|shard| match shard.remote() {
            None => here,
            Some(nodes) => !here && nodes == range.replicas,
        });
        let facts = || facts_of(container, range);
        stays.unwrap_or_else(|| match here {
            true => host.open_replica(facts(), meta.initial_state(range), &range.replicas),
            false => host.remote(facts(), range.replicas.clone()),
        })
    };
    container.ranges.iter().map(place).collect()
}

/// Tells the groups of this node who their members are to be, and who should lead them.
pub(super) fn tell_aims(meta: &Meta, catalog: &Catalog) {
    let mut targets = BTreeMap::new();
    targets.insert(GroupId::META, meta_target(catalog, &meta.own.members));
    let leaders = catalog.leaders();
    for container in catalog.containers() {
        for range in &container.ranges {
            let target = TargetConfig {
                voters: range.replicas.clone(),
                learners: Vec::new(),
                leader: leaders.get(&(container.rid, range.id)).copied(),
            };
            targets.insert(group_of_range(container.rid, range.id), target);
        }
    }
    meta.driver.set_targets(targets);
}

/// Every node has the catalog; an odd number of them has a say in it.
fn meta_target(catalog: &Catalog, members: &BTreeMap<NodeId, String>) -> TargetConfig {
    if catalog.nodes.is_empty() {
        return TargetConfig {
            voters: members.keys().copied().collect(),
            ..TargetConfig::default()
        };
    }
    let mut voters: Vec<NodeId> = catalog.takers().take(META_VOTERS_MAX).collect();
    if voters.len().is_multiple_of(2) && voters.len() > 2 {
        voters.pop();
    }
    let others = catalog.nodes.keys().filter(|node| !voters.contains(node));
    TargetConfig {
        learners: others.copied().collect(),
        voters,
        leader: None,
    }
}

async fn wait(
    shards: &[Arc<ShardHandle>],
    container: &Arc<Container>,
    is_done: impl Fn(&ShardHandle, &Container) -> bool,
) -> Result<()> {
    let deadline = Instant::now() + IN_FORCE_TIME_MAX;
    loop {
        let mut waiting = shards
            .iter()
            .filter(|shard| shard.held_by_others().is_none() && !is_done(shard, container));
        let Some(first) = waiting.next() else {
            return Ok(());
        };
        // The coordinator does nothing else meanwhile, so shards that this node has just begun to lead are seen to here.
        for shard in waiting
            .chain([first])
            .filter(|shard| leads_behind(shard, container))
        {
            bring_in_line(Arc::clone(shard), Arc::clone(container)).await;
        }
        if Instant::now() > deadline {
            return Err(not_everywhere(container));
        }
        tokio::time::sleep(IN_FORCE_POLL).await;
    }
}

fn not_everywhere(container: &Container) -> Error {
    Error::unavailable(format!(
        "the change of '{}' is stored, but not all of its shards have it yet",
        container.definition.id
    ))
}

/// Waits until the shards that only other nodes have are in line with the catalog: what one replica has applied, the others will apply.
async fn wait_for_others(
    meta: &Meta,
    shards: &[Arc<ShardHandle>],
    container: &Container,
    version: u64,
) -> Result<()> {
    let remote = shards.iter().filter_map(|shard| shard.held_by_others());
    let mut waiting: Vec<Vec<NodeId>> = remote.collect();
    let question = Question::InForce {
        container: container.rid.to_text(),
        version,
        whole: true,
    };
    let nodes: BTreeSet<NodeId> = waiting.iter().flatten().copied().collect();
    let question = &question;
    let asked = nodes.into_iter().map(|node| async move {
        ask_until_in_force(meta, node, question).await;
        node
    });
    let mut answers: FuturesUnordered<_> = asked.collect();
    let deadline = Instant::now() + IN_FORCE_TIME_MAX;
    while !waiting.is_empty() {
        match tokio::time::timeout_at(deadline, answers.next()).await {
            Ok(Some(node)) => waiting.retain(|replicas| !replicas.contains(&node)),
            Ok(None) | Err(_) => return Err(not_everywhere(container)),
        }
    }
    Ok(())
}

/// Waits until no other node answers by an older catalog: it says so itself, or its right to answer has run out.
pub(super) async fn wait_for_nodes(
    meta: &Meta,
    rid: ContainerRid,
    catalog: &Catalog,
    committed: Instant,
) {
    let question = Question::InForce {
        container: rid.to_text(),
        version: catalog.version,
        whole: false,
    };
    let run_out = committed + LEASE + LEASE_MARGIN;
    let nodes = meta.nodes(catalog);
    let others = nodes.iter().filter(|node| **node != meta.own.node);
    let question = &question;
    let waits = others.map(|&node| async move {
        let asked = ask_until_in_force(meta, node, question);
        if tokio::time::timeout_at(run_out, asked).await.is_err() {
            info!(container = %rid, node, "a node that is away has lost the right to answer by the old catalog");
        }
    });
    join_all(waits).await;
}

async fn ask_until_in_force(meta: &Meta, node: NodeId, question: &Question) {
    loop {
        let answer = meta.member.request(node, question.encode()).await;
        if answer.is_ok_and(|answer| matches!(rmp_serde::from_slice(&answer), Ok(true))) {
            return;
        }
        tokio::time::sleep(IN_FORCE_POLL).await;
    }
}

/// Whether what a node answers of a shard rests on the catalog's time to live; one that is down answers nothing.
pub(super) fn is_in_force(shard: &ShardHandle, container: &Container) -> bool {
    let default = shard.default_ttl();
    shard.held_by_others().is_some()
        || default.is_none_or(|default| default == container.definition.default_ttl)
}

/// Whether this node leads a shard that is not in line with the catalog.
fn leads_behind(shard: &ShardHandle, container: &Container) -> bool {
    shard.leader() == Some(Leader::Here) && !has_all(shard, container)
}

pub(super) fn has_all(shard: &ShardHandle, container: &Container) -> bool {
    shard.with_view(|view| Ok(is_in_line(view, container))) == Ok(true)
}

/// Whether a shard has the time to live and the index that the catalog wants.
fn is_in_line(view: &ShardView, container: &Container) -> bool {
    let definition = &container.definition;
    view.state().rules.default == definition.default_ttl
        && view.has_policy(&definition.indexing_policy)
}

async fn bring_in_line(shard: Arc<ShardHandle>, container: Arc<Container>) {
    let definition = &container.definition;
    let (policy, default) = (&definition.indexing_policy, definition.default_ttl);
    let changed = async {
        let before = shard.view()?.state().rules.default;
        let rebuild = rebuilds(policy.mode, before, default);
        shard.change_index(policy, rebuild).await?;
        shard.change_default_ttl(default, container.ts).await
    };
    match changed.await {
        Ok(()) => {
            info!(container = %container.rid, range = shard.facts.range_id, "shard caught up with the catalog")
        }
        Err(failure) => {
            warn!(container = %container.rid, range = shard.facts.range_id, %failure, "shard could not catch up with the catalog")
        }
    }
}
