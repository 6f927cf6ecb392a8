//! What is decided but not yet committed, so that the next decision sees it. Reads by others do
//! not.

use std::collections::HashMap;

use bytes::Bytes;

use crate::store::{Engine, EngineError};

/// Pending values of engine keys: documents and unique keys.
#[derive(Default)]
pub struct Overlay {
    pending: HashMap<Bytes, Pending>,
}

struct Pending {
    /// The group in which it will be committed.
    group: u64,
    value: Option<Bytes>,
}

impl Overlay {
    /// Returns the value that a decision must see.
    pub fn get(&self, engine: &Engine, key: &[u8]) -> Result<Option<Bytes>, EngineError> {
        match self.pending.get(key) {
            Some(pending) => Ok(pending.value.clone()),
            None => Ok(engine.get(key)?.map(|value| Bytes::copy_from_slice(&value))),
        }
    }

    pub fn set(&mut self, group: u64, key: Bytes, value: Option<Bytes>) {
        self.pending.insert(key, Pending { group, value });
    }

    /// Returns what is pending for a key, if anything is.
    pub fn pending(&self, key: &[u8]) -> Option<Option<&Bytes>> {
        self.pending.get(key).map(|pending| pending.value.as_ref())
    }

    /// The groups up to this one are committed: their values are in the engine.
    pub fn committed(&mut self, group: u64) {
        self.pending.retain(|_, pending| pending.group > group);
    }

    /// Nothing that was pending will be committed.
    pub fn clear(&mut self) {
        self.pending.clear();
    }
}
