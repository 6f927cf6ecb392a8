//! The body of a request: read whole, within a time, a size and the node's bound on bytes.

use std::{cell::RefCell, sync::Arc, time::Duration};

use bytes::{Bytes, BytesMut};
use tokio::time::{Instant, timeout_at};

use crate::{
    model::{
        binary_json,
        error::{Error, ErrorKind, Result},
        item::ITEM_BYTES_MAX,
    },
    server::{ByteBudget, RequestBody, Reserved},
    sql::parsed_size,
    telemetry::{connections, labels::Refusal},
};

/// The largest body that is read: an item with room for its escapes.
pub const BODY_BYTES_MAX: usize = ITEM_BYTES_MAX + 64 * 1024;
/// A body that takes longer than its deadline must come at this rate.
const LEAST_BYTES_A_SECOND: u64 = 16 * 1024;
/// When a client whose body did not fit into the node's bound should try again.
const RETRY_MS: u32 = 100;
/// What is made of bodies is worked out from this size on; to look into smaller ones costs more
/// than they can take.
const LOOKED_INTO_BYTES_MIN: usize = 4 * 1024;
/// What a small body counts for, whatever is in it.
const SMALL_BODY_FACTOR: usize = 12;
/// The item, its stored form, and that in the batch of the engine.
const BODY_COPIES: usize = 3;
/// How many times the memory for all bodies one alone may take.
const ALONE_FACTOR: usize = 2;

/// What bounds the bodies of a node's requests.
#[derive(Clone)]
pub struct BodyBounds {
    /// Bytes of all bodies that are held at a time.
    pub bytes: Arc<ByteBudget>,
    /// Bytes that are made of bodies until what they ask for is done.
    pub parsed: Arc<ByteBudget>,
    /// For the first bytes; more time is given for more bytes.
    pub deadline: Duration,
}

/// The bytes that one request holds; given back when it is answered.
pub struct Held<'b> {
    bounds: &'b BodyBounds,
    body: RefCell<Option<Reserved>>,
    parsed: RefCell<Option<Reserved>>,
}

impl<'b> Held<'b> {
    pub fn new(bounds: &'b BodyBounds) -> Self {
        Self {
            bounds,
            body: RefCell::new(None),
            parsed: RefCell::new(None),
        }
    }

    /// Counts bytes of the body.
    pub fn hold(&self, bytes: usize) -> Result<()> {
        let mut reserved = self.body.borrow_mut();
        let fits = match &mut *reserved {
            Some(reserved) => reserved.grow(bytes),
            None => {
                *reserved = self.bounds.bytes.take(bytes);
                reserved.is_some()
            }
        };
        match fits {
            true => Ok(()),
            false => Err(overloaded(
                "the bodies of requests take all the memory that limits.node_inflight_bytes_max allows",
            )),
        }
    }

    /// Counts what is about to be made of the body, in place of what was made of it before. One
    /// body that needs more than there is for all may have it alone, up to a bound.
    pub fn hold_parsed(&self, body: &[u8]) -> Result<()> {
        let budget = &self.bounds.parsed;
        let mut reserved = self.parsed.borrow_mut();
        *reserved = None;
        let bytes = made_of(body);
        let bytes_max = budget.max();
        if bytes > ALONE_FACTOR * bytes_max {
            return Err(Error::new(
                ErrorKind::TooLarge,
                format!(
                    "Request size is too large: the values of the body may take {bytes} bytes of memory, and this node has {} for them; write fewer values at a time, or give the node more memory",
                    ALONE_FACTOR * bytes_max
                ),
            ));
        }
        *reserved = budget.take(bytes.min(bytes_max));
        match reserved.is_some() {
            true => Ok(()),
            false => Err(overloaded(
                "what is made of the bodies of requests takes all the memory that there is for it",
            )),
        }
    }
}

fn overloaded(message: &str) -> Error {
    let mut error = Error::new(ErrorKind::Overloaded, message);
    error.retry_after_ms = Some(RETRY_MS);
    error
}

/// Returns about how many bytes are made of a body, at most: its values, while they are read; then
/// the item, its index terms, and what the log and the engine get of both.
fn made_of(body: &[u8]) -> usize {
    if body.len() < LOOKED_INTO_BYTES_MIN {
        return SMALL_BODY_FACTOR * body.len();
    }
    let values = match binary_json::is_binary(body) {
        true => binary_json::parsed_size(body),
        false => parsed_size(body),
    };
    // Terms are made while the values are there; they take a quarter of them.
    values + values / 4 + BODY_COPIES * body.len()
}

/// A body that was not read yet.
pub enum Payload {
    /// It is there: there is none, or it was read before.
    Whole(Bytes),
    Incoming(RequestBody),
}

impl From<RequestBody> for Payload {
    fn from(body: RequestBody) -> Self {
        match body.is_at_end() {
            true => Self::Whole(Bytes::new()),
            false => Self::Incoming(body),
        }
    }
}

impl From<Bytes> for Payload {
    fn from(bytes: Bytes) -> Self {
        Self::Whole(bytes)
    }
}

/// Reads the whole body, or refuses one that is too large before it is in memory.
pub async fn read_body(payload: Payload, held: &Held<'_>) -> Result<Bytes> {
    let mut body = match payload {
        Payload::Whole(bytes) => return Ok(bytes),
        Payload::Incoming(body) => body,
    };
    let begun = Instant::now();
    let mut first = Bytes::new();
    let mut rest = BytesMut::new();
    while let Some(chunk) = next(&mut body, held, begun, first.len() + rest.len()).await? {
        if first.len() + rest.len() + chunk.len() > BODY_BYTES_MAX {
            let message =
                format!("Request size is too large: the body has more than {BODY_BYTES_MAX} bytes");
            return Err(Error::new(ErrorKind::TooLarge, message));
        }
        held.hold(chunk.len())?;
        // Most bodies come in one piece and are not copied.
        if first.is_empty() && rest.is_empty() {
            first = chunk;
        } else {
            rest.extend_from_slice(&std::mem::take(&mut first));
            rest.extend_from_slice(&chunk);
        }
    }
    Ok(match rest.is_empty() {
        true => first,
        false => rest.freeze(),
    })
}

/// Returns the next bytes; fails when they do not come in time.
async fn next(
    body: &mut RequestBody,
    held: &Held<'_>,
    begun: Instant,
    received: usize,
) -> Result<Option<Bytes>> {
    if body.is_at_end() {
        return Ok(None);
    }
    let more = Duration::from_secs(received as u64 / LEAST_BYTES_A_SECOND);
    match timeout_at(begun + held.bounds.deadline + more, body.next()).await {
        Ok(Some(Ok(bytes))) => Ok(Some(bytes)),
        Ok(None) => Ok(None),
        Ok(Some(Err(failure))) => Err(Error::bad_request(format!(
            "the body could not be read: {failure}"
        ))),
        Err(_) => {
            connections::refused(Refusal::SlowBody);
            Err(Error::new(
                ErrorKind::RequestTimeout,
                format!("the body did not come in time: {received} bytes of it are here"),
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1024 * 1024;

    fn bounds(parsed: usize) -> BodyBounds {
        BodyBounds {
            bytes: ByteBudget::new(MIB),
            parsed: ByteBudget::new(parsed),
            deadline: Duration::from_secs(1),
        }
    }

    fn array(of: &str, count: usize) -> Vec<u8> {
        format!(r#"{{"id":"1","a":[{}]}}"#, vec![of; count].join(",")).into_bytes()
    }

    #[test]
    fn what_is_made_of_a_body_follows_from_its_values() {
        let text = format!(r#"{{"id":"1","a":"{}"}}"#, "x".repeat(MIB));
        assert!(made_of(text.as_bytes()) < 5 * MIB);
        for of in ["0", "{}", "[]", r#"{"":0}"#, r#""""#, "[0]"] {
            let body = array(of, 100_000);
            // A value takes 72 bytes, wherever it is.
            assert!(made_of(&body) > 100_000 * 72, "{of}");
        }
        // An array of 1-byte numbers in the binary form, with a length of four bytes.
        let mut binary = vec![0x80, 0xE4];
        binary.extend_from_slice(&100_000_u32.to_le_bytes());
        binary.extend_from_slice(&[7; 100_000]);
        assert!(made_of(&binary) > 100_000 * 72);
        let mut binary = vec![0x80, 0xC2];
        binary.extend_from_slice(&(MIB as u32).to_le_bytes());
        binary.resize(MIB + 6, b'x');
        assert!(made_of(&binary) < 6 * MIB);
    }

    #[test]
    fn what_is_made_of_bodies_is_bounded_for_all_and_for_one_alone() {
        let bounds = bounds(MIB);
        let (one, two) = (Held::new(&bounds), Held::new(&bounds));
        // More than there is for all: it works alone.
        let large = array("0", 8_000);
        assert!((MIB..2 * MIB).contains(&made_of(&large)));
        one.hold_parsed(&large).unwrap();
        let refused = two.hold_parsed(b"{}").unwrap_err();
        assert_eq!((refused.status(), refused.retry_after_ms), (429, Some(100)));
        // Parsed again, as after a change of the leader, it counts once.
        one.hold_parsed(&large).unwrap();
        drop(one);
        two.hold_parsed(b"{}").unwrap();
        assert!(bounds.parsed.held() > 0);
        let refused = two.hold_parsed(&array("0", 20_000)).unwrap_err();
        assert_eq!(refused.status(), 413);
        drop(two);
        assert_eq!(bounds.parsed.held(), 0);
    }
}
