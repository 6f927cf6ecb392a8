//! The consistency level of a read: what must be waited for before a replica may answer it.

use std::{sync::Arc, time::Duration};

use futures_util::future::try_join_all;

use crate::{
    gateway::{call::Call, protocol::Header},
    model::{
        account::{STALENESS_SECONDS_MAX, STALENESS_WRITES_MAX},
        consistency::Consistency,
        error::{Error, Result},
    },
    router::ContainerRoute,
    shard::{freshness::Freshness, host::ShardHandle},
};

/// The level that a request is answered at. A node of its own has every level at once, so anything that is a level will do there.
fn level(call: &Call<'_>) -> Result<Consistency> {
    let shared = &call.worker.shared;
    let asked = call
        .header(Header::ConsistencyLevel)
        .map(Consistency::parse)
        .transpose()?;
    match shared.member {
        None => Ok(Consistency::Strong),
        Some(_) => shared.consistency.relaxed_to(asked),
    }
}

fn freshness(level: Consistency) -> Freshness {
    match level {
        Consistency::Strong => Freshness::Newest,
        Consistency::BoundedStaleness => Freshness::Bounded {
            entries: u64::from(STALENESS_WRITES_MAX),
            time: Duration::from_secs(u64::from(STALENESS_SECONDS_MAX)),
        },
        Consistency::Session | Consistency::ConsistentPrefix | Consistency::Eventual => {
            Freshness::Any
        }
    }
}

/// A read that may be answered.
#[derive(Default)]
pub struct Readable {
    /// Shards that were asked for what is newest, and times that had come for their groups then.
    newest: Vec<(Arc<ShardHandle>, i64)>,
}

impl Readable {
    /// What was read may be told: nobody who asks for what is newest after that judges by an earlier time.
    pub async fn settle(self) -> Result<()> {
        if self.newest.is_empty() {
            return Ok(());
        }
        let settled = self.newest.iter();
        let settled = settled.map(|(shard, safe_time)| shard.commit_wait(*safe_time));
        Box::pin(try_join_all(settled)).await?;
        Ok(())
    }
}

/// Waits until shards of a container may answer a read. A node of its own may at once: what a cluster waits for is kept out of its way.
pub async fn await_readable(
    call: &Call<'_>,
    container: &ContainerRoute,
    shards: impl FnOnce() -> Result<Vec<Arc<ShardHandle>>>,
) -> Result<Readable> {
    let level = level(call)?;
    if call.worker.shared.member.is_none() {
        return Ok(Readable::default());
    }
    Box::pin(await_replicas(call, container, shards()?, level)).await
}

async fn await_replicas(
    call: &Call<'_>,
    container: &ContainerRoute,
    shards: Vec<Arc<ShardHandle>>,
    level: Consistency,
) -> Result<Readable> {
    let freshness = freshness(level);
    let safe_time = try_join_all(shards.iter().map(|shard| shard.freshen(freshness))).await?;
    // The node's right to answer rests on the catalog as it stands now, not as it stood when the request came.
    let table = call.table();
    let now = table.container(&container.database, &container.id)?;
    let default = now.container.definition.default_ttl;
    let lags = |shard: &&Arc<ShardHandle>| shard.default_ttl().is_some_and(|old| old != default);
    match shards.iter().find(|shard| lags(shard)) {
        // A change of the default is on its way.
        Some(_) => Err(Error::not_leader(None)),
        None => {
            let newest = shards.into_iter().zip(safe_time);
            let newest = newest.filter_map(|(shard, safe_time)| Some((shard, safe_time?)));
            Ok(Readable {
                newest: newest.collect(),
            })
        }
    }
}
