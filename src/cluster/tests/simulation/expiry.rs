//! Values that expire. Each carries the time at which it falls due, by the clock of the leader that
//! proposed it; every node purges what is due by its own idea of the time, whenever it likes.
//! Whoever leads a group must not lack a value that lives by the time it judges by.

use std::collections::BTreeMap;

use super::node::Machine;

#[derive(Default)]
pub struct Expiry {
    /// When values fall due.
    due: BTreeMap<u64, i64>,
    pub purged: u64,
}

impl Expiry {
    pub fn propose(&mut self, value: u64, due: i64) {
        self.due.insert(value, due);
    }

    fn is_due(&self, value: u64, time: i64) -> bool {
        self.due.get(&value).is_some_and(|due| *due <= time)
    }

    /// A node purges what is due by this time.
    pub fn purge(&mut self, machine: &mut Machine, time: i64) {
        let due: Vec<u64> = machine
            .values()
            .filter(|value| self.is_due(*value, time))
            .collect();
        let before = machine.purged.len();
        machine.purged.extend(due);
        self.purged += (machine.purged.len() - before) as u64;
    }

    /// What a leader lacks though it is not due by the time that it judges by.
    pub fn purged_early(&self, machine: &Machine, time: i64) -> Option<u64> {
        let mut purged = machine.purged.iter().copied();
        purged.find(|value| !self.is_due(*value, time))
    }
}
