//! Shards as a node runs them: actors on arbiters, commits on the blocking pool, files on the disk.

use std::{path::Path, time::Duration};

use actix::Arbiter;
use futures_util::future::join_all;
use serde_json::Value;
use std::sync::Arc;
use tempfile::TempDir;

use super::bench::{START, Want, epk, facts, small_resources, temporary_folder};
use crate::shard::view::Page;
use crate::{
    clock::{self, Clock},
    cluster::{
        driver::Driver,
        raft::log_store::LogStore,
        snapshots::Snapshots,
        time::timekeeper::{Clocks, Offset, Timekeeper},
    },
    model::{epk::EpkRange, error::Result, indexing_policy::IndexingPolicy, ttl::DefaultTtl},
    shard::{
        commit::Reply,
        host::{Admission, Changes, ClusterContext, ShardHandle, ShardHost, folders::ShardFolders},
    },
    store::recorded_sequences::RecordedSequences,
};

/// How long a test waits for something that must happen.
const PATIENCE: Duration = Duration::from_secs(20);

pub const ROOMY: Admission = Admission {
    shard_requests_max: 10_000,
    node_bytes_max: 1 << 30,
};

pub struct Node {
    pub host: Arc<ShardHost>,
    pub clock: Clock,
    arbiters: Vec<Arbiter>,
}

/// Runs a test in a system of actors; one that hangs fails.
pub fn run(test: impl Future<Output = ()>) {
    actix::System::new().block_on(async {
        tokio::time::timeout(PATIENCE, test)
            .await
            .expect("the test hangs");
    });
}

/// Clocks of a node that is alone: the time is the node's own.
struct NoAgreement;

impl Clocks for NoAgreement {
    fn monotonic(&self) -> i64 {
        0
    }

    fn wall(&self) -> i64 {
        0
    }

    fn offset(&self) -> Offset {
        clock::unsteered()
    }

    fn persist(&self, _: i64) -> bool {
        false
    }
}

impl Node {
    pub fn start(folder: &Path) -> Self {
        Self::with_admission(folder, ROOMY)
    }

    /// A node whose groups nobody drives: tests apply entries themselves.
    pub fn in_cluster(folder: &Path) -> Self {
        Self::initialized_in_cluster(folder, 0)
    }

    /// One that had nothing when it got a catalog of this version.
    pub fn initialized_in_cluster(folder: &Path, initialized_at: u64) -> Self {
        let resources = small_resources();
        let log = LogStore::open(&folder.join("raft"), &resources).expect("a log");
        let snapshots = Snapshots::open(&folder.join("snapshots"), Arc::new(log));
        let groups = ClusterContext {
            driver: Driver::new().0,
            snapshots: Arc::new(snapshots.expect("a folder")),
            time: Arc::new(Timekeeper::new(Box::new(NoAgreement), 1, None)),
            connected: Box::new(|_| false),
            initialized_at: Box::new(move || initialized_at),
        };
        Self::make(folder, ROOMY, Some(groups))
    }

    pub fn with_admission(folder: &Path, admission: Admission) -> Self {
        Self::make(folder, admission, None)
    }

    fn make(folder: &Path, admission: Admission, groups: Option<ClusterContext>) -> Self {
        let arbiters: Vec<Arbiter> = (0..2).map(|_| Arbiter::new()).collect();
        let clock = Clock::manual(START);
        let handles = arbiters.iter().map(Arbiter::handle).collect();
        let host = ShardHost::new(
            handles,
            small_resources(),
            clock.clone(),
            ShardFolders::new(folder, RecordedSequences::open(folder)).unwrap(),
            admission,
            groups,
        );
        Self {
            host,
            clock,
            arbiters,
        }
    }

    pub fn open(&self, range_id: u32, default: DefaultTtl) -> Arc<ShardHandle> {
        let policy = IndexingPolicy::default();
        let facts = facts(range_id, &[]);
        match self.host.has_folder(&facts) {
            true => self.host.open(facts, default, &policy),
            false => self.host.make(facts, default, &policy),
        }
    }

    /// Returns when every arbiter has done what was asked of it before.
    pub async fn arbiters_idle(&self) {
        for arbiter in &self.arbiters {
            let (done, wait) = tokio::sync::oneshot::channel();
            arbiter.spawn_fn(move || {
                let _ = done.send(());
            });
            wait.await.expect("the arbiter runs");
        }
    }
}

/// A folder on the disk: these tests are about what is durable.
pub fn folder() -> TempDir {
    tempfile::tempdir().expect("a folder")
}

pub fn in_memory() -> TempDir {
    temporary_folder()
}

pub async fn perform(shard: &ShardHandle, want: Want) -> Result<Reply> {
    let operations = vec![want.operation(&shard.facts)];
    let changes = Changes {
        operations,
        atomic: true,
        bytes: 100,
        answer: None,
    };
    shard.perform(epk(1), changes).await
}

/// Carries out one operation, again while the shard is being rebuilt; the status.
pub async fn status(shard: &ShardHandle, want: Want) -> u16 {
    loop {
        match perform(shard, want.clone()).await {
            Ok(reply) => {
                return reply.results[0]
                    .as_ref()
                    .map_or_else(|error| error.status(), |done| done.status);
            }
            Err(error) if error.message.contains("restarting") => tokio::task::yield_now().await,
            Err(error) => return error.status(),
        }
    }
}

pub async fn create_all(
    shard: &ShardHandle,
    ids: impl Iterator<Item = String>,
) -> Vec<Result<Reply>> {
    join_all(ids.map(|id| perform(shard, Want::Create(super::bench::item(&id))))).await
}

/// Everything live in a shard, in key order.
pub fn items(shard: &ShardHandle) -> Vec<Value> {
    let mut page = Page::new(usize::MAX, usize::MAX);
    let resume = shard
        .with_view(|view| view.fill(&mut page, &EpkRange::full(), None, |_| false))
        .expect("readable");
    assert!(resume.is_none());
    page.items
        .iter()
        .map(|item| serde_json::from_slice(item.stored.body()).expect("JSON"))
        .collect()
}

pub fn ids(shard: &ShardHandle) -> Vec<String> {
    items(shard)
        .iter()
        .map(|item| item["id"].as_str().expect("an id").to_owned())
        .collect()
}
