//! The REST port, and requests that other nodes have forwarded.

use std::{io, sync::Arc};

use actix::{Actor, Arbiter};
use bytes::Bytes;
use tokio::sync::mpsc;

use super::forward;
use crate::{
    cluster::transport::message::Reply,
    gateway::call::{Shared, Worker},
    router::Router,
    server::{Listening, Server},
    telemetry::requests::InFlight,
};

/// The REST port: HTTP/1.1 and HTTP/2, the latter also without TLS (h2c with prior knowledge, on the same port).
pub fn rest(listening: Listening, shared: Arc<Shared>) -> io::Result<Server> {
    let queries = Arc::clone(&shared.queries);
    let address = listening.listener.local_addr()?.to_string();
    Server::start(listening, move || {
        let router = Router {
            table: Arc::clone(&shared.table),
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
