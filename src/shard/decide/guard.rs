//! The condition of a patch. It is evaluated off the shard actor's thread, against the committed
//! version of the item. The actor takes the verdict if the item still has that version, and
//! evaluates what little a small budget of its own allows if it has not.

use serde_json::Value;

use crate::{
    model::{
        error::{Error, ErrorKind, Result},
        item::Etag,
    },
    sql::{Condition, ConditionOutcome},
};

/// Steps of the condition of one patch.
pub const CONDITION_STEPS_MAX: u64 = 200_000;
/// Steps of all conditions of one request.
pub const REQUEST_CONDITION_STEPS_MAX: u64 = 1_000_000;
/// Steps of the conditions of one transaction that the shard actor evaluates itself: of items that
/// the transaction has written before, or that others have written since. Well under a millisecond
/// of its thread.
pub const ACTOR_CONDITION_STEPS_MAX: u64 = 10_000;

/// The condition of a patch, and what is known of it.
#[derive(Debug)]
pub struct Guard {
    condition: Condition,
    verdict: Option<Verdict>,
    /// Set if an earlier operation of the same request writes the item.
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

    /// Forgets what is known; `follows_own_write`: an earlier operation of the request writes the
    /// item.
    pub fn reset(&mut self, follows_own_write: bool) {
        self.verdict = None;
        self.follows_own_write = follows_own_write;
    }

    /// Evaluates the condition for a version of the item and remembers the verdict.
    pub fn evaluate(&mut self, etag: Etag, item: &Value, now: i64, steps_left: &mut u64) {
        let now_ms = milliseconds(now);
        let steps_max = CONDITION_STEPS_MAX.min(*steps_left);
        let (holds, steps) = match self.condition.evaluate(item, now_ms, steps_max) {
            Ok(ConditionOutcome::Done { holds, steps }) => (Ok(holds), steps),
            Ok(ConditionOutcome::OutOfSteps) => (Err(out_of_steps()), steps_max),
            Err(error) => (Err(error), steps_max),
        };
        *steps_left -= steps;
        self.verdict = Some(Verdict { etag, holds, steps });
    }

    pub fn has_verdict(&self) -> bool {
        self.verdict.is_some()
    }

    /// Returns whether the verdict is about another version than this one, and the actor's budget
    /// is too small to find out by itself.
    pub fn is_stale(&self, etag: Option<Etag>) -> bool {
        self.verdict.as_ref().is_some_and(|verdict| {
            verdict.steps > ACTOR_CONDITION_STEPS_MAX
                && etag.is_some_and(|etag| verdict.etag != etag)
        })
    }

    /// Fails unless the condition holds for this version of the item. For the actor: `steps_left`
    /// is what remains of its budget.
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
