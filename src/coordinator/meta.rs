//! The catalog of a cluster: the state machine of the meta group. Each entry of its log is a whole catalog, which is small.

use std::{
    collections::VecDeque,
    path::PathBuf,
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
        GroupId, NodeId,
        driver::{Driver, StateMachine},
        group::{Committed, NotProposed, Role},
        group_log::{LogBatch, LogDisk, Record},
        member::Member,
    },
    model::{
        catalog::Catalog,
        error::{Error, Result},
    },
    router::RoutingTable,
    store::{EngineError, engine::Durability},
};

/// A question that takes longer is asked again: the right to answer counts from the question.
const RENEW_TIME_MAX: Duration = Duration::from_secs(1);
/// How often a node renews its right to answer.
const RENEW_EVERY: Duration = Duration::from_millis(500);
/// How long a majority may take to confirm that this node leads the catalog.
const CONFIRM_TIME_MAX: Duration = Duration::from_secs(2);
/// How often it is looked whether this node has caught up.
const CATCH_UP_POLL: Duration = Duration::from_millis(5);

pub struct Meta {
    folder: PathBuf,
    pub(super) member: Arc<Member>,
    driver: Driver,
    disk: Arc<dyn LogDisk>,
    /// Puts catalogs in force.
    coordinator: OnceLock<Addr<Coordinator>>,
    /// The index of the last entry that is applied, and the version of the last catalog among them.
    applied: AtomicU64,
    version: AtomicU64,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    role: Role,
    /// Leads, but has not applied all that earlier leaders have left.
    taking_over: bool,
    submitted: VecDeque<Submitted>,
}

struct Submitted {
    term: u64,
    index: u64,
    committed: oneshot::Sender<Result<()>>,
}

impl Meta {
    pub fn new(folder: PathBuf, member: Arc<Member>, disk: Arc<dyn LogDisk>) -> Arc<Self> {
        Arc::new(Self {
            folder,
            driver: member.driver.clone(),
            member,
            disk,
            coordinator: OnceLock::new(),
            applied: AtomicU64::new(0),
            version: AtomicU64::new(0),
            inner: Mutex::default(),
        })
    }

    /// Takes part in the meta group on behalf of a coordinator.
    pub fn join(self: &Arc<Self>, coordinator: Addr<Coordinator>) -> Result<(), EngineError> {
        // It is told once, before the group can commit anything.
        let _ = self.coordinator.set(coordinator);
        let kept = self.disk.load(GroupId::META)?;
        let machine: Arc<dyn StateMachine> = Arc::clone(self) as _;
        let applied = kept.map_or(0, |kept| kept.applied);
        self.applied.store(applied, Ordering::Release);
        self.driver.add(GroupId::META, machine, applied);
        Ok(())
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn leader(&self) -> Option<NodeId> {
        self.inner().role.leader
    }

    /// Whether decisions about the catalog are made here; where, if not.
    pub fn check_leads(&self) -> Result<()> {
        let inner = self.inner();
        let Role { leads, leader, .. } = inner.role;
        match (leads, inner.taking_over) {
            (true, false) => Ok(()),
            (true, true) => Err(Error::elsewhere(None)),
            (false, _) => Err(Error::elsewhere(leader)),
        }
    }

    /// Makes a catalog the next one; answers when a majority of the nodes has it. What is in the log cannot be taken back, so a change that no majority would take is not
    /// proposed: it has failed, and nothing is changed.
    pub async fn propose(self: &Arc<Self>, catalog: &Catalog) -> Result<()> {
        let confirmed = self.driver.read_index(GroupId::META);
        let confirmed = tokio::time::timeout(CONFIRM_TIME_MAX, confirmed).await;
        if !matches!(confirmed, Ok(Some(_))) {
            return Err(Error::unavailable(
                "no majority of the nodes answers; nothing was changed",
            ));
        }
        let data = rmp_serde::to_vec_named(catalog).map_err(|failure| {
            Error::internal(format!("the catalog cannot be encoded: {failure}"))
        })?;
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
        proposed: std::result::Result<u64, NotProposed>,
        committed: oneshot::Sender<Result<()>>,
    ) {
        match proposed {
            Ok(index) => self.inner().submitted.push_back(Submitted {
                term,
                index,
                committed,
            }),
            Err(_) => {
                let _ = committed.send(Err(Error::elsewhere(self.leader())));
            }
        }
    }

    /// Renews the right of this node to answer, for ever: it has it while its catalog is not long behind what a majority has committed.
    pub async fn keep_answering(self: Arc<Self>, table: Arc<ArcSwap<RoutingTable>>) {
        loop {
            let asked = Instant::now();
            let renewed = async {
                let index = self.driver.read_index(GroupId::META).await?;
                while self.applied.load(Ordering::Acquire) < index
                    || table.load().catalog.version < self.version.load(Ordering::Acquire)
                {
                    tokio::time::sleep(CATCH_UP_POLL).await;
                }
                self.driver.lease().renew(asked);
                Some(())
            };
            if let Ok(None) = tokio::time::timeout(RENEW_TIME_MAX, renewed).await {
                // The groups are not driven any more, or not yet.
                tokio::time::sleep(CATCH_UP_POLL).await;
            }
            if self.driver.lease().holds() {
                tokio::time::sleep(RENEW_EVERY).await;
            }
        }
    }

    fn store(&self, catalog: &Catalog, index: u64) -> Result<(), EngineError> {
        catalog_file::store(&self.folder, catalog)?;
        let records = vec![(GroupId::META, Record::Applied(index))];
        self.disk.write(LogBatch { records }, Durability::Buffered)
    }
}

fn unknown() -> Error {
    Error::unavailable(
        "the leader of the catalog has changed; whether the change was kept is not known",
    )
}

impl StateMachine for Meta {
    fn apply(&self, entries: Vec<Committed>) -> Result<(), EngineError> {
        // The last one is all that counts: it was decided on top of those before it.
        if let Some(entry) = entries.iter().rfind(|entry| !entry.data.is_empty()) {
            let catalog: Catalog = rmp_serde::from_slice(&entry.data).map_err(|failure| {
                EngineError::Damaged(format!(
                    "entry {} of the catalog's log: {failure}",
                    entry.index
                ))
            })?;
            self.store(&catalog, entry.index)?;
            self.version.store(catalog.version, Ordering::Release);
            if let Some(coordinator) = self.coordinator.get() {
                coordinator.do_send(Adopt(catalog));
            }
        }
        if let Some(last) = entries.last() {
            self.applied.store(last.index, Ordering::Release);
        }
        let mut inner = self.inner();
        for entry in entries {
            inner.taking_over &= entry.term != inner.role.term;
            let reached = |submitted: &Submitted| submitted.index <= entry.index;
            while inner.submitted.front().is_some_and(reached)
                && let Some(submitted) = inner.submitted.pop_front()
            {
                let kept = (submitted.index, submitted.term) == (entry.index, entry.term);
                let _ = submitted
                    .committed
                    .send(if kept { Ok(()) } else { Err(unknown()) });
            }
        }
        Ok(())
    }

    fn sync(&self) -> Result<(), EngineError> {
        Ok(())
    }

    fn role(&self, role: Role) {
        let mut inner = self.inner();
        let keeps = role.leads && inner.role.leads && role.term == inner.role.term;
        inner.role = role;
        if !keeps {
            inner.taking_over = role.leads;
            // Who waits hears that nobody knows.
            inner.submitted.clear();
        }
    }
}
