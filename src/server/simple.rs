//! Small servers beside the node: each request is read whole and answered at once.

use std::{future::Future, net::TcpListener, rc::Rc};

use bytes::{Bytes, BytesMut};

use super::{Answer, Deadlines, Handler, Listening, Request, RequestBody, Server, plain};

/// Bytes of a body at most.
const BODY_BYTES_MAX: usize = 16 * 1024 * 1024;
const CONNECTIONS_MAX: usize = 10_000;

/// Answers by a function.
struct Simple<F>(F);

impl<F: Fn(&Request, Bytes) -> Answer + 'static> Handler for Simple<F> {
    fn answer(
        self: &Rc<Self>,
        request: Request,
        mut body: RequestBody,
    ) -> impl Future<Output = Answer> + use<F> {
        let this = Rc::clone(self);
        async move {
            let mut whole = BytesMut::new();
            while let Some(chunk) = body.next().await {
                match chunk {
                    Ok(chunk) if whole.len() + chunk.len() <= BODY_BYTES_MAX => {
                        whole.extend_from_slice(&chunk);
                    }
                    _ => return plain(413, "text/plain", "the body is too large\n"),
                }
            }
            (this.0)(&request, whole.freeze())
        }
    }
}

/// Serves plain HTTP with a function on each of the workers.
pub fn serve<F>(
    listener: TcpListener,
    workers: usize,
    answer: impl Fn() -> F + Clone + Send + 'static,
) -> std::io::Result<Server>
where
    F: Fn(&Request, Bytes) -> Answer + 'static,
{
    let listening = Listening {
        listener,
        tls: None,
        workers,
        connections_max: CONNECTIONS_MAX,
        deadlines: Deadlines::default(),
    };
    Server::start(listening, move || Simple(answer()))
}
