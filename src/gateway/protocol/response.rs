//! Answers: status, charge, the fields that clients need, the body.

use bytes::Bytes;
use serde_json::{Value, json};

use super::Header;
use crate::{
    model::{charge, error::Error},
    router::{ContainerRoute, session::Served},
};

/// The value of a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FieldValue {
    Text(Bytes),
    Number(u64),
}

/// An answer being put together.
pub struct Response {
    pub status: u16,
    pub body: Bytes,
    pub charge: f64,
    fields: Vec<(Header, FieldValue)>,
}

/// Fields of an answer, and a few to spare.
const FIELDS_USUAL: usize = 8;

impl Response {
    pub fn new(status: u16, body: impl Into<Bytes>, charge: f64) -> Self {
        Self {
            status,
            body: body.into(),
            charge,
            fields: Vec::with_capacity(FIELDS_USUAL),
        }
    }

    pub fn empty(status: u16, charge: f64) -> Self {
        Self::new(status, Bytes::new(), charge)
    }

    pub fn json(status: u16, value: &Value, charge: f64) -> Self {
        Self::new(status, value.to_string(), charge)
    }

    /// Makes the error body of the protocol; its sub-status is a field.
    pub fn error(error: &Error, activity: &str) -> Self {
        let (status, substatus, code) = error.kind.wire();
        // The faults of a query are a JSON object already, which clients look into.
        let errors = if error.message.starts_with("{\"") {
            error.message.clone()
        } else {
            json!({"Errors": [error.message]}).to_string()
        };
        let message = format!("Message: {errors}\r\nActivityId: {activity}, bolide");
        let charge = match status {
            429 => 0.0,
            _ => charge::REFUSED_WRITE,
        };
        let body = json!({"code": code, "message": message});
        let mut response = Self::json(status, &body, charge);
        if substatus != 0 {
            response.number(Header::Substatus, u64::from(substatus));
        }
        if let Some(wait) = error.retry_after_ms {
            response.number(Header::RetryAfterMs, u64::from(wait));
        }
        response
    }

    /// Adds a field. A transport leaves out a text that it cannot carry.
    pub fn header(&mut self, header: Header, text: impl Into<Bytes>) -> &mut Self {
        self.fields.push((header, FieldValue::Text(text.into())));
        self
    }

    pub fn number(&mut self, header: Header, value: u64) -> &mut Self {
        self.fields.push((header, FieldValue::Number(value)));
        self
    }

    /// Returns all fields; of two with one name the later counts.
    pub fn fields(&self) -> &[(Header, FieldValue)] {
        &self.fields
    }

    /// Adds what every answer from a container's data carries: where it came from and how new it is.
    pub fn served_by(&mut self, container: &ContainerRoute, served: &Served) -> &mut Self {
        self.header(
            Header::SessionToken,
            served.token(container.session_version),
        )
        .number(Header::Lsn, served.lsn)
        .number(Header::PartitionKeyRangeId, u64::from(served.range_id))
        .header(
            Header::AltContentPath,
            container.name_path.clone().into_bytes(),
        )
        .header(Header::ContentPath, container.rid_text.clone().into_bytes())
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
