//! The listeners of a node.

use std::{
    convert::Infallible, future::ready, net::TcpListener, rc::Rc, sync::Arc, time::Duration,
};

use actix::{Actor, Arbiter};
use actix_http::Request;
use actix_web::{
    App, HttpRequest, HttpResponse, HttpServer,
    dev::{self, Server, Service, always_ready, fn_factory},
    http::{
        StatusCode,
        header::{AUTHORIZATION, DATE, HOST, HeaderName, HeaderValue, ORIGIN},
    },
    web,
};
use bytes::Bytes;
use futures_util::{FutureExt as _, future::LocalBoxFuture};
use rustls::ServerConfig;
use tokio::sync::mpsc;

use super::{
    auth::AuthHeaders,
    dispatch::{self, Shared, Worker},
    forward, headers,
    health::{self, Asked, Health},
    order_auth::Sender,
};
use crate::{cluster::member::Reply, router::Router, telemetry::requests::InFlight};

/// How long a client may take to send its headers, and an idle connection is kept.
const HEADERS_TIMEOUT: Duration = Duration::from_secs(30);
const KEEP_ALIVE: Duration = Duration::from_secs(120);

pub struct Listening {
    pub listener: TcpListener,
    /// `None`: plain HTTP.
    pub tls: Option<ServerConfig>,
    pub workers: usize,
    pub shutdown_seconds: u64,
}

/// The REST port: HTTP/1.1 and HTTP/2, the latter also without TLS (h2c with prior knowledge, on the same port).
pub fn rest(listening: Listening, shared: Arc<Shared>) -> std::io::Result<Server> {
    let Listening {
        listener,
        tls,
        workers,
        shutdown_seconds,
    } = listening;
    let queries = Arc::clone(&shared.queries);
    let address = listener.local_addr()?.to_string();
    let server = HttpServer::new(move || {
        let router = Router {
            table: Arc::clone(&shared.table),
            queries: Arc::clone(&queries),
        }
        .start();
        let worker = Worker {
            shared: Arc::clone(&shared),
            router,
            queries: Arc::clone(&queries),
            address: address.clone(),
            in_flight: InFlight::of_a_new_worker(),
        };
        let entrance = Entrance(Rc::new(worker));
        fn_factory(move || ready(Ok::<_, Infallible>(entrance.clone())))
    })
    .workers(workers)
    .client_request_timeout(HEADERS_TIMEOUT)
    .keep_alive(KEEP_ALIVE)
    // A client that closes its side has gone away: its query stops.
    .h1_allow_half_closed(false)
    .shutdown_timeout(shutdown_seconds)
    .disable_signals();
    let server = match tls {
        None => server.listen_auto_h2c(listener)?,
        Some(config) => server.listen_rustls_0_23(listener, config)?,
    };
    Ok(server.run())
}

/// Where requests come in. Paths are read by the gateway, so nothing of a web framework's routing and extraction is between it and the connection.
#[derive(Clone)]
struct Entrance(Rc<Worker>);

impl Service<Request> for Entrance {
    type Response = dev::Response<Bytes>;
    type Error = Infallible;
    type Future = LocalBoxFuture<'static, Result<Self::Response, Infallible>>;

    always_ready!();

    fn call(&self, request: Request) -> Self::Future {
        dispatch::entry(Rc::clone(&self.0), request)
            .map(Ok)
            .boxed_local()
    }
}

/// Requests that other nodes have sent on, with the way back.
pub type SentOn = mpsc::Receiver<(Bytes, Reply)>;

/// Answers other nodes, on a thread of its own.
pub fn for_nodes(mut sent_on: SentOn, shared: Arc<Shared>) {
    Arbiter::new().spawn(async move {
        let queries = Arc::clone(&shared.queries);
        let router = Router {
            table: Arc::clone(&shared.table),
            queries: Arc::clone(&queries),
        }
        .start();
        let worker = Arc::new(Worker {
            shared,
            router,
            queries,
            address: String::new(),
            in_flight: InFlight::of_a_new_worker(),
        });
        while let Some((question, reply)) = sent_on.recv().await {
            let worker = Arc::clone(&worker);
            actix::spawn(async move { reply(forward::answer_node(worker, question).await) });
        }
    });
}

/// The health port.
pub fn health(listener: TcpListener, health: Arc<Health>) -> std::io::Result<Server> {
    let server = HttpServer::new(move || {
        let health = Arc::clone(&health);
        let answer = move |request: HttpRequest| {
            let health = Arc::clone(&health);
            async move { health_answer(&health, &request).await }
        };
        App::new().default_service(web::to(answer))
    })
    .workers(1)
    .disable_signals();
    Ok(server.listen(listener)?.run())
}

async fn health_answer(health: &Arc<Health>, request: &HttpRequest) -> HttpResponse {
    let said = request.headers();
    let text = |name: &HeaderName| said.get(name).and_then(|value| value.to_str().ok());
    let authority = request.uri().authority();
    let asked = Asked {
        verb: request.method().as_str(),
        path: request.path(),
        query: request.query_string(),
        sender: Sender {
            peer: request.peer_addr().map(|peer| peer.ip()),
            signature: AuthHeaders {
                authorization: text(&AUTHORIZATION),
                x_ms_date: text(&headers::DATE),
                date: text(&DATE),
            },
            has_origin: said.contains_key(ORIGIN),
            hosts: said
                .get_all(HOST)
                .map(HeaderValue::as_bytes)
                .chain(authority.map(|authority| authority.as_str().as_bytes()))
                .collect(),
        },
    };
    let told = health::answer(health, &asked).await;
    let status = StatusCode::from_u16(told.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    HttpResponse::build(status)
        .content_type(told.content_type)
        .body(told.body)
}
