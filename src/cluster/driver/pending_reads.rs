//! Readers that wait for the read index of a group. Readers that come while a request is in flight
//! share the next one.

use std::collections::BTreeMap;

use tokio::sync::oneshot;

use crate::cluster::{GroupId, raft::read_index::ReadIndex};

/// Ticks after which a request is repeated: it or its answer may be lost, or there was no leader.
const RETRY_TICKS: u32 = 4;

pub type Reader = oneshot::Sender<ReadIndex>;

#[derive(Default)]
pub struct PendingReads {
    /// The last request id. None is used twice, so a late answer answers nobody.
    last_id: u64,
    groups: BTreeMap<GroupId, GroupReads>,
}

#[derive(Default)]
struct GroupReads {
    request_id: u64,
    ticks: u32,
    in_flight: Vec<Reader>,
    next: Vec<Reader>,
}

impl PendingReads {
    /// Adds a reader. Returns the id of the request to send now, if any.
    pub fn add(&mut self, group: GroupId, reader: Reader) -> Option<u64> {
        let reads = self.groups.entry(group).or_default();
        reads.next.push(reader);
        if reads.in_flight.is_empty() {
            self.begin(group)
        } else {
            None
        }
    }

    fn begin(&mut self, group: GroupId) -> Option<u64> {
        let reads = self.groups.get_mut(&group)?;
        reads.in_flight = std::mem::take(&mut reads.next);
        if reads.in_flight.is_empty() {
            self.groups.remove(&group);
            return None;
        }
        self.last_id += 1;
        reads.request_id = self.last_id;
        reads.ticks = 0;
        Some(self.last_id)
    }

    /// Answers the readers of a request. Returns the id of the next request, if a reader waits for
    /// it.
    pub fn answered(&mut self, group: GroupId, answer: ReadIndex) -> Option<u64> {
        let reads = self.groups.get_mut(&group)?;
        if reads.request_id != answer.request_id {
            return None;
        }
        for reader in reads.in_flight.drain(..) {
            let _ = reader.send(answer);
        }
        self.begin(group)
    }

    /// Advances time. Returns the requests to send again.
    pub fn tick(&mut self) -> Vec<(GroupId, u64)> {
        self.groups.retain(|_, reads| {
            reads.in_flight.retain(|reader| !reader.is_closed());
            reads.next.retain(|reader| !reader.is_closed());
            // A later reader must not be answered by a request from before it came.
            !(reads.in_flight.is_empty() && reads.next.is_empty())
        });
        let mut retries = Vec::new();
        for (group, reads) in &mut self.groups {
            reads.ticks += 1;
            if reads.ticks >= RETRY_TICKS {
                reads.ticks = 0;
                // The new request is sent after all of these readers have come.
                reads.in_flight.append(&mut reads.next);
                self.last_id += 1;
                reads.request_id = self.last_id;
                retries.push((*group, self.last_id));
            }
        }
        retries
    }

    /// Drops the readers of a group that is gone.
    pub fn remove(&mut self, group: GroupId) {
        self.groups.remove(&group);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUP: GroupId = GroupId::META;

    fn at(request_id: u64, index: u64) -> ReadIndex {
        ReadIndex {
            request_id,
            index,
            time: 0,
            safe_time: 0,
        }
    }

    fn reader(reads: &mut PendingReads) -> (Option<u64>, oneshot::Receiver<ReadIndex>) {
        let (reader, answer) = oneshot::channel();
        (reads.add(GROUP, reader), answer)
    }

    #[test]
    fn later_readers_wait_for_the_next_answer() {
        let mut reads = PendingReads::default();
        let (first, mut early) = reader(&mut reads);
        let number = first.unwrap();
        let (none, mut late) = reader(&mut reads);
        assert_eq!(none, None, "one request is in flight");
        let next = reads.answered(GROUP, at(number, 7)).unwrap();
        assert_eq!(early.try_recv(), Ok(at(number, 7)));
        assert!(
            late.try_recv().is_err(),
            "the answer may be older than the reader"
        );
        let again = reads.answered(GROUP, at(number, 8));
        assert_eq!(again, None, "a duplicate answers nobody");
        let last = reads.answered(GROUP, at(next, 9));
        assert_eq!((last, late.try_recv()), (None, Ok(at(next, 9))));
    }

    #[test]
    fn a_lost_request_is_repeated_for_readers_that_still_wait() {
        let mut reads = PendingReads::default();
        let (_, mut patient) = reader(&mut reads);
        let (_, impatient) = reader(&mut reads);
        drop(impatient);
        let again: Vec<_> = (0..RETRY_TICKS).flat_map(|_| reads.tick()).collect();
        let [(GROUP, number)] = again.as_slice() else {
            panic!("{again:?}");
        };
        reads.answered(GROUP, at(*number, 3));
        assert_eq!(patient.try_recv(), Ok(at(*number, 3)));
        assert!(reads.groups.is_empty());
    }
}
