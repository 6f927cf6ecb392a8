//! The body of a request: read whole, within a time, a size and the node's bound on bytes.

use std::{cell::RefCell, rc::Rc, sync::Arc, time::Duration};

use bytes::{Bytes, BytesMut};
use tokio::time::{Instant, timeout_at};

use crate::{
    model::{
        error::{Error, ErrorKind, Result},
        item::ITEM_BYTES_MAX,
    },
    server::{ByteBudget, RequestBody, Reserved},
    telemetry::{connections, labels::Refusal},
};

/// The largest body that is read: an item with room for its escapes.
pub const BODY_BYTES_MAX: usize = ITEM_BYTES_MAX + 64 * 1024;
/// A body that takes longer than its deadline must come at this rate.
const LEAST_BYTES_A_SECOND: u64 = 16 * 1024;
/// When a client whose body did not fit into the node's bound should try again.
const RETRY_MS: u32 = 100;

/// What bounds the bodies of a node's requests.
#[derive(Clone)]
pub struct BodyBounds {
    /// Bytes of all bodies that are held at a time.
    pub bytes: Arc<ByteBudget>,
    /// For the first bytes; more time is given for more bytes.
    pub deadline: Duration,
}

/// The bytes that one request holds: given back when the last of them is dropped.
pub struct Held {
    bounds: BodyBounds,
    reserved: RefCell<Option<Reserved>>,
}

impl Held {
    fn hold(&self, bytes: usize) -> Result<()> {
        let mut reserved = self.reserved.borrow_mut();
        let fits = match &mut *reserved {
            Some(reserved) => reserved.grow(bytes),
            None => {
                *reserved = self.bounds.bytes.take(bytes);
                reserved.is_some()
            }
        };
        if fits {
            return Ok(());
        }
        let mut error = Error::new(
            ErrorKind::Overloaded,
            "the bodies of requests take all the memory that limits.node_inflight_bytes_max allows",
        );
        error.retry_after_ms = Some(RETRY_MS);
        Err(error)
    }
}

/// A body that was not read yet.
pub enum Payload {
    /// It is there: there is none, or it was read before.
    Whole(Bytes),
    Incoming(RequestBody, Rc<Held>),
}

impl Payload {
    /// A body that comes. Whoever keeps a clone of what it holds decides until when that counts.
    pub fn new(body: RequestBody, bounds: &BodyBounds) -> (Self, Option<Rc<Held>>) {
        if body.is_at_end() {
            return (Self::Whole(Bytes::new()), None);
        }
        let held = Rc::new(Held {
            bounds: bounds.clone(),
            reserved: RefCell::new(None),
        });
        (Self::Incoming(body, Rc::clone(&held)), Some(held))
    }
}

impl From<Bytes> for Payload {
    fn from(bytes: Bytes) -> Self {
        Self::Whole(bytes)
    }
}

/// Reads the whole body, or refuses one that is too large before it is in memory.
pub async fn read_body(payload: Payload) -> Result<Bytes> {
    let (mut body, held) = match payload {
        Payload::Whole(bytes) => return Ok(bytes),
        Payload::Incoming(body, held) => (body, held),
    };
    let begun = Instant::now();
    let mut first = Bytes::new();
    let mut rest = BytesMut::new();
    while let Some(chunk) = next(&mut body, &held, begun, first.len() + rest.len()).await? {
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
    held: &Held,
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
