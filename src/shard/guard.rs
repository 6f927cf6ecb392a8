//! The conditions of patches. They are evaluated off the shard actor's thread, against the committed version of the item. The actor takes the
//! verdict if the item still has that version, and evaluates what little an own small budget allows if it has not.

use std::collections::HashSet;

use serde_json::Value;

use super::{
    transaction::{Action, Operation},
    view::ShardView,
};
use crate::{
    model::{
        error::{Error, ErrorKind, Result},
        item::Etag,
        json,
    },
    sql::{Condition, ConditionOutcome},
};

/// Steps of the condition of one patch.
pub const CONDITION_STEPS_MAX: u64 = 200_000;
/// Steps of all conditions of one request.
pub const REQUEST_CONDITION_STEPS_MAX: u64 = 1_000_000;
/// Steps of the conditions of one transaction that the shard actor evaluates itself: of items that the transaction has written before, or that
/// others have written since. Well under a millisecond of its thread.
pub const ACTOR_CONDITION_STEPS_MAX: u64 = 10_000;

/// The condition of a patch, and what is known of it.
#[derive(Debug)]
pub struct Guard {
    condition: Condition,
    verdict: Option<Verdict>,
    /// Whether an earlier operation of the same request writes the item.
    follows_own_write: bool,
}

/// What the condition says of one version of the item.
#[derive(Debug)]
struct Verdict {
    etag: Etag,
    holds: Result<bool>,
    steps: u64,
}

impl Guard {
    pub fn parse(text: &str) -> Result<Self> {
        Ok(Self {
            condition: Condition::parse(text)?,
            verdict: None,
            follows_own_write: false,
        })
    }

    fn evaluate(&mut self, etag: Etag, item: &Value, now_ms: i64, steps_left: &mut u64) {
        let steps_max = CONDITION_STEPS_MAX.min(*steps_left);
        let (holds, steps) = match self.condition.evaluate(item, now_ms, steps_max) {
            Ok(ConditionOutcome::Done { holds, steps }) => (Ok(holds), steps),
            Ok(ConditionOutcome::OutOfSteps) => (Err(out_of_steps()), steps_max),
            Err(error) => (Err(error), steps_max),
        };
        *steps_left -= steps;
        self.verdict = Some(Verdict { etag, holds, steps });
    }

    /// Whether the verdict is about another version than this one, and the actor's budget is too small to find out by itself.
    fn is_stale(&self, etag: Option<Etag>) -> bool {
        self.verdict.as_ref().is_some_and(|verdict| {
            verdict.steps > ACTOR_CONDITION_STEPS_MAX
                && etag.is_some_and(|etag| verdict.etag != etag)
        })
    }

    /// Fails unless the condition holds for this version of the item. For the actor: `steps_left` is what remains of its budget.
    pub fn check(
        &self,
        etag: Etag,
        now: i64,
        steps_left: &mut u64,
        item: impl FnOnce() -> Result<Value>,
    ) -> Result<()> {
        let holds = match &self.verdict {
            Some(verdict) if verdict.etag == etag => verdict.holds.clone()?,
            _ => match self
                .condition
                .evaluate(&item()?, milliseconds(now), *steps_left)?
            {
                ConditionOutcome::Done { holds, steps } => {
                    *steps_left -= steps;
                    holds
                }
                ConditionOutcome::OutOfSteps if self.follows_own_write => {
                    return Err(out_of_own_steps());
                }
                ConditionOutcome::OutOfSteps => return Err(retry_with()),
            },
        };
        if holds {
            return Ok(());
        }
        Err(Error::precondition_failed(
            "the condition of the patch does not hold for the item",
        ))
    }
}

fn milliseconds(seconds: i64) -> i64 {
    seconds.saturating_mul(1_000)
}

fn out_of_steps() -> Error {
    Error::bad_request(format!(
        "the condition of the patch needs more than {CONDITION_STEPS_MAX} steps, or the conditions of the batch more than {REQUEST_CONDITION_STEPS_MAX} together; narrow their subqueries"
    ))
}

fn out_of_own_steps() -> Error {
    Error::bad_request(format!(
        "the conditions of patches on items that the same batch has written need more than {ACTOR_CONDITION_STEPS_MAX} steps together; put the patches into one operation, or narrow the conditions"
    ))
}

fn retry_with() -> Error {
    Error::new(
        ErrorKind::RetryWith,
        "the item was written again and again while the condition of the patch was evaluated; try again, or narrow the condition",
    )
}

fn guard_of(operation: &mut Operation) -> Option<&mut Guard> {
    match &mut operation.action {
        Action::Patch { guard, .. } => guard.as_deref_mut(),
        _ => None,
    }
}

/// Whether some operation has a condition.
pub fn any(operations: &[Operation]) -> bool {
    let guarded = |one: &Operation| matches!(&one.action, Action::Patch { guard: Some(_), .. });
    operations.iter().any(guarded)
}

/// Evaluates the conditions of a request against what is committed. Not for an event loop or an actor: it may take a tenth of a second.
pub fn judge(view: &ShardView, place: &[u8], operations: &mut [Operation]) {
    let now_ms = milliseconds(view.clock.now());
    let mut steps_left = REQUEST_CONDITION_STEPS_MAX;
    let mut written = HashSet::new();
    for operation in operations {
        let id = operation.id.clone();
        let own = written.contains(&id);
        if let Some(guard) = guard_of(operation) {
            guard.verdict = None;
            guard.follows_own_write = own;
        }
        // What the request itself writes before is not committed yet.
        if !own
            && let Some(guard) = guard_of(operation)
            && let Ok(read) = view.read(place, &id, None)
            && let (Some(etag), Some(body)) = (read.etag, read.body)
            && let Ok(object) = json::parse_object(&body)
        {
            guard.evaluate(etag, &Value::Object(object), now_ms, &mut steps_left);
        }
        match &operation.action {
            Action::Read => {}
            Action::Create(draft) | Action::Upsert(draft) | Action::Replace(draft) => {
                written.insert(draft.item.id.clone());
                written.insert(id);
            }
            Action::Patch { .. } | Action::Delete => {
                written.insert(id);
            }
        }
    }
}

/// Whether a verdict is about a version that is not the newest one any more, so that the request should be judged again. `etag_of` has the
/// etag of the newest version of an item.
pub fn is_stale(operations: &[Operation], etag_of: impl Fn(&str) -> Option<Etag>) -> bool {
    operations.iter().any(|operation| match &operation.action {
        Action::Patch {
            guard: Some(guard), ..
        } if guard.verdict.is_some() => guard.is_stale(etag_of(&operation.id)),
        _ => false,
    })
}
