//! The commit log: makes groups of commands durable and applied, in order. `Solo` is the log of a node on its own: the engine's journal.

use std::{
    panic::{self, AssertUnwindSafe},
    sync::{Arc, MutexGuard, atomic::Ordering},
    time::Instant,
};

use tokio::sync::oneshot;

use super::{
    command::{Command, Purge},
    commit_error::{CommitError, CommitOutcome},
    heritage, parting,
    state::ShardState,
    transaction::Done,
    view::{Applied, ShardView},
};
use crate::{
    model::error::{Error, Result},
    store::{Batch, EngineError, engine::Durability},
    telemetry,
};

/// Everything that arrived while the last group was being committed.
#[derive(Default)]
pub struct Group {
    pub number: u64,
    pub commands: Vec<Command>,
    pub purge: Purge,
    pub waiting: Vec<Waiting>,
    /// Of the commands in log entries.
    pub(super) bytes: usize,
}

/// Bytes of commands in one group. Requests beyond it stay in the intake, which is counted, until the group before is committed.
const GROUP_BYTES_MAX: usize = 16 * 1024 * 1024;

impl Group {
    pub fn push(&mut self, command: Command) {
        self.bytes += command.entry_bytes();
        self.commands.push(command);
    }

    /// Whether no more requests are decided for it.
    pub fn is_full(&self) -> bool {
        self.bytes >= GROUP_BYTES_MAX
    }

    pub fn is_empty(&self) -> bool {
        self.commands.is_empty() && self.purge.is_empty() && self.waiting.is_empty()
    }
}

/// A client that is told when its group is durable.
pub struct Waiting {
    pub reply: oneshot::Sender<Result<Reply>>,
    pub results: Vec<Result<Done>>,
    pub lsn: u64,
    pub range_id: u32,
}

/// The answer to a request for changes.
#[derive(Debug)]
pub struct Reply {
    pub results: Vec<Result<Done>>,
    /// The LSN of the transaction, or of the last one when nothing was changed.
    pub lsn: u64,
    /// The range that decided: another than the one that was asked when that was split meanwhile.
    pub range_id: u32,
}

impl Waiting {
    pub fn succeed(self) {
        // A client that has gone away does not need its answer.
        let _ = self.reply.send(Ok(Reply {
            results: self.results,
            lsn: self.lsn,
            range_id: self.range_id,
        }));
    }

    pub fn fail(self, error: Error) {
        let _ = self.reply.send(Err(error));
    }
}

/// Called once a group is committed or has failed, with its number.
pub type OnCommitted = Box<dyn FnOnce(u64, CommitOutcome) + Send>;

pub trait CommitLog: Send {
    /// Takes a group without waiting. Replies leave, and `done` is called, after the group is durable and visible. One group at a time.
    fn submit(&self, group: Group, done: OnCommitted);
}

/// One node: the engine's own journal, one fsync a group.
pub struct Solo {
    view: Arc<ShardView>,
    epoch: u64,
}

impl Solo {
    /// Takes over the shard from whoever wrote to it before: groups of an earlier owner that are still under way
    /// are finished first, later ones are refused.
    pub fn open(view: Arc<ShardView>) -> Result<(Self, ShardState), EngineError> {
        let (epoch, state) = take_over(&view)?;
        Ok((Self { view, epoch }, state))
    }
}

/// A new owner of the shard begins with what is on disk: its epoch, and the state that it finds.
pub(super) fn take_over(view: &ShardView) -> Result<(u64, ShardState), EngineError> {
    let mut applied = lock(view)?;
    if let Some(state) = ShardState::load(&view.engine)? {
        applied.state = state;
    }
    view.load_indexes(&applied.state)?;
    view.set_foreign(heritage::cursor(&view.engine)?.is_some());
    view.set_cut(parting::is_marked(&view.engine)?);
    applied.epoch += 1;
    view.forget_announced();
    view.publish(&applied.state);
    Ok((applied.epoch, applied.state))
}

impl CommitLog for Solo {
    fn submit(&self, group: Group, done: OnCommitted) {
        let view = Arc::clone(&self.view);
        let epoch = self.epoch;
        let submitted = Instant::now();
        tokio::task::spawn_blocking(move || {
            let number = group.number;
            let has_clients = !group.waiting.is_empty();
            let outcome = panic::catch_unwind(AssertUnwindSafe(|| commit(&view, epoch, group)));
            let outcome = outcome.unwrap_or_else(|_| {
                // A bug. Without an answer the actor would wait for it, and everybody after it for the actor.
                poison(&view, &CommitError::Panicked);
                Err(CommitError::Panicked)
            });
            if has_clients && outcome.is_ok() {
                telemetry::commits::committed(submitted.elapsed());
            }
            // Whoever waits for the end of the shard waits for its files, too.
            drop(view);
            done(number, outcome);
        });
    }
}

pub(super) fn lock(view: &ShardView) -> Result<MutexGuard<'_, Applied>, EngineError> {
    view.applied
        .lock()
        .map_err(|_| EngineError::Io("an earlier commit was cut off".into()))
}

pub(super) fn commit(view: &ShardView, epoch: u64, group: Group) -> CommitOutcome {
    let Group {
        commands,
        purge,
        waiting,
        ..
    } = group;
    match write(view, epoch, &commands, &purge) {
        Ok(None) => {
            for waiting in waiting {
                waiting.fail(CommitError::Superseded.into());
            }
            Err(CommitError::Superseded)
        }
        Ok(Some(state)) => {
            view.counters
                .commands
                .fetch_add(commands.len() as u64, Ordering::Relaxed);
            waiting.into_iter().for_each(Waiting::succeed);
            Ok(state)
        }
        Err(error) => {
            // Poisoned before the first client hears of it: what comes next must not be acknowledged.
            if !error.heals() {
                poison(view, &error);
            }
            let failure = Error::from(error.clone());
            waiting
                .into_iter()
                .for_each(|waiting| waiting.fail(failure.clone()));
            Err(error.into())
        }
    }
}

pub(super) fn poison(view: &ShardView, failure: &dyn std::fmt::Display) {
    view.poison(Error::unavailable(format!(
        "the shard takes no writes until the node is restarted: {failure}"
    )));
}

/// `None`: the shard has another owner now, and nothing was written.
fn write(
    view: &ShardView,
    epoch: u64,
    commands: &[Command],
    purge: &Purge,
) -> Result<Option<ShardState>, EngineError> {
    let mut applied = lock(view)?;
    if applied.epoch != epoch {
        return Ok(None);
    }
    let mut state = applied.state;
    let mut batch = Batch::default();
    // The purge first: a command of its group may have been decided on top of it (an item created again, a unique key taken over),
    // while a version that a command of the group removes is never in the purge.
    state.purge(purge, &mut batch);
    for command in commands {
        state.apply(command, &mut batch);
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
        let begun_write = view.begin_write(commands);
        view.engine.write(batch, durability)?;
        view.settle_write(begun_write);
        if durability == Durability::Synced {
            view.counters.fsyncs.fetch_add(1, Ordering::Relaxed);
            telemetry::commits::synced(commands.len(), bytes, begun.elapsed());
        }
    }
    applied.state = state;
    note_purged(view, purge);
    view.publish(&state);
    Ok(Some(state))
}

/// What was purged is counted, and rewriting files may drop what it has left in the index.
pub(super) fn note_purged(view: &ShardView, purge: &Purge) {
    let counter = &view.counters.purged;
    counter.fetch_add(purge.versions.len() as u64, Ordering::Relaxed);
    for (due, items) in &purge.due {
        telemetry::expiry::purged(view.clock.seconds_since(*due), *items);
    }
    if purge.clearing.ends {
        view.set_foreign(false);
    }
    if let Some((inherit, own)) = purge.horizons {
        view.engine.horizon.raise(inherit, own);
    }
}
