//! Effective partition keys: where the hash of a partition key falls in the key space `""…"FF"`.
//!
//! Held as bytes, not as the hex text of the wire; the order of the bytes is the order of the text.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::error::{Error, Result};
use super::partition_key::{HashVersion, KeyComponent};

/// Three levels of a hierarchical key, 16 bytes each; longer ones exist only under hash version 1.
const INLINE_BYTES_MAX: usize = 48;
/// The longest key that can be read from text, in bytes: a version 1 key is at most 112.
const EPK_BYTES_MAX: usize = 256;
/// The most ranges into which the key space can be cut at once.
pub const SPLIT_RANGES_MAX: u32 = 65_536;
/// A version 1 key keeps this many UTF-16 units of a string.
const V1_STRING_UNITS_MAX: usize = 100;
/// A version 1 key shows this many bytes of a string that is longer in UTF-8 than [`V1_STRING_UNITS_MAX`].
const V1_STRING_BYTES_MAX: usize = 101;

/// Bytes of an effective partition key; short ones live without allocation.
#[derive(Clone)]
pub struct Epk(Repr);

#[derive(Clone)]
enum Repr {
    Inline {
        len: u8,
        bytes: [u8; INLINE_BYTES_MAX],
    },
    Heap(Box<[u8]>),
}

impl Epk {
    /// The empty key, which sorts before all others.
    pub const fn min() -> Self {
        Self(Repr::Inline {
            len: 0,
            bytes: [0; INLINE_BYTES_MAX],
        })
    }

    /// `FF`: above every key that a hash can produce.
    pub const fn max() -> Self {
        let mut bytes = [0; INLINE_BYTES_MAX];
        bytes[0] = 0xFF;
        Self(Repr::Inline { len: 1, bytes })
    }

    pub fn from_bytes(source: &[u8]) -> Self {
        let mut bytes = [0; INLINE_BYTES_MAX];
        match (bytes.get_mut(..source.len()), u8::try_from(source.len())) {
            (Some(target), Ok(len)) => {
                target.copy_from_slice(source);
                Self(Repr::Inline { len, bytes })
            }
            _ => Self(Repr::Heap(source.into())),
        }
    }

    pub fn as_bytes(&self) -> &[u8] {
        match &self.0 {
            Repr::Inline { len, bytes } => bytes.get(..usize::from(*len)).unwrap_or(bytes),
            Repr::Heap(bytes) => bytes,
        }
    }

    /// Reads hex of either case.
    pub fn from_hex(text: &str) -> Result<Self> {
        let refused = || {
            let shown: String = text.chars().take(100).collect();
            Error::bad_request(format!(
                "the effective partition key '{shown}' is not hexadecimal text of whole bytes"
            ))
        };
        let digits = text.as_bytes();
        if digits.len() % 2 != 0 || digits.len() > EPK_BYTES_MAX * 2 {
            return Err(refused());
        }
        let digit = |byte: u8| {
            char::from(byte)
                .to_digit(16)
                .and_then(|digit| u8::try_from(digit).ok())
        };
        let bytes: Option<Vec<u8>> = digits
            .chunks_exact(2)
            .map(|pair| match pair {
                [high, low] => Some(digit(*high)? << 4 | digit(*low)?),
                _ => None,
            })
            .collect();
        Ok(Self::from_bytes(&bytes.ok_or_else(refused)?))
    }

    /// Upper-case hex, as the wire has it.
    pub fn to_hex(&self) -> String {
        const DIGITS: [char; 16] = [
            '0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'A', 'B', 'C', 'D', 'E', 'F',
        ];
        let nibbles = self.iter().flat_map(|byte| [byte >> 4, byte & 0x0F]);
        nibbles
            .filter_map(|nibble| DIGITS.get(usize::from(nibble)))
            .collect()
    }

    /// Big-endian plus one, of the same length: `[epk, successor)` holds this key and its extensions.
    ///
    /// A key of nothing but `FF` has no such neighbour; it gets a byte appended, so the answer is always greater.
    pub fn successor(&self) -> Self {
        let mut bytes = self.to_vec();
        for byte in bytes.iter_mut().rev() {
            *byte = byte.wrapping_add(1);
            if *byte != 0 {
                return Self::from_bytes(&bytes);
            }
        }
        self.with_suffix(0x00)
    }

    /// This key with one more byte at its end.
    pub fn with_suffix(&self, byte: u8) -> Self {
        let mut bytes = self.to_vec();
        bytes.push(byte);
        Self::from_bytes(&bytes)
    }
}

impl Deref for Epk {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl AsRef<[u8]> for Epk {
    fn as_ref(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl Borrow<[u8]> for Epk {
    fn borrow(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl PartialEq for Epk {
    fn eq(&self, other: &Self) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl Eq for Epk {}

impl PartialOrd for Epk {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Epk {
    fn cmp(&self, other: &Self) -> Ordering {
        self.as_bytes().cmp(other.as_bytes())
    }
}

impl Hash for Epk {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_bytes().hash(state);
    }
}

impl Default for Epk {
    fn default() -> Self {
        Self::min()
    }
}

impl fmt::Display for Epk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.iter().try_for_each(|byte| write!(f, "{byte:02X}"))
    }
}

impl fmt::Debug for Epk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Epk({self})")
    }
}

impl Serialize for Epk {
    /// Hex in text formats, bytes in binary ones.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            serializer.collect_str(self)
        } else {
            serializer.serialize_bytes(self)
        }
    }
}

impl<'de> Deserialize<'de> for Epk {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if deserializer.is_human_readable() {
            let text = String::deserialize(deserializer)?;
            Self::from_hex(&text).map_err(de::Error::custom)
        } else {
            deserializer.deserialize_bytes(BytesVisitor)
        }
    }
}

struct BytesVisitor;

impl de::Visitor<'_> for BytesVisitor {
    type Value = Epk;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the bytes of an effective partition key")
    }

    fn visit_bytes<E: de::Error>(self, bytes: &[u8]) -> Result<Epk, E> {
        Ok(Epk::from_bytes(bytes))
    }
}

/// A part of the key space, `[min, max)`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct EpkRange {
    pub min: Epk,
    pub max: Epk,
}

impl EpkRange {
    pub fn new(min: Epk, max: Epk) -> Self {
        Self { min, max }
    }

    /// The whole key space.
    pub const fn full() -> Self {
        Self {
            min: Epk::min(),
            max: Epk::max(),
        }
    }

    /// The range of one key.
    pub fn point(epk: Epk) -> Self {
        let max = epk.successor();
        Self { min: epk, max }
    }

    pub fn is_empty(&self) -> bool {
        self.min >= self.max
    }

    pub fn contains(&self, epk: &[u8]) -> bool {
        self.min.as_bytes() <= epk && epk < self.max.as_bytes()
    }

    pub fn overlaps(&self, other: &Self) -> bool {
        Ord::max(&self.min, &other.min) < Ord::min(&self.max, &other.max)
    }

    /// What both cover; `None` when that is nothing.
    pub fn intersect(&self, other: &Self) -> Option<Self> {
        self.overlaps(other).then(|| Self {
            min: Ord::max(&self.min, &other.min).clone(),
            max: Ord::min(&self.max, &other.max).clone(),
        })
    }

    /// Ranges that tile the key space, with equal shares of the values that the hash can take.
    ///
    /// `count` is brought into `1..=SPLIT_RANGES_MAX`.
    pub fn split_evenly(count: u32, version: HashVersion) -> Vec<Self> {
        let count = count.clamp(1, SPLIT_RANGES_MAX);
        let boundaries = (1..count).map(|index| boundary(index, count, version));
        let mut min = Epk::min();
        boundaries
            .chain([Epk::max()])
            .map(|max| Self {
                min: std::mem::replace(&mut min, max.clone()),
                max,
            })
            .collect()
    }
}

/// The end of range `index` of `count`, `0 < index < count`: the last value of its share, as the service cuts.
fn boundary(index: u32, count: u32, version: HashVersion) -> Epk {
    match version {
        HashVersion::V1 => {
            let value = (u64::from(index) << 32) / u64::from(count) - 1;
            let mut bytes = Vec::with_capacity(16);
            encode_number_v1(&mut bytes, value as f64);
            Epk::from_bytes(&bytes)
        }
        HashVersion::V2 => {
            // The hash has 126 bits; dividing first keeps the product inside 128.
            let (index, count) = (u128::from(index), u128::from(count));
            let (share, rest) = ((1 << 126) / count, (1 << 126) % count);
            Epk::from_bytes(&(share * index + rest * index / count - 1).to_be_bytes())
        }
    }
}

/// Version 2: one 126-bit hash over all components.
pub fn hash_v2(components: &[KeyComponent]) -> [u8; 16] {
    let mut hasher = mur3::Hasher128::with_seed(0);
    for component in components {
        feed(&mut hasher, component, 0xFF);
    }
    let (low, high) = hasher.finish128();
    // Both halves little-endian and the whole reversed, which is big-endian of the swapped halves.
    let hash = u128::from(high) << 64 | u128::from(low);
    (hash & (u128::MAX >> 2)).to_be_bytes()
}

/// Version 1: a 32-bit hash, encoded as a number, followed by the components themselves.
pub fn epk_v1(components: &[KeyComponent]) -> Epk {
    let cut: Vec<KeyComponent> = components.iter().map(cut_v1).collect();
    let mut hasher = mur3::Hasher32::with_seed(0);
    for component in &cut {
        feed(&mut hasher, component, 0x00);
    }
    let mut bytes = Vec::with_capacity(INLINE_BYTES_MAX);
    encode_number_v1(&mut bytes, f64::from(hasher.finish32()));
    for component in &cut {
        encode_v1(&mut bytes, component);
    }
    Epk::from_bytes(&bytes)
}

fn feed(hasher: &mut impl Hasher, component: &KeyComponent, string_end: u8) {
    hasher.write(&[component.marker()]);
    match component {
        KeyComponent::Number(number) => hasher.write(&number.to_bits().to_le_bytes()),
        KeyComponent::String(text) => {
            hasher.write(text.as_bytes());
            hasher.write(&[string_end]);
        }
        KeyComponent::Undefined | KeyComponent::Null | KeyComponent::Bool(_) => {}
    }
}

/// Cuts a string to its first UTF-16 units; half a surrogate pair is not kept.
fn cut_v1(component: &KeyComponent) -> KeyComponent {
    let KeyComponent::String(text) = component else {
        return component.clone();
    };
    let mut units = 0;
    let kept = text.chars().take_while(|c| {
        units += c.len_utf16();
        units <= V1_STRING_UNITS_MAX
    });
    KeyComponent::String(kept.collect())
}

fn encode_v1(out: &mut Vec<u8>, component: &KeyComponent) {
    match component {
        KeyComponent::Number(number) => encode_number_v1(out, *number),
        KeyComponent::String(text) => {
            out.push(component.marker());
            let shown = text.as_bytes().iter().take(V1_STRING_BYTES_MAX);
            out.extend(shown.map(|byte| byte.wrapping_add(1)));
            if text.len() <= V1_STRING_UNITS_MAX {
                out.push(0x00);
            }
        }
        KeyComponent::Undefined | KeyComponent::Null | KeyComponent::Bool(_) => {
            out.push(component.marker())
        }
    }
}

/// A double in bytes that sort like the numbers: one whole byte, then groups of seven bits with a "more" bit.
fn encode_number_v1(out: &mut Vec<u8>, number: f64) {
    const SIGN: u64 = 1 << 63;
    let bits = number.to_bits();
    let ordered = if bits & SIGN == 0 {
        bits ^ SIGN
    } else {
        bits.wrapping_neg()
    };
    let [first, ..] = ordered.to_be_bytes();
    out.extend([KeyComponent::Number(number).marker(), first]);
    let mut rest = ordered << 8;
    loop {
        let [top, ..] = rest.to_be_bytes();
        rest <<= 7;
        if rest == 0 {
            out.push(top & 0xFE);
            return;
        }
        out.push(top | 1);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::model::partition_key::PartitionKey;

    /// The protocol's vectors of version 2: a header and its key.
    const V2_VECTORS: &[(&str, &str)] = &[
        (r#"[""]"#, "32E9366E637A71B4E710384B2F4970A0"),
        (r#"["a"]"#, "3A5381E1114EB8D3FCC90795045B49B7"),
        (r#"["p1"]"#, "062B23DEC15212F01B9A85F4E93A940C"),
        (r#"["hello"]"#, "0A8B5792B7BA3C7C47B0D1305A3C6F8A"),
        (r#"["redmond"]"#, "22E342F38A486A088463DFF7838A5963"),
        (r#"["partitionKey"]"#, "013AEFCF77FA271571CF665A58C933F1"),
        (r#"["é€😀"]"#, "23C529E839B5720BFB9001DF68875EA9"),
        ("[0]", "155B95BEDAC4B1E9EC1CDC9BB0DDDE58"),
        ("[1]", "20CD98B339BA78A5D0CF6953B87070B0"),
        ("[1.0]", "20CD98B339BA78A5D0CF6953B87070B0"),
        ("[-1]", "19938E7A936C1C5B9E3AE842BBC16839"),
        ("[5]", "19C08621B135968252FB34B4CF66F811"),
        ("[5.0]", "19C08621B135968252FB34B4CF66F811"),
        ("[3.14]", "319C496AE088984E764AF1B65EF5394D"),
        ("[1e100]", "0F2CE1E0003640A88135B3E8C343EEB5"),
        ("[9007199254740992]", "15335910D01122E3D99DA5DE569B065D"),
        ("[true]", "0E711127C5B5A8E4726AC6DD306A3E59"),
        ("[false]", "2FE1BE91E90A3439635E0E9E37361EF2"),
        ("[null]", "378867E4430E67857ACE5C908374FE16"),
        ("[{}]", "11622DAA78F835834610ABE56EFF5CB5"),
    ];

    /// The protocol's vectors of version 1.
    const V1_VECTORS: &[(&str, &str)] = &[
        (r#"[""]"#, "05C1CF33970FF80800"),
        (r#"["a"]"#, "05C1D78593652C086200"),
        (r#"["p1"]"#, "05C1CFEDCF076008713200"),
        (r#"["hello"]"#, "05C1EFF74961FE0869666D6D7000"),
        (r#"["redmond"]"#, "05C1EFE313830C087366656E706F6500"),
        (
            r#"["partitionKey"]"#,
            "05C1E1B3D9CD2608716273756A756A706F4C667A00",
        ),
        (r#"["é€😀"]"#, "05C1E1235DC5DA08C4AAE383ADF1A0998100"),
        ("[0]", "05C1BF6DA11560058000"),
        ("[1]", "05C1ED172B6B2605BFF0"),
        ("[-1]", "05C1D1A5BDDF9C054010"),
        ("[5]", "05C1D9C1C5517C05C014"),
        ("[127]", "05C1DD539DDFCC05C05FE0"),
        ("[-128]", "05C1D73349F54C053FA0"),
        ("[3.14]", "05C1E179CD954C05C0098FAF0B1F5D153E"),
        ("[1e100]", "05C1CBCBA56BA005D4B3256BA559A70DFA"),
        ("[9007199254740992]", "05C1E53167392405C340"),
        ("[true]", "05C1D7C5A903D803"),
        ("[false]", "05C1DB857D857C02"),
        ("[null]", "05C1ED45D7475601"),
        ("[{}]", "05C1D529E345DC00"),
    ];

    fn key(header: &str) -> Vec<KeyComponent> {
        PartitionKey::parse_header(header).unwrap().0
    }

    fn v2(components: &[KeyComponent]) -> String {
        Epk::from_bytes(&hash_v2(components)).to_hex()
    }

    #[test]
    fn version_2_vectors() {
        for (header, expected) in V2_VECTORS {
            assert_eq!(v2(&key(header)), *expected, "{header}");
        }
        let text = |count| [KeyComponent::String("A".repeat(count))];
        assert_eq!(v2(&text(100)), "2FCB8A330FCE3BAA969D0C02D8725350");
        assert_eq!(v2(&text(101)), "2EEF92B218E2ED73B90D11EF3694ABAC");
        assert_eq!(
            v2(&[KeyComponent::Number(-0.0)]),
            "3D018BB1DF3DB27235766E81FD10406E"
        );
    }

    #[test]
    fn version_1_vectors() {
        for (header, expected) in V1_VECTORS {
            assert_eq!(epk_v1(&key(header)).to_hex(), *expected, "{header}");
        }
    }

    #[test]
    fn version_1_cuts_long_strings() {
        let epk = |text: String| epk_v1(&[KeyComponent::String(text)]);
        let exact = epk("A".repeat(100));
        assert!(exact.ends_with(&[b'B', b'B', 0x00]));
        assert_eq!(epk("A".repeat(101)), exact);
        // 100 units of two bytes: 101 bytes are shown and nothing ends them.
        let wide = epk("é".repeat(200));
        let string_start = wide.len() - 102;
        assert_eq!(wide[string_start..][..3], [0x08, 0xC4, 0xAA]);
        assert_eq!(wide.last(), Some(&0xC4));
    }

    #[test]
    fn hex_is_read_in_either_case_and_written_upper() {
        for (text, bytes) in [
            ("", &[][..]),
            ("FF", &[0xFF]),
            ("05c1Df", &[0x05, 0xC1, 0xDF]),
        ] {
            let epk = Epk::from_hex(text).unwrap();
            assert_eq!(epk.as_bytes(), bytes);
            assert_eq!(epk.to_hex(), text.to_uppercase());
            assert_eq!(epk.to_string(), text.to_uppercase());
        }
        for text in ["F", "0G", "é", "+1", &"00".repeat(EPK_BYTES_MAX + 1)] {
            assert_eq!(Epk::from_hex(text).unwrap_err().status(), 400, "{text}");
        }
    }

    #[test]
    fn successor_is_the_next_key_of_the_same_length() {
        for (text, next) in [
            ("00", "01"),
            ("05FF", "0600"),
            ("3FFFFF", "400000"),
            ("FF", "FF00"),
            ("", "00"),
        ] {
            assert_eq!(Epk::from_hex(text).unwrap().successor().to_hex(), next);
        }
    }

    fn range(min: &str, max: &str) -> EpkRange {
        EpkRange::new(Epk::from_hex(min).unwrap(), Epk::from_hex(max).unwrap())
    }

    #[test]
    fn ranges_are_half_open() {
        let middle = range("10", "20");
        for (epk, inside) in [
            ("0FFF", false),
            ("10", true),
            ("1FFF", true),
            ("20", false),
            ("2000", false),
        ] {
            assert_eq!(
                middle.contains(&Epk::from_hex(epk).unwrap()),
                inside,
                "{epk}"
            );
        }
        assert!(middle.overlaps(&EpkRange::full()));
        assert!(!middle.overlaps(&range("20", "30")));
        assert!(!middle.overlaps(&range("", "10")));
        assert_eq!(
            middle.intersect(&range("18", "FF")),
            Some(range("18", "20"))
        );
        assert_eq!(middle.intersect(&range("20", "FF")), None);
        assert!(EpkRange::point(middle.min.clone()).contains(&middle.min));
    }

    #[test]
    fn even_splits_cut_where_the_service_cuts() {
        let cuts = |count, version| -> Vec<String> {
            EpkRange::split_evenly(count, version)
                .iter()
                .map(|range| range.max.to_hex())
                .collect()
        };
        assert_eq!(cuts(1, HashVersion::V2), ["FF"]);
        assert_eq!(cuts(0, HashVersion::V2), ["FF"]);
        assert_eq!(
            cuts(2, HashVersion::V2),
            ["1FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF", "FF"]
        );
        assert_eq!(cuts(2, HashVersion::V1), ["05C1DFFFFFFFFC", "FF"]);
        assert_eq!(
            cuts(4, HashVersion::V1),
            ["05C1CFFFFFFFF8", "05C1DFFFFFFFFC", "05C1E7FFFFFFFE", "FF"]
        );
    }

    #[test]
    fn even_splits_tile_the_key_space_and_share_the_keys() {
        for version in [HashVersion::V1, HashVersion::V2] {
            for count in [1, 2, 3, 5, 7, 16, 100, 1_000] {
                let ranges = EpkRange::split_evenly(count, version);
                assert_eq!(ranges.len(), count as usize);
                assert_eq!(ranges[0].min, Epk::min());
                assert_eq!(ranges[ranges.len() - 1].max, Epk::max());
                assert!(ranges.windows(2).all(|pair| pair[0].max == pair[1].min));
                assert!(ranges.iter().all(|range| !range.is_empty()));
            }
            let ranges = EpkRange::split_evenly(5, version);
            let mut hits = [0; 5];
            for number in 0..5_000 {
                let components = [KeyComponent::String(format!("key-{number}"))];
                let epk = match version {
                    HashVersion::V1 => epk_v1(&components),
                    HashVersion::V2 => Epk::from_bytes(&hash_v2(&components)),
                };
                hits[ranges
                    .iter()
                    .position(|range| range.contains(&epk))
                    .unwrap()] += 1;
            }
            assert!(
                hits.iter().all(|hits| (850..1_150).contains(hits)),
                "{version:?} {hits:?}"
            );
        }
    }

    #[test]
    fn stored_as_bytes_and_shown_as_hex() {
        for length in [0, 1, 16, 48, 49, 112] {
            let epk = Epk::from_bytes(&vec![0xAB; length]);
            let bytes = rmp_serde::to_vec(&epk).unwrap();
            assert_eq!(bytes.len(), length + 2);
            assert_eq!(rmp_serde::from_slice::<Epk>(&bytes).unwrap(), epk);
        }
        let text = serde_json::to_string(&range("", "05c1")).unwrap();
        assert_eq!(text, r#"{"min":"","max":"05C1"}"#);
        assert_eq!(
            serde_json::from_str::<EpkRange>(&text).unwrap(),
            range("", "05C1")
        );
    }

    proptest! {
        #[test]
        fn version_1_numbers_sort_like_numbers(a: f64, b: f64) {
            prop_assume!(!a.is_nan() && !b.is_nan() && a != b);
            let encoded = |number| {
                let mut bytes = Vec::new();
                encode_number_v1(&mut bytes, number);
                bytes
            };
            prop_assert_eq!(encoded(a) < encoded(b), a < b);
        }

        #[test]
        fn hashing_in_pieces_equals_hashing_at_once(text in ".{0,80}") {
            let mut whole = vec![0x08];
            whole.extend(text.as_bytes());
            whole.push(0xFF);
            let (low, high) = mur3::murmurhash3_x64_128(&whole, 0);
            let expected = (u128::from(high) << 64 | u128::from(low)) & (u128::MAX >> 2);
            prop_assert_eq!(hash_v2(&[KeyComponent::String(text)]), expected.to_be_bytes());
        }

        #[test]
        fn hex_round_trips_and_keeps_the_order(a: Vec<u8>, b: Vec<u8>) {
            prop_assume!(a.len() <= EPK_BYTES_MAX && b.len() <= EPK_BYTES_MAX);
            let (a, b) = (Epk::from_bytes(&a), Epk::from_bytes(&b));
            prop_assert_eq!(&Epk::from_hex(&a.to_hex()).unwrap(), &a);
            prop_assert_eq!(a.cmp(&b), a.to_hex().cmp(&b.to_hex()));
            prop_assert!(a.successor() > a);
        }
    }
}
