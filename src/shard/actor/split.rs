//! The actor's part in a split. The shard that is split holds its requests for a moment and then
//! hands them to its children.

use std::sync::Arc;

use actix::prelude::*;
use tokio::sync::oneshot;

use super::Shard;
use crate::{
    model::{catalog::Cut, epk::Epk, error::Error},
    shard::{commit::write_queue::Perform, state::command::Change},
};

/// How far a split of the shard has come.
#[derive(Default)]
pub(in crate::shard) enum SplitPhase {
    #[default]
    None,
    /// What was decided is being committed; nothing more is decided.
    Draining(oneshot::Sender<()>),
    /// In a cluster: what was decided is being committed, and the split with it.
    Committing,
    /// Nothing is in flight.
    Quiesced,
    /// The children have taken over.
    HandedOff(Vec<Arc<dyn Child>>),
}

/// A shard that has taken over a part of this one's range.
pub trait Child: Send + Sync {
    fn owns(&self, place: &Epk) -> bool;

    /// Takes a request that this shard has not decided.
    fn take_in(&self, request: Perform);
}

/// Stops decisions, and answers when all that was decided is committed. Requests wait.
#[derive(Message)]
#[rtype(result = "()")]
pub(in crate::shard) struct Quiesce {
    pub quiesced: oneshot::Sender<()>,
}

/// Ends a split that did not come about: decides again.
#[derive(Message)]
#[rtype(result = "()")]
pub(in crate::shard) struct Resume;

/// Ends a split that is done: requests that wait or come late are for one of the children.
#[derive(Message)]
#[rtype(result = "()")]
pub(in crate::shard) struct HandOff {
    pub children: Vec<Arc<dyn Child>>,
}

impl Handler<Quiesce> for Shard {
    type Result = ();

    fn handle(&mut self, message: Quiesce, context: &mut Self::Context) {
        self.stop_gathering(context);
        self.split_phase = SplitPhase::Draining(message.quiesced);
        self.commit(context);
        self.drained();
    }
}

impl Handler<Resume> for Shard {
    type Result = ();

    fn handle(&mut self, _: Resume, context: &mut Self::Context) {
        self.split_phase = SplitPhase::None;
        self.take_requests(context);
    }
}

impl Handler<HandOff> for Shard {
    type Result = ();

    fn handle(&mut self, message: HandOff, _: &mut Self::Context) {
        self.split_phase = SplitPhase::HandedOff(message.children);
        self.hand_off();
    }
}

impl Shard {
    pub(in crate::shard) fn is_held(&self) -> bool {
        !matches!(self.split_phase, SplitPhase::None)
    }

    /// Answers once nothing is in flight any more.
    pub(in crate::shard) fn drained(&mut self) {
        if self.committing || !self.next.is_empty() {
            return;
        }
        if matches!(self.split_phase, SplitPhase::Committing) {
            return self.end_split_commit();
        }
        self.split_phase = match std::mem::take(&mut self.split_phase) {
            SplitPhase::Draining(quiesced) => {
                let _ = quiesced.send(());
                SplitPhase::Quiesced
            }
            // A purge that was in flight when the phase began has nothing to do with it.
            other => other,
        };
    }

    /// Hands requests that wait here to the child that owns their key.
    pub(in crate::shard) fn hand_off(&mut self) {
        let SplitPhase::HandedOff(children) = &self.split_phase else {
            return;
        };
        for request in self.view.write_queue.take(1) {
            let child = children.iter().find(|child| child.owns(&request.place));
            match child {
                Some(child) => child.take_in(request),
                None => {
                    let _ = request.reply.send(Err(Error::internal(
                        "no child of a split partition key range owns the key",
                    )));
                }
            }
        }
    }

    /// Ends the phase of a split that was or was not committed: a shard that was split decides
    /// nothing, and a split that a former leader has not committed is none.
    pub(in crate::shard) fn end_split_commit(&mut self) {
        match self.split_phase {
            SplitPhase::None | SplitPhase::Committing | SplitPhase::Quiesced => {
                self.split_phase = if self.view.is_cut() {
                    SplitPhase::Quiesced
                } else {
                    SplitPhase::None
                };
            }
            SplitPhase::Draining(_) | SplitPhase::HandedOff(_) => {}
        }
    }
}

/// Commits the split that the catalog wants.
#[derive(Message)]
#[rtype(result = "()")]
pub(in crate::shard) struct CommitSplit {
    pub cut: Cut,
}

impl Handler<CommitSplit> for Shard {
    type Result = ();

    fn handle(&mut self, CommitSplit { cut }: CommitSplit, context: &mut Self::Context) {
        if self.check_writable().is_err() {
            return;
        }
        self.stop_gathering(context);
        let at = self.view.clock.now().max(self.decided.ts);
        self.stage(at, vec![Change::Split(cut)]);
        self.split_phase = SplitPhase::Committing;
        self.commit(context);
    }
}
