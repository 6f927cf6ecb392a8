//! What resources of the catalog have in common: bodies, pages of feeds, answers without change.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::{Map, Value};

use crate::{
    gateway::{
        call::Call,
        protocol::{Header, Response, body::Payload, response},
    },
    model::{
        charge,
        error::{Error, Result},
        json,
        offer::Throughput,
    },
};

/// Reads the body of a resource.
pub async fn object(call: &Call<'_>, payload: Payload) -> Result<Map<String, Value>> {
    call.check_content_type()?;
    call.parse_object(&call.read(payload).await?)
}

/// Returns the throughput that a new resource is to have, if the request names one.
pub fn throughput(call: &Call<'_>) -> Result<Option<Throughput>> {
    Throughput::from_headers(
        call.header(Header::OfferThroughput),
        call.header(Header::AutopilotSettings),
    )
}

/// Answers with one page of a feed of the catalog; a continuation names the last resource that was handed out.
pub fn list(
    call: &Call<'_>,
    rid: &str,
    plural: &str,
    mut resources: Vec<Value>,
) -> Result<Response> {
    if let Some(token) = call.header(Header::Continuation) {
        let last = continuation(token)?;
        let at = resources
            .iter()
            .position(|resource| id_of(resource) == last);
        let handed_out = at.map_or_else(
            || {
                resources
                    .iter()
                    .take_while(|resource| *id_of(resource) < *last)
                    .count()
            },
            |at| at + 1,
        );
        resources.drain(..handed_out);
    }
    let page = call.max_item_count()?.unwrap_or(usize::MAX);
    let more = resources.len() > page;
    resources.truncate(page);
    let rows: Vec<Vec<u8>> = resources
        .iter()
        .map(|resource| resource.to_string().into_bytes())
        .collect();
    let mut response = Response::new(
        200,
        response::feed(rid, plural, rows.iter().map(Vec::as_slice)),
        charge::CATALOG_READ,
    );
    response.number(Header::ItemCount, rows.len() as u64);
    if let Some(last) = resources.last().filter(|_| more) {
        response.header(Header::Continuation, URL_SAFE_NO_PAD.encode(id_of(last)));
    }
    Ok(response)
}

fn id_of(resource: &Value) -> &str {
    resource
        .get("id")
        .and_then(Value::as_str)
        .unwrap_or_default()
}

fn continuation(token: &str) -> Result<String> {
    let decoded = URL_SAFE_NO_PAD
        .decode(token)
        .ok()
        .and_then(|bytes| String::from_utf8(bytes).ok());
    decoded.ok_or_else(|| {
        Error::bad_request(format!(
            "Invalid Continuation Token '{}'",
            json::shorten(token)
        ))
    })
}

/// Returns the answer when the client has this version already.
pub fn unmodified(call: &Call<'_>, etag: &str) -> Option<Response> {
    let condition = call.if_none_match().filter(|_| call.head.verb() == "GET")?;
    condition.matches(etag).then(|| {
        let mut response = Response::empty(304, charge::CATALOG_READ);
        response.header(Header::Etag, etag.to_owned());
        response
    })
}
