//! The HTTP server: an accept loop, workers, TLS, HTTP/1.1 and HTTP/2 on one port, deadlines and
//! bounds for all that a peer may keep waiting. It knows no path and no document: a [`Handler`]
//! answers.

mod accept;
mod activity;
mod budget;
mod connection;
mod message;
pub mod simple;
mod stream;
mod worker;

use std::{future::Future, net::TcpListener, sync::Arc, time::Duration};

use actix_rt::{Arbiter, ArbiterHandle};
use rustls::ServerConfig;
use tokio::sync::{mpsc, oneshot};
use tokio_rustls::TlsAcceptor;

pub use activity::Deadlines;
pub use budget::{ByteBudget, Reserved};
pub use message::{Answer, Request, RequestBody, plain, with_header};

use accept::Target;
use connection::Protocols;
use worker::{Message, Worker};

/// Answers requests, on one thread.
pub trait Handler: 'static {
    fn answer(
        self: &std::rc::Rc<Self>,
        request: Request,
        body: RequestBody,
    ) -> impl Future<Output = Answer> + use<Self>;
}

/// A port and how it is served.
pub struct Listening {
    pub listener: TcpListener,
    /// `None`: plain HTTP.
    pub tls: Option<ServerConfig>,
    pub workers: usize,
    pub connections_max: usize,
    pub deadlines: Deadlines,
}

/// The deadlines of servers that nobody sets any for.
impl Default for Deadlines {
    fn default() -> Self {
        Self {
            header: Duration::from_secs(30),
            idle: Duration::from_secs(120),
            write: Duration::from_secs(30),
        }
    }
}

/// A server that runs.
pub struct Server {
    stop_accepting: oneshot::Sender<()>,
    workers: Vec<mpsc::UnboundedSender<Message>>,
    threads: Vec<ArbiterHandle>,
}

impl Server {
    /// Starts the workers, each with a handler of its own, and begins to accept.
    pub fn start<H: Handler>(
        listening: Listening,
        handler: impl Fn() -> H + Clone + Send + 'static,
    ) -> std::io::Result<Self> {
        let Listening {
            listener,
            tls,
            workers,
            connections_max,
            deadlines,
        } = listening;
        listener.set_nonblocking(true)?;
        let tls = tls.map(|config| TlsAcceptor::from(Arc::new(config)));
        let mut targets = Vec::with_capacity(workers);
        let mut threads = Vec::with_capacity(workers);
        for _ in 0..workers.max(1) {
            let (inbox, messages) = mpsc::unbounded_channel();
            let (tls, handler) = (tls.clone(), handler.clone());
            let thread = Arbiter::new().handle();
            thread.spawn_fn(move || {
                let worker = Worker::new(handler(), Protocols::new(tls), deadlines);
                actix_rt::spawn(worker.run(messages));
            });
            threads.push(thread);
            targets.push(Target {
                inbox,
                connections: Arc::default(),
            });
        }
        let workers = targets.iter().map(|target| target.inbox.clone()).collect();
        let (stop_accepting, stop) = oneshot::channel();
        // Workers may be busy for a while; whoever connects is not to wait for that.
        let acceptor = Arbiter::new().handle();
        acceptor.spawn(accept::accept(listener, targets, connections_max, stop));
        threads.push(acceptor);
        Ok(Self {
            stop_accepting,
            workers,
            threads,
        })
    }

    /// Accepts nothing more, lets the requests in flight finish for so long, and closes all
    /// connections.
    pub async fn stop(self, patience: Duration) {
        let _ = self.stop_accepting.send(());
        let told: Vec<_> = self
            .workers
            .iter()
            .filter_map(|worker| {
                let (done, stopped) = oneshot::channel();
                worker.send(Message::Stop(patience, done)).ok()?;
                Some(stopped)
            })
            .collect();
        for stopped in told {
            let _ = stopped.await;
        }
        for thread in self.threads {
            thread.stop();
        }
    }
}
