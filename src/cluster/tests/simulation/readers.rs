//! Readers who must see what is newest, judged by a time that is. All writes of a group stand in
//! one order, so a history is linearizable if each reader sees at least what anybody, writer or
//! reader, had been told of before it asked, and judges by a time that is not earlier than anything
//! that was told then was judged by.

use std::collections::BTreeMap;

use crate::cluster::{GroupId, NodeId, raft::read_index::ReadIndex};

/// Milliseconds of the unit by which readers judge, as people do by seconds.
const GRAIN: i64 = 100;

#[derive(Default)]
pub struct Readers {
    /// Readers judge by the clocks of their nodes, whatever the leader's says.
    hasty: bool,
    asked: u64,
    waiting: Vec<Reader>,
    /// The newest that a reader of the group has seen.
    seen: BTreeMap<GroupId, u64>,
    /// The latest time by which anything was judged that somebody was told of.
    times: BTreeMap<GroupId, i64>,
    pub answered: u64,
}

struct Reader {
    group: GroupId,
    node: NodeId,
    number: u64,
    /// What it must see, and the time that it must not judge by an earlier one than.
    after: u64,
    not_before: i64,
    answer: Option<ReadIndex>,
    /// What it judged by, once it has read.
    judged: Option<i64>,
}

/// In whole units, as they are compared.
pub fn grains(time: i64) -> i64 {
    time.div_euclid(GRAIN)
}

impl Readers {
    pub fn new(hasty: bool) -> Self {
        Self {
            hasty,
            ..Self::default()
        }
    }

    /// The latest time, in units, by which anything was judged that somebody was told of.
    pub fn told_time(&self, group: GroupId) -> i64 {
        self.times.get(&group).copied().unwrap_or(i64::MIN)
    }

    /// Somebody was told of something that was judged by this time, in units.
    pub fn tell_time(&mut self, group: GroupId, judged: i64) {
        let latest = self.times.entry(group).or_insert(judged);
        *latest = judged.max(*latest);
    }

    /// A reader asks at a node; `told` is the newest write that anybody knows to be acknowledged.
    /// Its number.
    pub fn begin(&mut self, group: GroupId, node: NodeId, told: u64) -> u64 {
        self.asked += 1;
        self.waiting.push(Reader {
            group,
            node,
            number: self.asked,
            after: told.max(self.seen.get(&group).copied().unwrap_or(0)),
            not_before: self.told_time(group),
            answer: None,
            judged: None,
        });
        self.asked
    }

    pub fn may_read(&mut self, group: GroupId, node: NodeId, answer: ReadIndex) {
        let mut waiting = self.waiting.iter_mut();
        let of = |one: &Reader| (one.group, one.node, one.request_id);
        if let Some(reader) = waiting.find(|one| of(one) == (group, node, answer.request_id)) {
            reader.answer = Some(answer);
        }
    }

    /// Those whose node has come far enough read, at the node's time. The numbers of those who must
    /// ask again: the leader's time had not come to what they judged by.
    pub fn read(
        &mut self,
        (group, node): (GroupId, NodeId),
        applied: u64,
        time: Option<i64>,
    ) -> Result<Vec<u64>, String> {
        let mut again = Vec::new();
        let mut done = Vec::new();
        for reader in &mut self.waiting {
            let Some(answer) = reader.answer else {
                continue;
            };
            if (reader.group, reader.node) != (group, node) || answer.index > applied {
                continue;
            }
            let judged = *reader
                .judged
                .get_or_insert_with(|| match (time, self.hasty) {
                    (Some(time), true) => grains(time),
                    _ => grains(answer.time.max(time.unwrap_or(i64::MIN))),
                });
            if applied < reader.after {
                return Err(format!(
                    "a reader at node {node} sees {group} up to {applied}, others were told of {} before it asked",
                    reader.after
                ));
            }
            if judged > grains(answer.safe_time) && !self.hasty {
                reader.answer = None;
                again.push(reader.request_id);
                continue;
            }
            if judged < reader.not_before {
                return Err(format!(
                    "a reader at node {node} judges {group} by {judged}, others were told of {} before it asked",
                    reader.not_before
                ));
            }
            done.push((reader.request_id, judged));
        }
        self.waiting
            .retain(|one| !done.iter().any(|(number, _)| *number == one.request_id));
        for (_, judged) in done {
            let seen = self.seen.entry(group).or_default();
            *seen = applied.max(*seen);
            self.tell_time(group, judged);
            self.answered += 1;
        }
        Ok(again)
    }

    pub fn waits(&self, number: u64) -> bool {
        self.waiting.iter().any(|one| one.request_id == number)
    }

    /// Whoever waited at that node waits in vain.
    pub fn forget(&mut self, node: NodeId) {
        self.waiting.retain(|one| one.node != node);
    }
}
