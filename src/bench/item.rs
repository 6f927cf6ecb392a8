//! The items that are written: 1 KB of JSON that does not compress to nothing.

use std::io::Write as _;
use std::sync::{Arc, LazyLock};

/// Bytes of an item's JSON as it is sent.
pub const ITEM_BYTES: usize = 1_024;
/// Operations of a transactional batch, and so items with one partition key in a loaded container.
pub const BATCH_ITEMS: u32 = 100;

const NOISE_BYTES: usize = 1 << 20;
const NOISE_SEED: u64 = 0x00B0_11DE;
const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

static NOISE: LazyLock<Arc<[u8]>> = LazyLock::new(|| {
    let mut random = Random::new(NOISE_SEED);
    let text = std::iter::repeat_with(|| {
        let index = (random.next() >> 58) as usize;
        ALPHABET.get(index).copied().unwrap_or(b'A')
    });
    text.take(NOISE_BYTES).collect()
});

/// SplitMix64: reproducible, and cheap beside a request.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`; 0 if there is none.
    pub fn below(&mut self, bound: u32) -> u32 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u32
    }
}

/// The id of the item with this number in a loaded container.
pub fn id(number: u32) -> String {
    format!("i{number:09}")
}

/// The partition key of that item: the same for each batch.
pub fn partition_key(number: u32) -> String {
    format!("p{:07}", number / BATCH_ITEMS)
}

/// Appends an item of exactly [`ITEM_BYTES`].
pub fn write(
    target: &mut Vec<u8>,
    id: &str,
    partition_key: &str,
    ttl: Option<u64>,
    random: &mut Random,
) {
    let start = target.len();
    // Writing to a vector cannot fail.
    let _ = write!(target, r#"{{"id":"{id}","pk":"{partition_key}","#);
    if let Some(ttl) = ttl {
        let _ = write!(target, r#""ttl":{ttl},"#);
    }
    target.extend_from_slice(br#""payload":""#);
    let room = ITEM_BYTES.saturating_sub(target.len() - start + 2);
    let offset = random.below((NOISE_BYTES - ITEM_BYTES) as u32) as usize;
    target.extend_from_slice(NOISE.get(offset..offset + room).unwrap_or_default());
    target.extend_from_slice(br#""}"#);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_are_json_of_the_stated_size() {
        let mut random = Random::new(1);
        for ttl in [None, Some(5), Some(2_147_483_647)] {
            let mut text = Vec::new();
            write(&mut text, &id(7), &partition_key(7), ttl, &mut random);
            assert_eq!(text.len(), ITEM_BYTES);
            let item: serde_json::Value = serde_json::from_slice(&text).unwrap();
            assert_eq!(item["id"], "i000000007");
            assert_eq!(item["pk"], "p0000000");
            assert_eq!(item.get("ttl").and_then(|ttl| ttl.as_u64()), ttl);
        }
    }

    #[test]
    fn random_numbers_stay_below_their_bound_and_reach_all_of_it() {
        let mut random = Random::new(3);
        let mut seen = [false; 10];
        for _ in 0..1_000 {
            seen[random.below(10) as usize] = true;
        }
        assert_eq!(seen, [true; 10]);
        assert_eq!(random.below(0), 0);
    }
}
