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

mod hash;
mod range;

pub use hash::{epk_v1, hash_v2};
pub use range::{EpkRange, SPLIT_RANGES_MAX};

/// The hash of a key with some forty bytes of the key itself behind it (see `PartitionKeyDefinition::place`).
const INLINE_BYTES_MAX: usize = 62;
/// The longest key that can be read from text, in bytes: a version 1 key is at most 112.
const EPK_BYTES_MAX: usize = 256;

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
    /// A key of at most so many bytes needs no allocation.
    pub const INLINE_BYTES_MAX: usize = INLINE_BYTES_MAX;

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

    /// The first 16 bytes as a number, with zeros behind a shorter key.
    pub fn leading(&self) -> u128 {
        let mut bytes = [0; 16];
        for (target, byte) in bytes.iter_mut().zip(self.as_bytes()) {
            *target = *byte;
        }
        u128::from_be_bytes(bytes)
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
        if !digits.len().is_multiple_of(2) || digits.len() > EPK_BYTES_MAX * 2 {
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

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

    #[test]
    fn stored_as_bytes_and_shown_as_hex() {
        for length in [0, 1, 16, 62, 63, 112] {
            let epk = Epk::from_bytes(&vec![0xAB; length]);
            let bytes = rmp_serde::to_vec(&epk).unwrap();
            assert_eq!(bytes.len(), length + 2);
            assert_eq!(rmp_serde::from_slice::<Epk>(&bytes).unwrap(), epk);
        }
    }

    proptest! {
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
