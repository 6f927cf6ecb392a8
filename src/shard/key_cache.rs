//! The key cache: from ordinals to the document keys of items that queries found lately. An ordinal
//! belongs to one item for ever, and an item never changes its key, so no entry is ever stale; whether
//! the item still exists, only a read tells.

use std::sync::{Mutex, OnceLock};

/// Ordinals that are remembered: with keys of usual length 3 MB. A power of two.
const SLOTS: usize = 32_768;
/// Keys that are longer are looked up each time.
const KEY_BYTES_MAX: usize = 256;
/// Spreads neighbours: the golden ratio in 64 bits.
const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;

/// Each ordinal has one slot, which it shares with others: the last one that was looked up has it.
#[derive(Default)]
pub struct KeyCache(OnceLock<Vec<CacheSlot>>);

/// An ordinal and its document key.
type CacheSlot = Mutex<Option<(u64, Box<[u8]>)>>;

impl KeyCache {
    fn slot(&self, ordinal: u64) -> Option<&CacheSlot> {
        let slots = self
            .0
            .get_or_init(|| (0..SLOTS).map(|_| Mutex::default()).collect());
        let spread = ordinal.wrapping_mul(SPREAD) >> (u64::BITS - SLOTS.ilog2());
        slots.get(spread as usize)
    }

    /// The document key of the item with this ordinal, if it is known.
    pub fn get(&self, ordinal: u64) -> Option<Vec<u8>> {
        let slot = self.slot(ordinal)?.lock().ok()?;
        let (known, key) = slot.as_ref()?;
        (*known == ordinal).then(|| key.to_vec())
    }

    /// Remembers what the engine told.
    pub fn insert(&self, ordinal: u64, key: &[u8]) {
        if key.len() <= KEY_BYTES_MAX
            && let Some(Ok(mut slot)) = self.slot(ordinal).map(|slot| slot.lock())
        {
            *slot = Some((ordinal, key.into()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_kept_last_is_known_and_nothing_wrong_ever() {
        let cache = KeyCache::default();
        assert_eq!(cache.get(1), None);
        let key = |ordinal: u64| ordinal.to_be_bytes();
        let all = 0..3 * SLOTS as u64;
        for ordinal in all.clone() {
            cache.insert(ordinal, &key(ordinal));
            assert_eq!(cache.get(ordinal), Some(key(ordinal).to_vec()));
        }
        let known = all.filter(|ordinal| match cache.get(*ordinal) {
            Some(found) => {
                assert_eq!(found, key(*ordinal));
                true
            }
            None => false,
        });
        assert_eq!(known.count(), SLOTS, "neighbours do not share slots");
        cache.insert(7, &[0; KEY_BYTES_MAX + 1]);
        assert_eq!(cache.get(7), None);
    }
}
