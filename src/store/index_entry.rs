//! The values of index entries: what decides the expiry of the item behind one, so that nobody has
//! to read it for that.
//!
//! | bytes | what (big-endian) |
//! | --- | --- |
//! | 5 | `_ts` |
//! | 4 | ttl as in a stored document; absent when the item inherits it |
//!
//! From an ordinal to its item: the length of the above (1), the above, the document key.

use super::document::{TTL_INHERIT, ttl_code, ttl_of_code};
use crate::model::ttl::ItemTtl;

const TS_BYTES: usize = 5;

/// Appends what decides expiry. Seconds fit into 40 bits for 34,000 years.
fn write(out: &mut Vec<u8>, ts: i64, ttl: ItemTtl) {
    let [_, _, _, ts @ ..] = ts.max(0).to_be_bytes();
    out.extend_from_slice(&ts);
    let code = ttl_code(ttl);
    if code != TTL_INHERIT {
        out.extend_from_slice(&code.to_be_bytes());
    }
}

pub fn encode(ts: i64, ttl: ItemTtl) -> Vec<u8> {
    let mut out = Vec::with_capacity(TS_BYTES + 4);
    write(&mut out, ts, ttl);
    out
}

pub fn decode(bytes: &[u8]) -> Option<(i64, ItemTtl)> {
    let (ts, code) = bytes.split_first_chunk::<TS_BYTES>()?;
    let ts = ts.iter().fold(0, |ts, byte| ts << 8 | i64::from(*byte));
    let code = match code {
        [] => TTL_INHERIT,
        code => u32::from_be_bytes(code.try_into().ok()?),
    };
    Some((ts, ttl_of_code(code)))
}

/// Returns the way from an ordinal to its item.
pub fn encode_resource(ts: i64, ttl: ItemTtl, document_key: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(TS_BYTES + 5 + document_key.len());
    out.push(0);
    write(&mut out, ts, ttl);
    let length = out.len() as u8 - 1;
    if let Some(first) = out.first_mut() {
        *first = length;
    }
    out.extend_from_slice(document_key);
    out
}

/// Returns what decides expiry, and the document key.
pub fn resource_parts(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (&length, rest) = bytes.split_first()?;
    rest.split_at_checked(usize::from(length))
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use super::*;

    #[test]
    fn entries_give_back_what_they_were_made_of() {
        let own = ItemTtl::After(NonZeroU32::new(60).unwrap());
        for ttl in [ItemTtl::Inherit, ItemTtl::Never, own] {
            for ts in [0, 1_790_000_000, (1 << 40) - 1] {
                assert_eq!(decode(&encode(ts, ttl)), Some((ts, ttl)));
                let resource = encode_resource(ts, ttl, b"dkey");
                let (facts, key) = resource_parts(&resource).unwrap();
                assert_eq!(decode(facts), Some((ts, ttl)));
                assert_eq!(key, b"dkey");
            }
        }
        assert_eq!(decode(b"1234"), None);
        assert_eq!(decode(b"123456"), None);
        assert_eq!(resource_parts(&[]), None);
        assert_eq!(resource_parts(&[5, 1]), None);
    }
}
