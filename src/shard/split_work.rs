//! The actor's part in a split. The shard that is cut holds its requests for a moment and then hands them to its parts; a part clears away what belongs to its
//! sibling, between the users' requests.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use actix::prelude::*;
use tokio::sync::oneshot;
use tracing::{error, info};

use super::{
    actor::{Shard, Wake},
    decide::{range_cleanup, reindex},
    host::ShardHandle,
    state::split_mark,
};
use crate::model::error::{Error, Result};

/// Where a shard that is being cut stands.
#[derive(Default)]
pub(super) enum Holding {
    #[default]
    No,
    /// What was decided is being committed; nothing more is.
    Settling(oneshot::Sender<()>),
    /// In a cluster: what was decided is being committed, and that the shard is split with it.
    Parting,
    /// Nothing is under way.
    Still,
    /// Its parts have taken over.
    Over(Vec<Arc<ShardHandle>>),
}

/// What the actor knows of its clearing.
#[derive(Default)]
pub(super) struct ClearWork {
    slice_started: Option<Instant>,
    resting: bool,
    ends: bool,
    /// Items cleared away since the start.
    cleared: u64,
}

#[cfg(test)]
impl ClearWork {
    /// Ends the rest after a slice; in tests no timer does.
    pub fn wake(&mut self) {
        self.resting = false;
    }
}

/// Decides nothing from now on; answers when all that was decided is committed. Requests wait.
#[derive(Message)]
#[rtype(result = "()")]
pub(super) struct Hold {
    pub held: oneshot::Sender<()>,
}

/// The split did not come about: decides again.
#[derive(Message)]
#[rtype(result = "()")]
pub(super) struct LetGo;

/// The split is done: whoever waits and whoever comes late is for one of the parts.
#[derive(Message)]
#[rtype(result = "()")]
pub(super) struct HandOver {
    pub parts: Vec<Arc<ShardHandle>>,
}

impl Handler<Hold> for Shard {
    type Result = ();

    fn handle(&mut self, message: Hold, context: &mut Self::Context) {
        self.stop_gathering(context);
        self.holding = Holding::Settling(message.held);
        self.commit(context);
        self.settle();
    }
}

impl Handler<LetGo> for Shard {
    type Result = ();

    fn handle(&mut self, _: LetGo, context: &mut Self::Context) {
        self.holding = Holding::No;
        self.take_requests(context);
    }
}

impl Handler<HandOver> for Shard {
    type Result = ();

    fn handle(&mut self, message: HandOver, _: &mut Self::Context) {
        self.holding = Holding::Over(message.parts);
        self.hand_over();
    }
}

impl Shard {
    pub(super) fn is_held(&self) -> bool {
        !matches!(self.holding, Holding::No)
    }

    /// Tells whoever waits for it that nothing is under way any more.
    pub(super) fn settle(&mut self) {
        if self.committing || !self.next.is_empty() {
            return;
        }
        if matches!(self.holding, Holding::Parting) {
            return self.hold_if_cut();
        }
        if let Holding::Settling(held) = std::mem::take(&mut self.holding) {
            let _ = held.send(());
            self.holding = Holding::Still;
        }
    }

    /// Requests that are here go to the part that owns their key.
    pub(super) fn hand_over(&mut self) {
        let Holding::Over(parts) = &self.holding else {
            return;
        };
        for request in self.view.write_queue.take(1) {
            let part = parts
                .iter()
                .find(|part| part.facts.range.contains(&request.place));
            match part {
                Some(part) => part.take_in(request),
                None => {
                    let _ = request.reply.send(Err(Error::internal(
                        "no part of a split partition key range owns the key",
                    )));
                }
            }
        }
    }

    /// One slice of clearing, if a split has left anything.
    pub(super) fn clear(&mut self, context: &mut Context<Self>) {
        let busy = self.clearer.slice_started.is_some() || self.clearer.resting;
        if !self.view.has_foreign()
            || busy
            || self.is_held()
            || self.closing.is_some()
            || self.view.check_open().is_err()
        {
            return;
        }
        let started = Instant::now();
        let live = self.view.live_indexes();
        let indexes: Vec<_> = self
            .view
            .state()
            .index
            .generations()
            .filter_map(|one| {
                let live = live.iter().find(|live| live.number == one.number)?;
                Some((one.number, Arc::clone(live)))
            })
            .collect();
        let engine = &self.view.engine;
        let slice = split_mark::cleanup_cursor(engine).and_then(|cursor| {
            let cursor = cursor.unwrap_or_default();
            range_cleanup::slice(
                engine,
                &self.overlay,
                &self.view.facts.range,
                &indexes,
                &cursor,
            )
        });
        let slice = match slice {
            Ok(slice) => slice,
            Err(failure) => {
                error!(container = %self.view.facts.container, range = self.view.facts.range_id, %failure, "what a split has left cannot be cleared away");
                return;
            }
        };
        for foreign in &slice.versions {
            self.overlay
                .set(self.next.number, foreign.key.clone(), None);
        }
        self.clearer.slice_started = Some(started);
        self.clearer.cleared += slice.versions.len() as u64;
        self.clearer.ends = slice.ends;
        self.indexer.note_slice();
        self.next.purge.cleanup = slice;
        self.commit(context);
    }

    /// A group is committed: goes on after a rest, if it had a slice in it.
    pub(super) fn clear_committed(&mut self, context: &mut Context<Self>) {
        let Some(started) = self.clearer.slice_started.take() else {
            return;
        };
        if !self.view.has_foreign() && self.clearer.ends {
            let state = self.view.state();
            info!(container = %self.view.facts.container, range = self.view.facts.range_id, cleared = self.clearer.cleared, documents = state.documents, bytes = state.bytes, "all that a split has left is cleared away");
            self.compact_if_worth_it(context);
            return;
        }
        self.clearer.resting = true;
        let rest = reindex::rest_after(started.elapsed(), self.indexer.users_at_work());
        context.run_later(rest, |shard, context| {
            shard.clearer.resting = false;
            shard.clear(context);
        });
    }
}

/// How long a caller waits for a shard to hold still.
pub(super) const HOLD_TIME_MAX: Duration = Duration::from_secs(10);

impl ShardHandle {
    /// Stops deciding; requests wait from now on. In the end comes [`Self::let_go`] or [`Self::retire`].
    pub async fn hold(&self) -> Result<()> {
        self.set_splitting(true);
        let (held, answer) = oneshot::channel();
        let stood = async {
            self.send(Hold { held })?;
            tokio::time::timeout(HOLD_TIME_MAX, answer)
                .await
                .ok()
                .and_then(std::result::Result::ok)
                .ok_or_else(|| Error::unavailable("the shard does not come to rest"))
        };
        let stood = stood.await;
        if stood.is_err() {
            self.let_go();
        }
        stood
    }

    /// Goes on deciding.
    pub fn let_go(&self) {
        self.set_splitting(false);
        let _ = self.send(LetGo);
    }

    /// Its parts are in force: they get what waits here and what comes late. Readers are told that the range is gone.
    pub fn retire(&self, parts: Vec<Arc<ShardHandle>>) {
        let address = self.put_heirs(parts.clone());
        if let Some(address) = address {
            address.do_send(HandOver { parts });
            address.do_send(Wake);
        }
    }
}
