//! One shard as the rest of the node knows it: admits requests, sends them to the actor or on to
//! its children, and ends it.

use std::{
    path::Path,
    sync::{Arc, PoisonError, atomic::Ordering},
};

use actix::prelude::*;
use tokio::sync::oneshot;
use tracing::{error, info, warn};

use super::{
    Leader, Link, ShardHandle, ShardHost, group_of,
    reopen::{Afterwards, open_when_possible, release},
    start_actor,
};
use crate::{
    cluster::{NodeId, driver::state_machine::StateMachineError},
    model::{
        error::{Error, ErrorKind, Result},
        indexing_policy::IndexingPolicy,
        ttl::DefaultTtl,
    },
    shard::{
        actor::{
            ChangeDefaultTtl, Close, Shard, Wake,
            index::ChangeIndex,
            leadership::{Follow, Lead},
        },
        commit::write_queue::Perform,
        facts::ShardFacts,
        replica::Replica,
        view::ShardView,
    },
    store::EngineError,
};

/// How long a client should wait when a queue is full.
const QUEUE_FULL_RETRY_MS: u32 = 50;

pub(super) fn closed() -> Error {
    Error::unavailable("the shard is closed")
}

/// A place in a shard's queue; given back when dropped.
pub struct Permit<'a> {
    handle: &'a ShardHandle,
    bytes: usize,
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        self.handle
            .requests_under_way
            .fetch_sub(1, Ordering::Relaxed);
        self.handle
            .host
            .bytes_under_way
            .fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl ShardHandle {
    /// Refuses every request from now on, saying why.
    pub(super) fn fail(&self, failure: &EngineError) {
        let ShardFacts {
            container,
            range_id,
            ..
        } = &self.facts;
        error!(%container, range = range_id, %failure, "shard cannot be opened");
        self.starved.store(failure.heals(), Ordering::SeqCst);
        let mut error = Error::from(failure.clone());
        error.message = format!("partition key range {range_id} cannot be served: {failure}");
        error.message += match failure {
            EngineError::Damaged(_) if self.host.groups.is_some() => {
                "; the other replicas fill it again when its folder is removed while the node is stopped"
            }
            EngineError::Io(_) => "; restart the node when the disk can be read",
            _ => "",
        };
        self.link.store(Arc::new(Link::Down(error)));
    }

    /// Goes on trying to open a shard that could not be opened for want of disk space or
    /// descriptors; others are left alone.
    pub fn open_when_possible(
        self: &Arc<Self>,
        default: DefaultTtl,
        policy: Option<&IndexingPolicy>,
        afterwards: Afterwards,
    ) {
        if self.starved.swap(false, Ordering::SeqCst) {
            open_when_possible(Arc::clone(self), default, policy.cloned(), afterwards);
        }
    }

    /// Returns what can be read of the shard.
    pub fn view(&self) -> Result<Arc<ShardView>> {
        match &**self.link.load() {
            Link::Up { view, .. } => Ok(Arc::clone(view)),
            Link::Remote(nodes) => Err(self.not_leader(nodes)),
            Link::Down(error) => Err(error.clone()),
        }
    }

    /// Reads without taking a share of the view.
    pub fn with_view<T>(&self, read: impl FnOnce(&ShardView) -> Result<T>) -> Result<T> {
        match &**self.link.load() {
            Link::Up { view, .. } => read(view),
            Link::Remote(nodes) => Err(self.not_leader(nodes)),
            Link::Down(error) => Err(error.clone()),
        }
    }

    pub(in crate::shard) fn set_splitting(&self, splitting: bool) {
        self.splitting.store(splitting, Ordering::SeqCst);
    }

    pub(in crate::shard) fn initialized_at(&self) -> u64 {
        self.host.initialized_at()
    }

    /// Returns what this node's replica was cut into; the catalog may not know of it yet.
    pub fn parts(&self) -> &[Arc<ShardHandle>] {
        self.parts.get().map_or(&[], Vec::as_slice)
    }

    pub(in crate::shard) fn put_parts(
        &self,
        open: impl FnOnce(&Arc<ShardHost>) -> Vec<Arc<ShardHandle>>,
    ) {
        self.parts.get_or_init(|| open(&self.host));
    }

    /// Returns what it was cut into; nothing while it is whole.
    pub fn heirs(&self) -> &[Arc<ShardHandle>] {
        self.heirs.get().map_or(&[], Vec::as_slice)
    }

    /// Returns the one of them that owns a key.
    pub fn heir(&self, place: &[u8]) -> Option<&Arc<ShardHandle>> {
        let mut heirs = self.heirs().iter();
        heirs.find(|heir| heir.facts.range.contains(place))
    }

    /// From now on the range is gone, and these are in its place. The actor, which must hand over
    /// what waits.
    pub(in crate::shard) fn put_heirs(&self, heirs: Vec<Arc<ShardHandle>>) -> Option<Addr<Shard>> {
        // Only the first of two splits can have come about.
        let _ = self.heirs.set(heirs);
        let gone = Error::new(
            ErrorKind::RangeGone,
            format!("partition key range {} was split", self.facts.range_id),
        );
        let before = self.link.swap(Arc::new(Link::Down(gone)));
        match &**self.retired.get_or_init(|| before) {
            Link::Up { address, .. } => Some(address.clone()),
            Link::Remote(_) | Link::Down(_) => None,
        }
    }

    /// Takes in a request that waited elsewhere.
    pub(in crate::shard) fn take_in(&self, request: Perform) {
        match &**self.link.load() {
            Link::Up { view, address, .. } => {
                if view.write_queue.push(request) {
                    address.do_send(Wake);
                }
            }
            Link::Remote(nodes) => {
                let _ = request.reply.send(Err(self.not_leader(nodes)));
            }
            Link::Down(error) => {
                let _ = request.reply.send(Err(error.clone()));
            }
        }
    }

    /// Returns where its writes are decided; `None` while the shard is down.
    pub fn leader(&self) -> Option<Leader> {
        match &**self.link.load() {
            Link::Up { leader, .. } => Some(*leader),
            Link::Remote(nodes) => Some(Leader::Remote(self.host.reachable(nodes))),
            Link::Down(_) => None,
        }
    }

    /// Returns why this node's replica takes no part in its group; `None` while it does.
    pub fn halted(&self) -> Option<String> {
        self.replica()?.halted()
    }

    /// Redirects to a reachable one of some nodes.
    pub fn not_leader(&self, nodes: &[NodeId]) -> Error {
        Error::not_leader(self.host.reachable(nodes))
    }

    /// Returns the nodes that have the shard, where this one has not.
    pub fn remote(&self) -> Option<Vec<NodeId>> {
        match &**self.link.load() {
            Link::Remote(nodes) => Some(nodes.clone()),
            Link::Up { .. } | Link::Down(_) => None,
        }
    }

    /// Returns the nodes that answer for the shard while this one cannot: it has no replica, or one
    /// that waits for its first snapshot.
    pub fn held_by_others(&self) -> Option<Vec<NodeId>> {
        let uninitialized = self
            .replica()
            .is_some_and(|replica| !replica.is_initialized());
        self.remote()
            .or_else(|| uninitialized.then(|| self.peers.clone()))
    }

    /// Goes on from the engine in a folder, which is moved to the place of the old one. A read in
    /// between is told to try again. Waits for readers and for the disk.
    pub(in crate::shard) fn replace_engine(
        self: &Arc<Self>,
        files: &Path,
    ) -> Result<(), StateMachineError> {
        if !self.heirs().is_empty() {
            return Err(StateMachineError::Closed(
                "the shard was split; snapshots go to its children",
            ));
        }
        let restoring = || {
            Link::Down(Error::unavailable(
                "the shard is being restored from a snapshot; try again",
            ))
        };
        let (closing, done) = oneshot::channel();
        if self.send(Close { closed: closing }).is_ok() {
            // An actor that is gone already has nothing to finish.
            let _ = done.blocking_recv();
        }
        let view = self.view().ok();
        self.link.store(Arc::new(restoring()));
        if let Some(replica) = self.replica() {
            replica.set_view(None);
        }
        let counted = view.map(release);
        self.host.folders.mark(files, &self.facts)?;
        self.host.folders.replace(&self.facts, files)?;
        let view = self.host.open_view(&self.facts, DefaultTtl::Off, None)?;
        if let Some(counted) = counted {
            view.counters.continue_from(&counted);
        }
        start_actor(self, Arc::clone(&view));
        // The others may have been split before they sent this snapshot.
        Ok(self.part(&view)?)
    }

    pub(in crate::shard) fn replica(&self) -> Option<Arc<Replica>> {
        self.replica.get().cloned()
    }

    fn set_leader(&self, next: Leader) {
        self.link.rcu(|link| match &**link {
            Link::Up { view, address, .. } => Arc::new(Link::Up {
                view: Arc::clone(view),
                address: address.clone(),
                leader: next,
            }),
            Link::Remote(_) | Link::Down(_) => Arc::clone(link),
        });
    }

    /// This node decides from now on, in this term.
    pub(in crate::shard) fn lead(&self, term: u64) {
        if self.send(Lead { term }).is_ok() {
            self.set_leader(Leader::Here);
        }
    }

    /// Another node decides from now on, or none.
    pub(in crate::shard) fn follow(&self, leader: Option<NodeId>) {
        self.set_leader(Leader::Remote(leader));
        let _ = self.send(Follow { leader });
    }

    /// Returns how many requests wait for the shard.
    pub fn requests_under_way(&self) -> usize {
        self.requests_under_way.load(Ordering::Relaxed)
    }

    pub(super) fn admit(&self, bytes: usize) -> Result<Permit<'_>> {
        let permit = Permit {
            handle: self,
            bytes,
        };
        let requests = self.requests_under_way.fetch_add(1, Ordering::Relaxed);
        let bytes_before = self
            .host
            .bytes_under_way
            .fetch_add(bytes, Ordering::Relaxed);
        let admission = self.host.admission;
        if requests >= admission.shard_requests_max
            || bytes_before + bytes > admission.node_bytes_max
        {
            let mut error = Error::new(
                ErrorKind::Overloaded,
                format!(
                    "too many requests wait for partition key range {}: {requests} are in flight",
                    self.facts.range_id
                ),
            );
            error.retry_after_ms = Some(QUEUE_FULL_RETRY_MS);
            return Err(error);
        }
        Ok(permit)
    }

    /// Changes the default time to live; in effect when this returns.
    pub async fn change_default_ttl(&self, default: DefaultTtl, at: i64) -> Result<()> {
        *self
            .last_default
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Some(default);
        let (reply, answer) = oneshot::channel();
        self.send(ChangeDefaultTtl { default, at, reply })?;
        answer.await.map_err(|_| self.restarting())??;
        Ok(())
    }

    pub(super) fn last_default(&self) -> Option<DefaultTtl> {
        *self
            .last_default
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the default that is in effect on the shard; `None` when it is down.
    pub fn default_ttl(&self) -> Option<DefaultTtl> {
        self.with_view(|view| Ok(view.state().rules.default)).ok()
    }

    /// Returns whether expired items wait to be purged, or whether that cannot be told here.
    pub fn has_overdue(&self) -> bool {
        self.with_view(|view| Ok(view.has_expired()?))
            .unwrap_or(true)
    }

    /// Gives a shard that was just opened the default that the catalog has.
    pub fn catch_up_default_ttl(&self, default: DefaultTtl) {
        let Ok(view) = self.view() else { return };
        if view.state().rules.default == default {
            return;
        }
        let (reply, answer) = oneshot::channel();
        let at = self.host.clock.now();
        let caught_up = self.send(ChangeDefaultTtl { default, at, reply });
        if let Some(suspicion) = self.host.clock.suspicion()
            && self.has_overdue()
        {
            warn!(container = %self.facts.container, range = self.facts.range_id, ?default, %suspicion, "the shard catches up with the catalog when the time is trusted");
            return;
        }
        match caught_up.and_then(|()| answer.blocking_recv().map_err(|_| self.restarting())?) {
            Ok(_) => {
                info!(container = %self.facts.container, range = self.facts.range_id, ?default, "shard caught up with the catalog")
            }
            Err(failure) => {
                error!(range = self.facts.range_id, %failure, "shard could not catch up with the catalog")
            }
        }
    }

    /// Changes the indexing policy; durable when this returns, though the new index may not be
    /// complete.
    pub async fn change_index(&self, policy: &IndexingPolicy, rebuild: bool) -> Result<()> {
        let (reply, answer) = oneshot::channel();
        let policy = policy.clone();
        self.send(ChangeIndex {
            policy,
            rebuild,
            reply,
        })?;
        answer.await.map_err(|_| self.restarting())??;
        Ok(())
    }

    /// Gives a shard that was just opened the indexing policy that the catalog has, in a new index
    /// if that is asked for.
    pub fn catch_up_index(&self, policy: &IndexingPolicy, rebuild: bool) {
        let (reply, answer) = oneshot::channel();
        let caught_up = self.send(ChangeIndex {
            policy: policy.clone(),
            rebuild,
            reply,
        });
        if let Err(failure) =
            caught_up.and_then(|()| answer.blocking_recv().map_err(|_| self.restarting())?)
        {
            error!(range = self.facts.range_id, %failure, "shard could not catch up with the catalog's indexing policy");
        }
    }

    /// Returns whether some node takes writes of the shard, as far as is known.
    pub fn check_led(&self) -> Result<()> {
        match self.leader() {
            Some(Leader::Here) => self.check_writable(),
            Some(Leader::Remote(Some(_))) => Ok(()),
            Some(Leader::Remote(None)) | None => Err(Error::not_leader(None)),
        }
    }

    /// Returns whether the shard takes writes, as far as is known.
    pub fn check_writable(&self) -> Result<()> {
        self.with_view(|view| view.check_writable())
    }

    /// Finishes what was accepted, flushes the memtable and lets go of the files. Fails when the
    /// flush does: the WAL has all.
    pub async fn close(&self) -> Result<(), EngineError> {
        let Some(view) = self.finish().await else {
            return Ok(());
        };
        let sealed = tokio::task::spawn_blocking(move || view.engine.seal()).await;
        match sealed {
            Ok(sealed) => sealed,
            Err(failure) => Err(EngineError::Io(failure.to_string())),
        }
    }

    /// Ends the actor after what it has accepted is committed. What it leaves; `None` when the
    /// shard was down.
    async fn finish(&self) -> Option<Arc<ShardView>> {
        self.end_opening().await;
        self.closed.store(true, Ordering::SeqCst);
        let link = match self.retired.get() {
            Some(retired) => Arc::clone(retired),
            None => self.link.load_full(),
        };
        let view = match &*link {
            Link::Up { view, address, .. } => {
                let (closing, done) = oneshot::channel();
                address.do_send(Close { closed: closing });
                // An actor that is gone already has nothing to finish.
                let _ = done.await;
                Some(Arc::clone(view))
            }
            Link::Remote(_) | Link::Down(_) => None,
        };
        if self.heirs().is_empty() {
            self.link.store(Arc::new(Link::Down(closed())));
        }
        view
    }

    /// Marks its files as about to go: opening a replica of the shard again waits for that.
    pub fn note_leaving(&self) {
        self.host.leaving().insert(group_of(&self.facts));
    }

    /// Closes the shard and removes its files.
    pub async fn destroy(&self) -> std::io::Result<()> {
        let removed = self.close_and_remove().await;
        self.host.leaving().remove(&group_of(&self.facts));
        removed
    }

    async fn close_and_remove(&self) -> std::io::Result<()> {
        if let Some(replica) = self.replica.get() {
            replica.leave();
        }
        let view = self.finish().await;
        let (host, facts) = (Arc::clone(&self.host), self.facts.clone());
        let opening = Arc::clone(&self.opening);
        tokio::task::spawn_blocking(move || {
            if let Some(view) = view {
                view.engine.halt();
            }
            let _opening = opening.lock().unwrap_or_else(PoisonError::into_inner);
            host.folders.forget(&facts);
            std::fs::remove_dir_all(host.shard_folder(&facts))
        })
        .await??;
        info!(container = %self.facts.container, range = self.facts.range_id, "shard removed");
        Ok(())
    }

    pub(in crate::shard) fn send<M>(&self, message: M) -> Result<()>
    where
        M: Message<Result = ()> + Send + 'static,
        Shard: Handler<M>,
    {
        match &**self.link.load() {
            Link::Up { address, .. } => {
                address.do_send(message);
                Ok(())
            }
            Link::Remote(nodes) => Err(self.not_leader(nodes)),
            Link::Down(error) => Err(error.clone()),
        }
    }

    pub(super) fn restarting(&self) -> Error {
        Error::unavailable(format!(
            "partition key range {} is restarting; whether the write was kept is not known",
            self.facts.range_id
        ))
    }
}
