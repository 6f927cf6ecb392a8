//! Resume points: where a selection goes on, as bytes in a continuation token.

use crate::model::error::Error;

/// A place in a selection, for a continuation token: opaque, at most [`RESUME_BYTES_MAX`] bytes. It belongs to one query text and one
/// shard, and stays good over restarts, writes and expiries; a policy that no longer indexes what the selection followed ends it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResumePoint(pub(super) Vec<u8>);

/// Leaves room for the rest of a token of 1,024 characters.
pub const RESUME_BYTES_MAX: usize = 690;

impl ResumePoint {
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the point of a selection that has nothing to go on with.
    pub fn nowhere() -> Self {
        Self(Vec::new())
    }

    /// Takes any bytes: what is not a place in the selection is refused when it is opened.
    pub fn from_bytes(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    /// Of a point at an entry of the index, the one behind it: the same with a capital letter in front.
    pub fn behind(mut self) -> Self {
        if let Some(kind) = self.0.first_mut() {
            kind.make_ascii_uppercase();
        }
        self
    }
}

pub fn foreign_resume_point() -> Error {
    Error::bad_request("Invalid Continuation Token: it belongs to another query")
}
