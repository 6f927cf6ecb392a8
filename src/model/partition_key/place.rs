//! Where the items of a partition key are kept. Two keys can have one EPK (MurmurHash is no cryptographic hash, and version 1
//! cuts long strings), so the place of a key is its EPK followed by what tells it from every other key there.

use sha2::{Digest, Sha256};

use super::{KeyComponent, PartitionKey, PartitionKeyDefinition};
use crate::model::epk::Epk;

/// Longer keys are told apart by their SHA-256.
const SPELLED_BYTES_MAX: usize = 64;
/// In the place of a length: a SHA-256 follows.
const DIGEST: u8 = 0xFF;
/// Ends a string; no UTF-8 has this byte.
const STRING_END: u8 = 0xFF;
/// The EPK of the absent system key is empty, and so the beginning of every other. Its items are kept under a hash that no key has.
const EMPTY_KEY: [u8; 16] = [0; 16];

impl PartitionKeyDefinition {
    /// Where the items of a complete key are kept. Places of one container sort as their EPKs do, none begins with another, and no two
    /// keys share one.
    pub fn place(&self, key: &PartitionKey) -> Epk {
        let mut place = Vec::with_capacity(Epk::INLINE_BYTES_MAX);
        if key.0.is_empty() {
            place.extend_from_slice(&EMPTY_KEY);
        } else {
            place.extend_from_slice(&self.epk(key));
        }
        let spelled_at = place.len() + 1;
        place.push(0);
        key.0
            .iter()
            .for_each(|component| spell(component, &mut place));
        let spelled = place.get(spelled_at..).unwrap_or_default();
        let mark = match u8::try_from(spelled.len()) {
            Ok(length) if spelled.len() <= SPELLED_BYTES_MAX => length,
            _ => {
                let digest = Sha256::digest(spelled);
                place.truncate(spelled_at);
                place.extend_from_slice(&digest);
                DIGEST
            }
        };
        if let Some(place) = place.get_mut(spelled_at - 1) {
            *place = mark;
        }
        Epk::from_bytes(&place)
    }
}

fn spell(component: &KeyComponent, out: &mut Vec<u8>) {
    out.push(component.marker());
    match component {
        KeyComponent::Number(number) => out.extend_from_slice(&number.to_bits().to_be_bytes()),
        KeyComponent::String(text) => {
            out.extend_from_slice(text.as_bytes());
            out.push(STRING_END);
        }
        KeyComponent::Undefined | KeyComponent::Null | KeyComponent::Bool(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::model::epk::EpkRange;

    /// Two strings with one MurmurHash3: a difference that the second block makes and the third takes back.
    const COLLIDING: [&str; 2] = [
        "collisionsarepo·kI4vvZ1Q\u{75e}eRʊ24bReDƬ",
        "collisionsarepo\"Xik\u{484}h(pDfq(k(B24bR⑔/",
    ];

    fn definition(version: u8, levels: usize) -> PartitionKeyDefinition {
        let paths: Vec<_> = (0..levels).map(|level| format!("/k{level}")).collect();
        let kind = if levels == 1 { "Hash" } else { "MultiHash" };
        PartitionKeyDefinition::from_json(
            &json!({"paths": paths, "kind": kind, "version": version}),
        )
        .unwrap()
    }

    fn key(strings: &[&str]) -> PartitionKey {
        let component = |text: &&str| KeyComponent::String((*text).to_owned());
        PartitionKey(strings.iter().map(component).collect())
    }

    #[test]
    fn keys_with_one_hash_have_places_of_their_own_beside_each_other() {
        let long = "a".repeat(100);
        let longer = "a".repeat(101);
        let [one, other] = COLLIDING;
        for (definition, one, other) in [
            (definition(2, 1), key(&[one]), key(&[other])),
            (
                definition(2, 3),
                key(&["t", one, "u"]),
                key(&["t", other, "u"]),
            ),
            (definition(1, 1), key(&[&long]), key(&[&longer])),
        ] {
            assert_eq!(
                definition.epk(&one),
                definition.epk(&other),
                "{one} {other}"
            );
            let (a, b) = (definition.place(&one), definition.place(&other));
            assert_ne!(a, b);
            assert!(a.starts_with(&definition.epk(&one)) && b.starts_with(&definition.epk(&one)));
            assert!(!EpkRange::point(a).contains(&b), "{one} {other}");
        }
    }

    #[test]
    fn the_longest_place_fits_one_byte_of_length() {
        for (definition, key) in [
            (definition(1, 1), key(&[&"x".repeat(101)])),
            (definition(2, 3), key(&[&"x".repeat(2_048), "y", "z"])),
        ] {
            assert!(
                definition.place(&key).len() <= usize::from(u8::MAX),
                "{key}"
            );
        }
    }

    #[test]
    fn the_absent_system_key_has_a_place_that_begins_no_other() {
        let definition = definition(2, 1);
        let empty = definition.place(&PartitionKey::default());
        let others = EpkRange::point(empty.clone());
        assert!(EpkRange::full().contains(&empty));
        for text in ["", "a", "p1"] {
            assert!(!others.contains(&definition.place(&key(&[text]))), "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_two_keys_share_a_place(a in "[a-b]{0,80}", b in "[a-b]{0,80}", c in "[a-b]{0,3}", d in "[a-b]{0,3}") {
            let definition = definition(2, 2);
            let (one, other) = (key(&[&a, &c]), key(&[&b, &d]));
            prop_assert_eq!(definition.place(&one) == definition.place(&other), one == other);
        }
    }
}
