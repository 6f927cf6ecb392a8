//! The commit log: makes groups of commands durable and applied, in order. [`Standalone`] is the
//! log of a node without a cluster: the engine's WAL.

use std::{
    panic::{self, AssertUnwindSafe},
    sync::{Arc, MutexGuard, atomic::Ordering},
    time::Instant,
};

use super::{
    core::{Applied, ShardCore},
    group::{Group, Waiting},
    view::ShardView,
};
use crate::{
    model::error::{Error, Result},
    shard::{
        commit_error::{CommitError, CommitOutcome},
        state::{
            ShardState,
            command::{Command, Purge},
            split_mark,
        },
    },
    store::{Batch, EngineError, engine::Durability},
    telemetry,
};

/// Called once a group is committed or has failed, with its number.
pub type OnCommitted = Box<dyn FnOnce(u64, CommitOutcome) + Send>;

pub trait CommitLog: Send {
    /// Takes a group without waiting. Replies leave, and `done` is called, after the group is
    /// durable and visible. One group at a time.
    fn submit(&self, group: Group, done: OnCommitted);
}

/// Makes the commit logs of a replica.
pub trait ReplicatedLogs: Send + Sync {
    /// Returns the log of a leader in its term; a follower's groups hold purges only.
    fn log(self: Arc<Self>, term: u64) -> Box<dyn CommitLog>;
}

/// The log of a standalone node: the engine's own WAL, one fsync a group.
pub struct Standalone {
    view: Arc<ShardView>,
    epoch: u64,
}

impl Standalone {
    /// Takes over the shard from its earlier owner: groups of that one that are in flight are
    /// finished first, later ones are refused.
    pub fn open(view: Arc<ShardView>) -> Result<(Self, ShardState), EngineError> {
        let (epoch, state) = take_over(&view)?;
        Ok((Self { view, epoch }, state))
    }
}

/// Makes a new owner of the shard, which begins with what is on disk. Returns its epoch and the
/// state that it finds.
pub(in crate::shard) fn take_over(core: &ShardCore) -> Result<(u64, ShardState), EngineError> {
    let mut applied = lock(core)?;
    if let Some(state) = ShardState::load(&core.engine)? {
        applied.state = state;
    }
    core.load_indexes(&applied.state)?;
    core.set_foreign(split_mark::cleanup_cursor(&core.engine)?.is_some());
    core.set_cut(split_mark::is_marked(&core.engine)?);
    applied.epoch += 1;
    core.forget_announced();
    core.publish(&applied.state);
    Ok((applied.epoch, applied.state))
}

impl CommitLog for Standalone {
    fn submit(&self, group: Group, done: OnCommitted) {
        let view = Arc::clone(&self.view);
        let epoch = self.epoch;
        let submitted = Instant::now();
        tokio::task::spawn_blocking(move || {
            let number = group.number;
            let has_clients = !group.waiting.is_empty();
            let outcome = panic::catch_unwind(AssertUnwindSafe(|| commit(&view, epoch, group)));
            let outcome = outcome.unwrap_or_else(|_| {
                // A bug. Without an answer the actor would wait for it, and everybody after it for
                // the actor.
                poison(&view, &CommitError::Panicked);
                Err(CommitError::Panicked)
            });
            if has_clients && outcome.is_ok() {
                telemetry::commits::committed(submitted.elapsed());
            }
            // What waits for the end of the shard waits for its files, too.
            drop(view);
            done(number, outcome);
        });
    }
}

pub(in crate::shard) fn lock(core: &ShardCore) -> Result<MutexGuard<'_, Applied>, EngineError> {
    core.applied
        .lock()
        .map_err(|_| EngineError::Io("an earlier commit was cut off".into()))
}

pub(in crate::shard) fn commit(core: &ShardCore, epoch: u64, group: Group) -> CommitOutcome {
    let Group {
        commands,
        purge,
        waiting,
        ..
    } = group;
    match write(core, epoch, &commands, &purge) {
        Ok(None) => {
            for waiting in waiting {
                waiting.fail(CommitError::Superseded.into());
            }
            Err(CommitError::Superseded)
        }
        Ok(Some(state)) => {
            core.counters
                .commands
                .fetch_add(commands.len() as u64, Ordering::Relaxed);
            waiting.into_iter().for_each(Waiting::succeed);
            Ok(state)
        }
        Err(error) => {
            // Poisoned before the first client hears of it: what comes next must not be
            // acknowledged.
            if !error.heals() {
                poison(core, &error);
            }
            let failure = Error::from(error.clone());
            waiting
                .into_iter()
                .for_each(|waiting| waiting.fail(failure.clone()));
            Err(error.into())
        }
    }
}

pub(in crate::shard) fn poison(core: &ShardCore, failure: &dyn std::fmt::Display) {
    core.poison(Error::unavailable(format!(
        "the shard takes no writes until the node is restarted: {failure}"
    )));
}

/// Applies commands and a purge in one batch. Returns `None` if the shard has another owner now,
/// and nothing was written.
fn write(
    core: &ShardCore,
    epoch: u64,
    commands: &[Command],
    purge: &Purge,
) -> Result<Option<ShardState>, EngineError> {
    let mut applied = lock(core)?;
    if applied.epoch != epoch {
        return Ok(None);
    }
    let mut state = applied.state;
    let mut batch = Batch::default();
    // The purge first: a command of its group may have been decided on top of it (an item created
    // again, a unique key taken over), while a version that a command of the group removes is never
    // in the purge.
    state.purge(purge, &mut batch)?;
    for command in commands {
        state.apply(command, &mut batch)?;
    }
    if state != applied.state {
        state.store(&mut batch);
    }
    if !batch.is_empty() {
        // A purge can be repeated: it need not wait for the disk.
        let durability = if commands.is_empty() {
            Durability::Buffered
        } else {
            Durability::Synced
        };
        let (bytes, begun) = (batch.bytes(), Instant::now());
        let begun_write = core.begin_write(commands);
        core.engine.write(batch, durability)?;
        core.settle_write(begun_write);
        if durability == Durability::Synced {
            core.counters.fsyncs.fetch_add(1, Ordering::Relaxed);
            telemetry::commits::synced(commands.len(), bytes, begun.elapsed());
        }
    }
    applied.state = state;
    note_purged(core, purge);
    core.publish(&state);
    Ok(Some(state))
}

/// Counts what was purged, and lets compaction drop what it has left in the index.
pub(in crate::shard) fn note_purged(core: &ShardCore, purge: &Purge) {
    let counter = &core.counters.purged;
    counter.fetch_add(purge.versions.len() as u64, Ordering::Relaxed);
    for (second, items) in &purge.expired {
        telemetry::expiry::purged(core.clock.seconds_since(*second), *items);
    }
    if purge.cleanup.ends {
        core.set_foreign(false);
    }
    if let Some(horizons) = purge.horizons {
        core.engine.horizon.raise(horizons);
    }
}
