//! The account.

use crate::{
    gateway::{call::Call, protocol::Response},
    model::{account, charge},
};

/// Answers with the account, with an endpoint that the client can reach: the one it has just used.
pub fn read(call: &Call<'_>) -> Response {
    let shared = &call.worker.shared;
    let reached = call.head.reached(shared.trust_forwarded);
    let endpoint = format!(
        "{}://{}/",
        if reached.scheme == Some("https") {
            "https"
        } else {
            shared.scheme
        },
        reached.host.unwrap_or(&call.worker.address)
    );
    Response::json(
        200,
        &account::account_json(
            &shared.account,
            &endpoint,
            &shared.region,
            shared.consistency,
        ),
        charge::CATALOG_READ,
    )
}
