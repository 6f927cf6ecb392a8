//! The layout of keys in a shard's engine. The first byte names the kind, the rest sorts as its
//! readers need it:
//!
//! | kind | key after the first byte | value | read by |
//! | --- | --- | --- | --- |
//! | `d` document | place, id | stored document | point reads, feeds by key |
//! | `f` feed | LSN (8, big-endian), index in its transaction (2) | feed entry | change feed, inherit lane |
//! | `o` own lane | due second (8), LSN (8), index (2) | document key | purger |
//! | `u` unique key | place, fingerprint (32) | holder | uniqueness checks |
//! | `m` state | nothing | shard state | recovery |
//! | `h` cleanup | nothing | how far the range of its sibling is cleaned up | cleanup after a split |
//! | `c` split | nothing | where it was split | replicas of a shard that was split |
//! | `b` origin | nothing | the nodes that begin the group of a child together | recovery, in a cluster |
//! | `a` applied | nothing | index of the last entry of the Raft log that is in the engine (8) | recovery, in a cluster |
//! | `i` index | generation (2), term, ordinal of the item (8) | what decides its expiry | queries |
//! | `r` resource | ordinal (8) | what decides its expiry, document key | queries, from an index entry to its item |
//! | `s` shape | generation (2), shape (8) | its paths | queries, for what lacks a path |
//! | `p` policy | generation (2) | indexing policy | recovery |
//!
//! A place is the EPK of a partition key with the key itself (or its digest) behind it, so that
//! keys with one EPK stay apart. Places of one container are prefix-free, so place and id need no
//! separator.

pub use crate::model::position::Position;

const DOCUMENT: u8 = b'd';
const FEED: u8 = b'f';
const OWN_LANE: u8 = b'o';
const UNIQUE: u8 = b'u';
const INDEX: u8 = b'i';
const RESOURCE: u8 = b'r';
const SHAPE: u8 = b's';
const POLICY: u8 = b'p';

/// The shard's state record.
pub const STATE: &[u8] = b"m";

/// There while a shard that came from a split still has entries of its sibling.
pub const CLEANUP: &[u8] = b"h";

/// There in a replica whose shard was split: where.
pub const CUT: &[u8] = b"c";

/// There in a child that a replica of a cluster has made: the nodes that begin its group together.
pub const ORIGIN: &[u8] = b"b";

/// How far the log of the shard's Raft group is in the engine.
pub const APPLIED: &[u8] = b"a";

pub fn document(place: &[u8], id: &str) -> Vec<u8> {
    let mut key = Vec::with_capacity(1 + place.len() + id.len());
    key.push(DOCUMENT);
    key.extend_from_slice(place);
    key.extend_from_slice(id.as_bytes());
    key
}

/// Returns the id in a document key whose place is known.
pub fn document_id<'k>(key: &'k [u8], place: &[u8]) -> Option<&'k str> {
    let id = key.strip_prefix(&[DOCUMENT])?.strip_prefix(place)?;
    std::str::from_utf8(id).ok()
}

/// Returns all documents with `min <= EPK < max`, as key bounds.
pub fn document_range(min: &[u8], max: &[u8]) -> (Vec<u8>, Vec<u8>) {
    (document(min, ""), document(max, ""))
}

pub fn feed(position: Position) -> [u8; 11] {
    let mut key = [FEED; 11];
    key[1..9].copy_from_slice(&position.lsn.to_be_bytes());
    key[9..11].copy_from_slice(&position.index.to_be_bytes());
    key
}

pub fn feed_position(key: &[u8]) -> Option<Position> {
    let (&kind, rest) = key.split_first()?;
    let (lsn, rest) = rest.split_first_chunk::<8>()?;
    let (index, _) = rest.split_first_chunk::<2>()?;
    (kind == FEED).then(|| Position {
        lsn: u64::from_be_bytes(*lsn),
        index: u16::from_be_bytes(*index),
    })
}

/// The bound behind the last feed entry.
pub const FEED_END: &[u8] = &[FEED + 1];

pub fn own_lane(due: i64, position: Position) -> [u8; 19] {
    let mut key = [OWN_LANE; 19];
    // Due seconds are after the epoch; the sign bit is flipped all the same so that the order holds
    // for any value.
    key[1..9].copy_from_slice(&(due as u64 ^ (1 << 63)).to_be_bytes());
    key[9..17].copy_from_slice(&position.lsn.to_be_bytes());
    key[17..19].copy_from_slice(&position.index.to_be_bytes());
    key
}

pub fn own_lane_parts(key: &[u8]) -> Option<(i64, Position)> {
    let (&kind, rest) = key.split_first()?;
    let (due, rest) = rest.split_first_chunk::<8>()?;
    let (lsn, rest) = rest.split_first_chunk::<8>()?;
    let (index, _) = rest.split_first_chunk::<2>()?;
    let position = Position {
        lsn: u64::from_be_bytes(*lsn),
        index: u16::from_be_bytes(*index),
    };
    (kind == OWN_LANE).then(|| ((u64::from_be_bytes(*due) ^ (1 << 63)) as i64, position))
}

/// The bound behind the last entry of the own lane.
pub const OWN_LANE_END: &[u8] = &[OWN_LANE + 1];

pub fn unique(place: &[u8], fingerprint: &[u8; 32]) -> Vec<u8> {
    let mut key = Vec::with_capacity(33 + place.len());
    key.push(UNIQUE);
    key.extend_from_slice(place);
    key.extend_from_slice(fingerprint);
    key
}

/// Bytes of an index key before the term.
const INDEX_HEAD_BYTES: usize = 3;
/// Bytes of an ordinal at the end of an index key.
const ORDINAL_BYTES: usize = 8;

/// Puts the key of an index entry in the place of what `key` held.
pub fn write_index_entry(key: &mut Vec<u8>, generation: u16, term: &[u8], ordinal: u64) {
    key.clear();
    key.push(INDEX);
    key.extend_from_slice(&generation.to_be_bytes());
    key.extend_from_slice(term);
    key.extend_from_slice(&ordinal.to_be_bytes());
}

/// Returns the beginning of the keys of all entries of a generation whose term begins so.
pub fn index_prefix(generation: u16, term: &[u8]) -> Vec<u8> {
    let mut key = Vec::with_capacity(INDEX_HEAD_BYTES + term.len() + ORDINAL_BYTES);
    key.push(INDEX);
    key.extend_from_slice(&generation.to_be_bytes());
    key.extend_from_slice(term);
    key
}

/// Term and ordinal of an index entry.
pub fn index_entry_parts(key: &[u8]) -> Option<(&[u8], u64)> {
    let (head, ordinal) = key.split_last_chunk()?;
    let term = head.get(INDEX_HEAD_BYTES..)?;
    (head.first() == Some(&INDEX)).then(|| (term, u64::from_be_bytes(*ordinal)))
}

pub fn resource(ordinal: u64) -> [u8; 9] {
    let mut key = [RESOURCE; 9];
    key[1..].copy_from_slice(&ordinal.to_be_bytes());
    key
}

pub fn shape(generation: u16, shape: u64) -> [u8; 11] {
    let mut key = [SHAPE; 11];
    key[1..3].copy_from_slice(&generation.to_be_bytes());
    key[3..].copy_from_slice(&shape.to_be_bytes());
    key
}

pub fn shape_number(key: &[u8]) -> Option<u64> {
    let number = key.get(3..)?.try_into().ok()?;
    Some(u64::from_be_bytes(number))
}

pub fn policy(generation: u16) -> [u8; 3] {
    let [high, low] = generation.to_be_bytes();
    [POLICY, high, low]
}

/// Returns all keys of a generation of the index, as ranges of keys: entries, shapes, policy.
pub fn generation_ranges(generation: u16) -> [([u8; 3], [u8; 3]); 3] {
    [INDEX, SHAPE, POLICY].map(|kind| {
        let [high, low] = generation.to_be_bytes();
        let [next_high, next_low] = generation.saturating_add(1).to_be_bytes();
        ([kind, high, low], [kind, next_high, next_low])
    })
}

/// All keys from ordinals to items, as a range.
pub const RESOURCES: ([u8; 1], [u8; 1]) = ([RESOURCE], [RESOURCE + 1]);

/// Returns what decides the expiry of the item behind an entry of these kinds; `None` for keys of
/// others.
pub fn expiry_bytes<'v>(key: &[u8], value: &'v [u8]) -> Option<&'v [u8]> {
    match *key.first()? {
        INDEX => Some(value),
        RESOURCE => super::index_entry::resource_parts(value).map(|(facts, _)| facts),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_sort_as_their_readers_need_them() {
        let early = Position { lsn: 255, index: 9 };
        let late = Position { lsn: 256, index: 0 };
        assert!(feed(early) < feed(late));
        assert!(feed(late).as_slice() < FEED_END);
        assert!(own_lane(-5, late) < own_lane(4, early));
        assert!(own_lane(4, early) < own_lane(4, late));
        assert!(document(&[0x3a, 0xff], "b") < document(&[0x3b, 0x00], "a"));
    }

    #[test]
    fn keys_give_back_what_they_were_made_of() {
        let position = Position { lsn: 77, index: 3 };
        assert_eq!(feed_position(&feed(position)), Some(position));
        assert_eq!(
            own_lane_parts(&own_lane(1_790_000_000, position)),
            Some((1_790_000_000, position))
        );
        assert_eq!(feed_position(b"f123"), None);
        assert_eq!(own_lane_parts(&feed(position)), None);
    }
}
