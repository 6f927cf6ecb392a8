//! The listeners of a node.

use std::{io, net::TcpListener, rc::Rc, sync::Arc};

use actix::{Actor, Arbiter};
use bytes::Bytes;
use http::header::{AUTHORIZATION, DATE, HOST, HeaderValue, ORIGIN};
use tokio::sync::mpsc;

use super::{
    auth::AuthHeaders,
    dispatch::{Shared, Worker},
    forward, headers,
    health::{self, Asked, Health},
    order_auth::Sender,
    request::text,
};
use crate::{
    cluster::transport::message::Reply,
    router::Router,
    server::{Answer, Deadlines, Handler, Listening, Request, RequestBody, Server, plain},
    telemetry::requests::InFlight,
};

/// Connections of the health port at most.
const HEALTH_CONNECTIONS_MAX: usize = 64;

/// The REST port: HTTP/1.1 and HTTP/2, the latter also without TLS (h2c with prior knowledge, on the same port).
pub fn rest(listening: Listening, shared: Arc<Shared>) -> io::Result<Server> {
    let queries = Arc::clone(&shared.queries);
    let address = listening.listener.local_addr()?.to_string();
    Server::start(listening, move || {
        let router = Router {
            table: Arc::clone(&shared.table),
            queries: Arc::clone(&queries),
        }
        .start();
        Worker {
            shared: Arc::clone(&shared),
            router,
            queries: Arc::clone(&queries),
            address: address.clone(),
            in_flight: InFlight::of_a_new_worker(),
        }
    })
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
pub fn health(listener: TcpListener, health: Arc<Health>) -> io::Result<Server> {
    let listening = Listening {
        listener,
        tls: None,
        workers: 1,
        connections_max: HEALTH_CONNECTIONS_MAX,
        deadlines: Deadlines::default(),
    };
    Server::start(listening, move || HealthPort(Arc::clone(&health)))
}

struct HealthPort(Arc<Health>);

impl Handler for HealthPort {
    fn answer(
        self: &Rc<Self>,
        request: Request,
        _: RequestBody,
    ) -> impl Future<Output = Answer> + use<> {
        let health = Arc::clone(&self.0);
        async move { health_answer(&health, &request).await }
    }
}

async fn health_answer(health: &Arc<Health>, request: &Request) -> Answer {
    let said = request.headers();
    let authority = request.uri().authority();
    let asked = Asked {
        verb: request.method().as_str(),
        path: request.path(),
        query: request.uri().query().unwrap_or_default(),
        sender: Sender {
            peer: request.peer().map(|peer| peer.ip()),
            signature: AuthHeaders {
                authorization: text(request, &AUTHORIZATION),
                x_ms_date: text(request, &headers::DATE),
                date: text(request, &DATE),
            },
            has_origin: said.contains_key(ORIGIN),
            hosts: said
                .get_all(HOST)
                .iter()
                .map(HeaderValue::as_bytes)
                .chain(authority.map(|authority| authority.as_str().as_bytes()))
                .collect(),
        },
    };
    let told = health::answer(health, &asked).await;
    plain(told.status, told.content_type, told.body)
}
