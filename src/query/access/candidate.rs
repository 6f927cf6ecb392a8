//! One item that an access path has found.

use crate::store::document::Header;

/// An item that the query must look at.
pub struct Candidate<'c> {
    /// The document key in the engine.
    pub key: &'c [u8],
    pub header: &'c Header,
    /// The item's JSON as stored.
    pub body: &'c [u8],
    /// The index has shown that the filter holds: it need not be evaluated.
    pub matches: bool,
}
