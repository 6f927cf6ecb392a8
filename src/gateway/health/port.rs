//! The health port.

use std::{io, net::TcpListener, rc::Rc, sync::Arc};

use http::header::{AUTHORIZATION, DATE, HOST, HeaderValue, ORIGIN};

use super::{Asked, Health, order_auth::Sender};
use crate::{
    gateway::{
        auth::AuthHeaders,
        http::names::{name, text},
        protocol::Header,
    },
    server::{Answer, Deadlines, Handler, Listening, Request, RequestBody, Server, plain},
};

/// Connections of the health port at most.
const HEALTH_CONNECTIONS_MAX: usize = 64;

/// Serves the health port.
pub fn serve(listener: TcpListener, health: Arc<Health>) -> io::Result<Server> {
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
                authorization: text(said, &AUTHORIZATION),
                x_ms_date: text(said, name(Header::Date)),
                date: text(said, &DATE),
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
    let told = super::answer(health, &asked).await;
    plain(told.status, told.content_type, told.body)
}
