//! Splits: one shard becomes two while it is used, because it has outgrown its bound, because more throughput was asked for, or because the operator says so.
//!
//! The shard is still for a moment: its files become those of both parts by hard links, the catalog names the parts, and what waited is decided by them. The catalog
//! is the point of no return: before it a crash leaves folders that nobody owns, after it the old shard is one.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use actix::{fut, prelude::*};
use tracing::{info, warn};

use super::{
    Coordinator,
    actor::{facts_of, remove_shards},
    catalog_file,
};
use crate::{
    model::{
        catalog::{Catalog, Container, no_range},
        epk::Epk,
        error::{Error, Result},
        offer::Throughput,
        rid::ContainerRid,
    },
    shard::{
        facts::ShardFacts,
        host::{ShardHandle, ShardHost},
        split,
    },
    store::descriptors,
    telemetry,
};

/// How often it is looked whether a shard must be split.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long a shard that could not be split is left alone.
const REFUSED_REST: Duration = Duration::from_secs(600);
/// How long it is left alone when the cluster was not ready for it.
const PASSING_REST: Duration = Duration::from_secs(10);
/// How long a shard that was split hands on what comes late, before its files go.
const LATECOMERS_TIME: Duration = Duration::from_secs(2);

/// The splits of a node, as far as they are not in the catalog.
#[derive(Default)]
pub(super) struct Splits {
    /// One at a time.
    under_way: Option<(ContainerRid, u32)>,
    /// Shards that are left alone, and until when.
    refused: HashMap<(ContainerRid, u32), Instant>,
    /// The bytes of shards that other nodes have, as they said last.
    pub remote: HashMap<(ContainerRid, u32), u64>,
}

/// Splits a shard; answers with the ids of its parts when they have taken over.
#[derive(Message)]
#[rtype(result = "Result<Vec<u32>>")]
pub struct SplitShard {
    pub database: String,
    pub container: String,
    /// May be left out where there is only one.
    pub range_id: Option<u32>,
}

impl Handler<SplitShard> for Coordinator {
    type Result = ResponseActFuture<Self, Result<Vec<u32>>>;

    fn handle(&mut self, request: SplitShard, context: &mut Self::Context) -> Self::Result {
        let found = self
            .catalog
            .container(&request.database, &request.container)
            .cloned()
            .and_then(
                |container| match (request.range_id, container.ranges.as_slice()) {
                    (Some(id), _) => Ok((container, id)),
                    (None, [only]) => Ok((container.clone(), only.id)),
                    (None, several) => Err(Error::bad_request(format!(
                        "the container '{}' has {} partition key ranges: name the one to split",
                        request.container,
                        several.len()
                    ))),
                },
            );
        match found {
            Ok((container, range_id)) => self.split(&container, range_id, context),
            Err(error) => Box::pin(fut::ready(Err(error))),
        }
    }
}

/// Cuts a shard at an EPK.
#[derive(Message)]
#[rtype(result = "Result<Vec<u32>>")]
struct Cut {
    container: ContainerRid,
    range_id: u32,
    at: Epk,
}

impl Handler<Cut> for Coordinator {
    type Result = AtomicResponse<Self, Result<Vec<u32>>>;

    fn handle(&mut self, cut: Cut, _: &mut Self::Context) -> Self::Result {
        AtomicResponse::new(
            self.cut(&cut)
                .unwrap_or_else(|error| Box::pin(fut::ready(Err(error)))),
        )
    }
}

impl Coordinator {
    /// Looks after the sizes of shards, from now on.
    pub(super) fn keep_small(&self, context: &mut Context<Self>) {
        context.run_interval(LOOK_EVERY, |coordinator, context| {
            if coordinator.splits.under_way.is_some() || coordinator.check_leads().is_err() {
                return;
            }
            coordinator.ask_sizes(context);
            let Some((container, range_id)) = coordinator.outgrown() else {
                return;
            };
            let split = coordinator.split(&container, range_id, context);
            context.spawn(split.map(|_, _, _| ()));
        });
    }

    /// A shard that is to be split: the largest that is beyond the bound, or of a container that has fewer than its throughput asks for.
    fn outgrown(&mut self) -> Option<(Container, u32)> {
        self.splits
            .refused
            .retain(|_, until| Instant::now() < *until);
        let bytes_max = self.policy.shard_bytes_max;
        let offers = match self.policy.shards_per_container {
            0 => self.catalog.offers_by_resource(),
            _ => HashMap::new(),
        };
        let mut largest: Option<(u64, &Container, u32)> = None;
        for container in self.catalog.containers() {
            let wants_more = offers
                .get(&*container.rid.self_link())
                .is_some_and(|offer| shards_wanted(&offer.throughput) > container.ranges.len());
            for shard in self.shards.get(&container.rid).into_iter().flatten() {
                let range_id = shard.facts.range_id;
                let rests = self.splits.refused.contains_key(&(container.rid, range_id));
                let told = self.splits.remote.get(&(container.rid, range_id));
                let bytes = match shard.remote() {
                    None => splittable_bytes(shard),
                    Some(_) => told.copied(),
                };
                let Some(bytes) = bytes.filter(|_| !rests) else {
                    continue;
                };
                let too_large = bytes_max > 0 && bytes > bytes_max;
                if (too_large || wants_more) && largest.is_none_or(|(most, ..)| bytes > most) {
                    largest = Some((bytes, container, range_id));
                }
            }
        }
        largest.map(|(_, container, range_id)| (container.clone(), range_id))
    }

    /// Splits a shard about in its middle.
    fn split(
        &mut self,
        container: &Container,
        range_id: u32,
        context: &mut Context<Self>,
    ) -> ResponseActFuture<Self, Result<Vec<u32>>> {
        let rid = container.rid;
        let begun = self.begin_split(rid, range_id);
        let (shard, address) = match begun {
            Ok(shard) => (shard, context.address()),
            Err(error) => return Box::pin(fut::ready(Err(error))),
        };
        if let Err(error) = descriptors::check_room(2) {
            return self.end_split(rid, range_id, std::future::ready(Err(error)));
        }
        if let Some(meta) = self.meta.clone() {
            let done = self.cut_in_cluster(meta, container, shard, address);
            return self.end_split(rid, range_id, done);
        }
        let definition = container.definition.partition_key.clone();
        let done = async move {
            let view = shard.view()?;
            let middle = tokio::task::spawn_blocking(move || split::middle(&view, &definition));
            let at = middle
                .await
                .map_err(|failure| Error::internal(format!("a split was cut off: {failure}")))??;
            let cut = Cut {
                container: rid,
                range_id,
                at,
            };
            let gone = |_| Error::unavailable("the node is stopping");
            address.send(cut).await.map_err(gone)?
        };
        self.end_split(rid, range_id, done)
    }

    /// What follows when a split is done, or has failed.
    fn end_split(
        &self,
        rid: ContainerRid,
        range_id: u32,
        done: impl Future<Output = Result<Vec<u32>>> + 'static,
    ) -> ResponseActFuture<Self, Result<Vec<u32>>> {
        Box::pin(done.into_actor(self).map(move |done, coordinator, _| {
            coordinator.splits.under_way = None;
            if let Err(failure) = &done {
                warn!(container = %rid, range = range_id, %failure, "shard could not be split");
                // What stands in the way in a cluster passes, unless it is the shard's own fault.
                let passes = coordinator.meta.is_some() && failure.status() >= 500;
                let rest = if passes { PASSING_REST } else { REFUSED_REST };
                let refused = &mut coordinator.splits.refused;
                refused.insert((rid, range_id), Instant::now() + rest);
            }
            done
        }))
    }

    fn begin_split(&mut self, rid: ContainerRid, range_id: u32) -> Result<Arc<ShardHandle>> {
        self.check_leads()?;
        if let Some((container, range)) = self.splits.under_way {
            return Err(Error::unavailable(format!(
                "partition key range {range} of '{container}' is being split; try again when that is done"
            )));
        }
        let shard = self.shard(rid, range_id)?;
        match &self.meta {
            None => shard.check_writable()?,
            Some(meta) => self.check_cut(meta, &shard)?,
        }
        self.splits.under_way = Some((rid, range_id));
        Ok(shard)
    }

    pub(super) fn shard(&self, rid: ContainerRid, range_id: u32) -> Result<Arc<ShardHandle>> {
        let shards = self.shards.get(&rid).into_iter().flatten();
        let mut found = shards.filter(|shard| shard.facts.range_id == range_id);
        found.next().cloned().ok_or_else(|| no_range(range_id))
    }

    fn cut(&mut self, cut: &Cut) -> Result<ResponseActFuture<Self, Result<Vec<u32>>>> {
        let Cut {
            container: rid,
            range_id,
            ref at,
        } = *cut;
        let parent = self.shard(rid, range_id)?;
        let mut catalog = Catalog::clone(&self.catalog);
        let ranges = catalog.split_range(rid, range_id, at)?;
        let container = catalog
            .container_by_rid(rid)
            .cloned()
            .ok_or_else(|| Error::internal("a container vanished"))?;
        let facts = ranges.map(|range| facts_of(&container, &range));
        let made = make_parts(
            Arc::clone(&self.host),
            Arc::clone(&parent),
            container,
            facts,
        );
        let begun = Instant::now();
        let done = made.into_actor(self).then(move |made, coordinator, _| {
            let parts = match made {
                Ok(parts) => parts,
                Err(error) => {
                    parent.let_go();
                    return Box::pin(fut::ready(Err(error)))
                        as ResponseActFuture<Self, Result<Vec<u32>>>;
                }
            };
            coordinator.replace_shard(&parent, &parts);
            let version = catalog.version;
            Box::pin(coordinator.store(catalog).map(move |stored, coordinator, _| {
                if let Err(error) = stored
                    && coordinator.stored_version().is_some_and(|stored| stored < version)
                {
                    coordinator.put_back(&parent, &parts);
                    parent.let_go();
                    actix::spawn(remove_shards(parts));
                    return Err(error);
                }
                let ids = parts.iter().map(|part| part.facts.range_id).collect();
                let seconds = begun.elapsed().as_secs_f64();
                info!(container = %rid, range = range_id, parts = ?ids, seconds, "shard split");
                telemetry::splits::done();
                parent.retire(parts);
                actix::spawn(async move {
                    tokio::time::sleep(LATECOMERS_TIME).await;
                    remove_shards(vec![parent]).await;
                });
                Ok(ids)
            }))
        });
        Ok(Box::pin(done))
    }

    /// The version of the catalog on disk: after a failure nobody knows whether it is the old or the new one.
    fn stored_version(&self) -> Option<u64> {
        let stored = catalog_file::load(&self.folder);
        stored.ok().map(|catalog| catalog.version)
    }

    fn replace_shard(&mut self, parent: &Arc<ShardHandle>, parts: &[Arc<ShardHandle>]) {
        let shards = self.shards.entry(parent.facts.container).or_default();
        if let Some(at) = shards.iter().position(|shard| Arc::ptr_eq(shard, parent)) {
            shards.splice(at..=at, parts.iter().cloned());
        }
    }

    fn put_back(&mut self, parent: &Arc<ShardHandle>, parts: &[Arc<ShardHandle>]) {
        let shards = self.shards.entry(parent.facts.container).or_default();
        let is_part = |shard: &Arc<ShardHandle>| parts.iter().any(|part| Arc::ptr_eq(part, shard));
        if let Some(at) = shards.iter().position(is_part) {
            shards.splice(at..at + parts.len(), [Arc::clone(parent)]);
        }
    }
}

/// The bytes of a shard's items, if it could be split now. What a split has left is not cleared away at first, so nobody knows how large a part is.
pub(super) fn splittable_bytes(shard: &ShardHandle) -> Option<u64> {
    let view = shard.view().ok()?;
    let ready = !view.has_foreign() && !view.is_cut() && view.check_writable().is_ok();
    ready.then(|| view.state().bytes)
}

/// Shards that a throughput asks for.
fn shards_wanted(throughput: &Throughput) -> usize {
    usize::try_from(throughput.shard_count()).unwrap_or(usize::MAX)
}

/// Holds a shard and makes its parts. It is still held when they are there.
async fn make_parts(
    host: Arc<ShardHost>,
    parent: Arc<ShardHandle>,
    container: Arc<Container>,
    facts: [ShardFacts; 2],
) -> Result<Vec<Arc<ShardHandle>>> {
    parent.hold().await?;
    let view = parent.view()?;
    let made = tokio::task::spawn_blocking(move || {
        let made = facts
            .iter()
            .try_for_each(|part| host.make_part(&view, part, &[]));
        if let Err(failure) = made {
            facts.iter().for_each(|part| host.remove_part(part));
            return Err(Error::from(failure));
        }
        let definition = &container.definition;
        let open = |part| host.open(part, definition.default_ttl, &definition.indexing_policy);
        let parts: Vec<_> = facts.into_iter().map(open).collect();
        Ok(parts)
    });
    let parts = made
        .await
        .map_err(|failure| Error::internal(format!("a split was cut off: {failure}")))??;
    match parts.iter().find_map(|part| part.view().err()) {
        None => Ok(parts),
        Some(error) => {
            remove_shards(parts).await;
            Err(error)
        }
    }
}
