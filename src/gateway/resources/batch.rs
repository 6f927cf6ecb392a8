//! Transactional batches (all or nothing, one partition key) and bulk requests (each operation on its own).

use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::join_all;
use serde_json::Value;

use super::{
    batch_answer::{self, Row},
    items,
};
use crate::{
    gateway::{
        call::Call,
        protocol::{Header, Response, body::Payload},
    },
    model::{
        charge,
        error::{Error, ErrorKind, Result},
        item::EtagCondition,
        json,
        partition_key::PartitionKey,
        patch::Patch,
    },
    router::{Answer, ContainerRoute, Router, actor::ChangeItems, session::Served},
    shard::{
        answer::{AnswerBudget, Overflow},
        host::Changes,
        transaction::{self, Action, Done, Operation},
    },
};

/// Operations of one batch.
const BATCH_OPERATIONS_MAX: usize = 100;

pub async fn batch(call: &Call<'_>, db: &str, coll: &str, payload: Payload) -> Result<Response> {
    let container = call.container(db, coll)?;
    call.check_content_type()?;
    let body = call.read(payload).await?;
    let Value::Array(operations) = call.parse_value(&body)? else {
        return Err(Error::bad_request(
            "the body of a batch must be an array of operations",
        ));
    };
    if operations.is_empty() {
        return Err(Error::bad_request("Batch request has no operations."));
    }
    if operations.len() > BATCH_OPERATIONS_MAX {
        return Err(Error::bad_request(format!(
            "Batch request has more operations than what is supported. It has {}, the most is {BATCH_OPERATIONS_MAX}",
            operations.len()
        )));
    }
    items::admit(call, &container)?;
    if call.flag(Header::BatchAtomic) {
        atomic(call, &container, operations, body.len()).await
    } else {
        bulk(call, &container, operations, body.len()).await
    }
}

async fn atomic(
    call: &Call<'_>,
    container: &Arc<ContainerRoute>,
    operations: Vec<Value>,
    bytes: usize,
) -> Result<Response> {
    let key = items::partition_key(call, container)?;
    let count = operations.len();
    let mut parsed = Vec::with_capacity(count);
    for (place, operation) in operations.into_iter().enumerate() {
        match operation_of(container, operation, &key) {
            Ok(operation) => parsed.push(operation),
            // What is wrong with one operation is that operation's result, and the others do not happen.
            Err(error) => return rolled_back(container, count, place, error, None).await,
        }
    }
    let budget = budget(call, Overflow::Fail);
    let request = ChangeItems {
        container,
        place: items::place(container, &key),
        changes: Changes {
            operations: parsed,
            atomic: true,
            bytes,
            answer: Some(Arc::clone(&budget)),
        },
    };
    let Answer {
        value: results,
        served,
    } = Router::change(request).await?;
    let mut done: Vec<Done> = Vec::with_capacity(count);
    for (place, result) in results.into_iter().enumerate() {
        match result {
            Ok(one) => done.push(one),
            Err(error) => return rolled_back(container, count, place, error, Some(served)).await,
        }
    }
    // An unmodified read is not a failure, but it is not a plain success either.
    let status = if done.iter().any(|done| done.status >= 300) {
        207
    } else {
        200
    };
    let charge = charge::sum(done.iter().map(|done| done.charge));
    let rows = done.into_iter().map(Row::Done).collect();
    let body = batch_answer::body(rows, budget).await?;
    Ok(finish(container, status, body, charge, &served))
}

/// The room for items in the answer.
fn budget(call: &Call<'_>, overflow: Overflow) -> Arc<AnswerBudget> {
    AnswerBudget::new(match call.wants_minimal() {
        true => Overflow::Minimal,
        false => overflow,
    })
}

async fn rolled_back(
    container: &ContainerRoute,
    count: usize,
    failed: usize,
    error: Error,
    served: Option<Served>,
) -> Result<Response> {
    let mut rows: Vec<Row> = (0..count).map(|_| Row::NotDone).collect();
    if let Some(row) = rows.get_mut(failed) {
        *row = Row::Failed(error);
    }
    let served = served.unwrap_or_else(|| somewhere(container));
    let body = batch_answer::body(rows, AnswerBudget::new(Overflow::Minimal)).await?;
    Ok(finish(container, 207, body, charge::REFUSED_WRITE, &served))
}

/// For an answer that no range had a part in.
fn somewhere(container: &ContainerRoute) -> Served {
    let first = container.shards.first();
    first.map_or(Served::by(0, 0), |shard| {
        let lsn = shard.view().map_or(0, |view| view.lsn());
        Served::by(shard.facts.range_id, lsn)
    })
}

/// Carries out each operation by itself, all at once; the order of operations on one key is kept by the mailbox of its shard.
async fn bulk(
    call: &Call<'_>,
    container: &Arc<ContainerRoute>,
    operations: Vec<Value>,
    bytes: usize,
) -> Result<Response> {
    let count = operations.len();
    let share = bytes / count.max(1);
    let budget = budget(call, Overflow::LeaveOut);
    let pending = operations.into_iter().map(|operation| {
        let prepared = bulk_operation(container, operation, share, &budget);
        async move {
            let Answer { mut value, served } = Router::change(prepared?).await?;
            let result = value
                .pop()
                .unwrap_or_else(|| Err(Error::internal("an operation has no result")));
            Ok((result?, served))
        }
    });
    let results: Vec<Result<(Done, Served)>> = if flag_is_off(call, Header::BatchContinueOnError) {
        until_failure(pending).await
    } else {
        join_all(pending).await
    };
    if let Some(error) = not_leader(&results) {
        return Err(error);
    }
    let mut served_by = results.iter().flatten().map(|(_, served)| served);
    let mut served = served_by
        .next()
        .map_or_else(|| somewhere(container), Served::clone);
    served_by.for_each(|one| served.and_by(one.range_id, one.lsn));
    let charge = charge::sum(results.iter().flatten().map(|(done, _)| done.charge));
    let status = if results.iter().all(Result::is_ok) {
        200
    } else {
        207
    };
    let not_tried = (results.len()..count).map(|_| Row::NotDone);
    let rows = results.into_iter().map(|result| match result {
        Ok((done, _)) => Row::Done(done),
        Err(error) => Row::Failed(error),
    });
    let rows = rows.chain(not_tried).collect();
    let body = batch_answer::body(rows, budget).await?;
    Ok(finish(container, status, body, charge, &served))
}

/// Returns the redirect if no operation of the request was carried out here.
fn not_leader<T>(results: &[Result<T>]) -> Option<Error> {
    let mut errors = results.iter().map(|result| match result {
        Err(error) if matches!(error.kind, ErrorKind::NotLeader(_)) => Some(error),
        _ => None,
    });
    let first = errors.next()??.clone();
    errors.all(|error| error.is_some()).then_some(first)
}

/// Carries out one after the other, up to the first that fails.
async fn until_failure<T>(
    pending: impl Iterator<Item = impl Future<Output = Result<T>>>,
) -> Vec<Result<T>> {
    let mut results = Vec::new();
    for operation in pending {
        let result = operation.await;
        let failed = result.is_err();
        results.push(result);
        if failed {
            break;
        }
    }
    results
}

/// Returns whether a field says `false`; being absent says nothing.
fn flag_is_off(call: &Call<'_>, header: Header) -> bool {
    call.header(header)
        .is_some_and(|value| value.trim().eq_ignore_ascii_case("false"))
}

fn bulk_operation<'c>(
    container: &'c Arc<ContainerRoute>,
    operation: Value,
    bytes: usize,
    budget: &Arc<AnswerBudget>,
) -> Result<ChangeItems<'c>> {
    let definition = &container.container.definition.partition_key;
    let key = match operation.get("partitionKey") {
        Some(Value::String(text)) => definition.complete(PartitionKey::parse_header(text)?)?,
        Some(array @ Value::Array(_)) => {
            definition.complete(PartitionKey::parse_header(&array.to_string())?)?
        }
        Some(other) => {
            return Err(Error::bad_request(format!(
                "the partitionKey {} of an operation is not an array",
                json::show(other)
            )));
        }
        None => match operation.get("resourceBody") {
            Some(Value::Object(object)) => definition.extract(object)?,
            _ => return Err(Error::bad_request("an operation has no partitionKey")),
        },
    };
    let operations = vec![operation_of(container, operation, &key)?];
    Ok(ChangeItems {
        container,
        place: definition.place(&key),
        changes: Changes {
            operations,
            atomic: true,
            bytes,
            answer: Some(Arc::clone(budget)),
        },
    })
}

/// Reads one operation of a batch.
fn operation_of(
    container: &ContainerRoute,
    operation: Value,
    key: &PartitionKey,
) -> Result<Operation> {
    let Value::Object(mut operation) = operation else {
        return Err(Error::bad_request(format!(
            "the operation {} of a batch is not an object",
            json::show(&operation)
        )));
    };
    if let Some(Value::String(text)) = operation.get("partitionKey")
        && container
            .container
            .definition
            .partition_key
            .complete(PartitionKey::parse_header(text)?)?
            != *key
    {
        return Err(Error::bad_request(format!(
            "the operation has a different partition key value than the request: {text}"
        )));
    }
    let kind = operation
        .get("operationType")
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned();
    let condition = |name: &str| {
        operation
            .get(name)
            .and_then(Value::as_str)
            .map(EtagCondition::parse)
    };
    let (if_match, if_none_match) = (condition("ifMatch"), condition("ifNoneMatch"));
    let body = operation.remove("resourceBody");
    let id = operation.get("id").and_then(Value::as_str);
    let (id, action) = match kind.as_str() {
        "Create" | "Upsert" => {
            let draft = draft(container, body, key)?;
            (
                draft.item.id.clone(),
                if kind == "Create" {
                    Action::Create(draft)
                } else {
                    Action::Upsert(draft)
                },
            )
        }
        "Replace" => {
            let draft = draft(container, body, key)?;
            let id = id.unwrap_or(&draft.item.id).to_owned();
            (id, Action::Replace(draft))
        }
        "Read" => (named(id, &kind)?, Action::Read),
        "Delete" => (named(id, &kind)?, Action::Delete),
        "Patch" => {
            let patch =
                body.ok_or_else(|| Error::bad_request("a Patch operation has no resourceBody"))?;
            (
                named(id, &kind)?,
                items::patch_action(Patch::from_value(patch)?)?,
            )
        }
        other => {
            return Err(Error::bad_request(format!(
                "the operationType '{}' is not known",
                json::shorten(other)
            )));
        }
    };
    Ok(Operation {
        id,
        action,
        if_match,
        if_none_match,
    })
}

fn named(id: Option<&str>, kind: &str) -> Result<String> {
    id.map(str::to_owned)
        .ok_or_else(|| Error::bad_request(format!("a {kind} operation has no id")))
}

fn draft(
    container: &ContainerRoute,
    body: Option<Value>,
    key: &PartitionKey,
) -> Result<transaction::Draft> {
    let Some(Value::Object(object)) = body else {
        return Err(Error::bad_request(
            "the resourceBody of an operation is not an object",
        ));
    };
    items::check_key(container, &object, key).map_err(|error| match error.kind {
        ErrorKind::PartitionKeyMismatch => Error::new(
            error.kind,
            format!(
                "the item has a different partition key value than the request. {}",
                error.message
            ),
        ),
        _ => error,
    })?;
    transaction::draft(
        &object,
        &container.container.definition.unique_keys,
        container.indexer.as_ref(),
    )
}

fn finish(
    container: &ContainerRoute,
    status: u16,
    body: Bytes,
    charge: f64,
    served: &Served,
) -> Response {
    container.budget.spend(charge);
    let mut response = Response::new(status, body, charge);
    response.served_by(container, served);
    response
}
