//! The coordinator of a node in a cluster: puts catalogs in force that the meta group has committed, and brings the shards that this node leads in line with them.

use std::{sync::Arc, time::Duration};

use actix::{fut, prelude::*};
use futures_util::future::join_all;
use tokio::time::Instant;
use tracing::{info, warn};

use super::{
    Coordinator,
    actor::{Changed, Shards, open_shards, rebuilds, remove_shards},
    cluster_split::retire,
    meta::Meta,
    questions::Question,
};
use crate::{
    cluster::{
        NodeId,
        lease::{LEASE, LEASE_MARGIN},
    },
    model::{
        catalog::{Catalog, Container},
        error::{Error, Result},
        rid::ContainerRid,
    },
    shard::{
        host::{Leader, ShardHandle},
        view::ShardView,
    },
};

/// How often it is looked whether shards that this node leads are in line with the catalog.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// How long a change may take to be in force on all shards.
const IN_FORCE_TIME_MAX: Duration = Duration::from_secs(5);
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
        let containers = catalog
            .databases
            .values()
            .flat_map(|one| one.containers.values());
        let new: Vec<Container> = containers
            .filter(|container| !self.shards.contains_key(&container.rid))
            .cloned()
            .collect();
        let host = Arc::clone(&self.host);
        let opened = tokio::task::spawn_blocking(move || {
            let opened = new.iter().map(|one| (one.rid, open_shards(&host, one)));
            opened.collect::<Shards>()
        });
        Box::pin(opened.into_actor(self).map(|opened, coordinator, context| {
            let opened = opened.map_err(|failure| {
                Error::internal(format!("the shards could not be opened: {failure}"))
            })?;
            coordinator.shards.extend(opened);
            coordinator.check_parts(&catalog)?;
            coordinator.catalog = Arc::new(catalog);
            let gone = coordinator.take_gone();
            let cut = coordinator.take_cut();
            coordinator.publish();
            retire(cut);
            coordinator.align();
            coordinator.watch_cuts(context);
            // Nobody waits for the files to go.
            actix::spawn(remove_shards(gone));
            Ok(())
        }))
    }

    /// The shards that no container of the catalog has.
    fn take_gone(&mut self) -> Vec<Arc<ShardHandle>> {
        let containers = self
            .catalog
            .databases
            .values()
            .flat_map(|one| one.containers.values());
        let named: std::collections::HashSet<ContainerRid> =
            containers.map(|container| container.rid).collect();
        let gone: Vec<ContainerRid> = self
            .shards
            .keys()
            .filter(|rid| !named.contains(rid))
            .copied()
            .collect();
        gone.iter()
            .filter_map(|rid| self.shards.remove(rid))
            .flatten()
            .flat_map(|shard| shard.with_parts())
            .collect()
    }

    /// Looks after the shards that this node leads, from now on.
    pub(super) fn keep_aligned(&self, context: &mut Context<Self>) {
        if self.meta.is_some() {
            context.run_interval(LOOK_EVERY, |coordinator, _| coordinator.align());
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
                    actix::spawn(bring_in_line(Arc::clone(shard), container.clone()));
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
        AtomicResponse::new(Box::pin(self.store(catalog).then(
            move |stored, coordinator, _| {
                let shards = coordinator.shards.get(&rid).cloned().unwrap_or_default();
                let databases = coordinator.catalog.databases.values();
                let container = databases
                    .flat_map(|one| one.containers.values())
                    .find(|container| container.rid == rid)
                    .cloned();
                let version = coordinator.catalog.version;
                let meta = coordinator.meta.clone().filter(|_| everywhere);
                let committed = Instant::now();
                async move {
                    stored?;
                    let Some(container) = container else {
                        return Ok(());
                    };
                    wait(&shards, &container, is_done).await?;
                    if let Some(meta) = meta {
                        wait_for_nodes(&meta, rid, version, committed).await;
                    }
                    Ok(())
                }
                .into_actor(coordinator)
            },
        )))
    }
}

async fn wait(
    shards: &[Arc<ShardHandle>],
    container: &Container,
    is_done: impl Fn(&ShardHandle, &Container) -> bool,
) -> Result<()> {
    let deadline = Instant::now() + IN_FORCE_TIME_MAX;
    loop {
        let mut waiting = shards.iter().filter(|shard| !is_done(shard, container));
        let Some(first) = waiting.next() else {
            return Ok(());
        };
        // The coordinator does nothing else meanwhile, so shards that this node has just begun to lead are seen to here.
        for shard in waiting
            .chain([first])
            .filter(|shard| leads_behind(shard, container))
        {
            bring_in_line(Arc::clone(shard), container.clone()).await;
        }
        if Instant::now() > deadline {
            return Err(Error::unavailable(format!(
                "the change of '{}' is stored, but not all of its shards have it yet",
                container.definition.id
            )));
        }
        tokio::time::sleep(IN_FORCE_POLL).await;
    }
}

/// Waits until no other node answers by an older catalog: it says so itself, or its right to answer has run out.
pub(super) async fn wait_for_nodes(
    meta: &Meta,
    rid: ContainerRid,
    version: u64,
    committed: Instant,
) {
    let question = Question::InForce {
        container: rid.to_text(),
        version,
    };
    let run_out = committed + LEASE + LEASE_MARGIN;
    let others = meta.member.members.keys();
    let others = others.filter(|node| **node != meta.member.node);
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
        let answer = meta.member.ask(node, question.encode()).await;
        if answer.is_ok_and(|answer| matches!(rmp_serde::from_slice(&answer), Ok(true))) {
            return;
        }
        tokio::time::sleep(IN_FORCE_POLL).await;
    }
}

/// Whether what a node answers of a shard rests on the catalog's time to live; one that is down answers nothing.
pub(super) fn is_in_force(shard: &ShardHandle, container: &Container) -> bool {
    let default = shard.default_ttl();
    default.is_none_or(|default| default == container.definition.default_ttl)
}

/// Whether this node leads a shard that is not in line with the catalog.
fn leads_behind(shard: &ShardHandle, container: &Container) -> bool {
    shard.leader() == Some(Leader::Here) && !has_all(shard, container)
}

fn has_all(shard: &ShardHandle, container: &Container) -> bool {
    shard.with_view(|view| Ok(is_in_line(view, container))) == Ok(true)
}

/// Whether a shard has the time to live and the index that the catalog wants.
fn is_in_line(view: &ShardView, container: &Container) -> bool {
    let definition = &container.definition;
    view.state().rules.default == definition.default_ttl
        && view.has_policy(&definition.indexing_policy)
}

async fn bring_in_line(shard: Arc<ShardHandle>, container: Container) {
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
