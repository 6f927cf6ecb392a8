//! Values that expire. Each carries its expiry time, by the clock of the leader that proposed it.
//! Every node purges expired values by its own time, at any moment. A leader must not lack a value
//! that has not expired by the time it uses.

use std::collections::BTreeMap;

use super::node::Machine;

#[derive(Default)]
pub struct Expiry {
    /// The expiry time of each value.
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

    /// Purges what has expired by this time.
    pub fn purge(&mut self, machine: &mut Machine, time: i64) {
        let due: Vec<u64> = machine
            .values()
            .filter(|value| self.is_due(*value, time))
            .collect();
        let before = machine.purged.len();
        machine.purged.extend(due);
        self.purged += (machine.purged.len() - before) as u64;
    }

    /// Returns a value that a leader lacks though it has not expired by the time it uses.
    pub fn purged_early(&self, machine: &Machine, time: i64) -> Option<u64> {
        let mut purged = machine.purged.iter().copied();
        purged.find(|value| !self.is_due(*value, time))
    }
}
