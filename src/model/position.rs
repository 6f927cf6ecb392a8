//! The order of changes in a shard.

use serde::{Deserialize, Serialize};

/// Where a version stands in the order of changes: the transaction's LSN and the index in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Position {
    pub lsn: u64,
    pub index: u16,
}

impl Position {
    pub const START: Self = Self { lsn: 0, index: 0 };

    /// Returns the first position after every change of transaction `lsn`.
    pub const fn after_lsn(lsn: u64) -> Self {
        Self {
            lsn: lsn.saturating_add(1),
            index: 0,
        }
    }

    /// Returns the position right behind this one.
    pub const fn next(self) -> Self {
        match self.index.checked_add(1) {
            Some(index) => Self {
                lsn: self.lsn,
                index,
            },
            None => Self::after_lsn(self.lsn),
        }
    }
}
