//! Transactional batches (all or nothing, one partition key) and bulk requests (each operation on its own).

use std::sync::Arc;

use actix_http::Payload;
use actix_web::http::header::HeaderName;
use futures_util::future::join_all;
use serde_json::{Map, Value};

use super::{
    dispatch::Call,
    headers, items,
    request::{self, flag},
    respond::Response,
};
use crate::{
    model::{
        charge,
        error::{Error, ErrorKind, Result},
        item::EtagCondition,
        json,
        partition_key::PartitionKey,
        patch::Patch,
    },
    router::{Answer, ContainerRoute, Router, actor::ChangeItems, session::Served},
    shard::transaction::{self, Action, Done, Operation},
};

/// Operations of one batch.
const BATCH_OPERATIONS_MAX: usize = 100;
/// The result of an operation that was not carried out because of another one's failure.
const NOT_DONE: &[u8] = br#"{"statusCode":424,"requestCharge":0}"#;

pub async fn batch(call: &Call<'_>, db: &str, coll: &str, payload: Payload) -> Result<Response> {
    let container = call.container(db, coll)?;
    request::check_content_type(call.request)?;
    let body = request::body(payload).await?;
    let Value::Array(operations) = json::parse_value(&body)? else {
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
    if flag(call.request, &headers::BATCH_ATOMIC) {
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
            Err(error) => return Ok(rolled_back(container, count, place, &error, None)),
        }
    }
    let request = ChangeItems {
        container,
        place: items::place(container, &key),
        operations: parsed,
        atomic: true,
        bytes,
    };
    let Answer {
        value: results,
        served,
    } = Router::change(request).await?;
    if let Some((place, error)) = results
        .iter()
        .enumerate()
        .find_map(|(place, result)| Some((place, result.as_ref().err()?)))
    {
        return Ok(rolled_back(container, count, place, error, Some(served)));
    }
    let minimal = request::wants_minimal(call.request);
    let done: Vec<Done> = results.into_iter().flatten().collect();
    // An unmodified read is not a failure, but it is not a plain success either.
    let status = if done.iter().any(|done| done.status >= 300) {
        207
    } else {
        200
    };
    Ok(finish(
        container,
        status,
        done.iter().map(|done| success(done, minimal)),
        charge::sum(done.iter().map(|done| done.charge)),
        &served,
    ))
}

fn rolled_back(
    container: &ContainerRoute,
    count: usize,
    failed: usize,
    error: &Error,
    served: Option<Served>,
) -> Response {
    let results = (0..count).map(|place| match place == failed {
        true => failure(error),
        false => NOT_DONE.to_vec(),
    });
    let served = served.unwrap_or_else(|| somewhere(container));
    finish(container, 207, results, charge::REFUSED_WRITE, &served)
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
    let pending = operations.into_iter().map(|operation| {
        let prepared = bulk_operation(container, operation, share);
        async move {
            let Answer { mut value, served } = Router::change(prepared?).await?;
            let result = value
                .pop()
                .unwrap_or_else(|| Err(Error::internal("an operation has no result")));
            Ok((result?, served))
        }
    });
    let results: Vec<Result<(Done, Served)>> =
        if flag_is_off(call, &headers::BATCH_CONTINUE_ON_ERROR) {
            until_failure(pending).await
        } else {
            join_all(pending).await
        };
    let minimal = request::wants_minimal(call.request);
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
    let rows: Vec<_> = results
        .iter()
        .map(|result| match result {
            Ok((done, _)) => success(done, minimal),
            Err(error) => failure(error),
        })
        .chain((results.len()..count).map(|_| NOT_DONE.to_vec()))
        .collect();
    Ok(finish(container, status, rows.into_iter(), charge, &served))
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

/// Whether a header says `false`; being absent says nothing.
fn flag_is_off(call: &Call<'_>, name: &HeaderName) -> bool {
    request::text(call.request, name)
        .is_some_and(|value| value.trim().eq_ignore_ascii_case("false"))
}

fn bulk_operation(
    container: &Arc<ContainerRoute>,
    operation: Value,
    bytes: usize,
) -> Result<ChangeItems<'_>> {
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
        operations,
        atomic: true,
        bytes,
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

fn success(done: &Done, minimal: bool) -> Vec<u8> {
    let mut row = format!(
        "{{\"statusCode\":{},\"requestCharge\":{}",
        done.status,
        charge::format(done.charge)
    )
    .into_bytes();
    if let Some(etag) = done.etag {
        row.extend_from_slice(b",\"eTag\":");
        json::write_string(&mut row, &etag.to_string());
    }
    if let Some(body) = done.body.as_ref().filter(|_| !minimal) {
        row.extend_from_slice(b",\"resourceBody\":");
        row.extend_from_slice(body);
    }
    row.push(b'}');
    row
}

fn failure(error: &Error) -> Vec<u8> {
    let (status, substatus, _) = error.kind.wire();
    let mut row = Map::new();
    row.insert("statusCode".into(), status.into());
    row.insert("subStatusCode".into(), substatus.into());
    row.insert("requestCharge".into(), charge::REFUSED_WRITE.into());
    row.insert("message".into(), error.message.as_str().into());
    if let Some(wait) = error.retry_after_ms {
        row.insert("retryAfterMilliseconds".into(), wait.into());
    }
    Value::Object(row).to_string().into_bytes()
}

fn finish(
    container: &ContainerRoute,
    status: u16,
    rows: impl Iterator<Item = Vec<u8>>,
    charge: f64,
    served: &Served,
) -> Response {
    let mut body = vec![b'['];
    for row in rows {
        if body.len() > 1 {
            body.push(b',');
        }
        body.extend_from_slice(&row);
    }
    body.push(b']');
    container.budget.spend(charge);
    let mut response = Response::new(status, body, charge);
    response.served_by(container, served);
    response
}
