//! Where items are that queries have found lately: from ordinals to document keys. An ordinal belongs to one item for ever, and an item never
//! changes its key, so nothing here can be out of date; whether the item is still there, only a look at it tells.

use std::sync::{Mutex, OnceLock};

/// Ordinals that are remembered: with keys of usual length 3 MB. A power of two.
const PLACES: usize = 32_768;
/// Keys that are longer are looked up each time.
const KEY_BYTES_MAX: usize = 256;
/// Spreads neighbours: the golden ratio in 64 bits.
const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;

/// Each ordinal has one place, which it shares with others: the last one that was looked up has it.
#[derive(Default)]
pub struct Whereabouts(OnceLock<Vec<Place>>);

/// An ordinal and its document key.
type Place = Mutex<Option<(u64, Box<[u8]>)>>;

impl Whereabouts {
    fn place(&self, ordinal: u64) -> Option<&Place> {
        let places = self
            .0
            .get_or_init(|| (0..PLACES).map(|_| Mutex::default()).collect());
        let spread = ordinal.wrapping_mul(SPREAD) >> (u64::BITS - PLACES.ilog2());
        places.get(spread as usize)
    }

    /// The document key of the item with this ordinal, if it is known.
    pub fn of(&self, ordinal: u64) -> Option<Vec<u8>> {
        let place = self.place(ordinal)?.lock().ok()?;
        let (known, key) = place.as_ref()?;
        (*known == ordinal).then(|| key.to_vec())
    }

    /// Remembers what the engine told.
    pub fn keep(&self, ordinal: u64, key: &[u8]) {
        if key.len() <= KEY_BYTES_MAX
            && let Some(Ok(mut place)) = self.place(ordinal).map(|place| place.lock())
        {
            *place = Some((ordinal, key.into()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_kept_last_is_known_and_nothing_wrong_ever() {
        let whereabouts = Whereabouts::default();
        assert_eq!(whereabouts.of(1), None);
        let key = |ordinal: u64| ordinal.to_be_bytes();
        let all = 0..3 * PLACES as u64;
        for ordinal in all.clone() {
            whereabouts.keep(ordinal, &key(ordinal));
            assert_eq!(whereabouts.of(ordinal), Some(key(ordinal).to_vec()));
        }
        let known = all.filter(|ordinal| match whereabouts.of(*ordinal) {
            Some(found) => {
                assert_eq!(found, key(*ordinal));
                true
            }
            None => false,
        });
        assert_eq!(known.count(), PLACES, "neighbours do not share places");
        whereabouts.keep(7, &[0; KEY_BYTES_MAX + 1]);
        assert_eq!(whereabouts.of(7), None);
    }
}
