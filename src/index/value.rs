//! Values as bytes that sort as the query language orders values: undefined < null < false < true < number < string < array < object.
//!
//! | value | bytes |
//! | --- | --- |
//! | undefined, null, false, true | a tag |
//! | number | tag, the double with its bits turned so that they sort (8), from 2^53 on what the double lacks (2) |
//! | string | tag, each byte of UTF-8 plus one, 0; a long one is cut and ends in 1 |
//! | array, object | a tag: what they hold is not compared |
//!
//! No encoding is a prefix of another one, so that more may follow: other columns, the item's ordinal.

use serde_json::{Number, Value};

/// The bytes of a string that take part; longer ones are cut, and then many strings may share one term.
pub const TEXT_BYTES_MAX: usize = 128;
/// The same for a column of a composite term, which may have eight of them.
pub const COLUMN_TEXT_BYTES_MAX: usize = 64;

pub mod tag {
    pub const UNDEFINED: u8 = 1;
    pub const NULL: u8 = 2;
    pub const FALSE: u8 = 3;
    pub const TRUE: u8 = 4;
    pub const NUMBER: u8 = 5;
    pub const TEXT: u8 = 6;
    pub const ARRAY: u8 = 7;
    pub const OBJECT: u8 = 8;
}

const TEXT_END: u8 = 0;
const TEXT_CUT: u8 = 1;
/// From here on doubles do not tell all whole numbers apart.
const EXACT_WHOLE_MAX: f64 = 9_007_199_254_740_992.0;

/// How much the bytes say of the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precision {
    /// Equal bytes mean equal values.
    Exact,
    /// Other values have the same bytes.
    Cut,
}

/// Appends a value; `None` is undefined.
pub fn encode(out: &mut Vec<u8>, value: Option<&Value>) -> Precision {
    encode_within(out, value, TEXT_BYTES_MAX)
}

/// Appends a value that is a column of a composite term.
pub fn encode_column(out: &mut Vec<u8>, value: Option<&Value>) -> Precision {
    encode_within(out, value, COLUMN_TEXT_BYTES_MAX)
}

fn encode_within(out: &mut Vec<u8>, value: Option<&Value>, text_bytes_max: usize) -> Precision {
    match value {
        None => out.push(tag::UNDEFINED),
        Some(Value::Null) => out.push(tag::NULL),
        Some(Value::Bool(false)) => out.push(tag::FALSE),
        Some(Value::Bool(true)) => out.push(tag::TRUE),
        Some(Value::Number(number)) => encode_number(out, number),
        Some(Value::String(text)) => return encode_text(out, text, text_bytes_max),
        Some(Value::Array(_)) => {
            out.push(tag::ARRAY);
            return Precision::Cut;
        }
        Some(Value::Object(_)) => {
            out.push(tag::OBJECT);
            return Precision::Cut;
        }
    }
    Precision::Exact
}

fn encode_number(out: &mut Vec<u8>, number: &Number) {
    let double = number.as_f64().unwrap_or(0.0);
    out.push(tag::NUMBER);
    out.extend_from_slice(&double_bytes(double));
    if double.abs() >= EXACT_WHOLE_MAX {
        let whole = number
            .as_i64()
            .map(i128::from)
            .or_else(|| number.as_u64().map(i128::from));
        // At most half the distance of two doubles: 1,024 for 64 bits.
        let lacking = whole.map_or(0, |whole| whole - double as i128) as i16;
        out.extend_from_slice(&(lacking as u16 ^ 0x8000).to_be_bytes());
    }
}

fn double_bytes(double: f64) -> [u8; 8] {
    // Adding zero makes -0.0 a 0.0.
    let bits = (double + 0.0).to_bits();
    let sorted = if bits >> 63 == 1 {
        !bits
    } else {
        bits | (1 << 63)
    };
    sorted.to_be_bytes()
}

/// The bytes of a whole number below 2^53 after its tag; they are always eight.
pub fn small_number(number: i64) -> [u8; 9] {
    let mut bytes = [tag::NUMBER; 9];
    bytes[1..].copy_from_slice(&double_bytes(number as f64));
    bytes
}

fn encode_text(out: &mut Vec<u8>, text: &str, text_bytes_max: usize) -> Precision {
    let bytes = text.as_bytes();
    let kept = bytes.get(..text_bytes_max).unwrap_or(bytes);
    text_prefix(out, kept);
    if kept.len() == bytes.len() {
        out.push(TEXT_END);
        Precision::Exact
    } else {
        out.push(TEXT_CUT);
        Precision::Cut
    }
}

/// Appends what all strings that begin so have in common, as far as it takes part: `Cut` when that is not all of it.
pub fn encode_text_prefix(out: &mut Vec<u8>, prefix: &str) -> Precision {
    let bytes = prefix.as_bytes();
    match bytes.get(..TEXT_BYTES_MAX) {
        Some(kept) if bytes.len() > TEXT_BYTES_MAX => {
            text_prefix(out, kept);
            Precision::Cut
        }
        _ => {
            text_prefix(out, bytes);
            Precision::Exact
        }
    }
}

fn text_prefix(out: &mut Vec<u8>, bytes: &[u8]) {
    out.reserve(bytes.len() + 2);
    out.push(tag::TEXT);
    // UTF-8 has no byte above 0xf4.
    out.extend(bytes.iter().map(|byte| byte.wrapping_add(1)));
}

/// Turns the bytes from `start` on, so that they sort the other way round.
pub fn invert(out: &mut [u8], start: usize) {
    for byte in out.iter_mut().skip(start) {
        *byte = !*byte;
    }
}

#[cfg(test)]
mod tests {
    use std::cmp::Ordering;

    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::sql::compare_ordering;

    fn bytes(value: Option<&Value>) -> Vec<u8> {
        let mut out = Vec::new();
        encode(&mut out, value);
        out
    }

    #[test]
    fn bytes_sort_as_values_do() {
        let long = "x".repeat(TEXT_BYTES_MAX);
        let ascending = [
            json!(null),
            json!(false),
            json!(true),
            json!(-1e300),
            json!(i64::MIN),
            json!(i64::MIN + 1),
            json!(-9_007_199_254_740_993_i64),
            json!(-9_007_199_254_740_992_i64),
            json!(-1.5),
            json!(-1),
            json!(-5e-324),
            json!(0),
            json!(5e-324),
            json!(0.1),
            json!(1),
            json!(9_007_199_254_740_992_i64),
            json!(9_007_199_254_740_993_i64),
            json!(i64::MAX),
            json!(u64::MAX),
            json!(1e300),
            json!(""),
            json!("\0"),
            json!("\0a"),
            json!("A"),
            json!("a"),
            json!("a\0"),
            json!("a\u{1}"),
            json!("aa"),
            json!("ab"),
            json!("é"),
            json!("\u{10ffff}"),
            json!([]),
            json!({}),
        ];
        assert!(bytes(None) < bytes(ascending.first()));
        for pair in ascending.windows(2) {
            assert!(bytes(pair.first()) < bytes(pair.last()), "{pair:?}");
        }
        let (whole, longer) = (json!(long.as_str()), json!(format!("{long}\0")));
        assert!(bytes(Some(&whole)) < bytes(Some(&longer)));
        assert!(bytes(Some(&longer)) < bytes(Some(&json!("y"))));
        assert_eq!(encode(&mut Vec::new(), Some(&whole)), Precision::Exact);
        assert_eq!(encode(&mut Vec::new(), Some(&longer)), Precision::Cut);
    }

    #[test]
    fn notations_of_a_number_are_one_value() {
        for (a, b) in [
            (json!(1), json!(1.0)),
            (json!(0), json!(-0.0)),
            (
                json!(9_007_199_254_740_992_i64),
                json!(9_007_199_254_740_992.0),
            ),
            (json!(u64::MAX - 2047), json!(18_446_744_073_709_549_568.0)),
        ] {
            assert_eq!(bytes(Some(&a)), bytes(Some(&b)), "{a} {b}");
        }
        assert_eq!(
            bytes(Some(&json!(1_790_000_000))),
            small_number(1_790_000_000)
        );
    }

    #[test]
    fn a_prefix_leads_to_what_begins_so() {
        let mut prefix = Vec::new();
        assert_eq!(encode_text_prefix(&mut prefix, "ab"), Precision::Exact);
        assert!(bytes(Some(&json!("ab"))).starts_with(&prefix));
        assert!(bytes(Some(&json!("abc"))).starts_with(&prefix));
        assert!(!bytes(Some(&json!("aab"))).starts_with(&prefix));
    }

    fn scalar() -> impl Strategy<Value = Value> {
        prop_oneof![
            Just(json!(null)),
            any::<bool>().prop_map(|b| json!(b)),
            any::<i64>().prop_map(|n| json!(n)),
            (-3_i64..3).prop_map(|n| json!(n)),
            any::<u64>().prop_map(|n| json!(n)),
            any::<f64>().prop_filter_map("finite", |f| Number::from_f64(f).map(Value::Number)),
            (-4_i32..4).prop_map(|n| json!(f64::from(n) / 2.0)),
            "[a-c\\x00é]{0,4}".prop_map(|s| json!(s)),
        ]
    }

    proptest! {
        #[test]
        fn the_order_of_bytes_is_the_order_of_values(a in scalar(), b in scalar()) {
            let expected = compare_ordering(Some(&a), Some(&b));
            prop_assert_eq!(bytes(Some(&a)).cmp(&bytes(Some(&b))), expected, "{} {}", a, b);
            let inverted = |value: &Value| {
                let mut out = bytes(Some(value));
                invert(&mut out, 0);
                out
            };
            prop_assert_eq!(inverted(&b).cmp(&inverted(&a)), expected);
            if expected != Ordering::Equal {
                prop_assert!(!bytes(Some(&a)).starts_with(&bytes(Some(&b))));
            }
        }
    }
}
