//! The document cache: documents that queries found by the index, so that the next query need not read
//! each of them from the engine. It is exact by the same order as the [aggregate cache](super::aggregate_cache):
//! a write evicts the items that it touches before it reaches the engine, and a document is cached, and
//! used, only by a reader whose snapshot holds every write to its item that has begun.

use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicUsize, Ordering},
    },
};

use super::command::{Change, Command};

/// Longer documents cost more to copy than to find.
const DOCUMENT_BYTES_MAX: usize = 4 * 1024;
/// Documents of one shard.
const DOCUMENTS_MAX: usize = if cfg!(test) { 64 } else { 16_384 };
/// Of all shards of the process, unless [`set_bytes_max`] says otherwise.
const BYTES_MAX: usize = 32 * 1024 * 1024;
/// What a document takes besides its own bytes, about.
const OVERHEAD_BYTES: usize = 128;
/// Items share marks of the last write: so many. A power of two.
const MARKS: usize = if cfg!(test) { 8 } else { 4_096 };

/// What the documents of all shards take, and may take.
static BYTES: AtomicUsize = AtomicUsize::new(0);
static BYTES_BOUND: AtomicUsize = AtomicUsize::new(BYTES_MAX);

/// Sets what the documents of all shards may take.
pub fn set_bytes_max(bytes: usize) {
    BYTES_BOUND.store(bytes, Ordering::Relaxed);
}

#[derive(Default)]
pub struct DocumentCache(Mutex<State>);

#[derive(Default)]
struct State {
    /// The number of the last write that was begun.
    begun: u64,
    /// `None` until a query asks.
    cached: Option<CachedDocuments>,
}

struct CachedDocuments {
    /// The last write that may have changed one of the items that share a mark.
    touched: Box<[u64; MARKS]>,
    documents: HashMap<u64, Arc<CachedDocument>>,
    /// Their ordinals, the oldest first; also some that are not here any more.
    order: VecDeque<u64>,
}

/// A document as the engine has it.
#[derive(Debug)]
pub struct CachedDocument {
    pub key: Box<[u8]>,
    pub bytes: Box<[u8]>,
}

impl CachedDocument {
    fn size(&self) -> usize {
        self.key.len() + self.bytes.len() + OVERHEAD_BYTES
    }
}

impl DocumentCache {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(|cut_off| {
            // Whoever held it may not have forgotten all that it meant to.
            self.0.clear_poison();
            let mut state = cut_off.into_inner();
            state.cached = None;
            state
        })
    }

    /// A write with this number, higher than all before it, is about to be handed to the engine.
    pub fn begin(&self, commands: &[Command], number: u64) {
        let mut state = self.lock();
        state.begun = number;
        let Some(cached) = &mut state.cached else {
            return;
        };
        for change in commands.iter().flat_map(|command| &command.changes) {
            if let Change::Put { index, .. } | Change::Delete { index, .. } = change {
                cached.touched[mark(index.ordinal)] = number;
                cached.evict(index.ordinal);
            }
        }
    }

    /// The documents of items by their ordinals, as far as they are here. For a reader whose snapshot has all writes up to `settled`.
    pub fn get(
        &self,
        ordinals: impl Iterator<Item = u64>,
        settled: u64,
    ) -> Vec<Option<Arc<CachedDocument>>> {
        let state = self.lock();
        let cached = state.cached.as_ref();
        ordinals
            .map(|ordinal| {
                let cached = cached.filter(|cached| cached.touched[mark(ordinal)] <= settled)?;
                cached.documents.get(&ordinal).cloned()
            })
            .collect()
    }

    /// Takes note of documents that were found in a snapshot that has all writes up to `settled`: ordinals, keys, bytes.
    pub fn insert<'d>(&self, found: impl Iterator<Item = (u64, &'d [u8], &'d [u8])>, settled: u64) {
        let mut state = self.lock();
        let begun = state.begun;
        // Of writes before this one it is not known what they touched.
        let cached = state.cached.get_or_insert_with(|| CachedDocuments {
            touched: Box::new([begun; MARKS]),
            documents: HashMap::new(),
            order: VecDeque::new(),
        });
        for (ordinal, key, bytes) in found {
            if bytes.len() <= DOCUMENT_BYTES_MAX && cached.touched[mark(ordinal)] <= settled {
                let (key, bytes) = (key.into(), bytes.into());
                cached.add(ordinal, CachedDocument { key, bytes });
            }
        }
    }
}

impl CachedDocuments {
    fn add(&mut self, ordinal: u64, document: CachedDocument) {
        if self.documents.contains_key(&ordinal) {
            return;
        }
        let size = document.size();
        let bytes_max = BYTES_BOUND.load(Ordering::Relaxed);
        while self.order.len() >= DOCUMENTS_MAX || BYTES.load(Ordering::Relaxed) + size > bytes_max
        {
            match self.order.pop_front() {
                Some(oldest) => self.evict(oldest),
                // The others have it all.
                None => return,
            }
        }
        BYTES.fetch_add(size, Ordering::Relaxed);
        self.order.push_back(ordinal);
        self.documents.insert(ordinal, Arc::new(document));
    }

    fn evict(&mut self, ordinal: u64) {
        if let Some(gone) = self.documents.remove(&ordinal) {
            BYTES.fetch_sub(gone.size(), Ordering::Relaxed);
        }
    }
}

impl Drop for CachedDocuments {
    fn drop(&mut self) {
        let size: usize = self.documents.values().map(|one| one.size()).sum();
        BYTES.fetch_sub(size, Ordering::Relaxed);
    }
}

/// Neighbours have marks of their own.
fn mark(ordinal: u64) -> usize {
    ordinal as usize % MARKS
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shard::command::IndexChanges;

    fn write_of(ordinal: u64) -> Command {
        let put = Change::Put {
            key: bytes::Bytes::new(),
            place_bytes: 0,
            value: bytes::Bytes::new(),
            previous: None,
            index: IndexChanges {
                ordinal,
                generations: Vec::new(),
            },
        };
        Command {
            lsn: 1,
            ts: 1,
            changes: vec![put],
        }
    }

    fn keep(cache: &DocumentCache, ordinal: u64, bytes: &[u8], settled: u64) {
        cache.insert(std::iter::once((ordinal, &b"key"[..], bytes)), settled);
    }

    fn known(cache: &DocumentCache, ordinal: u64, settled: u64) -> Option<Vec<u8>> {
        let mut found = cache.get(std::iter::once(ordinal), settled);
        Some(found.pop()??.bytes.to_vec())
    }

    #[test]
    fn a_write_forgets_what_it_touches_before_it_is_in_the_engine() {
        let cache = DocumentCache::default();
        cache.begin(&[write_of(1)], 1);
        keep(&cache, 1, b"one", 1);
        keep(&cache, 2, b"two", 1);
        assert_eq!(known(&cache, 1, 1), Some(b"one".to_vec()));
        cache.begin(&[write_of(1)], 2);
        assert_eq!(known(&cache, 1, 1), None);
        assert_eq!(known(&cache, 2, 1), Some(b"two".to_vec()));
        // A reader whose snapshot is older than the write must not bring the old version back.
        keep(&cache, 1, b"one", 1);
        assert_eq!(known(&cache, 1, 2), None);
        keep(&cache, 1, b"new", 2);
        assert_eq!(known(&cache, 1, 2), Some(b"new".to_vec()));
        // Nor may it see what is newer than its snapshot.
        assert_eq!(known(&cache, 1, 1), None);
    }

    #[test]
    fn what_was_written_before_the_first_query_is_not_taken_from_an_older_snapshot() {
        let cache = DocumentCache::default();
        cache.begin(&[write_of(1)], 7);
        keep(&cache, 1, b"old", 6);
        assert_eq!(known(&cache, 1, 7), None);
        keep(&cache, 1, b"new", 7);
        assert_eq!(known(&cache, 1, 7), Some(b"new".to_vec()));
    }

    #[test]
    fn it_is_bounded_and_the_oldest_leave_first() {
        let cache = DocumentCache::default();
        let long = vec![0; DOCUMENT_BYTES_MAX + 1];
        keep(&cache, 1, &long, 0);
        assert_eq!(known(&cache, 1, 0), None);
        for ordinal in 0..3 * DOCUMENTS_MAX as u64 {
            keep(&cache, ordinal, b"x", 0);
            // Those that are touched leave nothing behind that grows.
            cache.begin(&[write_of(1_000_000)], 0);
        }
        let all = 0..3 * DOCUMENTS_MAX as u64;
        let there: Vec<u64> = all.filter(|one| known(&cache, *one, 0).is_some()).collect();
        let newest = 2 * DOCUMENTS_MAX as u64..3 * DOCUMENTS_MAX as u64;
        assert_eq!(there, newest.collect::<Vec<_>>());
    }
}
