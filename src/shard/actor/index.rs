//! The actor's work on the index besides that of each write: begins new generations, fills them
//! between the users' requests, removes old ones.

use std::{sync::Arc, time::Instant};

use actix::prelude::*;
use tokio::sync::oneshot;
use tracing::{error, info};

use super::Shard;
use crate::{
    index::{Shape, ShapeId},
    model::{error::Result, indexing_policy::IndexingPolicy},
    shard::{
        commit::{Reply, Waiting},
        decide::reindex,
        state::{
            command::{Change, NewIndex},
            generation::{Generation, Mode},
            indexing::{LiveIndex, decode_policy, encode_policy},
        },
    },
    store::keys::{self, Position},
};

/// From this many items on, the files of a removed generation are compacted at once.
const REWRITE_DOCUMENTS_MIN: u64 = 10_000;

#[derive(Default)]
pub(in crate::shard) struct IndexWork {
    slice_started: Option<Instant>,
    /// A slice will begin when the rest is over.
    resting: bool,
    /// The removal of a retired generation is in flight.
    dropping: Option<u16>,
    /// Requests taken, and how many of them when the last slice began and at the last tick.
    pub requests: u64,
    requests_before: u64,
    requests_at_tick: u64,
    /// No request came between the last two ticks.
    idle: bool,
}

impl IndexWork {
    /// Work in the background begins that gives way to users.
    pub fn note_slice(&mut self) {
        self.requests_before = self.requests;
    }

    /// Returns whether requests came since it began.
    pub fn users_at_work(&self) -> bool {
        self.requests != self.requests_before
    }
}

#[cfg(test)]
impl IndexWork {
    /// Ends the rest after a slice, with users at a pause or not; in tests no timer does.
    pub fn wake(&mut self, idle: bool) {
        self.resting = false;
        self.idle = idle;
    }
}

/// Changes the indexing policy. Answered when the change is durable; the new index may still be
/// incomplete then.
#[derive(Message)]
#[rtype(result = "()")]
pub struct ChangeIndex {
    pub policy: IndexingPolicy,
    /// Begins a new generation even if the policy is the same.
    pub rebuild: bool,
    pub reply: oneshot::Sender<Result<Reply>>,
}

impl Handler<ChangeIndex> for Shard {
    type Result = ();

    fn handle(&mut self, request: ChangeIndex, context: &mut Self::Context) {
        if let Err(error) = self.check_open() {
            let _ = request.reply.send(Err(error));
            return;
        }
        if request.rebuild || !self.has_policy(&request.policy) {
            let ts = self.view.clock.now().max(self.decided.ts);
            let new = NewIndex {
                mode: request.policy.mode.into(),
                policy: encode_policy(&request.policy),
            };
            self.stage(ts, vec![Change::BeginIndex(new)]);
        }
        self.next.waiting.push(Waiting {
            reply: request.reply,
            results: Vec::new(),
            lsn: self.decided.lsn,
            range_id: self.view.facts.range_id,
        });
        self.commit(context);
    }
}

impl Shard {
    /// Returns whether the newest generation has this policy.
    fn has_policy(&self, policy: &IndexingPolicy) -> bool {
        let index = &self.decided.index;
        let Some(newest) = index.building.or(index.current) else {
            return index.mode == Mode::from(policy.mode);
        };
        index.mode == Mode::from(policy.mode)
            && self
                .live(newest.number)
                .is_some_and(|live| live.policy == *policy)
    }

    fn live(&self, number: u16) -> Option<Arc<LiveIndex>> {
        let live = self.view.live_indexes();
        live.iter().find(|one| one.number == number).cloned()
    }

    /// Takes note of what staged changes do to the index.
    pub(in crate::shard) fn stage_index(&mut self, changes: &[Change]) {
        for change in changes {
            match change {
                Change::Put { index, .. } | Change::Delete { index, .. } => {
                    for one in &index.generations {
                        if let Some((id, paths)) = &one.new_shape {
                            self.learn(one.generation, *id, paths);
                        }
                    }
                }
                Change::BeginIndex(new) => {
                    let (number, _) = self.decided.index.begin(new.mode, self.decided.lsn);
                    if let (Some(number), Some(policy)) = (number, decode_policy(&new.policy)) {
                        self.view
                            .add_index(&Arc::new(LiveIndex::new(number, policy)));
                    }
                    let facts = &self.view.facts;
                    info!(container = %facts.container, range = facts.range_id, generation = number, mode = ?new.mode, "a new index begins");
                }
                Change::FillIndex(slice) => {
                    self.decided.index.advance(slice.generation, slice.cursor);
                }
                Change::DropRetiredIndex => self.decided.index.forget_retired(),
                Change::SetDefaultTtl(_) | Change::Check(_) | Change::Split(_) => {}
            }
        }
    }

    fn learn(&self, generation: u16, id: ShapeId, paths: &[u8]) {
        if let (Some(live), Some(shape)) = (self.live(generation), Shape::decode(paths)) {
            live.learn(id, &Arc::new(shape));
        }
    }

    /// Nothing that was staged was kept.
    pub(in crate::shard) fn forget_staged_index(&mut self) {
        self.indexer.slice_started = None;
        self.indexer.dropping = None;
        for live in self.view.live_indexes().iter() {
            if let Err(failure) = live.reload_shapes(&self.view.engine) {
                error!(range = self.view.facts.range_id, %failure, "the shapes of the index cannot be read");
            }
        }
    }

    /// Now and then it is looked whether users pause.
    pub(in crate::shard) fn tick_index(&mut self, context: &mut Context<Self>) {
        let work = &mut self.indexer;
        work.idle = work.requests == work.requests_at_tick;
        work.requests_at_tick = work.requests;
        self.look_after_index(context);
    }

    /// One slice of work on the index, if there is any to do.
    pub(in crate::shard) fn look_after_index(&mut self, context: &mut Context<Self>) {
        let busy = self.indexer.slice_started.is_some()
            || self.indexer.resting
            || self.indexer.dropping.is_some();
        if busy || self.check_writable().is_err() || self.drop_retired(context) {
            return;
        }
        let Some((generation, end)) = self.index_lacks() else {
            return;
        };
        let Some(live) = self.live(generation.number) else {
            return;
        };
        let started = Instant::now();
        let slice = reindex::slice(
            &self.view.engine,
            &self.overlay,
            &self.view.facts.range,
            &generation,
            &live,
            end,
            &self.decided.rules,
            self.view.clock.now(),
            self.indexer.users_at_work(),
        );
        let mut slice = match slice {
            Ok(slice) => slice,
            Err(failure) => {
                error!(container = %self.view.facts.container, range = self.view.facts.range_id, %failure, "indexing failed");
                return;
            }
        };
        if generation.lazy && slice.cursor == end && !self.committing && self.next.is_empty() {
            // Nothing stands between the end and this very slice, which is a transaction too.
            slice.cursor = Position::after_lsn(self.decided.lsn + 1);
        }
        self.indexer.slice_started = Some(started);
        self.indexer.note_slice();
        let ts = self.view.clock.now().max(self.decided.ts);
        self.stage(ts, vec![Change::FillIndex(slice)]);
        if self.decided.index.current.map(|one| one.number) == Some(generation.number)
            && !generation.lazy
        {
            let facts = &self.view.facts;
            info!(container = %facts.container, range = facts.range_id, generation = generation.number, "a new index is complete");
        }
        self.commit(context);
    }

    /// Returns the generation that has work to do now, and how far it may go: what is committed is
    /// in the feed.
    fn index_lacks(&self) -> Option<(Generation, Position)> {
        let committed = self.view.lsn();
        let index = &self.decided.index;
        if let Some(building) = index.building {
            let end = building.end(committed);
            return (building.born_lsn <= committed).then_some((building, end));
        }
        let lazy = index.current.filter(|one| one.lazy)?;
        let lag = committed.saturating_sub(lazy.cursor.lsn);
        let end = lazy.end(committed);
        (lazy.cursor < end && (self.indexer.idle || lag > reindex::LAZY_LAG_TRANSACTIONS_MAX))
            .then_some((lazy, end))
    }

    /// Removes what a retired generation has left, once no reader begins with it any more.
    fn drop_retired(&mut self, context: &mut Context<Self>) -> bool {
        let retired = self.decided.index.retired;
        if retired.is_none() || self.view.state().index.retired != retired {
            return false;
        }
        self.indexer.dropping = retired;
        let ts = self.view.clock.now().max(self.decided.ts);
        self.stage(ts, vec![Change::DropRetiredIndex]);
        self.commit(context);
        true
    }

    /// A group was committed: goes on with the index when the rest after a slice is over.
    pub(in crate::shard) fn index_committed(&mut self, context: &mut Context<Self>) {
        let state = self.view.state();
        if let Some(dropped) = self.indexer.dropping
            && state.index.retired != Some(dropped)
        {
            self.indexer.dropping = None;
            self.view.retain_indexes(|number| number != dropped);
            self.rewrite_dropped(dropped, state.documents, context);
        }
        if let Some(started) = self.indexer.slice_started.take() {
            let users_at_work = self.indexer.users_at_work();
            self.indexer.resting = true;
            let rest = reindex::rest_after(started.elapsed(), users_at_work);
            context.run_later(rest, |shard, context| {
                shard.indexer.resting = false;
                shard.look_after_index(context);
            });
        } else if state.index.building.is_some() || state.index.retired.is_some() {
            self.look_after_index(context);
        }
    }

    fn rewrite_dropped(&self, number: u16, documents: u64, context: &mut Context<Self>) {
        if documents < REWRITE_DOCUMENTS_MIN {
            return;
        }
        let view = Arc::clone(&self.view);
        let rewriting = tokio::task::spawn_blocking(move || {
            for (from, to) in keys::generation_ranges(number) {
                if let Err(failure) = view.engine.compact(Some(&from), Some(&to)) {
                    error!(container = %view.facts.container, range = view.facts.range_id, %failure, "the files of a dropped index could not be rewritten");
                    return;
                }
            }
        });
        context.spawn(rewriting.into_actor(self).map(|_, _, _| ()));
    }
}
