//! From entries of the index to items.

use std::rc::Rc;

use super::{
    Candidate, ResumePoint,
    choose::Check,
    ordinals::OrdinalWalk,
    reader::{Reader, damaged},
    walk::{Count, Walk},
};
use crate::{
    model::{epk::EpkRange, error::Result},
    shard::view::decode,
    store::{document::Header, engine::Pinned, index_entry, keys},
};

/// What leads to the items.
pub enum Entries<'v> {
    Walk(Walk<'v>),
    Ordinals(OrdinalWalk),
}

impl Entries<'_> {
    pub fn ordinal(&self) -> u64 {
        match self {
            Self::Walk(walk) => walk.ordinal(),
            Self::Ordinals(walk) => walk.ordinal(),
        }
    }

    fn advance(&mut self) -> Result<bool> {
        match self {
            Self::Walk(walk) => walk.advance(),
            Self::Ordinals(walk) => Ok(walk.advance()),
        }
    }

    pub fn resume_at(&self) -> ResumePoint {
        match self {
            Self::Walk(walk) => walk.resume_at(),
            Self::Ordinals(walk) => walk.resume_at(),
        }
    }

    pub fn resume_after(&self) -> ResumePoint {
        match self {
            Self::Walk(walk) => walk.resume_after(),
            Self::Ordinals(walk) => walk.resume_after(),
        }
    }

    pub fn is_at_resume(&self) -> bool {
        match self {
            Self::Walk(walk) => walk.is_at_resume(),
            Self::Ordinals(walk) => walk.is_at_resume(),
        }
    }
}

pub struct ItemsOfIndex<'v> {
    reader: Rc<Reader<'v>>,
    pub entries: Entries<'v>,
    checks: Vec<Check>,
    exact: bool,
    /// Document keys in scope: from, to.
    keys: (Vec<u8>, Vec<u8>),
    has_foreign: bool,
    current: Option<Item<'v>>,
}

struct Item<'v> {
    key: Vec<u8>,
    bytes: Pinned<'v>,
    header: Header,
}

impl<'v> ItemsOfIndex<'v> {
    pub fn new(
        reader: Rc<Reader<'v>>,
        entries: Entries<'v>,
        checks: Vec<Check>,
        exact: bool,
        range: &EpkRange,
    ) -> Self {
        Self {
            has_foreign: reader.has_foreign,
            reader,
            entries,
            checks,
            exact,
            keys: keys::document_range(&range.min, &range.max),
            current: None,
        }
    }

    pub fn advance(&mut self) -> Result<bool> {
        self.current = None;
        self.entries.advance()
    }

    /// Whether the entry under the cursor is of a live item that has the other terms.
    pub fn passes(&self) -> Result<bool> {
        if let Entries::Walk(walk) = &self.entries
            && walk
                .value()?
                .is_some_and(|value| !self.reader.is_live(value))
        {
            return Ok(false);
        }
        let ordinal = self.entries.ordinal();
        Ok(self.has_terms(ordinal)? && self.is_ours(ordinal)?)
    }

    /// Whether the item of an entry is in the shard's range. That is asked only while the index has entries of others, too.
    fn is_ours(&self, ordinal: u64) -> Result<bool> {
        if !self.has_foreign {
            return Ok(true);
        }
        self.reader.is_within(ordinal, &self.keys)
    }

    /// Counts the entry under the cursor, and with it some that follow: at most so many.
    pub fn count(&mut self, entries_max: usize) -> Result<Count> {
        match &mut self.entries {
            Entries::Walk(walk) if self.checks.is_empty() && !self.has_foreign => {
                walk.count(entries_max, |value| self.reader.is_live(value))
            }
            _ => Ok(Count {
                entries: 1,
                live: u64::from(self.passes()?),
            }),
        }
    }

    fn has_terms(&self, ordinal: u64) -> Result<bool> {
        for check in &self.checks {
            let mut found = false;
            for value in &check.values {
                let mut key = self.reader.entry_prefix(check.path, value);
                key.extend_from_slice(&ordinal.to_be_bytes());
                found |= self.reader.snapshot.get(&key)?.is_some();
                if found {
                    break;
                }
            }
            if !found {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Reads the item under the cursor; `false` when it is not one of those looked for.
    pub fn load(&mut self) -> Result<bool> {
        if !self.passes()? {
            return Ok(false);
        }
        let ordinal = self.entries.ordinal();
        let Some(resource) = self.reader.snapshot.get(&keys::resource(ordinal))? else {
            return Ok(false);
        };
        let (_, key) = damaged(index_entry::resource_parts(&resource))?;
        let (from, to) = &self.keys;
        if key < from.as_slice() || key >= to.as_slice() {
            return Ok(false);
        }
        let Some(bytes) = self.reader.snapshot.get(key)? else {
            return Ok(false);
        };
        let header = decode(&*bytes)?.header;
        // After an expiry the same key may have another item.
        if header.ordinal != ordinal || !self.reader.judge.is_live(header.ts, header.ttl) {
            return Ok(false);
        }
        self.current = Some(Item {
            key: key.to_vec(),
            bytes,
            header,
        });
        Ok(true)
    }

    pub fn candidate(&self) -> Result<Candidate<'_>> {
        let item = damaged(self.current.as_ref())?;
        Ok(Candidate {
            key: &item.key,
            header: &item.header,
            body: decode(&*item.bytes)?.into_borrowed_body(),
            matches: self.exact,
        })
    }
}
