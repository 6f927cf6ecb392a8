//! The conditions of the patches of one request.

use std::collections::HashSet;

use serde_json::Value;

use super::{
    guard::{Guard, REQUEST_CONDITION_STEPS_MAX},
    transaction::{Action, Done, Operation},
};
use crate::model::{error::Result, item::Etag, json};

fn guard_of(operation: &mut Operation) -> Option<&mut Guard> {
    match &mut operation.action {
        Action::Patch { guard, .. } => guard.as_deref_mut(),
        _ => None,
    }
}

/// Returns whether some operation has a condition.
pub fn any(operations: &[Operation]) -> bool {
    let guarded = |one: &Operation| matches!(&one.action, Action::Patch { guard: Some(_), .. });
    operations.iter().any(guarded)
}

/// Evaluates the conditions of a request at `now` against what is committed, which `read` returns
/// by id. Not for an event loop or an actor: it may take a tenth of a second.
pub fn evaluate(operations: &mut [Operation], now: i64, read: impl Fn(&str) -> Result<Done>) {
    let mut steps_left = REQUEST_CONDITION_STEPS_MAX;
    let mut written = HashSet::new();
    for operation in operations {
        let id = operation.id.clone();
        let own = written.contains(&id);
        if let Some(guard) = guard_of(operation) {
            guard.reset(own);
        }
        // What the request itself writes before is not committed yet.
        if !own
            && let Some(guard) = guard_of(operation)
            && let Ok(read) = read(&id)
            && let (Some(etag), Some(body)) = (read.etag, read.body)
            && let Ok(object) = json::parse_object(&body)
        {
            guard.evaluate(etag, &Value::Object(object), now, &mut steps_left);
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

/// Returns whether a verdict is about a version that is not the newest one any more, so that the
/// conditions should be evaluated again. `etag_of` returns the etag of the newest version of an
/// item.
pub fn is_stale(operations: &[Operation], etag_of: impl Fn(&str) -> Option<Etag>) -> bool {
    operations.iter().any(|operation| match &operation.action {
        Action::Patch {
            guard: Some(guard), ..
        } => guard.has_verdict() && guard.is_stale(etag_of(&operation.id)),
        _ => false,
    })
}
