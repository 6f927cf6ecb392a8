//! Answers: status, the headers that clients need, the body.

use std::cell::RefCell;

use bytes::Bytes;
use http::{
    StatusCode,
    header::{CONTENT_TYPE, ETAG, HeaderMap, HeaderName, HeaderValue},
};
use serde_json::{Value, json};

use super::headers;
use crate::{
    model::{charge, error::Error},
    router::{ContainerRoute, session::Served},
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

/// An answer being put together.
pub struct Response {
    pub status: u16,
    pub body: Bytes,
    pub charge: f64,
    headers: HeaderMap,
}

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

impl Response {
    pub fn new(status: u16, body: impl Into<Bytes>, charge: f64) -> Self {
        Self {
            status,
            body: body.into(),
            charge,
            headers: empty_map(),
        }
    }

    pub fn empty(status: u16, charge: f64) -> Self {
        Self::new(status, Bytes::new(), charge)
    }

    pub fn json(status: u16, value: &Value, charge: f64) -> Self {
        Self::new(status, value.to_string(), charge)
    }

    /// The error body of the protocol; its sub-status goes into a header.
    pub fn error(error: &Error, activity: &str) -> Self {
        let (status, substatus, code) = error.kind.wire();
        // The faults of a query are a JSON object already, which clients look into.
        let errors = if error.message.starts_with("{\"") {
            error.message.clone()
        } else {
            json!({"Errors": [error.message]}).to_string()
        };
        let body = json!({"code": code, "message": format!("Message: {errors}\r\nActivityId: {activity}, bolide")});
        let mut response = Self::json(
            status,
            &body,
            if status == 429 {
                0.0
            } else {
                charge::REFUSED_WRITE
            },
        );
        if substatus != 0 {
            response.number(headers::SUBSTATUS, u64::from(substatus));
        }
        if let Some(wait) = error.retry_after_ms {
            response.number(headers::RETRY_AFTER_MS, u64::from(wait));
        }
        response
    }

    /// Adds a header whose value may be any text; one that no header can carry is left out.
    pub fn header(&mut self, name: HeaderName, value: impl Into<Bytes>) -> &mut Self {
        if let Ok(value) = HeaderValue::from_maybe_shared(value.into()) {
            self.headers.insert(name, value);
        }
        self
    }

    pub fn headers(&self) -> &HeaderMap {
        &self.headers
    }

    pub fn number(&mut self, name: HeaderName, value: u64) -> &mut Self {
        let digits = usize::try_from(value).ok().and_then(|at| DIGITS.get(at));
        let value = digits.map_or_else(|| HeaderValue::from(value), HeaderValue::clone);
        self.headers.insert(name, value);
        self
    }

    pub fn etag(&mut self, etag: impl Into<Bytes>) -> &mut Self {
        self.header(ETAG, etag)
    }

    /// What every answer from a container's data carries: where it came from and how new it is.
    pub fn served_by(&mut self, container: &ContainerRoute, served: &Served) -> &mut Self {
        self.header(
            headers::SESSION_TOKEN,
            served.token(container.session_version),
        )
        .number(headers::LSN, served.lsn)
        .number(headers::PARTITION_KEY_RANGE_ID, u64::from(served.range_id))
        .header(
            headers::ALT_CONTENT_PATH,
            container.name_path.clone().into_bytes(),
        )
        .header(
            headers::CONTENT_PATH,
            container.rid_text.clone().into_bytes(),
        )
    }

    pub fn finish(self, activity: HeaderValue) -> Answer {
        let Self {
            status,
            body,
            charge,
            headers: mut map,
        } = self;
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        if let Ok(charge) = HeaderValue::try_from(charge::format(charge)) {
            map.insert(headers::REQUEST_CHARGE, charge);
        }
        map.insert(CONTENT_TYPE, JSON);
        map.insert(headers::ACTIVITY_ID, activity);
        map.insert(headers::VERSION, API_VERSION);
        map.insert(headers::SERVICE_VERSION, SERVER_VERSION);
        map.insert(headers::GATEWAY_VERSION, SERVER_VERSION);
        let mut answer = Answer::new(match status {
            StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED => Bytes::new(),
            _ => body,
        });
        *answer.status_mut() = status;
        *answer.headers_mut() = map;
        answer
    }
}

/// What a feed has around its rows, names apart.
const FEED_FRAME_BYTES: usize = 64;

/// A feed: `{"_rid":"…","<plural>":[…],"_count":n}` from rows that are JSON already.
pub fn feed<'a>(
    rid: &str,
    plural: &str,
    rows: impl ExactSizeIterator<Item = &'a [u8]> + Clone,
) -> Vec<u8> {
    let count = rows.len();
    let row_bytes: usize = rows.clone().map(|row| row.len() + 1).sum();
    let mut body = Vec::with_capacity(FEED_FRAME_BYTES + rid.len() + plural.len() + row_bytes);
    body.extend_from_slice(format!("{{\"_rid\":\"{rid}\",\"{plural}\":[").as_bytes());
    for (place, row) in rows.enumerate() {
        if place > 0 {
            body.push(b',');
        }
        body.extend_from_slice(row);
    }
    body.extend_from_slice(format!("],\"_count\":{count}}}").as_bytes());
    body
}
