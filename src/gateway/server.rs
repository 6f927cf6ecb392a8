//! The listeners of a node.

use std::{net::TcpListener, sync::Arc, time::Duration};

use actix::Actor;
use actix_web::{App, HttpServer, dev::Server, web};
use rustls::ServerConfig;

use super::{
    dispatch::{self, Shared, Worker},
    health::{self, Health},
};
use crate::{
    router::{Router, query::QueryRoom},
    telemetry::requests::InFlight,
};

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
    let queries = Arc::new(QueryRoom::default());
    let server = HttpServer::new(move || {
        let router = Router {
            table: Arc::clone(&shared.table),
            queries: Arc::clone(&queries),
        }
        .start();
        let worker = Worker {
            shared: Arc::clone(&shared),
            router,
            in_flight: InFlight::of_a_new_worker(),
        };
        App::new()
            .app_data(web::Data::new(worker))
            .default_service(web::to(dispatch::entry))
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

/// The health port.
pub fn health(listener: TcpListener, health: Health) -> std::io::Result<Server> {
    let health = web::Data::new(health);
    let server = HttpServer::new(move || {
        App::new()
            .app_data(health.clone())
            .configure(health::configure)
    })
    .workers(1)
    .disable_signals();
    Ok(server.listen(listener)?.run())
}
