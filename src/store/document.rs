//! The bytes of a stored document and of its feed entry: facts that decide expiry and preconditions
//! first, so that nothing needs to parse the JSON, then the JSON exactly as it is answered.
//!
//! | bytes | what (integers little-endian) |
//! | --- | --- |
//! | 1 | layout version, 1 |
//! | 1 | number of unique-key fingerprints |
//! | 4 | ttl: 0 inherits, `u32::MAX` never, else seconds |
//! | 8 | `_ts` |
//! | 8 | LSN |
//! | 2 | index in its transaction |
//! | 8 | ordinal of the resource id |
//! | 16 | etag |
//! | 32 each | fingerprints |
//! | rest | the item's JSON |

use std::num::NonZeroU32;

use bytes::Bytes;

use crate::model::{item::Etag, position::Position, ttl::ItemTtl};

const LAYOUT_VERSION: u8 = 1;
const ETAG_BYTES: usize = 16;
const HEADER_BYTES: usize = 32 + ETAG_BYTES;
const FINGERPRINT_BYTES: usize = 32;
pub(super) const TTL_INHERIT: u32 = 0;
const TTL_NEVER: u32 = u32::MAX;

pub(super) fn ttl_code(ttl: ItemTtl) -> u32 {
    match ttl {
        ItemTtl::Inherit => TTL_INHERIT,
        ItemTtl::Never => TTL_NEVER,
        ItemTtl::After(n) => n.get(),
    }
}

pub(super) fn ttl_of_code(code: u32) -> ItemTtl {
    match NonZeroU32::new(code) {
        None => ItemTtl::Inherit,
        Some(n) if n.get() == TTL_NEVER => ItemTtl::Never,
        Some(n) => ItemTtl::After(n),
    }
}

/// What a stored document says of itself besides its JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    pub ts: i64,
    pub ttl: ItemTtl,
    pub position: Position,
    pub ordinal: u64,
    pub etag: Etag,
}

/// A stored document, borrowed or owned.
#[derive(Clone, Debug)]
pub struct Stored<B> {
    pub header: Header,
    bytes: B,
    body_at: usize,
}

/// Writes header and fingerprints; the caller appends the JSON.
pub fn begin(out: &mut Vec<u8>, header: &Header, fingerprints: &[[u8; FINGERPRINT_BYTES]]) {
    out.push(LAYOUT_VERSION);
    // A container has at most ten unique keys.
    out.push(fingerprints.len() as u8);
    out.extend_from_slice(&ttl_code(header.ttl).to_le_bytes());
    out.extend_from_slice(&header.ts.to_le_bytes());
    out.extend_from_slice(&header.position.lsn.to_le_bytes());
    out.extend_from_slice(&header.position.index.to_le_bytes());
    out.extend_from_slice(&header.ordinal.to_le_bytes());
    out.extend_from_slice(&header.etag.to_bytes());
    for fingerprint in fingerprints {
        out.extend_from_slice(fingerprint);
    }
}

impl<B: AsRef<[u8]>> Stored<B> {
    /// `None` when the bytes are not a stored document of a layout we know.
    pub fn decode(bytes: B) -> Option<Self> {
        let (header, body_at) = decode_header(bytes.as_ref())?;
        Some(Self {
            header,
            bytes,
            body_at,
        })
    }

    pub fn fingerprints(&self) -> impl Iterator<Item = &[u8; FINGERPRINT_BYTES]> {
        let (chunks, _) = self
            .bytes
            .as_ref()
            .get(HEADER_BYTES..self.body_at)
            .unwrap_or_default()
            .as_chunks();
        chunks.iter()
    }

    pub fn body(&self) -> &[u8] {
        self.bytes.as_ref().get(self.body_at..).unwrap_or_default()
    }

    /// Size on disk before compression.
    pub fn size(&self) -> usize {
        self.bytes.as_ref().len()
    }
}

impl<'b> Stored<&'b [u8]> {
    /// Returns the JSON, for as long as the stored bytes are there.
    pub fn into_borrowed_body(self) -> &'b [u8] {
        self.bytes.get(self.body_at..).unwrap_or_default()
    }
}

impl Stored<Bytes> {
    /// Returns the JSON, shared with the stored bytes.
    pub fn into_body(mut self) -> Bytes {
        self.bytes.split_off(self.body_at)
    }
}

fn decode_header(bytes: &[u8]) -> Option<(Header, usize)> {
    let (&[version, fingerprints], rest) = bytes.split_first_chunk()?;
    let (ttl, rest) = rest.split_first_chunk()?;
    let (ts, rest) = rest.split_first_chunk()?;
    let (lsn, rest) = rest.split_first_chunk()?;
    let (index, rest) = rest.split_first_chunk()?;
    let (ordinal, rest) = rest.split_first_chunk()?;
    let (etag, rest) = rest.split_first_chunk::<ETAG_BYTES>()?;
    let fingerprint_bytes = usize::from(fingerprints) * FINGERPRINT_BYTES;
    if version != LAYOUT_VERSION || rest.len() < fingerprint_bytes {
        return None;
    }
    let header = Header {
        ts: i64::from_le_bytes(*ts),
        ttl: ttl_of_code(u32::from_le_bytes(*ttl)),
        position: Position {
            lsn: u64::from_le_bytes(*lsn),
            index: u16::from_le_bytes(*index),
        },
        ordinal: u64::from_le_bytes(*ordinal),
        etag: Etag::from_bytes(*etag),
    };
    Some((header, HEADER_BYTES + fingerprint_bytes))
}

/// Points at one version of a document and says what decides its expiry: the value of feed,
/// own-lane and unique-key entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VersionRef<'a> {
    pub ts: i64,
    pub ttl: ItemTtl,
    /// Size of the stored document.
    pub size: u32,
    pub has_unique_keys: bool,
    /// How many bytes of the document key, after its first, are the place of its partition key.
    pub place_bytes: u8,
    pub document_key: &'a [u8],
}

impl<'a> VersionRef<'a> {
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(19 + self.document_key.len());
        out.extend_from_slice(&[
            LAYOUT_VERSION,
            u8::from(self.has_unique_keys),
            self.place_bytes,
        ]);
        out.extend_from_slice(&ttl_code(self.ttl).to_le_bytes());
        out.extend_from_slice(&self.ts.to_le_bytes());
        out.extend_from_slice(&self.size.to_le_bytes());
        out.extend_from_slice(self.document_key);
        out
    }

    pub fn decode(bytes: &'a [u8]) -> Option<Self> {
        let (&[version, unique, place_bytes], rest) = bytes.split_first_chunk()?;
        let (ttl, rest) = rest.split_first_chunk()?;
        let (ts, rest) = rest.split_first_chunk()?;
        let (size, document_key) = rest.split_first_chunk()?;
        (version == LAYOUT_VERSION).then(|| Self {
            ts: i64::from_le_bytes(*ts),
            ttl: ttl_of_code(u32::from_le_bytes(*ttl)),
            size: u32::from_le_bytes(*size),
            has_unique_keys: unique != 0,
            place_bytes,
            document_key,
        })
    }

    /// Returns the place of the partition key: the part of the document key before the id.
    pub fn place(&self) -> &'a [u8] {
        self.document_key
            .get(1..1 + usize::from(self.place_bytes))
            .unwrap_or_default()
    }
}
