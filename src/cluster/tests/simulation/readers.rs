//! Readers who must see what is newest. All writes of a group stand in one order, so a history is linearizable if each reader sees at least what anybody, writer or
//! reader, had been told of before it asked.

use std::collections::BTreeMap;

use crate::cluster::{GroupId, NodeId};

#[derive(Default)]
pub struct Readers {
    asked: u64,
    waiting: Vec<Reader>,
    /// The newest that a reader of the group has seen.
    seen: BTreeMap<GroupId, u64>,
    pub answered: u64,
}

struct Reader {
    group: GroupId,
    node: NodeId,
    number: u64,
    /// What it must see.
    after: u64,
    /// What its node must have applied before it reads.
    index: Option<u64>,
}

impl Readers {
    /// A reader asks at a node; `told` is the newest write that anybody knows to be acknowledged. Its number.
    pub fn begin(&mut self, group: GroupId, node: NodeId, told: u64) -> u64 {
        self.asked += 1;
        self.waiting.push(Reader {
            group,
            node,
            number: self.asked,
            after: told.max(self.seen.get(&group).copied().unwrap_or(0)),
            index: None,
        });
        self.asked
    }

    pub fn may_read(&mut self, group: GroupId, node: NodeId, number: u64, index: u64) {
        let mut waiting = self.waiting.iter_mut();
        let reader = waiting.find(|one| (one.group, one.node, one.number) == (group, node, number));
        if let Some(reader) = reader {
            reader.index = Some(index);
        }
    }

    /// Those whose node has come far enough read.
    pub fn read(&mut self, group: GroupId, node: NodeId, applied: u64) -> Result<(), String> {
        let ready = self.waiting.extract_if(.., |one| {
            (one.group, one.node) == (group, node)
                && one.index.is_some_and(|index| index <= applied)
        });
        for Reader { after, .. } in ready {
            if applied < after {
                return Err(format!(
                    "a reader at node {node} sees {group} up to {applied}, others were told of {after} before it asked"
                ));
            }
            let seen = self.seen.entry(group).or_default();
            *seen = applied.max(*seen);
            self.answered += 1;
        }
        Ok(())
    }

    /// Whoever waited at that node waits in vain.
    pub fn forget(&mut self, node: NodeId) {
        self.waiting.retain(|one| one.node != node);
    }
}
