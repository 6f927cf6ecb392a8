//! Requests that another node must answer: what this node cannot do itself is sent on to the one that can, over the connection between the two.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::{
    HeaderMap,
    header::{HeaderName, HeaderValue},
};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::{
    dispatch,
    names::{header_of, name},
};
use crate::{
    cluster::{ENTRY_BYTES_MAX, NodeId, member::Member, transport::calls::CallError},
    coordinator::questions::Question,
    gateway::{
        call::{Call, Worker},
        protocol::{
            Header, Operation, Response, body::Payload, resource_path::ResourcePath,
            response::FieldValue,
        },
        resources,
    },
    model::error::{Error, ErrorKind, Result},
    server::Request,
};

/// How long a request waits for its shard to have a leader, or for this node to catch up with the others.
const PATIENCE: Duration = Duration::from_secs(5);
/// How soon it is looked whether that has happened, and how seldom at last: most waits end soon, and
/// many that do not must cost little.
const POLL: Duration = Duration::from_millis(10);
const POLL_MAX: Duration = Duration::from_millis(80);
/// How often a request is sent on: the second time when the first node said that it is for another.
const HOPS_MAX: usize = 2;

/// A request on its way to another node.
#[derive(Serialize, Deserialize)]
struct Sent {
    method: String,
    uri: String,
    headers: Vec<(String, Bytes)>,
    body: Bytes,
}

/// What the other node made of it.
#[derive(Serialize, Deserialize)]
enum Returned {
    Response {
        status: u16,
        headers: Vec<(String, Bytes)>,
        body: Bytes,
        charge: f64,
        /// The catalog that the answer rests on.
        catalog: u64,
    },
    /// The node does not lead what the request is about; the leader, if it knows one.
    #[serde(rename = "Elsewhere")]
    NotLeader(Option<NodeId>),
}

/// Answers a request here or, where that cannot be, by another node.
pub async fn answer(
    call: &Call<'_>,
    request: &Request,
    payload: Payload,
    member: &Member,
) -> Result<Response> {
    let path = ResourcePath::parse(call.head.path())?;
    // Strangers are sent away before anything is kept for them.
    let operation = resources::check(call, &path, &dispatch::signature(request))?;
    let body = call.read(payload).await?;
    let deadline = Instant::now() + PATIENCE;
    let mut pauses = Pauses(POLL);
    let mut hops = 0;
    let mut next = None;
    loop {
        let node = match next.take() {
            Some(node) => node,
            None => match answer_here(call, operation, body.clone()).await {
                Err(Error {
                    kind: ErrorKind::NotLeader(Some(node)),
                    ..
                }) if node != member.node => node,
                // No leader yet, or not as new as what the client has seen: both pass.
                Err(Error {
                    kind: ErrorKind::NotLeader(_) | ErrorKind::SessionNotAvailable,
                    ..
                }) if Instant::now() < deadline => {
                    pauses.wait().await;
                    continue;
                }
                answered => return answered,
            },
        };
        match ask(call, request, member, node, body.clone()).await? {
            Asked::Answered(response) => return Ok(response),
            Asked::Not(better) if Instant::now() < deadline => {
                hops += 1;
                next = better.filter(|_| hops < HOPS_MAX);
                if next.is_none() {
                    hops = 0;
                    pauses.wait().await;
                }
            }
            Asked::Not(_) => return Err(Error::not_leader(None)),
        }
    }
}

/// The pauses of one request: each is twice as long as the one before, up to a bound.
struct Pauses(Duration);

impl Pauses {
    async fn wait(&mut self) {
        tokio::time::sleep(self.0).await;
        self.0 = (self.0 * 2).min(POLL_MAX);
    }
}

enum Asked {
    Answered(Response),
    /// The node is not the right one or cannot be reached; another one, if it is known.
    Not(Option<NodeId>),
}

async fn ask(
    call: &Call<'_>,
    request: &Request,
    member: &Member,
    node: NodeId,
    body: Bytes,
) -> Result<Asked> {
    let headers = request.headers().iter();
    let texts = |(name, value): (&HeaderName, &HeaderValue)| {
        (name.to_string(), Bytes::copy_from_slice(value.as_bytes()))
    };
    // The other node's errors name it, too.
    let activity = (
        Header::ActivityId.name().to_owned(),
        Bytes::copy_from_slice(call.activity.as_bytes()),
    );
    let sent = Sent {
        method: request.method().to_string(),
        uri: request.uri().to_string(),
        headers: headers
            .filter(|(header, _)| *header != name(Header::ActivityId))
            .map(texts)
            .chain([activity])
            .collect(),
        body,
    };
    let question = rmp_serde::to_vec(&sent)
        .map_err(|failure| Error::internal(format!("a request cannot be sent on: {failure}")))?;
    let answer = match member.request(node, question.into()).await {
        Ok(answer) => answer,
        Err(CallError::NotSent) => return Ok(Asked::Not(None)),
        Err(CallError::NoResponse) => {
            return Err(Error::unavailable(format!(
                "node {node} did not answer; whether the request was carried out is not known"
            )));
        }
    };
    let returned: Returned = rmp_serde::from_slice(&answer)
        .map_err(|failure| Error::internal(format!("node {node} answered garbage: {failure}")))?;
    match returned {
        Returned::NotLeader(better) => Ok(Asked::Not(better)),
        Returned::Response {
            status,
            headers,
            body,
            charge,
            catalog,
        } => {
            catch_up(call, catalog).await;
            let mut response = Response::new(status, body, charge);
            for (name, value) in headers {
                if let Some(header) = header_of(&name) {
                    response.header(header, value);
                }
            }
            Ok(Asked::Answered(response))
        }
    }
}

/// Whoever has changed the catalog by this node finds it changed at this node.
async fn catch_up(call: &Call<'_>, catalog: u64) {
    let deadline = Instant::now() + PATIENCE;
    while call.table().catalog.version < catalog && Instant::now() < deadline {
        tokio::time::sleep(POLL).await;
    }
}

async fn answer_here(call: &Call<'_>, operation: Operation<'_>, body: Bytes) -> Result<Response> {
    let member = call.worker.shared.member.as_ref();
    // What the account is called changes with no catalog.
    if call.head.path() != "/" && member.is_some_and(|member| !member.driver.lease().holds()) {
        return Err(Error::new(
            ErrorKind::NotLeader(None),
            "this node does not hear from a majority of its cluster, or has not caught up with it; try again",
        ));
    }
    resources::carry_out(call, operation, Payload::from(body)).await
}

/// Answers a question of another node.
pub async fn answer_node(worker: Arc<Worker>, question: Bytes) -> Bytes {
    if let Some(asked) = Question::decode(&question) {
        let table = worker.shared.table.load_full();
        return asked.answer(&table, &worker.shared.coordinator).await;
    }
    let returned = match rmp_serde::from_slice::<Sent>(&question) {
        Ok(sent) => carry_out(&worker, sent).await,
        Err(failure) => Err(Error::bad_request(format!(
            "a request that was sent on cannot be read: {failure}"
        ))),
    };
    let response = match returned {
        Err(Error {
            kind: ErrorKind::NotLeader(node),
            ..
        }) => return encode(&Returned::NotLeader(node)),
        Ok(response) => response,
        Err(error) => Response::error(&error, ""),
    };
    let catalog = worker.shared.table.load().catalog.version;
    let answer = encode_response(response, catalog);
    if answer.len() <= ENTRY_BYTES_MAX {
        return answer;
    }
    // Without an answer the other node, and its client, would wait in vain.
    let bytes = answer.len();
    tracing::error!(bytes, "an answer is too long for a frame between nodes");
    let error = Error::new(
        ErrorKind::TooLarge,
        format!("the answer has {bytes} bytes; ask for less at a time"),
    );
    encode_response(Response::error(&error, ""), catalog)
}

fn encode_response(response: Response, catalog: u64) -> Bytes {
    let fields = response.fields().iter().map(|(header, value)| {
        let value = match value {
            FieldValue::Text(text) => text.clone(),
            FieldValue::Number(number) => number.to_string().into(),
        };
        (header.name().to_owned(), value)
    });
    encode(&Returned::Response {
        status: response.status,
        headers: fields.collect(),
        charge: response.charge,
        catalog,
        body: response.body,
    })
}

async fn carry_out(worker: &Worker, sent: Sent) -> Result<Response> {
    let unreadable = |what| Error::bad_request(format!("a request that was sent on has no {what}"));
    let method = sent.method.parse().map_err(|_| unreadable("method"))?;
    let uri = sent.uri.parse().map_err(|_| unreadable("path"))?;
    let mut headers = HeaderMap::with_capacity(sent.headers.len());
    for (name, value) in sent.headers {
        if let (Ok(name), Ok(value)) = (
            HeaderName::from_bytes(name.as_bytes()),
            HeaderValue::from_maybe_shared(value),
        ) {
            headers.append(name, value);
        }
    }
    let request = Request::new(method, uri, headers, None);
    let activity = dispatch::activity_id(&request);
    let call = dispatch::call(worker, &request, &activity);
    let path = ResourcePath::parse(call.head.path())?;
    call.held.hold(sent.body.len())?;
    let operation = match resources::check(&call, &path, &dispatch::signature(&request)) {
        Ok(operation) => operation,
        Err(error) => return Ok(Response::error(&error, call.activity)),
    };
    let deadline = Instant::now() + PATIENCE;
    let mut pauses = Pauses(POLL);
    loop {
        match answer_here(&call, operation, sent.body.clone()).await {
            // The client has seen more than this node's replica has: that passes.
            Err(Error {
                kind: ErrorKind::SessionNotAvailable,
                ..
            }) if Instant::now() < deadline => pauses.wait().await,
            // Where the id of the request is known.
            Err(error) if !matches!(error.kind, ErrorKind::NotLeader(_)) => {
                return Ok(Response::error(&error, call.activity));
            }
            answered => return answered,
        }
    }
}

fn encode(returned: &Returned) -> Bytes {
    rmp_serde::to_vec(returned)
        .expect("a struct of numbers, texts and bytes has a MessagePack form")
        .into()
}
