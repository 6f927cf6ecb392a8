//! The weight of a transaction, bounded while it is decided: one Raft log entry carries it whole.

use crate::{
    cluster::ENTRY_BYTES_MAX,
    model::{
        error::{Error, ErrorKind, Result},
        item::ITEM_BYTES_MAX,
    },
    shard::state::command::Change,
};

/// Bytes of the items that a transaction writes, counted after its patches: as much as a request
/// body holds.
pub const TRANSACTION_BYTES_MAX: usize = ITEM_BYTES_MAX + 64 * 1024;

/// Bytes of the versions that a transaction reads, replaces or removes: each is parsed on the
/// writer's thread for its index terms.
pub const TOUCHED_BYTES_MAX: usize = 16 * 1024 * 1024;

/// What a transaction weighs so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct Weight {
    /// Items as clients see them, without the system properties.
    items: usize,
    /// The log entry: items, index terms and keys.
    entry: usize,
    /// The stored versions that it has met.
    touched: usize,
}

impl Weight {
    /// Adds an item that the transaction writes.
    pub fn add_item(&mut self, bytes: usize) -> Result<()> {
        self.items += bytes;
        if self.items > TRANSACTION_BYTES_MAX {
            return Err(too_large(format!(
                "the items that the transaction writes have more than {TRANSACTION_BYTES_MAX} bytes together, counted after patches are applied; write fewer of them at a time"
            )));
        }
        Ok(())
    }

    /// Adds a stored version that the transaction reads, replaces or removes.
    pub fn add_touched(&mut self, bytes: usize) -> Result<()> {
        self.touched += bytes;
        if self.touched > TOUCHED_BYTES_MAX {
            return Err(too_large(format!(
                "the transaction reads, replaces or deletes items of more than {TOUCHED_BYTES_MAX} bytes together; name fewer of them at a time"
            )));
        }
        Ok(())
    }

    /// Adds a change with all that its entry carries of it.
    pub fn add_change(&mut self, change: &Change) -> Result<()> {
        self.entry += change.entry_bytes();
        if self.entry > ENTRY_BYTES_MAX {
            return Err(too_large(format!(
                "the transaction changes more than {ENTRY_BYTES_MAX} bytes of items and index terms; write or delete fewer items at a time, or index fewer paths"
            )));
        }
        Ok(())
    }
}

fn too_large(message: String) -> Error {
    Error::new(
        ErrorKind::TooLarge,
        format!("Request size is too large: {message}"),
    )
}
