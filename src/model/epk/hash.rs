//! The two hashes of partition keys, as every client computes them.

use std::hash::Hasher;

use super::Epk;
use crate::model::partition_key::KeyComponent;

/// A version 1 key keeps this many UTF-16 units of a string.
const V1_STRING_UNITS_MAX: usize = 100;
/// A version 1 key shows this many bytes of a string that is longer in UTF-8 than [`V1_STRING_UNITS_MAX`].
const V1_STRING_BYTES_MAX: usize = 101;

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
    let mut bytes = Vec::with_capacity(super::INLINE_BYTES_MAX);
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
pub(super) fn encode_number_v1(out: &mut Vec<u8>, number: f64) {
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
    }
}
