//! The items that are written. Those of 1 KB do not compress to nothing; those that are queried
//! have properties to ask for.

use std::io::Write as _;
use std::sync::{Arc, LazyLock};

/// Bytes of an item's JSON as it is sent.
pub const ITEM_BYTES: usize = 1_024;
/// Operations of a transactional batch, and so items with one partition key in a loaded container.
pub const BATCH_ITEMS: u32 = 100;

/// Least digits of an id's number and of a partition key's.
const ID_DIGITS: u32 = 9;
const PARTITION_DIGITS: u32 = 7;

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

/// Largest item that can be written.
pub const ITEM_BYTES_MAX: usize = NOISE_BYTES / 2;

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
        self.below_wide(u64::from(bound)) as u32
    }

    /// The same for larger bounds.
    pub fn below_wide(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }
}

impl rand::RngCore for Random {
    fn next_u32(&mut self) -> u32 {
        (self.next() >> 32) as u32
    }

    fn next_u64(&mut self) -> u64 {
        self.next()
    }

    fn fill_bytes(&mut self, target: &mut [u8]) {
        for bytes in target.chunks_mut(size_of::<u64>()) {
            let next = self.next().to_le_bytes();
            bytes
                .iter_mut()
                .zip(next)
                .for_each(|(byte, next)| *byte = next);
        }
    }
}

/// The id of the item with this number in a loaded container.
pub fn id(number: impl Into<u64>) -> String {
    let mut id = String::new();
    push_id(&mut id, number.into());
    id
}

/// Appends that id.
pub fn push_id(target: &mut String, number: u64) {
    target.push('i');
    push_digits(target, number, ID_DIGITS);
}

/// Appends the number with at least so many digits.
fn push_digits(target: &mut String, number: u64, least: u32) {
    let mut power = 10_u64.pow(least - 1);
    while number / power >= 10 {
        power *= 10;
    }
    while power > 0 {
        target.push(char::from(b'0' + (number / power % 10) as u8));
        power /= 10;
    }
}

/// The number of the item with this id.
pub fn number_of(id: &str) -> Option<u64> {
    id.strip_prefix('i')?.parse().ok()
}

/// The partition key of the item with this number: the same for each batch.
pub fn partition_key(number: impl Into<u64>) -> String {
    let mut key = String::new();
    push_partition_key(&mut key, number.into());
    key
}

/// Appends that partition key.
pub fn push_partition_key(target: &mut String, number: u64) {
    target.push('p');
    push_digits(target, number / u64::from(BATCH_ITEMS), PARTITION_DIGITS);
}

/// What an item consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// One long text: [`ITEM_BYTES`] in all.
    Payload,
    /// A few properties to ask for, in a container of so many items: `group` is shared by ten
    /// items, `rank` and `score` are different numbers from 0 on, the same number twice.
    Simple { items: u32 },
    /// Twenty properties.
    Wide,
}

/// Items that share a group.
pub const GROUP_ITEMS: u32 = 10;
/// Spreads numbers: a prime larger than any number of items, so that each rank is there once.
const RANK_STEP: u64 = 2_147_483_647;

/// The group of that item: its items are far from each other.
pub fn group(number: u32, items: u32) -> String {
    format!("g{:08}", number % (items / GROUP_ITEMS).max(1))
}

fn rank(number: u32, items: u32) -> u64 {
    u64::from(number) * RANK_STEP % u64::from(items.max(1))
}

impl Look {
    /// Appends an item with this id and partition key; its number gives the values.
    pub fn write(
        self,
        target: &mut Vec<u8>,
        number: u32,
        (id, partition_key): (&str, &str),
        ttl: Option<u64>,
        random: &mut Random,
    ) {
        if self == Self::Payload {
            return write(target, id, partition_key, ttl, random);
        }
        // Writing to a vector cannot fail.
        let _ = write!(target, r#"{{"id":"{id}","pk":"{partition_key}""#);
        match self {
            Self::Simple { items } => {
                let (group, rank) = (group(number, items), rank(number, items));
                let _ = write!(
                    target,
                    r#","group":"{group}","rank":{rank},"score":{rank},"price":{}.25,"active":{},"name":""#,
                    random.below(1_000),
                    number.is_multiple_of(2),
                );
                write_noise(target, 16, random);
                target.push(b'"');
            }
            _ => write_wide(target, number, random),
        }
        if let Some(ttl) = ttl {
            let _ = write!(target, r#","ttl":{ttl}"#);
        }
        target.push(b'}');
    }
}

/// Eighteen properties: texts, numbers, truths.
fn write_wide(target: &mut Vec<u8>, number: u32, random: &mut Random) {
    for text in 0..8 {
        let _ = write!(target, r#","text{text}":""#);
        write_noise(target, 8 + text, random);
        target.push(b'"');
    }
    for count in 0..6 {
        let _ = write!(target, r#","count{count}":{}"#, random.below(1_000_000));
    }
    for amount in 0..2 {
        let _ = write!(target, r#","amount{amount}":{}.5"#, random.below(100_000));
    }
    let _ = write!(
        target,
        r#","open":{},"paid":{}"#,
        number.is_multiple_of(2),
        number.is_multiple_of(3)
    );
}

fn write_noise(target: &mut Vec<u8>, bytes: usize, random: &mut Random) {
    let offset = random.below((NOISE_BYTES - ITEM_BYTES) as u32) as usize;
    target.extend_from_slice(NOISE.get(offset..offset + bytes).unwrap_or_default());
}

/// Appends an item of exactly [`ITEM_BYTES`].
pub fn write(
    target: &mut Vec<u8>,
    id: &str,
    partition_key: &str,
    ttl: Option<u64>,
    random: &mut Random,
) {
    let start = begin(target, id, partition_key, ttl);
    let offset = random.below((NOISE_BYTES - ITEM_BYTES) as u32) as usize;
    end(target, start, ITEM_BYTES, offset);
}

/// An item of which the driver knows what it must hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownItem {
    /// Which item.
    pub number: u64,
    /// Which of its writes.
    pub version: u32,
    pub ttl: Option<u64>,
    /// Bytes of its JSON.
    pub bytes: usize,
}

impl KnownItem {
    pub fn write(&self, target: &mut Vec<u8>) {
        let key = partition_key(self.number);
        let start = begin(target, &id(self.number), &key, self.ttl);
        let _ = write!(target, r#""version":{},"#, self.version);
        end(target, start, self.bytes, self.noise_offset());
    }

    /// Whether a payload is the one that was written, whole.
    pub fn has_payload(&self, payload: &[u8]) -> bool {
        let start = self.noise_offset();
        !payload.is_empty() && NOISE.get(start..start + payload.len()) == Some(payload)
    }

    /// Returns where in the noise its payload begins: differs between versions and items.
    fn noise_offset(&self) -> usize {
        let mut random = Random::new(self.number << 32 ^ u64::from(self.version));
        random.below((NOISE_BYTES - ITEM_BYTES_MAX) as u32) as usize
    }
}

/// Appends the properties before the payload; where the item begins.
fn begin(target: &mut Vec<u8>, id: &str, partition_key: &str, ttl: Option<u64>) -> usize {
    let start = target.len();
    // Writing to a vector cannot fail.
    let _ = write!(target, r#"{{"id":"{id}","pk":"{partition_key}","#);
    if let Some(ttl) = ttl {
        let _ = write!(target, r#""ttl":{ttl},"#);
    }
    start
}

/// Appends a payload from this offset of the noise that makes the item as long as it should be.
fn end(target: &mut Vec<u8>, start: usize, bytes: usize, offset: usize) {
    target.extend_from_slice(br#""payload":""#);
    let room = bytes.saturating_sub(target.len() - start + 2);
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
            write(
                &mut text,
                &id(7_u32),
                &partition_key(7_u32),
                ttl,
                &mut random,
            );
            assert_eq!(text.len(), ITEM_BYTES);
            let item: serde_json::Value = serde_json::from_slice(&text).unwrap();
            assert_eq!(item["id"], "i000000007");
            assert_eq!(item["pk"], "p0000000");
            assert_eq!(item.get("ttl").and_then(|ttl| ttl.as_u64()), ttl);
        }
    }

    #[test]
    fn ids_sort_as_their_numbers_and_grow_when_they_must() {
        for (number, shown, key) in [
            (0, "i000000000", "p0000000"),
            (123_456_789, "i123456789", "p1234567"),
            (1_234_567_890, "i1234567890", "p12345678"),
            (u64::MAX, "i18446744073709551615", "p184467440737095516"),
        ] {
            assert_eq!(id(number), shown);
            assert_eq!(number_of(shown), Some(number));
            assert_eq!(partition_key(number), key);
        }
    }

    #[test]
    fn items_have_what_is_asked_for() {
        let items = 1_000;
        let mut random = Random::new(1);
        let mut ranks = std::collections::BTreeSet::new();
        let mut of_group = 0;
        for number in 0..items {
            let mut text = Vec::new();
            let look = Look::Simple { items };
            look.write(&mut text, number, ("i", "p"), None, &mut random);
            let item: serde_json::Value = serde_json::from_slice(&text).unwrap();
            assert_eq!(item["rank"], item["score"]);
            ranks.insert(item["rank"].as_u64().unwrap());
            of_group += u32::from(item["group"] == group(7, items));
        }
        assert_eq!(of_group, GROUP_ITEMS);
        assert!(ranks.into_iter().eq(0..u64::from(items)));
        let mut text = Vec::new();
        Look::Wide.write(&mut text, 3, ("i", "p"), Some(9), &mut random);
        let item: serde_json::Value = serde_json::from_slice(&text).unwrap();
        assert_eq!(item["ttl"], 9);
        assert_eq!(item.as_object().unwrap().len(), 20 + 1);
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

    #[test]
    fn a_known_item_is_recognised_by_its_payload() {
        let known = KnownItem {
            number: 12_345,
            version: 3,
            ttl: Some(5),
            bytes: 2_000,
        };
        let mut text = Vec::new();
        known.write(&mut text);
        assert_eq!(text.len(), 2_000);
        let item: serde_json::Value = serde_json::from_slice(&text).unwrap();
        assert_eq!(number_of(item["id"].as_str().unwrap()), Some(12_345));
        assert_eq!(item["version"], 3);
        let payload = item["payload"].as_str().unwrap().as_bytes();
        assert!(known.has_payload(payload));
        let other = KnownItem {
            version: 4,
            ..known
        };
        assert!(!other.has_payload(payload));
        assert!(!known.has_payload(b""));
    }
}
