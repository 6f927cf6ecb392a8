//! What a replica holds at one place in the log and at one time, as a digest: replicas that agree
//! have the same.
//!
//! The leader commits an entry that asks for it. Each replica takes a snapshot right after that
//! entry and reads it on a thread of its own; writes go on meanwhile.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc::channel},
};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use tracing::error;

use crate::{
    model::error::Result,
    shard::{
        commit::view::{ShardView, decode},
        state::{
            ShardState,
            command::{Change, Command},
        },
    },
    store::keys,
};

/// Checks whose outcome is remembered.
const CHECKS_MAX: usize = 8;

/// What is alive in a replica.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Digest {
    pub lsn: u64,
    /// The second at which it is alive.
    pub at: i64,
    pub items: u64,
    /// SHA-256 over keys and stored documents in their order.
    pub sha256: [u8; 32],
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// The replica has not come that far, or has forgotten.
    Unknown,
    Running,
    Done(Digest),
    Failed(String),
}

#[derive(Clone, Default)]
pub(super) struct Checks(Arc<Mutex<VecDeque<(u64, Outcome)>>>);

impl Checks {
    fn lock(&self) -> MutexGuard<'_, VecDeque<(u64, Outcome)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, number: u64, outcome: Outcome) {
        let mut checks = self.lock();
        checks.retain(|(known, _)| *known != number);
        checks.push_back((number, outcome));
        if checks.len() > CHECKS_MAX {
            checks.pop_front();
        }
    }

    pub fn get(&self, number: u64) -> Outcome {
        let checks = self.lock();
        let known = checks.iter().find(|(known, _)| *known == number);
        known.map_or(Outcome::Unknown, |(_, outcome)| outcome.clone())
    }

    /// Begins the checks that these commands, which were applied last, ask for. Returns when the
    /// snapshot is taken.
    pub fn begin(&self, view: &Arc<ShardView>, commands: &[Command], state: ShardState) {
        for number in commands.iter().flat_map(asked) {
            self.set(number, Outcome::Running);
            let (taken, wait) = channel::<()>();
            let (view, checks) = (Arc::clone(view), self.clone());
            let started = std::thread::Builder::new()
                .name("check".to_owned())
                .spawn(move || {
                    let outcome = digest(&view, &state, || drop(taken));
                    let outcome = outcome.map_or_else(
                        |failure| Outcome::Failed(failure.to_string()),
                        Outcome::Done,
                    );
                    checks.set(number, outcome);
                });
            match started {
                // The other end is dropped when the snapshot is there.
                Ok(_) => drop(wait.recv()),
                Err(failure) => {
                    error!(%failure, "a thread that checks a replica cannot be started");
                    self.set(number, Outcome::Failed(failure.to_string()));
                }
            }
        }
    }
}

/// Returns the numbers of the checks that a command asks for.
fn asked(command: &Command) -> impl Iterator<Item = u64> {
    command.changes.iter().filter_map(|change| match change {
        Change::Check(number) => Some(*number),
        _ => None,
    })
}

pub(super) fn asks(commands: &[Command]) -> bool {
    commands
        .iter()
        .any(|command| asked(command).next().is_some())
}

fn digest(view: &ShardView, state: &ShardState, taken: impl FnOnce()) -> Result<Digest> {
    let snapshot = view.engine.snapshot();
    taken();
    // What a split has left here of others is nobody's concern: replicas clear it away at their own
    // pace.
    let range = &view.facts.range;
    let (from, to) = keys::document_range(&range.min, &range.max);
    let mut cursor = snapshot.cursor(&from, &to);
    cursor.seek(&from);
    let (mut items, mut sha256) = (0, Sha256::new());
    while let Some((key, value)) = cursor.entry()? {
        let header = decode(value)?.header;
        if !state.rules.is_expired(header.ts, header.ttl, state.ts) {
            items += 1;
            for part in [key, value] {
                sha256.update((part.len() as u64).to_be_bytes());
                sha256.update(part);
            }
        }
        cursor.advance();
    }
    Ok(Digest {
        lsn: state.lsn,
        at: state.ts,
        items,
        sha256: sha256.finalize().into(),
    })
}
