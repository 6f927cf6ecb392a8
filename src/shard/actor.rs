//! The shard actor: the only writer of its shard.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use actix::prelude::*;
use tokio::sync::oneshot;
use tracing::{debug, error, info};

use super::{
    command::{Change, Command, LaneCursors, Purge},
    commit::{self, CommitLog, Group, Reply, Solo, Waiting},
    generation::IndexState,
    index_work::IndexWork,
    indexing::Indexing,
    leadership::Place,
    overlay::Overlay,
    purge::{self, Slice},
    replica::{Replica, ReplicatedLog},
    state::ShardState,
    transaction::{Operation, Transaction},
    view::ShardView,
};
use crate::{
    model::{
        epk::Epk,
        error::{Error, Result},
        ttl::{DefaultTtl, ExpiryRules},
    },
    store::EngineError,
};

/// How often the purger looks at the clock.
const PURGE_TICK: Duration = Duration::from_millis(500);
/// While a group is being committed, this many requests may gather before the actor begins to decide them.
const WAKE_WHILE_COMMITTING: usize = 16;
/// From this many clients on it pays to wait for them to come back.
const GATHER_CLIENTS_MIN: usize = 8;
/// How long the next group waits for them at most.
const GATHER_TIME_MAX: Duration = Duration::from_millis(1);
/// The share of dead bytes at which the files are rewritten, in percent: a dead byte costs at most four written ones.
const COMPACT_DEAD_PERCENT: u64 = 25;
/// Below this nobody misses the space.
const COMPACT_DEAD_BYTES_MIN: u64 = 8 * 1024 * 1024;

/// Requests have gathered in the intake.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Wake;

/// A request for changes; all operations are on one partition key.
pub struct Perform {
    pub epk: Epk,
    pub operations: Vec<Operation>,
    /// All or nothing; otherwise each operation stands alone.
    pub atomic: bool,
    pub reply: oneshot::Sender<Result<Reply>>,
}

/// Changes the container's default time to live at a second that is the same for all its shards, unless that is in the past.
#[derive(Message)]
#[rtype(result = "()")]
pub struct ChangeDefaultTtl {
    pub default: DefaultTtl,
    pub at: i64,
    pub reply: oneshot::Sender<Result<Reply>>,
}

/// Ends the actor after what it has accepted is committed.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Close {
    pub closed: oneshot::Sender<()>,
}

#[derive(Message)]
#[rtype(result = "()")]
struct Committed {
    group: u64,
    outcome: Result<ShardState, EngineError>,
}

/// What has been decided, committed or not.
pub(super) struct Decided {
    pub lsn: u64,
    pub ts: i64,
    pub next_ordinal: u64,
    pub rules: ExpiryRules,
    pub cursors: LaneCursors,
    pub index: IndexState,
}

impl From<ShardState> for Decided {
    fn from(state: ShardState) -> Self {
        Self {
            lsn: state.lsn,
            ts: state.ts,
            next_ordinal: state.next_ordinal,
            rules: state.rules,
            cursors: state.cursors,
            index: state.index,
        }
    }
}

pub struct Shard {
    pub(super) view: Arc<ShardView>,
    pub(super) log: Box<dyn CommitLog>,
    pub(super) place: Place,
    pub(super) decided: Decided,
    pub(super) overlay: Overlay,
    /// What waits for the group under way.
    pub(super) next: Group,
    pub(super) committing: bool,
    /// Clients that the group under way will answer.
    answering: usize,
    /// The next group waits for this many requests, for a moment.
    gather_until: usize,
    gather_timer: Option<SpawnHandle>,
    /// The second of the first command of the group under way.
    committing_since: Option<i64>,
    pub(super) purger: PurgerState,
    pub(super) indexer: IndexWork,
    pub(super) closing: Option<oneshot::Sender<()>>,
    /// Runs when the actor goes away, in order or by a panic.
    farewell: Farewell,
}

/// Tells the keeper that the actor is gone.
pub struct Farewell(pub Option<Box<dyn FnOnce() + Send>>);

impl Drop for Farewell {
    fn drop(&mut self) {
        if let Some(tell) = self.0.take() {
            tell();
        }
    }
}

pub(super) struct PurgerState {
    /// Nothing falls due before this second.
    pub next_due: i64,
    slice_started: Option<Instant>,
    lag_seconds: i64,
    pub more: bool,
    compacting: bool,
}

impl Shard {
    /// Builds the actor from what is on disk.
    pub fn open(view: Arc<ShardView>, farewell: Farewell) -> Result<Self, EngineError> {
        let (log, state) = Solo::open(Arc::clone(&view))?;
        let log = Box::new(log);
        Ok(Self::new(view, farewell, log, state, Place::Alone))
    }

    /// Builds the actor of a replica from what is on disk.
    pub fn open_replica(
        view: Arc<ShardView>,
        farewell: Farewell,
        replica: Arc<Replica>,
    ) -> Result<Self, EngineError> {
        let (_, state) = commit::take_over(&view)?;
        let log = Box::new(ReplicatedLog {
            replica: Arc::clone(&replica),
            term: 0,
        });
        let place = Place::follows(replica);
        Ok(Self::new(view, farewell, log, state, place))
    }

    fn new(
        view: Arc<ShardView>,
        farewell: Farewell,
        log: Box<dyn CommitLog>,
        state: ShardState,
        place: Place,
    ) -> Self {
        Self {
            log,
            place,
            decided: state.into(),
            view,
            overlay: Overlay::default(),
            next: Group {
                number: 1,
                ..Group::default()
            },
            committing: false,
            answering: 0,
            gather_until: 0,
            gather_timer: None,
            committing_since: None,
            purger: PurgerState {
                next_due: 0,
                slice_started: None,
                lag_seconds: 0,
                more: false,
                compacting: false,
            },
            indexer: IndexWork::default(),
            closing: None,
            farewell,
        }
    }

    /// Whether writes are taken at all.
    pub(super) fn check_writable(&self) -> Result<()> {
        if self.closing.is_some() {
            return Err(Error::unavailable("the shard is closing"));
        }
        self.place.check()?;
        self.view.check_writable()
    }

    /// Decides what has gathered, then commits it together.
    pub(super) fn take_requests(&mut self, context: &mut Context<Self>) {
        loop {
            let requests = self.view.intake.take(self.wake_at());
            if requests.is_empty() {
                break;
            }
            for request in requests {
                self.decide(request);
            }
        }
        self.commit(context);
        if self.committing {
            self.view.intake.wake_at(self.wake_at());
        }
    }

    /// For how many more requests the actor is worth waking.
    fn wake_at(&self) -> usize {
        if self.closing.is_some() {
            1
        } else if self.committing {
            // Fewer wait for the group to end, when the actor wakes up anyway.
            WAKE_WHILE_COMMITTING
        } else {
            self.gather_until.saturating_sub(self.next.waiting.len())
        }
    }

    /// When many clients write at once, those that have just been answered are about to ask again: waiting for them a moment
    /// makes one group, and one fsync, of two.
    fn gather(&mut self, answered: usize, context: &mut Context<Self>) {
        let clients = answered + self.next.waiting.len();
        if answered >= GATHER_CLIENTS_MIN {
            self.gather_until = clients * 3 / 4;
            self.gather_timer = Some(context.run_later(GATHER_TIME_MAX, Self::stop_gathering));
        }
    }

    /// Commits what there is, however few have come.
    pub(super) fn stop_gathering(&mut self, context: &mut Context<Self>) {
        self.gather_until = 0;
        self.take_requests(context);
    }

    fn decide(&mut self, request: Perform) {
        let Perform {
            epk,
            operations,
            atomic,
            reply,
        } = request;
        if let Err(error) = self.check_writable() {
            let _ = reply.send(Err(error));
            return;
        }
        self.indexer.requests += 1;
        let before = self.decided.lsn;
        let mut results = Vec::with_capacity(operations.len());
        if atomic {
            self.transact(&epk, operations, &mut results);
        } else {
            for operation in operations {
                self.transact(&epk, vec![operation], &mut results);
            }
        }
        let waiting = Waiting {
            reply,
            results,
            lsn: self.decided.lsn,
        };
        if self.decided.lsn == before && !self.committing && self.next.is_empty() {
            // Nothing was changed and nothing pending was seen: there is nothing to wait for.
            waiting.succeed();
        } else {
            self.next.waiting.push(waiting);
        }
    }

    /// Decides the operations as one transaction and stages it, unless one of them fails.
    fn transact(
        &mut self,
        epk: &Epk,
        operations: Vec<Operation>,
        results: &mut Vec<Result<super::transaction::Done>>,
    ) {
        let ts = self.view.clock.now().max(self.decided.ts);
        let live = self.view.live_indexes();
        let mut transaction = Transaction {
            facts: &self.view.facts,
            engine: &self.view.engine,
            overlay: &self.overlay,
            rules: &self.decided.rules,
            lsn: self.decided.lsn + 1,
            ts,
            next_ordinal: self.decided.next_ordinal,
            epk,
            indexing: Indexing {
                state: self.decided.index,
                live: &live,
            },
            changes: Vec::with_capacity(operations.len()),
            writes: Vec::with_capacity(operations.len()),
        };
        let mut failed = false;
        for operation in operations {
            let result = transaction.perform(operation);
            failed |= result.is_err();
            results.push(result);
            if failed {
                return;
            }
        }
        let Transaction {
            changes,
            writes,
            next_ordinal,
            ..
        } = transaction;
        if !changes.is_empty() {
            self.decided.next_ordinal = next_ordinal;
            for (key, value) in writes {
                self.overlay.set(self.next.number, key, value);
            }
            self.stage(ts, changes);
        }
    }

    pub(super) fn stage(&mut self, ts: i64, changes: Vec<Change>) {
        self.decided.lsn += 1;
        self.decided.ts = ts;
        self.stage_index(&changes);
        for change in &changes {
            if let Change::Put { value, .. } = change
                && let Some(stored) = crate::store::document::Stored::decode(value)
            {
                let header = stored.header;
                let inherits =
                    matches!(header.ttl, crate::model::ttl::ItemTtl::Inherit).then_some(header.ts);
                if let Some(due) = self
                    .decided
                    .rules
                    .next_due(inherits, header.ttl.own_due(header.ts))
                {
                    self.purger.next_due = self.purger.next_due.min(due);
                }
            }
        }
        self.next.commands.push(Command {
            lsn: self.decided.lsn,
            ts,
            changes,
        });
    }

    /// Sends what waits to the log, unless a group is under way: then it goes with the next one.
    pub(super) fn commit(&mut self, context: &mut Context<Self>) {
        let gathering = self.next.waiting.len() < self.gather_until;
        if self.committing || gathering || self.next.is_empty() {
            return;
        }
        self.gather_until = 0;
        if let Some(patience) = self.gather_timer.take() {
            context.cancel_future(patience);
        }
        self.committing = true;
        self.answering = self.next.waiting.len();
        self.committing_since = self.next.commands.first().map(|command| command.ts);
        let number = self.next.number;
        let group = std::mem::replace(
            &mut self.next,
            Group {
                number: number + 1,
                ..Group::default()
            },
        );
        let address = context.address();
        self.log.submit(
            group,
            Box::new(move |group, outcome| address.do_send(Committed { group, outcome })),
        );
    }

    pub(super) fn committed(
        &mut self,
        group: u64,
        outcome: Result<ShardState, EngineError>,
        context: &mut Context<Self>,
    ) {
        self.committing = false;
        let answered = std::mem::take(&mut self.answering);
        self.committing_since = None;
        match outcome {
            Ok(_) => self.overlay.committed(group),
            Err(error) => self.commit_failed(&error),
        }
        if let Some(started) = self.purger.slice_started.take() {
            let rest = purge::rest_after(
                started.elapsed(),
                self.purger.lag_seconds,
                !self.next.is_empty(),
            );
            if self.purger.more {
                context.run_later(rest, Self::purge);
            } else {
                self.compact_if_worth_it(context);
            }
        }
        self.index_committed(context);
        self.gather(answered, context);
        self.take_requests(context);
        self.finish_closing(context);
    }

    /// Nothing that was decided on top of the failed group can stand.
    fn commit_failed(&mut self, failure: &EngineError) {
        error!(container = %self.view.facts.container, range = self.view.facts.range_id, %failure, "commit failed");
        self.view
            .set_disk_full(matches!(failure, EngineError::Full(_)));
        let number = self.next.number;
        let dropped = std::mem::replace(
            &mut self.next,
            Group {
                number,
                ..Group::default()
            },
        );
        for waiting in dropped.waiting {
            waiting.fail(failure.clone().into());
        }
        self.forget_decisions();
    }

    /// What is committed is where the next decisions start.
    pub(super) fn forget_decisions(&mut self) {
        self.overlay.clear();
        self.view.forget_announced();
        self.decided = self.view.state().into();
        self.forget_staged_index();
        self.purger.next_due = 0;
        self.purger.more = false;
    }

    /// One slice of purging, if anything is due.
    pub(super) fn purge(&mut self, context: &mut Context<Self>) {
        let busy = self.purger.slice_started.is_some() || self.closing.is_some();
        if busy || self.view.clock.purging_paused() || self.view.poisoned().is_some() {
            return;
        }
        let Some(now) = self.purge_time(context) else {
            return;
        };
        let pending_since = self
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
            next_due,
            lag_seconds,
        } = slice;
        self.purger.more = more;
        self.purger.lag_seconds = lag_seconds;
        // What is pending is not in the lanes yet, so the slice cannot know when it falls due: the next tick looks again.
        let pending = self.committing || !self.next.is_empty();
        self.purger.next_due = if more || pending {
            0
        } else {
            next_due.unwrap_or(i64::MAX)
        };
        let Some(cursors) = purge.cursors else {
            if !pending && let Some((inherit, own)) = purge.horizons {
                self.view.engine.horizon.raise(inherit, own);
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
        crate::telemetry::purge_lag(lag_seconds, purge.versions.len());
        self.decided.cursors = cursors;
        self.purger.slice_started = Some(Instant::now());
        for expired in &purge.versions {
            self.overlay
                .set(self.next.number, expired.key.clone(), None);
            for fingerprint in &expired.version.fingerprints {
                let epk = expired
                    .key
                    .get(1..1 + usize::from(expired.epk_bytes))
                    .unwrap_or_default();
                self.overlay.set(
                    self.next.number,
                    crate::store::keys::unique(epk, fingerprint).into(),
                    None,
                );
            }
        }
        let Purge {
            versions, horizons, ..
        } = purge;
        self.next.purge.versions.extend(versions);
        self.next.purge.horizons = horizons;
        self.next.purge.cursors = Some(cursors);
        self.commit(context);
    }

    /// Rewrites the files when enough of them is dead, so that the space comes back.
    fn compact_if_worth_it(&mut self, context: &mut Context<Self>) {
        let state = self.view.state();
        let worth_it = state.dead_bytes >= COMPACT_DEAD_BYTES_MIN
            && state.dead_bytes * 100 >= (state.dead_bytes + state.bytes) * COMPACT_DEAD_PERCENT;
        if self.purger.compacting || !worth_it {
            return;
        }
        self.purger.compacting = true;
        let view = Arc::clone(&self.view);
        let started = Instant::now();
        let rewriting = tokio::task::spawn_blocking(move || view.engine.compact(&[], &[0xff]));
        context.spawn(rewriting.into_actor(self).map(move |_, shard, context| {
            shard.purger.compacting = false;
            info!(
                range = shard.view.facts.range_id,
                dead_bytes = state.dead_bytes,
                disk_bytes = shard.view.engine.disk_bytes(),
                seconds = started.elapsed().as_secs_f64(),
                "files rewritten"
            );
            shard.next.purge.rewritten_bytes += state.dead_bytes;
            shard.commit(context);
        }));
    }

    /// Looks whether a full disk has room again. The engine must then be opened anew, and the actor with it.
    fn probe_disk(&mut self, context: &mut Context<Self>) {
        if !self.view.disk_full()
            || self.view.poisoned().is_some()
            || self.committing
            || self.closing.is_some()
        {
            return;
        }
        match self.view.engine.probe() {
            Ok(()) => context.stop(),
            Err(failure) => {
                debug!(range = self.view.facts.range_id, %failure, "the disk is still full")
            }
        }
    }

    fn finish_closing(&mut self, context: &mut Context<Self>) {
        if !self.committing
            && self.next.is_empty()
            && let Some(closed) = self.closing.take()
        {
            // Told when the actor is dropped and its share of the files with it.
            self.farewell.0 = Some(Box::new(move || {
                let _ = closed.send(());
            }));
            context.stop();
        }
    }
}

impl Actor for Shard {
    type Context = Context<Self>;

    fn started(&mut self, context: &mut Self::Context) {
        context.run_interval(PURGE_TICK, |shard, context| {
            shard.probe_disk(context);
            shard.purge(context);
            shard.tick_index(context);
        });
    }
}

impl Handler<Wake> for Shard {
    type Result = ();

    fn handle(&mut self, _: Wake, context: &mut Self::Context) {
        self.take_requests(context);
    }
}

impl Handler<ChangeDefaultTtl> for Shard {
    type Result = ();

    fn handle(&mut self, request: ChangeDefaultTtl, context: &mut Self::Context) {
        if let Err(error) = self.check_writable() {
            let _ = request.reply.send(Err(error));
            return;
        }
        if self.decided.rules.default != request.default {
            let earliest = request.at.max(self.decided.ts);
            let (rules, at) =
                self.view
                    .announce_default(&self.decided.rules, request.default, earliest);
            self.decided.rules = rules;
            self.purger.next_due = 0;
            self.stage(at, vec![Change::SetDefaultTtl(request.default)]);
        }
        self.next.waiting.push(Waiting {
            reply: request.reply,
            results: Vec::new(),
            lsn: self.decided.lsn,
        });
        self.commit(context);
    }
}

impl Handler<Committed> for Shard {
    type Result = ();

    fn handle(&mut self, message: Committed, context: &mut Self::Context) {
        self.committed(message.group, message.outcome, context);
    }
}

impl Handler<Close> for Shard {
    type Result = ();

    fn handle(&mut self, message: Close, context: &mut Self::Context) {
        self.stop_gathering(context);
        self.closing = Some(message.closed);
        // From now on everybody is refused at once.
        self.view.intake.wake_at(1);
        self.finish_closing(context);
    }
}

/// Makes a shard actor panic, as a bug would.
#[cfg(test)]
#[derive(Message)]
#[rtype(result = "()")]
pub struct Panic;

#[cfg(test)]
impl Handler<Panic> for Shard {
    type Result = ();

    fn handle(&mut self, _: Panic, _: &mut Self::Context) {
        panic!("a test asked for it");
    }
}
