//! From entries of the index to items.

use std::{collections::VecDeque, rc::Rc, sync::Arc};

use super::{
    candidate::Candidate,
    index_reader::{IndexReader, damaged},
    index_walk::IndexWalk,
    ordinal_walk::OrdinalWalk,
    resume::ResumePoint,
};
use crate::{
    index::PathId,
    model::{epk::EpkRange, error::Result},
    shard::{document_cache::CachedDocument, view::decode},
    store::{document::Header, engine::Pinned, index_entry, keys},
};

/// What leads to the items.
pub enum IndexEntries<'v> {
    Walk(IndexWalk<'v>),
    Ordinals(OrdinalWalk),
}

impl IndexEntries<'_> {
    pub fn ordinal(&self) -> u64 {
        match self {
            Self::Walk(walk) => walk.ordinal(),
            Self::Ordinals(walk) => walk.ordinal(),
        }
    }

    pub fn advance(&mut self) -> Result<bool> {
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

    fn is_at_resume(&self) -> bool {
        match self {
            Self::Walk(walk) => walk.is_at_resume(),
            Self::Ordinals(walk) => walk.is_at_resume(),
        }
    }
}

/// One of these terms must be there: a path, and encoded values.
pub struct TermCheck {
    pub path: PathId,
    pub values: Vec<Vec<u8>>,
}

/// Entries that are looked up together at most: lookups of several keys share work.
const AHEAD_MAX: usize = 16;
/// If their documents take more than this they are looked up one by one from then on.
const AHEAD_BYTES_MAX: usize = 1024 * 1024;

pub struct IndexItems<'v> {
    reader: Rc<IndexReader<'v>>,
    pub entries: IndexEntries<'v>,
    checks: Vec<TermCheck>,
    exact: bool,
    /// Document keys in scope: from, to.
    keys: (Vec<u8>, Vec<u8>),
    has_foreign: bool,
    /// How many entries are looked up together.
    together: usize,
    /// Until the first items are looked up.
    fills_cache: bool,
    /// Entries that were looked up and not handed out yet.
    ahead: VecDeque<FoundEntry<'v>>,
    /// Bytes of the documents that were looked up together last.
    ahead_bytes: usize,
    current: Option<FoundEntry<'v>>,
}

/// An entry, with its item if that is one of those looked for.
struct FoundEntry<'v> {
    at: ResumePoint,
    is_at_resume: bool,
    ordinal: u64,
    item: Option<FoundItem<'v>>,
}

struct FoundItem<'v> {
    document: DocumentRef<'v>,
    header: Header,
}

/// A document where it is.
enum DocumentRef<'v> {
    Engine { key: Vec<u8>, bytes: Pinned<'v> },
    Cached(Arc<CachedDocument>),
}

impl DocumentRef<'_> {
    fn key(&self) -> &[u8] {
        match self {
            Self::Engine { key, .. } => key,
            Self::Cached(document) => &document.key,
        }
    }

    fn bytes(&self) -> &[u8] {
        match self {
            Self::Engine { bytes, .. } => bytes,
            Self::Cached(document) => &document.bytes,
        }
    }
}

impl<'v> IndexItems<'v> {
    /// `wanted` is the number of items that will be asked for at most, as far as is known.
    pub fn new(
        reader: Rc<IndexReader<'v>>,
        entries: IndexEntries<'v>,
        checks: Vec<TermCheck>,
        exact: bool,
        range: &EpkRange,
        wanted: usize,
    ) -> Self {
        Self {
            has_foreign: reader.has_foreign,
            reader,
            entries,
            checks,
            exact,
            keys: keys::document_range(&range.min, &range.max),
            together: wanted.clamp(1, AHEAD_MAX),
            fills_cache: true,
            ahead: VecDeque::new(),
            ahead_bytes: 0,
            current: None,
        }
    }

    /// Moves to the next entry and looks up its item, and with it those of some that follow: at most so many.
    pub fn advance(&mut self, entries_max: usize) -> Result<bool> {
        if self.ahead.is_empty() {
            self.look_ahead(self.together.min(entries_max.max(1)))?;
        }
        self.current = self.ahead.pop_front();
        Ok(self.current.is_some())
    }

    /// Bytes of memory that it holds.
    pub fn held_bytes(&self) -> usize {
        let ordinals = match &self.entries {
            IndexEntries::Walk(_) => 0,
            IndexEntries::Ordinals(walk) => walk.held_bytes(),
        };
        ordinals + self.ahead_bytes
    }

    /// Whether the entry is of an item that is looked for.
    pub fn has_item(&self) -> bool {
        let current = self.current.as_ref();
        current.is_some_and(|found| found.item.is_some())
    }

    pub fn resume_at(&self) -> ResumePoint {
        let current = self.current.as_ref();
        current.map_or_else(|| self.entries.resume_at(), |found| found.at.clone())
    }

    pub fn is_at_resume(&self) -> bool {
        let current = self.current.as_ref();
        current.is_some_and(|found| found.is_at_resume)
    }

    /// Whether the entry under the cursor is of a live item that has the other terms.
    pub fn passes(&self) -> Result<bool> {
        if let IndexEntries::Walk(walk) = &self.entries
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

    fn look_ahead(&mut self, entries_max: usize) -> Result<()> {
        // Places in `ahead`, and their ordinals.
        let mut passed = Vec::with_capacity(entries_max);
        self.ahead_bytes = 0;
        self.ahead.reserve(entries_max);
        for place in 0..entries_max {
            if !self.entries.advance()? {
                break;
            }
            let ordinal = self.entries.ordinal();
            if self.passes()? {
                passed.push((place, ordinal));
            }
            self.ahead.push_back(FoundEntry {
                at: self.entries.resume_at(),
                is_at_resume: self.entries.is_at_resume(),
                ordinal,
                item: None,
            });
        }
        let settled = self.reader.read_point.settled;
        let cache = &self.reader.view.document_cache;
        let known = cache.get(passed.iter().map(|(_, ordinal)| *ordinal), settled);
        let mut unknown = Vec::new();
        for (one, document) in passed.into_iter().zip(known) {
            match document {
                Some(document) => self.find(one.0, DocumentRef::Cached(document))?,
                None => unknown.push(one),
            }
        }
        if unknown.is_empty() {
            return Ok(());
        }
        let (places, keys): (Vec<_>, Vec<_>) = self
            .document_keys(&unknown)?
            .into_iter()
            .filter(|(_, key)| self.is_in_scope(key))
            .unzip();
        let documents = self.reader.snapshot.get_all(&keys)?;
        for ((place, key), bytes) in places.iter().zip(keys).zip(documents) {
            if let Some(bytes) = bytes {
                self.find(*place, DocumentRef::Engine { key, bytes })?;
            }
        }
        if self.ahead_bytes > AHEAD_BYTES_MAX {
            self.together = 1;
        }
        if self.fills_cache {
            let found = places.iter().filter_map(|place| {
                let found = self.ahead.get(*place)?;
                let document = &found.item.as_ref()?.document;
                Some((found.ordinal, document.key(), document.bytes()))
            });
            cache.insert(found, settled);
            // Whoever goes on reads more than will be asked for again soon.
            self.fills_cache = false;
        }
        Ok(())
    }

    fn is_in_scope(&self, key: &[u8]) -> bool {
        let (from, to) = &self.keys;
        (from.as_slice()..to.as_slice()).contains(&key)
    }

    /// The document of an entry, unless its item is not one of those looked for.
    fn find(&mut self, place: usize, document: DocumentRef<'v>) -> Result<()> {
        if self.is_in_scope(document.key())
            && let Some(found) = self.ahead.get_mut(place)
        {
            self.ahead_bytes += document.bytes().len();
            let header = decode(document.bytes())?.header;
            // After an expiry the same key may have another item.
            if header.ordinal == found.ordinal && self.reader.judge.is_live(header.ts, header.ttl) {
                found.item = Some(FoundItem { document, header });
            }
        }
        Ok(())
    }

    /// The document keys of items by their ordinals; those that are unknown are left out.
    fn document_keys(&self, wanted: &[(usize, u64)]) -> Result<Vec<(usize, Vec<u8>)>> {
        let key_cache = &self.reader.view.key_cache;
        let mut found = Vec::with_capacity(wanted.len());
        let mut unknown = Vec::new();
        for &(place, ordinal) in wanted {
            match key_cache.get(ordinal) {
                Some(key) => found.push((place, key)),
                None => unknown.push((place, ordinal)),
            }
        }
        let resources: Vec<_> = unknown
            .iter()
            .map(|(_, ordinal)| keys::resource(*ordinal))
            .collect();
        let resources = self.reader.snapshot.get_all(&resources)?;
        for ((place, ordinal), resource) in unknown.into_iter().zip(resources) {
            if let Some(resource) = resource {
                let (_, key) = damaged(index_entry::resource_parts(&resource))?;
                key_cache.insert(ordinal, key);
                found.push((place, key.to_vec()));
            }
        }
        Ok(found)
    }

    pub fn candidate(&self) -> Result<Candidate<'_>> {
        let current = self.current.as_ref();
        let item = damaged(current.and_then(|found| found.item.as_ref()))?;
        Ok(Candidate {
            key: item.document.key(),
            header: &item.header,
            body: decode(item.document.bytes())?.into_borrowed_body(),
            matches: self.exact,
        })
    }
}
