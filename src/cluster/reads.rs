//! Readers who wait for the last committed index of a group, and for its leader's time. All that come while a question is under way are answered by the next one.

use std::collections::BTreeMap;

use tokio::sync::oneshot;

use super::{GroupId, group::ReadAt};

/// Ticks after which a question is asked again: it or its answer may be lost, or there was no leader.
const ASK_AGAIN_TICKS: u32 = 4;

/// Hears where to read.
pub type Reader = oneshot::Sender<ReadAt>;

#[derive(Default)]
pub struct Reads {
    /// Never used twice, so that a late answer answers nobody.
    asked: u64,
    groups: BTreeMap<GroupId, Waiting>,
}

#[derive(Default)]
struct Waiting {
    number: u64,
    ticks: u32,
    under_way: Vec<Reader>,
    next: Vec<Reader>,
}

impl Reads {
    /// Somebody wants to read. The number of the question that is to be asked now, if any.
    pub fn add(&mut self, group: GroupId, reader: Reader) -> Option<u64> {
        let waiting = self.groups.entry(group).or_default();
        waiting.next.push(reader);
        if waiting.under_way.is_empty() {
            self.begin(group)
        } else {
            None
        }
    }

    fn begin(&mut self, group: GroupId) -> Option<u64> {
        let waiting = self.groups.get_mut(&group)?;
        waiting.under_way = std::mem::take(&mut waiting.next);
        if waiting.under_way.is_empty() {
            self.groups.remove(&group);
            return None;
        }
        self.asked += 1;
        waiting.number = self.asked;
        waiting.ticks = 0;
        Some(self.asked)
    }

    /// A question is answered. The number of the next one, if anybody waits for it.
    pub fn answered(&mut self, group: GroupId, answer: ReadAt) -> Option<u64> {
        let waiting = self.groups.get_mut(&group)?;
        if waiting.number != answer.number {
            return None;
        }
        for reader in waiting.under_way.drain(..) {
            let _ = reader.send(answer);
        }
        self.begin(group)
    }

    /// Time passes. What is to be asked again.
    pub fn tick(&mut self) -> Vec<(GroupId, u64)> {
        self.groups.retain(|_, waiting| {
            waiting.under_way.retain(|reader| !reader.is_closed());
            waiting.next.retain(|reader| !reader.is_closed());
            // Those who come now must not be answered by a question that was asked before.
            !(waiting.under_way.is_empty() && waiting.next.is_empty())
        });
        let mut again = Vec::new();
        for (group, waiting) in &mut self.groups {
            waiting.ticks += 1;
            if waiting.ticks >= ASK_AGAIN_TICKS {
                waiting.ticks = 0;
                again.push(*group);
            }
        }
        let numbers = again.into_iter().filter_map(|group| {
            let waiting = self.groups.get_mut(&group)?;
            // A new question takes everybody along: whatever answers it was asked after all of them had come.
            waiting.under_way.append(&mut waiting.next);
            self.asked += 1;
            waiting.number = self.asked;
            Some((group, self.asked))
        });
        numbers.collect()
    }

    /// The group is no more.
    pub fn remove(&mut self, group: GroupId) {
        self.groups.remove(&group);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUP: GroupId = GroupId::META;

    fn at(number: u64, index: u64) -> ReadAt {
        ReadAt {
            number,
            index,
            time: 0,
            sure: 0,
        }
    }

    fn reader(reads: &mut Reads) -> (Option<u64>, oneshot::Receiver<ReadAt>) {
        let (reader, answer) = oneshot::channel();
        (reads.add(GROUP, reader), answer)
    }

    #[test]
    fn readers_who_come_later_wait_for_the_next_answer() {
        let mut reads = Reads::default();
        let (first, mut early) = reader(&mut reads);
        let number = first.unwrap();
        let (none, mut late) = reader(&mut reads);
        assert_eq!(none, None, "one question is under way");
        let next = reads.answered(GROUP, at(number, 7)).unwrap();
        assert_eq!(early.try_recv(), Ok(at(number, 7)));
        assert!(
            late.try_recv().is_err(),
            "the answer may be older than the question"
        );
        let again = reads.answered(GROUP, at(number, 8));
        assert_eq!(again, None, "a doubled answer answers nobody");
        let last = reads.answered(GROUP, at(next, 9));
        assert_eq!((last, late.try_recv()), (None, Ok(at(next, 9))));
    }

    #[test]
    fn a_lost_question_is_asked_again_for_those_who_still_wait() {
        let mut reads = Reads::default();
        let (_, mut patient) = reader(&mut reads);
        let (_, impatient) = reader(&mut reads);
        drop(impatient);
        let again: Vec<_> = (0..ASK_AGAIN_TICKS).flat_map(|_| reads.tick()).collect();
        let [(GROUP, number)] = again.as_slice() else {
            panic!("{again:?}");
        };
        reads.answered(GROUP, at(*number, 3));
        assert_eq!(patient.try_recv(), Ok(at(*number, 3)));
        assert!(reads.groups.is_empty());
    }
}
