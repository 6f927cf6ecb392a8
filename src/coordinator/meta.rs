//! The catalog of a cluster: the state machine of the meta group. Each entry of its log is a whole catalog, which is small.

use std::{
    collections::VecDeque,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
};

use actix::Addr;
use bytes::Bytes;
use tokio::sync::oneshot;

use super::{Coordinator, catalog_file, shared::Adopt};
use crate::{
    cluster::{
        GroupId, NodeId,
        driver::{Driver, StateMachine},
        group::{Committed, NotProposed, Role},
        group_log::{LogBatch, LogDisk, Record},
    },
    model::{
        catalog::Catalog,
        error::{Error, Result},
    },
    store::{EngineError, engine::Durability},
};

pub struct Meta {
    folder: PathBuf,
    driver: Driver,
    disk: Arc<dyn LogDisk>,
    /// Puts catalogs in force.
    coordinator: OnceLock<Addr<Coordinator>>,
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
    pub fn new(folder: PathBuf, driver: Driver, disk: Arc<dyn LogDisk>) -> Arc<Self> {
        Arc::new(Self {
            folder,
            driver,
            disk,
            coordinator: OnceLock::new(),
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

    /// Makes a catalog the next one; answers when a majority of the nodes has it.
    pub async fn propose(self: &Arc<Self>, catalog: &Catalog) -> Result<()> {
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
            if let Some(coordinator) = self.coordinator.get() {
                coordinator.do_send(Adopt(catalog));
            }
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
