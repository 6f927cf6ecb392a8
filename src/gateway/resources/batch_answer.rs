//! The answer to a batch: a row for each operation, put together off the event loop when it is long.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Map, Value};

use crate::{
    model::{
        charge,
        error::{Error, Result},
        json,
    },
    router::actor::off_the_event_loop,
    shard::{answer::AnswerBudget, transaction::Done},
};

/// Answers with more bytes of items than this are put together on the blocking pool.
const ON_EVENT_LOOP_BYTES_MAX: usize = 64 * 1024;
/// Room for the row of an operation besides its item.
const ROW_BYTES_EXPECTED: usize = 128;
/// The row of an operation that was not carried out because of another one's failure.
const NOT_DONE: &[u8] = br#"{"statusCode":424,"requestCharge":0}"#;

/// What became of one operation.
pub enum Row {
    Done(Done),
    Failed(Error),
    /// Another one failed.
    NotDone,
}

/// The body of an answer, and its share of the bytes in flight until it is sent.
struct Body {
    bytes: Vec<u8>,
    _budget: Arc<AnswerBudget>,
}

impl AsRef<[u8]> for Body {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Puts the body of the answer together.
pub async fn body(rows: Vec<Row>, budget: Arc<AnswerBudget>) -> Result<Bytes> {
    let items = budget.taken();
    if items == 0 {
        return Ok(list(&rows, items).into());
    }
    let assemble = move || Body {
        bytes: list(&rows, items),
        _budget: budget,
    };
    let body = match items > ON_EVENT_LOOP_BYTES_MAX {
        true => off_the_event_loop(move || Ok(assemble())).await?,
        false => assemble(),
    };
    Ok(Bytes::from_owner(body))
}

fn list(rows: &[Row], items: usize) -> Vec<u8> {
    let mut list = Vec::with_capacity(items + rows.len() * ROW_BYTES_EXPECTED);
    list.push(b'[');
    for (place, row) in rows.iter().enumerate() {
        if place > 0 {
            list.push(b',');
        }
        match row {
            Row::Done(done) => success(&mut list, done),
            Row::Failed(error) => failure(&mut list, error),
            Row::NotDone => list.extend_from_slice(NOT_DONE),
        }
    }
    list.push(b']');
    list
}

fn success(list: &mut Vec<u8>, done: &Done) {
    let head = format!(
        "{{\"statusCode\":{},\"requestCharge\":{}",
        done.status,
        charge::format(done.charge)
    );
    list.extend_from_slice(head.as_bytes());
    if let Some(etag) = done.etag {
        list.extend_from_slice(b",\"eTag\":");
        json::write_string(list, &etag.to_string());
    }
    if let Some(body) = &done.body {
        list.extend_from_slice(b",\"resourceBody\":");
        list.extend_from_slice(body);
    }
    list.push(b'}');
}

fn failure(list: &mut Vec<u8>, error: &Error) {
    let (status, substatus, _) = error.kind.wire();
    let mut row = Map::new();
    row.insert("statusCode".into(), status.into());
    row.insert("subStatusCode".into(), substatus.into());
    row.insert("requestCharge".into(), charge::REFUSED_WRITE.into());
    row.insert("message".into(), error.message.as_str().into());
    if let Some(wait) = error.retry_after_ms {
        row.insert("retryAfterMilliseconds".into(), wait.into());
    }
    list.extend_from_slice(Value::Object(row).to_string().as_bytes());
}
