//! Resource ids: the `_rid` of every resource, and the `_self` links made of them.
//!
//! The text is base64 with padding in which `-` stands for `/`.

use std::fmt;

use base64::Engine;
use base64::alphabet::Alphabet;
use base64::engine::general_purpose::{GeneralPurpose, PAD};
use serde::{Deserialize, Serialize};

/// Set in the fifth byte of containers; users have it clear.
const CONTAINER_BIT: u32 = 1 << 31;
/// The lower 60 bits count; the four above tell the type.
const ORDINAL_BITS: u64 = (1 << 60) - 1;
/// Offers count in three bytes.
const OFFER_BITS: u32 = (1 << 24) - 1;
/// The type of a partition key range, in the top four bits.
const RANGE_TYPE: u64 = 5 << 60;
/// Bytes of the text of an item's or a range's id.
pub const ITEM_RID_TEXT_BYTES: usize = 24;

const RID_BASE64: GeneralPurpose = GeneralPurpose::new(
    &match Alphabet::new("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+-") {
        Ok(alphabet) => alphabet,
        Err(_) => panic!("64 different printable characters make an alphabet"),
    },
    PAD,
);

fn decode<const N: usize>(text: &str) -> Option<[u8; N]> {
    // One group of room beyond the largest id, which the decoder may ask for.
    let mut bytes = [0; 18];
    let len = RID_BASE64.decode_slice(text, &mut bytes).ok()?;
    bytes.get(..len)?.try_into().ok()
}

/// A database's id. Zero does not occur.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct DatabaseRid(pub u32);

impl DatabaseRid {
    pub fn parse(text: &str) -> Option<Self> {
        let number = u32::from_be_bytes(decode(text)?);
        (number != 0).then_some(Self(number))
    }

    pub fn to_text(self) -> String {
        RID_BASE64.encode(self.0.to_be_bytes())
    }

    /// `dbs/<db>/`
    pub fn self_link(self) -> String {
        format!("dbs/{self}/")
    }
}

impl fmt::Display for DatabaseRid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_text())
    }
}

/// A container's id. Its ordinal is of 31 bits and not zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ContainerRid {
    pub database: DatabaseRid,
    pub ordinal: u32,
}

impl ContainerRid {
    pub fn parse(text: &str) -> Option<Self> {
        Self::from_bytes(decode(text)?)
    }

    fn from_bytes(bytes: [u8; 8]) -> Option<Self> {
        let number = u64::from_be_bytes(bytes);
        let (database, ordinal) = ((number >> 32) as u32, number as u32);
        let valid = database != 0 && ordinal > CONTAINER_BIT;
        valid.then_some(Self {
            database: DatabaseRid(database),
            ordinal: ordinal & !CONTAINER_BIT,
        })
    }

    pub fn to_bytes(self) -> [u8; 8] {
        (u64::from(self.database.0) << 32 | u64::from(self.ordinal | CONTAINER_BIT)).to_be_bytes()
    }

    pub fn to_text(self) -> String {
        RID_BASE64.encode(self.to_bytes())
    }

    /// `dbs/<db>/colls/<c>/`
    pub fn self_link(self) -> String {
        format!("dbs/{}/colls/{self}/", self.database)
    }
}

impl fmt::Display for ContainerRid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_text())
    }
}

/// An offer's id, of 24 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct OfferRid(pub u32);

impl OfferRid {
    pub fn parse(text: &str) -> Option<Self> {
        let [a, b, c] = decode(text)?;
        Some(Self(u32::from_le_bytes([a, b, c, 0])))
    }

    pub fn to_text(self) -> String {
        let [a, b, c, _] = (self.0 & OFFER_BITS).to_le_bytes();
        RID_BASE64.encode([a, b, c])
    }

    /// `offers/<o>/`
    pub fn self_link(self) -> String {
        format!("offers/{self}/")
    }
}

impl fmt::Display for OfferRid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_text())
    }
}

/// The text of a resource inside a container; `tail` is its ordinal and its type.
fn child_text(container: ContainerRid, tail: u64) -> [u8; ITEM_RID_TEXT_BYTES] {
    let mut bytes = [0; 16];
    let (head, rest) = bytes.split_at_mut(8);
    head.copy_from_slice(&container.to_bytes());
    rest.copy_from_slice(&tail.to_le_bytes());
    let mut text = [0; ITEM_RID_TEXT_BYTES];
    RID_BASE64
        .encode_slice(bytes, &mut text)
        .expect("16 bytes are 24 characters of base64");
    text
}

fn child_string(container: ContainerRid, tail: u64) -> String {
    child_text(container, tail)
        .iter()
        .copied()
        .map(char::from)
        .collect()
}

fn parse_child(text: &str) -> Option<(ContainerRid, u64)> {
    let number = u128::from_be_bytes(decode(text)?);
    let container = ContainerRid::from_bytes(((number >> 64) as u64).to_be_bytes())?;
    Some((container, (number as u64).swap_bytes()))
}

/// The id of an item; its ordinal is of 60 bits.
pub fn item_rid(container: ContainerRid, ordinal: u64) -> String {
    child_string(container, ordinal & ORDINAL_BITS)
}

/// Appends what [`item_rid`] returns, without allocating anything else.
pub fn write_item_rid(out: &mut Vec<u8>, container: ContainerRid, ordinal: u64) {
    out.extend_from_slice(&child_text(container, ordinal & ORDINAL_BITS));
}

/// The container and the ordinal of an item's id.
pub fn parse_item_rid(text: &str) -> Option<(ContainerRid, u64)> {
    parse_child(text).filter(|(_, tail)| *tail <= ORDINAL_BITS)
}

/// `dbs/<db>/colls/<c>/docs/<r>/`
pub fn item_self_link(container: ContainerRid, ordinal: u64) -> String {
    format!(
        "{}docs/{}/",
        container.self_link(),
        item_rid(container, ordinal)
    )
}

/// Appends what [`item_self_link`] returns, without allocating anything else.
pub fn write_item_self_link(out: &mut Vec<u8>, container: ContainerRid, ordinal: u64) {
    out.extend_from_slice(b"dbs/");
    write_short(out, &container.database.0.to_be_bytes());
    out.extend_from_slice(b"/colls/");
    write_short(out, &container.to_bytes());
    out.extend_from_slice(b"/docs/");
    write_item_rid(out, container, ordinal);
    out.push(b'/');
}

/// Appends the text of the id of a database or a container.
fn write_short(out: &mut Vec<u8>, id: &[u8]) {
    let mut text = [0; 12];
    let len = RID_BASE64
        .encode_slice(id, &mut text)
        .expect("an id of at most 8 bytes is 12 characters of base64");
    out.extend(text.iter().take(len));
}

/// The id of a partition key range; its ordinal is of 60 bits.
pub fn range_rid(container: ContainerRid, ordinal: u64) -> String {
    child_string(container, ordinal & ORDINAL_BITS | RANGE_TYPE)
}

/// The container and the ordinal of a partition key range's id.
pub fn parse_range_rid(text: &str) -> Option<(ContainerRid, u64)> {
    let (container, tail) = parse_child(text)?;
    (tail & !ORDINAL_BITS == RANGE_TYPE).then_some((container, tail & ORDINAL_BITS))
}

/// `dbs/<db>/colls/<c>/pkranges/<r>/`
pub fn range_self_link(container: ContainerRid, ordinal: u64) -> String {
    format!(
        "{}pkranges/{}/",
        container.self_link(),
        range_rid(container, ordinal)
    )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const DATABASE: DatabaseRid = DatabaseRid(1_001);
    const CONTAINER: ContainerRid = ContainerRid {
        database: DATABASE,
        ordinal: 1,
    };

    #[test]
    fn worked_examples_of_the_protocol() {
        assert_eq!(DATABASE.to_text(), "AAAD6Q==");
        assert_eq!(CONTAINER.to_text(), "AAAD6YAAAAE=");
        assert_eq!(item_rid(CONTAINER, 1), "AAAD6YAAAAEBAAAAAAAAAA==");
        assert_eq!(range_rid(CONTAINER, 0), "AAAD6YAAAAEAAAAAAAAAUA==");
    }

    #[test]
    fn self_links_are_made_of_ids() {
        assert_eq!(DATABASE.self_link(), "dbs/AAAD6Q==/");
        assert_eq!(CONTAINER.self_link(), "dbs/AAAD6Q==/colls/AAAD6YAAAAE=/");
        assert_eq!(
            item_self_link(CONTAINER, 1),
            "dbs/AAAD6Q==/colls/AAAD6YAAAAE=/docs/AAAD6YAAAAEBAAAAAAAAAA==/"
        );
        assert_eq!(
            range_self_link(CONTAINER, 0),
            "dbs/AAAD6Q==/colls/AAAD6YAAAAE=/pkranges/AAAD6YAAAAEAAAAAAAAAUA==/"
        );
        assert_eq!(OfferRid(1).self_link(), "offers/AQAA/");
    }

    #[test]
    fn the_text_has_a_dash_for_a_slash_and_keeps_the_plus() {
        assert_eq!(DatabaseRid(0xFFFF_FFFF).to_text(), "-----w==");
        assert_eq!(DatabaseRid(0xFBEF_BE00).to_text(), "++++AA==");
        assert_eq!(OfferRid(0x00FF_FFFF).to_text(), "----");
    }

    #[test]
    fn other_text_is_no_id() {
        for text in [
            "",
            "db",
            "AAAAAA==",
            "AAAD6Q",
            "AAAD6Q=",
            "AAAD6Y==",
            "////-w==",
            "AAAD6YAAAAE=",
            "AAAD6Q==AAAD6Q==",
            "é",
            &"A".repeat(1_000),
        ] {
            assert_eq!(DatabaseRid::parse(text), None, "{text}");
        }
        // A user (high bit clear), counter zero, database zero, and other lengths.
        for text in [
            "AAAD6QAAAAE=",
            "AAAD6YAAAAA=",
            "AAAAAIAAAAE=",
            "AAAD6Q==",
            "AAAD6YAAAAEBAAAAAAAAAA==",
        ] {
            assert_eq!(ContainerRid::parse(text), None, "{text}");
        }
        assert_eq!(parse_item_rid(&range_rid(CONTAINER, 3)), None);
        assert_eq!(parse_range_rid(&item_rid(CONTAINER, 3)), None);
        assert_eq!(OfferRid::parse("AAAD6Q=="), None);
    }

    proptest! {
        #[test]
        fn ids_read_back(database in 1u32.., ordinal in 1..CONTAINER_BIT, child in 0..=ORDINAL_BITS, offer in 0..=OFFER_BITS) {
            let database = DatabaseRid(database);
            let container = ContainerRid { database, ordinal };
            prop_assert_eq!(DatabaseRid::parse(&database.to_text()), Some(database));
            prop_assert_eq!(ContainerRid::parse(&container.to_text()), Some(container));
            prop_assert_eq!(OfferRid::parse(&OfferRid(offer).to_text()), Some(OfferRid(offer)));
            prop_assert_eq!(parse_item_rid(&item_rid(container, child)), Some((container, child)));
            prop_assert_eq!(parse_range_rid(&range_rid(container, child)), Some((container, child)));

            let mut written = Vec::new();
            write_item_rid(&mut written, container, child);
            prop_assert_eq!(written, item_rid(container, child).into_bytes());
            let mut written = Vec::new();
            write_item_self_link(&mut written, container, child);
            prop_assert_eq!(written, item_self_link(container, child).into_bytes());
        }

        #[test]
        fn any_text_is_read_without_panic(text in ".{0,40}") {
            let _ = (DatabaseRid::parse(&text), ContainerRid::parse(&text), OfferRid::parse(&text));
            let _ = (parse_item_rid(&text), parse_range_rid(&text));
        }
    }
}
