//! The actor's cleanup after a split: a child removes the range of its sibling, between the users'
//! requests.

use std::{sync::Arc, time::Instant};

use actix::prelude::*;
use tracing::{error, info};

use super::Shard;
use crate::shard::{
    decide::{range_cleanup, reindex},
    state::split_mark,
};

/// What the actor knows of the cleanup after a split.
#[derive(Default)]
pub(in crate::shard) struct CleanupWork {
    slice_started: Option<Instant>,
    resting: bool,
    ends: bool,
    /// Items removed since the start.
    removed: u64,
}

#[cfg(test)]
impl CleanupWork {
    /// Ends the rest after a slice; in tests no timer does.
    pub fn wake(&mut self) {
        self.resting = false;
    }
}

impl Shard {
    /// Removes one slice of what a split has left, if there is any.
    pub(in crate::shard) fn clean_up(&mut self, context: &mut Context<Self>) {
        let busy = self.cleaner.slice_started.is_some() || self.cleaner.resting;
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
                error!(container = %self.view.facts.container, range = self.view.facts.range_id, %failure, "what a split has left cannot be removed");
                return;
            }
        };
        for foreign in &slice.versions {
            self.overlay
                .set(self.next.number, foreign.key.clone(), None);
        }
        self.cleaner.slice_started = Some(started);
        self.cleaner.removed += slice.versions.len() as u64;
        self.cleaner.ends = slice.ends;
        self.indexer.note_slice();
        self.next.purge.cleanup = slice;
        self.commit(context);
    }

    /// Goes on after a rest when a group with a slice in it is committed.
    pub(in crate::shard) fn cleanup_committed(&mut self, context: &mut Context<Self>) {
        let Some(started) = self.cleaner.slice_started.take() else {
            return;
        };
        if !self.view.has_foreign() && self.cleaner.ends {
            let state = self.view.state();
            info!(container = %self.view.facts.container, range = self.view.facts.range_id, removed = self.cleaner.removed, documents = state.documents, bytes = state.bytes, "all that a split has left is removed");
            self.compact_if_worth_it(context);
            return;
        }
        self.cleaner.resting = true;
        let rest = reindex::rest_after(started.elapsed(), self.indexer.users_at_work());
        context.run_later(rest, |shard, context| {
            shard.cleaner.resting = false;
            shard.clean_up(context);
        });
    }
}
