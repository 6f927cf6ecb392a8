//! The layout of the node's Raft log, which holds the logs of all groups. Integers are big-endian,
//! so that byte order is number order.
//!
//! | kind | key after the first byte | value |
//! | --- | --- | --- |
//! | `e` entry | group (12), index (8) | kind (1): 1 a command, 2 a change of the members; term (8), length of the context (4), context, data |
//! | `h` hard state | group (12) | term (8), vote (8), commit index (8) |
//! | `a` applied | group (12) | index (8) of the last entry in the state machine |
//! | `c` members | group (12) | MessagePack |
//! | `t` truncated | group (12) | index (8) and term (8) of the last entry that was removed from the front |

/// Bytes of a group's name in a key.
pub const GROUP_BYTES: usize = 12;

pub type GroupBytes = [u8; GROUP_BYTES];

const ENTRY: u8 = b'e';
const HARD_STATE: u8 = b'h';
const APPLIED: u8 = b'a';
const TRUNCATED: u8 = b't';

const MEMBERS: u8 = b'c';

const COMMAND: u8 = 1;
const MEMBERS_CHANGE: u8 = 2;

pub fn entry(group: &GroupBytes, index: u64) -> Vec<u8> {
    [&[ENTRY][..], group, &index.to_be_bytes()].concat()
}

/// Returns the index in the key of an entry.
pub fn entry_index(key: &[u8]) -> Option<u64> {
    let (rest, index) = key.split_last_chunk()?;
    (rest.len() == 1 + GROUP_BYTES && rest.first() == Some(&ENTRY))
        .then(|| u64::from_be_bytes(*index))
}

pub fn hard_state(group: &GroupBytes) -> Vec<u8> {
    [&[HARD_STATE][..], group].concat()
}

pub fn applied(group: &GroupBytes) -> Vec<u8> {
    [&[APPLIED][..], group].concat()
}

pub fn members(group: &GroupBytes) -> Vec<u8> {
    [&[MEMBERS][..], group].concat()
}

pub fn truncated(group: &GroupBytes) -> Vec<u8> {
    [&[TRUNCATED][..], group].concat()
}

pub fn encode_entry(changes_members: bool, term: u64, context: &[u8], data: &[u8]) -> Vec<u8> {
    let kind = if changes_members {
        MEMBERS_CHANGE
    } else {
        COMMAND
    };
    // Far below 4 GB: an entry fits into a frame.
    let context_bytes = (context.len() as u32).to_be_bytes();
    [
        &[kind][..],
        &term.to_be_bytes(),
        &context_bytes,
        context,
        data,
    ]
    .concat()
}

/// Returns whether it changes the members, term, context and data.
pub fn decode_entry(value: &[u8]) -> Option<(bool, u64, &[u8], &[u8])> {
    let (&kind, rest) = value.split_first()?;
    let (term, rest) = rest.split_first_chunk()?;
    let (context_bytes, rest) = rest.split_first_chunk()?;
    let (context, data) = rest.split_at_checked(u32::from_be_bytes(*context_bytes) as usize)?;
    let known = kind == COMMAND || kind == MEMBERS_CHANGE;
    let changes_members = kind == MEMBERS_CHANGE;
    known.then_some((changes_members, u64::from_be_bytes(*term), context, data))
}

pub fn encode_numbers<const N: usize>(numbers: [u64; N]) -> Vec<u8> {
    numbers.map(u64::to_be_bytes).concat()
}

pub fn decode_numbers<const N: usize>(value: &[u8]) -> Option<[u64; N]> {
    let (chunks, rest) = value.as_chunks::<8>();
    let numbers: &[[u8; 8]; N] = chunks.try_into().ok()?;
    rest.is_empty().then(|| numbers.map(u64::from_be_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_of_a_group_sort_by_index_and_give_back_what_they_were_made_of() {
        let (one, two) = ([1; GROUP_BYTES], [2; GROUP_BYTES]);
        assert!(entry(&one, 255) < entry(&one, 256));
        assert!(entry(&one, u64::MAX) < entry(&two, 0));
        assert_eq!(entry_index(&entry(&one, 77)), Some(77));
        assert_eq!(entry_index(&hard_state(&one)), None);
        let value = encode_entry(true, 3, b"context", b"data");
        assert_eq!(
            decode_entry(&value),
            Some((true, 3, &b"context"[..], &b"data"[..]))
        );
        assert_eq!(decode_entry(&value[..12]), None);
        assert_eq!(decode_numbers(&encode_numbers([1, 2, 3])), Some([1, 2, 3]));
        assert_eq!(decode_numbers::<2>(&[0; 15]), None);
        assert_eq!(decode_numbers::<2>(&[0; 24]), None);
    }
}
