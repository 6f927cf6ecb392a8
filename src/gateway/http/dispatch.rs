//! From an HTTP request to its operation, and from the outcome to the HTTP answer.

use std::{rc::Rc, sync::Arc};

use bytes::Bytes;
use http::{
    Method,
    header::{AUTHORIZATION, DATE, HOST, HeaderValue, ORIGIN},
};

use super::{
    forward,
    names::{name, text},
    reached, respond,
};
use crate::{
    gateway::{
        auth::AuthHeaders,
        call::{Call, Head, Reached, Worker},
        protocol::{
            Header, Operation, Response,
            body::{Held, Payload},
            resource_path::ResourcePath,
            rights,
        },
        resources,
    },
    model::{
        error::{Error, ErrorKind, Result},
        json,
    },
    server::{Answer, Handler, Request, RequestBody, Reserved},
    telemetry::{labels::Throttle, requests::Watch},
};

impl Head for Request {
    fn verb(&self) -> &str {
        self.method().as_str()
    }

    fn path(&self) -> &str {
        Self::path(self)
    }

    fn header(&self, header: Header) -> Option<&str> {
        text(self.headers(), name(header))
    }

    fn has(&self, header: Header) -> bool {
        self.headers().contains_key(name(header))
    }

    fn reached(&self, trust_forwarded: bool) -> Reached<'_> {
        reached::by(self, trust_forwarded)
    }
}

/// Makes the call of an HTTP request.
pub(super) fn call<'a>(
    worker: &'a Worker,
    request: &'a Request,
    activity: &'a HeaderValue,
) -> Call<'a> {
    Call {
        worker,
        head: request,
        watch: Watch::start(&worker.in_flight),
        activity: activity.to_str().unwrap_or_default(),
        held: Held::new(&worker.shared.bodies),
    }
}

/// Returns the headers that a signature is made of.
pub(super) fn signature(request: &Request) -> AuthHeaders<'_> {
    let headers = request.headers();
    let x_ms_date = text(headers, name(Header::Date));
    AuthHeaders {
        authorization: text(headers, &AUTHORIZATION),
        x_ms_date,
        // Signed only where the other is missing.
        date: match x_ms_date {
            Some(_) => None,
            None => text(headers, &DATE),
        },
    }
}

/// Answers below this are not counted: they take no more than their requests did.
const COUNTED_ANSWER_BYTES_MIN: usize = 4 * 1024;
/// Answers from this on are counted as large.
const LARGE_ANSWER_BYTES: usize = 64 * 1024;
/// When a client whose answer did not fit into the node's bound should try again.
const UNSENT_RETRY_MS: u32 = 100;

impl Handler for Worker {
    fn answer(
        self: &Rc<Self>,
        request: Request,
        body: RequestBody,
    ) -> impl Future<Output = Answer> + use<> {
        entry(Rc::clone(self), request, body)
    }
}

/// The one entry point of the REST port.
async fn entry(worker: Rc<Worker>, request: Request, body: RequestBody) -> Answer {
    let answer = respond_to(&worker, &request, body).await;
    let is_read = request.method() == Method::GET;
    respond::recycle(request.into_headers());
    if is_read {
        // Other reads that were taken in are worked out first: answers that leave together wake their clients together, and
        // waking is what costs. Answers to writes leave together anyway, after their fsync.
        tokio::task::yield_now().await;
    }
    answer
}

async fn respond_to(worker: &Worker, request: &Request, body: RequestBody) -> Answer {
    let activity = activity_id(request);
    let call = call(worker, request, &activity);
    let payload = Payload::from(body);
    let mut answered = match (check_host(&call, request), &worker.shared.member) {
        (Err(foreign), _) => Err(foreign),
        (Ok(()), None) => answer(&call, request, payload).await,
        (Ok(()), Some(member)) => Box::pin(forward::answer(&call, request, payload, member)).await,
    };
    let reserved = match &mut answered {
        Ok(response) if response.body.len() >= COUNTED_ANSWER_BYTES_MIN => {
            Some(reserve_answer(&call, response))
        }
        _ => None,
    };
    let (answered, reserved) = match reserved.transpose() {
        Ok(reserved) => (answered, reserved),
        Err(error) => (Err(error), None),
    };
    let response = match answered {
        Ok(response) => response,
        Err(error) => {
            if error.kind == ErrorKind::Internal {
                tracing::error!(message = error.message, "request failed by a bug of ours");
            }
            match error.kind {
                ErrorKind::TooManyRequests => call.watch.throttled(Throttle::Throughput),
                ErrorKind::Overloaded => call.watch.throttled(Throttle::Queue),
                _ => {}
            }
            Response::error(&error, call.activity)
        }
    };
    call.watch.answered(response.status, response.charge, || {
        worker.shared.clock.now()
    });
    drop(call);
    let mut response = respond::finish(response, activity);
    if let Some(reserved) = reserved {
        response.extensions_mut().insert(Arc::new(reserved));
    }
    response
}

/// Fails with 403 if anybody could have made a browser send this request: it addresses the node by
/// a foreign name, and no secret keeps strangers out.
fn check_host(call: &Call<'_>, request: &Request) -> Result<()> {
    let shared = &call.worker.shared;
    let secret = shared.authenticator.as_ref();
    if secret.is_some_and(|authenticator| !authenticator.takes_well_known_key()) {
        return Ok(());
    }
    if shared.authenticator.is_none() {
        check_origin(request)?;
    }
    shared.hosts.check(hosts(request))
}

/// Returns the names by which a request addresses the node.
fn hosts(request: &Request) -> impl Iterator<Item = &[u8]> {
    let headers = request.headers().get_all(&HOST).iter();
    let authority = request.uri().authority();
    headers
        .map(HeaderValue::as_bytes)
        .chain(authority.map(|authority| authority.as_str().as_bytes()))
}

/// Fails with 403 for a request that a web page of another origin has made: without authentication
/// a page needs no header for which a browser would ask first.
fn check_origin(request: &Request) -> Result<()> {
    let Some(origin) = request.headers().get(ORIGIN) else {
        return Ok(());
    };
    let origin = String::from_utf8_lossy(origin.as_bytes());
    let own = origin.split_once("://").map(|(_, host)| host.as_bytes());
    match own.is_some_and(|own| hosts(request).any(|host| host.eq_ignore_ascii_case(own))) {
        true => Ok(()),
        false => Err(Error::new(
            ErrorKind::Forbidden,
            format!(
                "a web page of '{}' may not use this node while authentication is off",
                json::shorten(&origin)
            ),
        )),
    }
}

/// Counts an answer until its client has taken it. While too many bytes wait for slow clients,
/// reads are refused, and what was written is told without the item; the rows of a batch, whose
/// items are bounded elsewhere, are told in any case.
fn reserve_answer(call: &Call<'_>, response: &mut Response) -> Result<Reserved> {
    let bytes = response.body.len();
    let unsent = &call.worker.shared.unsent;
    let unsent = match bytes >= LARGE_ANSWER_BYTES {
        true => &unsent.large,
        false => &unsent.small,
    };
    if let Some(reserved) = unsent.take(bytes) {
        return Ok(reserved);
    }
    let path = ResourcePath::parse(call.head.path())?;
    let operation = resources::operation_of(call, &path);
    if matches!(operation, Operation::Batch(_)) {
        return Ok(unsent.take_beyond(bytes));
    }
    if rights::writes(&operation) {
        response.body = Bytes::new();
        return Ok(unsent.take_beyond(0));
    }
    let mut error = Error::new(
        ErrorKind::Overloaded,
        "answers that their clients do not take fill the memory that limits.node_inflight_bytes_max allows",
    );
    error.retry_after_ms = Some(UNSENT_RETRY_MS);
    Err(error)
}

async fn answer(call: &Call<'_>, request: &Request, payload: Payload) -> Result<Response> {
    let path = ResourcePath::parse(call.head.path())?;
    let operation = resources::check(call, &path, &signature(request))?;
    resources::answer(call, operation, payload).await
}

/// Returns the client's own id for the request, or makes one.
pub(super) fn activity_id(request: &Request) -> HeaderValue {
    if let Some(id) = request.headers().get(name(Header::ActivityId)) {
        return id.clone();
    }
    // A GUID of random digits, written by hand: it is made for every request.
    let mut digits = rand::random::<u128>();
    let mut text = *b"00000000-0000-0000-0000-000000000000";
    for digit in text.iter_mut().filter(|digit| **digit == b'0') {
        *digit = b"0123456789abcdef"[(digits & 0xf) as usize];
        digits >>= 4;
    }
    HeaderValue::from_bytes(&text).unwrap_or(HeaderValue::from_static("0"))
}
