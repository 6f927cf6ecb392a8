//! The actor's groups: requests are decided as they gather, and committed together.

use std::time::Duration;

use actix::prelude::*;
use tracing::{error, info};

use super::{Committed, Shard, cleanup::CleanupWork, split::SplitPhase};
use crate::{
    model::error::Error,
    shard::{
        commit::{Group, view::Shortage},
        commit_error::{CommitError, CommitOutcome},
    },
};

/// While a group is being committed, this many requests may gather before the actor begins to
/// decide them.
const WAKE_WHILE_COMMITTING: usize = 16;
/// From this many clients on it pays to wait for them to come back.
const GATHER_CLIENTS_MIN: usize = 8;
/// How long the next group waits for them at most.
const GATHER_TIME_MAX: Duration = Duration::from_millis(1);

/// What the actor knows of its groups besides what is in them.
#[derive(Default)]
pub(in crate::shard) struct Gathering {
    /// Clients that the group in flight will answer.
    answering: usize,
    /// The next group waits for this many requests, for a moment.
    until: usize,
    timer: Option<SpawnHandle>,
    /// The second of the first command of the group in flight.
    pub committing_since: Option<i64>,
}

impl Shard {
    /// Decides what has gathered, then commits it together.
    pub(in crate::shard) fn take_requests(&mut self, context: &mut Context<Self>) {
        match self.split_phase {
            SplitPhase::None => {}
            SplitPhase::HandedOff(_) => return self.hand_off(),
            SplitPhase::Draining(_) | SplitPhase::Committing | SplitPhase::Quiesced
                if self.closing.is_none() =>
            {
                return;
            }
            SplitPhase::Draining(_) | SplitPhase::Committing | SplitPhase::Quiesced => {}
        }
        loop {
            // The commit in flight ends with a look at the write queue.
            if self.must_wait(context) {
                return;
            }
            let requests = self.view.write_queue.take(self.wake_at());
            if requests.is_empty() {
                break;
            }
            let mut requests = requests.into_iter();
            while let Some(request) = requests.next() {
                self.decide(request);
                if self.must_wait(context) {
                    self.view.write_queue.put_back(requests.collect());
                    return;
                }
            }
        }
        self.commit(context);
        if self.committing {
            self.view.write_queue.wake_at(self.wake_at());
        }
    }

    /// Commits a full group. Returns whether it cannot be committed yet, so that nothing more is
    /// decided.
    fn must_wait(&mut self, context: &mut Context<Self>) -> bool {
        if self.next.is_full() {
            self.gathering.until = 0;
            self.commit(context);
        }
        self.committing && self.next.is_full()
    }

    /// Returns for how many more requests the actor is worth waking.
    fn wake_at(&self) -> usize {
        if self.closing.is_some() || self.role.check().is_err() {
            // Others are refused at once, whatever is still in flight.
            1
        } else if self.committing {
            // Fewer wait for the group to end, when the actor wakes up anyway.
            WAKE_WHILE_COMMITTING
        } else {
            self.gathering.until.saturating_sub(self.next.waiting.len())
        }
    }

    /// When many clients write at once, those that have just been answered are about to ask again:
    /// waiting for them a moment makes one group, and one fsync, of two.
    fn gather(&mut self, answered: usize, context: &mut Context<Self>) {
        let clients = answered + self.next.waiting.len();
        if answered >= GATHER_CLIENTS_MIN {
            self.gathering.until = clients * 3 / 4;
            self.gathering.timer = Some(context.run_later(GATHER_TIME_MAX, Self::stop_gathering));
        }
    }

    /// Commits what there is, however few have come.
    pub(in crate::shard) fn stop_gathering(&mut self, context: &mut Context<Self>) {
        self.gathering.until = 0;
        self.take_requests(context);
    }

    /// Sends what waits to the log, unless a group is in flight: then it goes with the next one.
    pub(in crate::shard) fn commit(&mut self, context: &mut Context<Self>) {
        let gathering = self.next.waiting.len() < self.gathering.until;
        let over = matches!(self.split_phase, SplitPhase::HandedOff(_));
        let still =
            over || self.closing.is_none() && matches!(self.split_phase, SplitPhase::Quiesced);
        if self.committing || gathering || still || self.next.is_empty() {
            return;
        }
        self.gathering.until = 0;
        if let Some(patience) = self.gathering.timer.take() {
            context.cancel_future(patience);
        }
        self.committing = true;
        self.gathering.answering = self.next.waiting.len();
        self.gathering.committing_since = self.next.commands.first().map(|command| command.ts);
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

    pub(in crate::shard) fn committed(
        &mut self,
        group: u64,
        outcome: CommitOutcome,
        context: &mut Context<Self>,
    ) {
        self.committing = false;
        let answered = std::mem::take(&mut self.gathering.answering);
        self.gathering.committing_since = None;
        match outcome {
            Ok(_) => self.overlay.committed(group),
            Err(error) => self.commit_failed(&error),
        }
        self.purge_committed(context);
        self.index_committed(context);
        self.cleanup_committed(context);
        if self.is_held() {
            self.commit(context);
            self.drained();
        } else {
            self.gather(answered, context);
        }
        self.take_requests(context);
        self.finish_closing(context);
    }

    /// Nothing that was decided on top of the failed group can stand.
    fn commit_failed(&mut self, failure: &CommitError) {
        let (container, range) = (&self.view.facts.container, self.view.facts.range_id);
        let shortage = match failure {
            CommitError::Engine(failure) => {
                error!(%container, range, %failure, "commit failed");
                Shortage::of(failure)
            }
            CommitError::Panicked => {
                error!(%container, range, "commit panicked");
                None
            }
            CommitError::NotLeader(_)
            | CommitError::OutcomeUnknown
            | CommitError::Overloaded
            | CommitError::TooLong(_)
            | CommitError::Superseded => {
                info!(%container, range, reason = %failure, "commit refused");
                None
            }
        };
        // What was not proposed yet is decided anew by the leader.
        let is_engine = matches!(failure, CommitError::Engine(_) | CommitError::Panicked);
        let error = match self.role.is_replica() && !is_engine {
            true => Error::not_leader(None),
            false => failure.clone().into(),
        };
        self.view.set_shortage(shortage);
        if shortage == Some(Shortage::Disk) {
            self.view.engine.reserve.release();
        }
        let number = self.next.number;
        let dropped = std::mem::replace(
            &mut self.next,
            Group {
                number,
                ..Group::default()
            },
        );
        for waiting in dropped.waiting {
            waiting.fail(error.clone());
        }
        self.forget_decisions();
    }

    /// What is committed is where the next decisions start.
    pub(in crate::shard) fn forget_decisions(&mut self) {
        self.overlay.clear();
        self.view.forget_announced();
        self.decided = self.view.state().into();
        self.forget_staged_index();
        self.purger.next_expiry = 0;
        self.purger.more = false;
        self.cleaner = CleanupWork::default();
    }
}
