//! What a node is measured against: a constant answer from the same HTTP server, without routes,
//! signatures or a store.

use std::net::TcpListener;

use bytes::Bytes;

use super::item::{self, ITEM_BYTES, Random};
use crate::model::error::{Error, Result};
use crate::server::{plain, simple};

/// Serves until the process is stopped.
pub fn serve(port: u16) -> Result<()> {
    let mut body = Vec::with_capacity(ITEM_BYTES);
    item::write(
        &mut body,
        &item::id(0_u32),
        "baseline",
        None,
        &mut Random::new(0),
    );
    let body = Bytes::from(body);
    let failed = |error| Error::bad_request(format!("cannot serve on port {port}: {error}"));
    let listener = TcpListener::bind(("127.0.0.1", port)).map_err(failed)?;
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    actix::System::new().block_on(async move {
        let _server = simple::serve(listener, workers, move || {
            let body = body.clone();
            move |request: &crate::server::Request, _whole: Bytes| {
                let status = if request.method() == "POST" { 201 } else { 200 };
                plain(status, "application/json", body.clone())
            }
        })
        .map_err(failed)?;
        std::future::pending().await
    })
}
