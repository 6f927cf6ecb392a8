//! Answers as HTTP: status line, headers, body.

use std::cell::RefCell;

use bytes::Bytes;
use http::{
    StatusCode,
    header::{CONTENT_TYPE, HeaderMap, HeaderValue},
};

use super::names::name;
use crate::{
    gateway::protocol::{Header, Response, response::FieldValue},
    model::charge,
    server::Answer,
};

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const API_VERSION: HeaderValue = HeaderValue::from_static("2020-07-15");
const SERVER_VERSION: HeaderValue =
    HeaderValue::from_static(concat!("version=", env!("CARGO_PKG_VERSION")));

/// The numbers of partition key ranges, nearly always.
static DIGITS: [HeaderValue; 10] = [
    HeaderValue::from_static("0"),
    HeaderValue::from_static("1"),
    HeaderValue::from_static("2"),
    HeaderValue::from_static("3"),
    HeaderValue::from_static("4"),
    HeaderValue::from_static("5"),
    HeaderValue::from_static("6"),
    HeaderValue::from_static("7"),
    HeaderValue::from_static("8"),
    HeaderValue::from_static("9"),
];

/// Headers of an answer, and a few to spare.
const HEADERS_USUAL: usize = 24;
/// Header maps that a worker keeps for the next answers.
const SPARE_MAPS_MAX: usize = 64;

thread_local! {
    static SPARE_MAPS: RefCell<Vec<HeaderMap>> = const { RefCell::new(Vec::new()) };
}

/// Keeps the memory of a request's headers for an answer's.
pub fn recycle(mut headers: HeaderMap) {
    SPARE_MAPS.with_borrow_mut(|spare| {
        if spare.len() < SPARE_MAPS_MAX && headers.capacity() <= 4 * HEADERS_USUAL {
            headers.clear();
            spare.push(headers);
        }
    });
}

fn empty_map() -> HeaderMap {
    let spare = SPARE_MAPS.with_borrow_mut(Vec::pop);
    spare.unwrap_or_else(|| HeaderMap::with_capacity(HEADERS_USUAL))
}

/// Returns the value of a header; `None` for a text that no header can carry.
fn value_of(value: &FieldValue) -> Option<HeaderValue> {
    match value {
        FieldValue::Text(text) => HeaderValue::from_maybe_shared(text.clone()).ok(),
        FieldValue::Number(number) => {
            let digits = usize::try_from(*number).ok().and_then(|at| DIGITS.get(at));
            Some(digits.map_or_else(|| HeaderValue::from(*number), HeaderValue::clone))
        }
    }
}

/// Makes the HTTP answer.
pub fn finish(response: Response, activity: HeaderValue) -> Answer {
    let mut map = empty_map();
    for (header, value) in response.fields() {
        if let Some(value) = value_of(value) {
            map.insert(name(*header), value);
        }
    }
    if let Ok(charge) = HeaderValue::try_from(charge::format(response.charge)) {
        map.insert(name(Header::RequestCharge), charge);
    }
    map.insert(CONTENT_TYPE, JSON);
    map.insert(name(Header::ActivityId), activity);
    map.insert(name(Header::Version), API_VERSION);
    map.insert(name(Header::ServiceVersion), SERVER_VERSION);
    map.insert(name(Header::GatewayVersion), SERVER_VERSION);
    let status = StatusCode::from_u16(response.status);
    let status = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut answer = Answer::new(match status {
        StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED => Bytes::new(),
        _ => response.body,
    });
    *answer.status_mut() = status;
    *answer.headers_mut() = map;
    answer
}
