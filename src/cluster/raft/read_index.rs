//! ReadIndex requests: what they carry, and what they return.
//!
//! A request is a list of 64-bit numbers: the node that asks, the id of the request, the term and
//! the time of that node, then the time of each node that has passed it on. The last of these is
//! the leader.

use raft::{
    ReadState,
    eraftpb::{Message, MessageType},
};

use crate::cluster::NodeId;

const REQUEST_ID_AT: usize = 1;
const TERM_AT: usize = 2;
const TIME_AT: usize = 3;

/// The answer to a ReadIndex request: readers may read when this index is applied. Nothing was
/// committed behind it when they asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadIndex {
    pub request_id: u64,
    pub index: u64,
    /// The leader's time after the request: no earlier than that of any answer given by then.
    pub time: i64,
    /// A time that the leader and the quorum that confirmed it had reached. No later leader is
    /// behind it.
    pub safe_time: i64,
}

/// Encodes a request of a node at its time.
pub fn encode(node: NodeId, request_id: u64, term: u64, time: i64) -> Vec<u8> {
    [node, request_id, term, time.cast_unsigned()]
        .map(u64::to_be_bytes)
        .concat()
}

/// Returns the term in which a request was made.
pub fn term_of(request: &[u8]) -> Option<u64> {
    number(request, TERM_AT)
}

fn number(request: &[u8], at: usize) -> Option<u64> {
    let (numbers, _) = request.as_chunks();
    numbers.get(at).copied().map(u64::from_be_bytes)
}

/// Adds this node's time to the ReadIndex request of another. Other messages stay as they are.
pub fn stamp(message: &mut Message, time: impl FnOnce() -> i64) {
    if message.get_msg_type() == MessageType::MsgReadIndex
        && let Some(entry) = message.entries.first_mut()
    {
        let request = [entry.data.as_ref(), &time().to_be_bytes()].concat();
        entry.data = request.into();
    }
}

/// Decodes what the Raft library returns for a request.
pub fn decode(state: &ReadState) -> Option<ReadIndex> {
    let request = &state.request_ctx;
    let time = i64::from_be_bytes(*request.last_chunk()?);
    Some(ReadIndex {
        request_id: number(request, REQUEST_ID_AT)?,
        index: state.index,
        time,
        safe_time: time.min(number(request, TIME_AT)?.cast_signed()),
    })
}
