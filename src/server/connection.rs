//! One connection from its first byte to its end.

use std::{
    convert::Infallible,
    future::{Future, poll_fn},
    io,
    net::SocketAddr,
    pin::{Pin, pin},
    rc::Rc,
    sync::atomic::{AtomicBool, Ordering},
    task::Poll,
};

use http::{HeaderValue, Method, header};
use hyper::{
    body::{Body as _, Incoming},
    rt::Executor,
    server::conn::{http1, http2},
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use tokio::{io::AsyncWriteExt as _, net::TcpStream};
use tokio_rustls::TlsAcceptor;
use tracing::{debug, warn};

use super::{
    Handler,
    activity::{Activity, Order},
    message::{AnswerBody, Request, RequestBody, plain},
    stream::{FirstBytes, WatchedStream},
};
use crate::telemetry::{connections, labels::Refusal};

/// Bytes of a request's head at most.
const HEAD_BYTES_MAX: usize = 128 * 1024;
/// Requests of one HTTP/2 connection that are in flight at a time.
const STREAMS_MAX: u32 = 100;
/// Bytes of bodies that a peer may send ahead, in one stream and in all of a connection.
const STREAM_WINDOW_BYTES: u32 = 256 * 1024;
const CONNECTION_WINDOW_BYTES: u32 = 1024 * 1024;

/// What a client gets that speaks plain HTTP at an https port.
const PLAIN_AT_TLS_PORT: &[u8] = b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain\r\n\
    content-length: 24\r\nconnection: close\r\n\r\nthis port speaks https.\n";

/// How the connections of a worker are served.
pub struct Protocols {
    tls: Option<TlsAcceptor>,
    http1: http1::Builder,
    http2: http2::Builder<OnThisThread>,
}

impl Protocols {
    pub fn new(tls: Option<TlsAcceptor>) -> Self {
        let mut http1 = http1::Builder::new();
        // A client that closes its side has gone away: its query stops.
        http1
            .half_close(false)
            .max_buf_size(HEAD_BYTES_MAX)
            .max_header_size(HEAD_BYTES_MAX);
        let mut http2 = http2::Builder::new(OnThisThread);
        http2
            .max_concurrent_streams(STREAMS_MAX)
            .max_header_list_size(HEAD_BYTES_MAX as u32)
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES);
        Self { tls, http1, http2 }
    }

    pub const fn has_tls(&self) -> bool {
        self.tls.is_some()
    }
}

/// Runs the streams of HTTP/2 on the thread of their connection.
#[derive(Clone, Copy)]
struct OnThisThread;

impl<F: Future + 'static> Executor<F> for OnThisThread {
    fn execute(&self, future: F) {
        actix_rt::spawn(async {
            future.await;
        });
    }
}

/// Serves a connection until it ends.
pub async fn serve<H: Handler>(
    protocols: Rc<Protocols>,
    handler: Rc<H>,
    socket: std::net::TcpStream,
    peer: SocketAddr,
    activity: Rc<Activity>,
) {
    let Ok(socket) = TcpStream::from_std(socket) else {
        return;
    };
    let mut stream = WatchedStream::new(socket, Rc::clone(&activity));
    let first = match unless_ordered(&activity, stream.first_bytes()).await {
        Some(Ok(Some(first))) => first,
        Some(Ok(None) | Err(_)) | None => return,
    };
    let served = Served { handler, peer };
    match (&protocols.tls, first) {
        (None, FirstBytes::Other) => served.http1(&protocols, stream, activity, true).await,
        (None, FirstBytes::Http2) => Box::pin(served.http2(&protocols, stream, activity)).await,
        (None, FirstBytes::Tls) => {
            static SAID: AtomicBool = AtomicBool::new(false);
            let advice = "TLS at a plain port: clients must use http://, or set server.protocol";
            refuse_protocol(&SAID, Refusal::TlsAtPlainPort, peer, advice);
        }
        (Some(tls), FirstBytes::Tls) => {
            let handshake = Box::pin(tls.accept(stream));
            let stream = match unless_ordered(&activity, handshake).await {
                Some(Ok(stream)) => stream,
                Some(Err(failure)) => {
                    debug!(%peer, %failure, "TLS handshake failed");
                    return connections::refused(Refusal::TlsHandshake);
                }
                None => return,
            };
            activity.is_secured();
            match stream.get_ref().1.alpn_protocol() {
                Some(b"h2") => Box::pin(served.http2(&protocols, stream, activity)).await,
                _ => Box::pin(served.http1(&protocols, stream, activity, false)).await,
            }
        }
        (Some(_), _) => {
            static SAID: AtomicBool = AtomicBool::new(false);
            let advice = "plain http at the https port: clients must use https://";
            refuse_protocol(&SAID, Refusal::PlainAtTlsPort, peer, advice);
            // Whoever speaks HTTP, or expects another node here, is told.
            let told = async {
                stream.write_all(PLAIN_AT_TLS_PORT).await?;
                stream.shutdown().await
            };
            let _: Option<io::Result<()>> = unless_ordered(&activity, told).await;
        }
    }
}

/// Logs a client that speaks the wrong protocol: the first one for the operator, then for whoever
/// looks for it.
fn refuse_protocol(said: &AtomicBool, why: Refusal, peer: SocketAddr, advice: &str) {
    connections::refused(why);
    match said.swap(true, Ordering::Relaxed) {
        false => warn!(%peer, "{advice} (said once)"),
        true => debug!(%peer, "{advice}"),
    }
}

/// Waits for a future; `None` if the connection is told to end before.
async fn unless_ordered<F: Future>(activity: &Activity, future: F) -> Option<F::Output> {
    drive(activity, future, |_| Finish::Now).await.ok()
}

enum Finish {
    Now,
    /// When the requests in flight are answered.
    Later,
}

/// Polls a connection; `Err` if it was told to close. Told to finish, `finish` tells it.
async fn drive<C: Future>(
    activity: &Activity,
    connection: C,
    finish: impl Fn(Pin<&mut C>) -> Finish,
) -> Result<C::Output, ()> {
    let mut connection = pin!(connection);
    poll_fn(|context| {
        match activity.poll_order(context) {
            Some(Order::Close) => return Poll::Ready(Err(())),
            Some(Order::Finish) => match finish(connection.as_mut()) {
                Finish::Now => return Poll::Ready(Err(())),
                Finish::Later => {}
            },
            None => {}
        }
        connection.as_mut().poll(context).map(Ok)
    })
    .await
}

struct Served<H> {
    handler: Rc<H>,
    peer: SocketAddr,
}

impl<H: Handler> Served<H> {
    async fn http1<I>(
        self,
        protocols: &Protocols,
        stream: I,
        activity: Rc<Activity>,
        has_begun: bool,
    ) where
        I: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + 'static,
    {
        activity.speaks_http1(has_begun);
        let peer = self.peer;
        let service = service_fn({
            let activity = Rc::clone(&activity);
            move |request| answer(&self.handler, request, peer, &activity)
        });
        let connection = protocols
            .http1
            .serve_connection(TokioIo::new(stream), service);
        let ended = drive(&activity, connection, |connection| {
            connection.graceful_shutdown();
            Finish::Later
        });
        note_end(ended.await, peer);
    }

    async fn http2<I>(self, protocols: &Protocols, stream: I, activity: Rc<Activity>)
    where
        I: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + 'static,
    {
        activity.speaks_http2();
        let peer = self.peer;
        let service = service_fn({
            let activity = Rc::clone(&activity);
            move |request| answer(&self.handler, request, peer, &activity)
        });
        let connection = protocols
            .http2
            .serve_connection(TokioIo::new(stream), service);
        let ended = drive(&activity, connection, |connection| {
            connection.graceful_shutdown();
            Finish::Later
        });
        note_end(ended.await, peer);
    }
}

/// Answers one request.
fn answer<H: Handler>(
    handler: &Rc<H>,
    request: hyper::Request<Incoming>,
    peer: SocketAddr,
    activity: &Rc<Activity>,
) -> impl Future<Output = Result<hyper::Response<AnswerBody>, Infallible>> + use<H> {
    let handler = Rc::clone(handler);
    let in_flight = activity.begin();
    let activity = Rc::clone(activity);
    async move {
        let (head, incoming) = request.into_parts();
        let is_head = head.method == Method::HEAD;
        let is_framed = incoming.size_hint().exact().is_some() || is_plainly_chunked(&head);
        let body = RequestBody::new(incoming, Rc::clone(&activity));
        let mut answer = match is_framed {
            true => {
                let request = Request::received(head, peer);
                handler.answer(request, body).await
            }
            false => {
                connections::refused(Refusal::Malformed);
                drop(body);
                plain(400, "text/plain", "transfer-encoding must be chunked\n")
            }
        };
        if activity.must_close() {
            let close = HeaderValue::from_static("close");
            answer.headers_mut().insert(header::CONNECTION, close);
        }
        Ok(AnswerBody::of(answer, in_flight, is_head))
    }
}

/// Whether a body of unknown length is in chunks and in nothing else: what lies under a second
/// encoding is a matter of opinion, and where two servers differ requests are smuggled.
fn is_plainly_chunked(head: &http::request::Parts) -> bool {
    if head.version == http::Version::HTTP_2 {
        return true;
    }
    let mut encodings = head.headers.get_all(header::TRANSFER_ENCODING).iter();
    let chunked = |value: &HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"chunked");
    encodings.next().is_some_and(chunked) && encodings.next().is_none()
}

fn note_end(ended: Result<hyper::Result<()>, ()>, peer: SocketAddr) {
    let Ok(Err(failure)) = ended else { return };
    let is_lost = |failure: &hyper::Error| {
        let source = std::error::Error::source(failure);
        let is_io = source.is_some_and(|source| {
            source.is::<io::Error>()
                || source
                    .downcast_ref::<h2::Error>()
                    .is_some_and(h2::Error::is_io)
        });
        failure.is_incomplete_message() || failure.is_closed() || failure.is_canceled() || is_io
    };
    if is_lost(&failure) {
        debug!(%peer, %failure, "connection lost");
    } else {
        debug!(%peer, %failure, "not HTTP, or not by its rules");
        connections::refused(Refusal::Malformed);
    }
}
