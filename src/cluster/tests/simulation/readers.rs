//! Strong reads. All writes of a group have one order, so a history is linearizable if each read
//! sees at least what was acknowledged to any client before it began, and uses a time no earlier
//! than that of any answer before.

use std::collections::BTreeMap;

use crate::cluster::{GroupId, NodeId, raft::read_index::ReadIndex};

/// Milliseconds of the unit in which reads see time, as clients see seconds.
const GRAIN: i64 = 100;

#[derive(Default)]
pub struct Readers {
    /// Reads use the clocks of their nodes, whatever the leader's says.
    hasty: bool,
    asked: u64,
    waiting: Vec<Reader>,
    /// The highest index that a read of the group has seen.
    seen: BTreeMap<GroupId, u64>,
    /// The latest time of any answer.
    times: BTreeMap<GroupId, i64>,
    pub answered: u64,
}

struct Reader {
    group: GroupId,
    node: NodeId,
    request_id: u64,
    /// What it must see, and the time that it must not be behind.
    after: u64,
    not_before: i64,
    answer: Option<ReadIndex>,
    /// The time that it has used, once it has read.
    judged: Option<i64>,
}

/// Returns a time in whole units, as times are compared.
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

    /// Returns the latest time of any answer, in units.
    pub fn told_time(&self, group: GroupId) -> i64 {
        self.times.get(&group).copied().unwrap_or(i64::MIN)
    }

    /// Notes an answer that has used this time, in units.
    pub fn tell_time(&mut self, group: GroupId, judged: i64) {
        let latest = self.times.entry(group).or_insert(judged);
        *latest = judged.max(*latest);
    }

    /// Begins a read at a node; `told` is the newest acknowledged write. Returns its request id.
    pub fn begin(&mut self, group: GroupId, node: NodeId, told: u64) -> u64 {
        self.asked += 1;
        self.waiting.push(Reader {
            group,
            node,
            request_id: self.asked,
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

    /// Lets reads go on whose node has applied their read index. Returns the request ids of those
    /// whose commit wait is not over.
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
        self.waiting.retain(|one| {
            !done
                .iter()
                .any(|(request_id, _)| *request_id == one.request_id)
        });
        for (_, judged) in done {
            let seen = self.seen.entry(group).or_default();
            *seen = applied.max(*seen);
            self.tell_time(group, judged);
            self.answered += 1;
        }
        Ok(again)
    }

    pub fn waits(&self, request_id: u64) -> bool {
        self.waiting.iter().any(|one| one.request_id == request_id)
    }

    /// Drops the reads at a node that is gone.
    pub fn forget(&mut self, node: NodeId) {
        self.waiting.retain(|one| one.node != node);
    }
}
