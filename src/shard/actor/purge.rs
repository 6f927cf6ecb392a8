//! The actor's work on what has expired: slices of purging between the users' requests, then
//! compaction of files with many dead bytes.

use std::{sync::Arc, time::Instant};

use actix::prelude::*;
use tracing::{debug, error, info};

use super::Shard;
use crate::{
    expiry::pacer,
    shard::{
        decide::purge::{self, Slice},
        state::command::Purge,
    },
    store::keys,
    telemetry::requests,
};

/// The share of dead bytes at which the files are compacted, in percent: a dead byte costs at most
/// four written ones.
const COMPACT_DEAD_PERCENT: u64 = 25;
/// Below this nobody misses the space.
const COMPACT_DEAD_BYTES_MIN: u64 = 8 * 1024 * 1024;
/// On a full disk every bit helps.
const COMPACT_DEAD_BYTES_MIN_FULL: u64 = 64 * 1024;

#[derive(Default)]
pub(in crate::shard) struct PurgeWork {
    /// Nothing expires before this second.
    pub next_expiry: i64,
    slice_started: Option<Instant>,
    lag_seconds: i64,
    pub more: bool,
    compacting: bool,
}

impl Shard {
    /// Purges one slice, if anything has expired.
    pub(in crate::shard) fn purge(&mut self, context: &mut Context<Self>) {
        let busy = self.purger.slice_started.is_some() || self.closing.is_some() || self.is_held();
        // An engine that has run out of something writes nothing until it is opened anew.
        if busy
            || self.view.shortage().is_some()
            || self.view.clock.purging_paused()
            || self.view.poisoned().is_some()
        {
            return;
        }
        let Some(now) = self.purge_time(context) else {
            return;
        };
        let pending_since = self
            .gathering
            .committing_since
            .or_else(|| self.next.commands.first().map(|command| command.ts));
        let rules = self.purge_rules();
        match purge::slice(
            &self.view.engine,
            &self.overlay,
            &rules,
            self.decided.cursors,
            now,
            pending_since,
        ) {
            Ok(slice) => self.stage_purge(slice, context),
            Err(failure) => {
                error!(container = %self.view.facts.container, range = self.view.facts.range_id, %failure, "purging failed")
            }
        }
    }

    fn stage_purge(&mut self, slice: Slice, context: &mut Context<Self>) {
        let Slice {
            purge,
            more,
            next_expiry,
            lag_seconds,
        } = slice;
        self.purger.more = more;
        self.purger.lag_seconds = lag_seconds;
        // What is pending is not in the lanes yet, so the slice cannot know when it expires: the
        // next tick looks again.
        let pending = self.committing || !self.next.is_empty();
        self.purger.next_expiry = if more || pending {
            0
        } else {
            next_expiry.unwrap_or(i64::MAX)
        };
        let Some(cursors) = purge.cursors else {
            if !pending && let Some(horizons) = purge.horizons {
                self.view.engine.horizon.raise(horizons);
            }
            return;
        };
        debug!(
            range = self.view.facts.range_id,
            removed = purge.versions.len(),
            lag_seconds,
            more,
            "expiry slice"
        );
        self.decided.cursors = cursors;
        self.purger.slice_started = Some(Instant::now());
        for expired in &purge.versions {
            self.overlay
                .set(self.next.number, expired.key.clone(), None);
            for fingerprint in &expired.version.fingerprints {
                let place = expired
                    .key
                    .get(1..1 + usize::from(expired.place_bytes))
                    .unwrap_or_default();
                self.overlay.set(
                    self.next.number,
                    keys::unique(place, fingerprint).into(),
                    None,
                );
            }
        }
        let Purge {
            versions,
            expired,
            horizons,
            ..
        } = purge;
        self.next.purge.versions.extend(versions);
        self.next.purge.expired.extend(expired);
        self.next.purge.horizons = horizons;
        self.next.purge.cursors = Some(cursors);
        self.commit(context);
    }

    /// Goes on with the next slice after a rest when a group with one in it is committed.
    pub(in crate::shard) fn purge_committed(&mut self, context: &mut Context<Self>) {
        let Some(started) = self.purger.slice_started.take() else {
            return;
        };
        // A request that reads does not come by here, but it wants the same cores and the same
        // disk.
        let users_waiting = !self.next.is_empty() || requests::in_flight() > 0;
        let duty = pacer::duty_percent(self.purger.lag_seconds, users_waiting);
        if self.purger.more {
            self.view.counters.set_purger_duty(duty);
            context.run_later(pacer::rest_after(started.elapsed(), duty), Self::purge);
        } else {
            self.view.counters.set_purger_duty(0);
            self.compact_if_worth_it(context);
        }
    }

    /// Compacts the files when enough of them is dead, so that the space comes back.
    pub(in crate::shard) fn compact_if_worth_it(&mut self, context: &mut Context<Self>) {
        let state = self.view.state();
        let worth_it = if self.view.engine.reserve.is_released() {
            state.dead_bytes >= COMPACT_DEAD_BYTES_MIN_FULL
        } else {
            state.dead_bytes >= COMPACT_DEAD_BYTES_MIN
                && state.dead_bytes * 100 >= (state.dead_bytes + state.bytes) * COMPACT_DEAD_PERCENT
        };
        if self.purger.compacting || !worth_it {
            return;
        }
        self.purger.compacting = true;
        let view = Arc::clone(&self.view);
        let started = Instant::now();
        let rewriting = tokio::task::spawn_blocking(move || view.engine.compact(None, None));
        context.spawn(rewriting.into_actor(self).map(move |done, shard, context| {
            shard.purger.compacting = false;
            if let Ok(Err(failure)) = done {
                error!(container = %shard.view.facts.container, range = shard.view.facts.range_id, %failure, "files could not be rewritten");
                return;
            }
            info!(
                range = shard.view.facts.range_id,
                dead_bytes = state.dead_bytes,
                disk_bytes = shard.view.engine.disk_bytes(),
                seconds = started.elapsed().as_secs_f64(),
                "files compacted"
            );
            shard.next.purge.rewritten_bytes += state.dead_bytes;
            shard.commit(context);
        }));
    }
}
