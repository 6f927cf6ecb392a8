//! What a node is measured against: a constant answer from the same HTTP server, without routes,
//! signatures or a store.

use std::time::Duration;

use actix_web::http::Method;
use actix_web::web::{self, Bytes};
use actix_web::{App, HttpResponse, HttpServer};

use super::item::{self, ITEM_BYTES, Random};
use crate::model::error::{Error, Result};

/// As the node has them.
const HEADERS_TIMEOUT: Duration = Duration::from_secs(30);
const KEEP_ALIVE: Duration = Duration::from_secs(120);

/// Serves until the process is stopped.
pub fn serve(port: u16) -> Result<()> {
    let mut body = Vec::with_capacity(ITEM_BYTES);
    item::write(
        &mut body,
        &item::id(0_u32),
        "yardstick",
        None,
        &mut Random::new(0),
    );
    let body = Bytes::from(body);
    let failed = |error| Error::bad_request(format!("cannot serve on port {port}: {error}"));
    actix_web::rt::System::new().block_on(async move {
        HttpServer::new(move || {
            let body = body.clone();
            let answer = move |method: Method, _whole: Bytes| {
                let body = body.clone();
                async move {
                    let mut answer = match method {
                        Method::POST => HttpResponse::Created(),
                        _ => HttpResponse::Ok(),
                    };
                    answer.content_type("application/json").body(body)
                }
            };
            App::new().default_service(web::to(answer))
        })
        .workers(std::thread::available_parallelism().map_or(1, usize::from))
        .client_request_timeout(HEADERS_TIMEOUT)
        .keep_alive(KEEP_ALIVE)
        .bind_auto_h2c(("127.0.0.1", port))
        .map_err(failed)?
        .run()
        .await
        .map_err(failed)
    })
}
