//! Requests and answers as handlers see them: what is in them, not which protocol carried them.

use std::{
    convert::Infallible,
    net::SocketAddr,
    pin::Pin,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::{Buf, Bytes};
use http::{
    HeaderMap, Method, Response, Uri,
    header::{HeaderName, HeaderValue},
    request::Parts,
};
use hyper::body::{Body, Frame, Incoming, SizeHint};

use super::{
    activity::{Activity, InFlight},
    budget::Reserved,
};

/// A request without its body.
pub struct Request {
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    peer: Option<SocketAddr>,
}

impl Request {
    pub fn new(method: Method, uri: Uri, headers: HeaderMap, peer: Option<SocketAddr>) -> Self {
        Self {
            method,
            uri,
            headers,
            peer,
        }
    }

    pub(super) fn received(head: Parts, peer: SocketAddr) -> Self {
        Self::new(head.method, head.uri, head.headers, Some(peer))
    }

    pub fn method(&self) -> &Method {
        &self.method
    }

    pub fn uri(&self) -> &Uri {
        &self.uri
    }

    pub fn path(&self) -> &str {
        self.uri.path()
    }

    pub fn headers(&self) -> &HeaderMap {
        &self.headers
    }

    /// The address that the request came from; `None` when another node has sent it on.
    pub fn peer(&self) -> Option<SocketAddr> {
        self.peer
    }

    /// Returns the memory of the headers, for those of the answer.
    pub fn into_headers(self) -> HeaderMap {
        self.headers
    }
}

/// The bytes of a request's body, as they come.
pub struct RequestBody {
    incoming: Incoming,
    activity: Rc<Activity>,
}

impl RequestBody {
    pub(super) fn new(incoming: Incoming, activity: Rc<Activity>) -> Self {
        Self { incoming, activity }
    }

    pub fn is_at_end(&self) -> bool {
        self.incoming.is_end_stream()
    }

    /// Returns the next bytes, or `None` at the end.
    pub async fn next(&mut self) -> Option<Result<Bytes, hyper::Error>> {
        loop {
            let frame =
                std::future::poll_fn(|context| Pin::new(&mut self.incoming).poll_frame(context));
            match frame.await? {
                // Trailers say nothing to anybody here.
                Ok(frame) => match frame.into_data() {
                    Ok(bytes) => return Some(Ok(bytes)),
                    Err(_) => continue,
                },
                Err(failure) => return Some(Err(failure)),
            }
        }
    }
}

impl Drop for RequestBody {
    fn drop(&mut self) {
        if !self.incoming.is_end_stream() {
            self.activity.leaves_body_unread();
        }
    }
}

/// An answer: status, headers and the whole body.
pub type Answer = Response<Bytes>;

/// Returns an answer of a few bytes.
pub fn plain(status: u16, content_type: &'static str, body: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(body.into());
    *answer.status_mut() = status
        .try_into()
        .unwrap_or(http::StatusCode::INTERNAL_SERVER_ERROR);
    let content_type = HeaderValue::from_static(content_type);
    answer
        .headers_mut()
        .insert(http::header::CONTENT_TYPE, content_type);
    answer
}

/// Adds a header to an answer if its value is one that a header can have.
pub fn with_header(mut answer: Answer, name: HeaderName, value: &str) -> Answer {
    if let Ok(value) = HeaderValue::from_str(value) {
        answer.headers_mut().insert(name, value);
    }
    answer
}

/// The body of an answer on its way to the peer. The request is in flight until it is sent.
pub struct AnswerBody(Option<AnswerBytes>);

impl AnswerBody {
    /// An answer whose request is `in_flight`.
    pub(super) fn of(answer: Answer, mut in_flight: InFlight, is_head: bool) -> Response<Self> {
        let (mut head, bytes) = answer.into_parts();
        // HTTP/1.1 needs the length of what it leaves out.
        if bytes.is_empty() || (is_head && in_flight.activity().is_http2()) {
            return Response::from_parts(head, Self(None));
        }
        in_flight.is_answered();
        let reserved = head.extensions.remove::<Arc<Reserved>>();
        let bytes = AnswerBytes {
            bytes,
            in_flight,
            _reserved: reserved,
        };
        Response::from_parts(head, Self(Some(bytes)))
    }
}

impl Body for AnswerBody {
    type Data = AnswerBytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<AnswerBytes>, Infallible>>> {
        Poll::Ready(self.0.take().map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        let length = self.0.as_ref().map_or(0, |bytes| bytes.bytes.len());
        SizeHint::with_exact(length as u64)
    }
}

/// Bytes of an answer that were not sent yet.
pub struct AnswerBytes {
    bytes: Bytes,
    in_flight: InFlight,
    /// What it takes of the node's bound, until it is sent.
    _reserved: Option<Arc<Reserved>>,
}

impl Buf for AnswerBytes {
    fn remaining(&self) -> usize {
        self.bytes.len()
    }

    fn chunk(&self) -> &[u8] {
        &self.bytes
    }

    fn advance(&mut self, count: usize) {
        self.bytes.advance(count);
        self.in_flight.advance();
    }
}
