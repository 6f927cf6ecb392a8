//! Numbers: IEEE doubles in arithmetic, as in Cosmos, with whole results written without a point;
//! integers of 64 bits keep all their digits while they are only compared and carried.

use serde_json::{Number, Value};
use std::cmp::Ordering;

/// Whole doubles up to here are exact, and become integers in results.
const EXACT_INTEGER_MAX: f64 = 9_007_199_254_740_992.0;

/// A number literal; none when it is not finite.
pub fn parse(digits: &str) -> Option<Number> {
    if let Ok(whole) = digits.parse::<i64>() {
        return Some(whole.into());
    }
    if let Ok(whole) = digits.parse::<u64>() {
        return Some(whole.into());
    }
    from_f64(digits.parse().ok()?)
}

/// The number of a computed double; none for infinities and not-a-number, which JSON lacks.
pub fn from_f64(value: f64) -> Option<Number> {
    if value.trunc() == value && value.abs() <= EXACT_INTEGER_MAX {
        #[expect(clippy::cast_possible_truncation, reason = "whole and within 53 bits")]
        return Some((value as i64).into());
    }
    Number::from_f64(value)
}

/// A computed double as a value; none (undefined) when it is not finite.
pub fn value(value: f64) -> Option<Value> {
    from_f64(value).map(Value::Number)
}

pub fn to_f64(number: &Number) -> f64 {
    number.as_f64().unwrap_or(f64::NAN)
}

fn to_i128(number: &Number) -> Option<i128> {
    number
        .as_i64()
        .map(i128::from)
        .or_else(|| number.as_u64().map(i128::from))
}

/// The whole number in 64 bits, if it is one (1.0 counts).
pub fn to_i64(number: &Number) -> Option<i64> {
    number.as_i64().or_else(|| {
        let float = number.as_f64()?;
        let whole = float.trunc() == float && float >= -(2f64.powi(63)) && float < 2f64.powi(63);
        #[expect(
            clippy::cast_possible_truncation,
            reason = "whole and within the range"
        )]
        (whole && number.is_f64()).then_some(float as i64)
    })
}

/// The value as a whole number that is not negative.
pub fn to_index(value: &Value) -> Option<usize> {
    match value {
        Value::Number(number) => to_i64(number).and_then(|i| usize::try_from(i).ok()),
        _ => None,
    }
}

/// Exact, also between large integers and doubles, so that the order is total.
pub fn compare(a: &Number, b: &Number) -> Ordering {
    if let (Some(a), Some(b)) = (a.as_i64(), b.as_i64()) {
        return a.cmp(&b);
    }
    if let (Some(a), Some(b)) = (to_i128(a), to_i128(b)) {
        return a.cmp(&b);
    }
    let (x, y) = (to_f64(a), to_f64(b));
    x.partial_cmp(&y).unwrap_or(Ordering::Equal).then_with(|| {
        // Equal as doubles, one an integer: beyond 53 bits the integer may still differ.
        #[expect(
            clippy::cast_possible_truncation,
            reason = "saturates; both are within 65 bits"
        )]
        let exact = |number: &Number| to_i128(number).unwrap_or(to_f64(number) as i128);
        exact(a).cmp(&exact(b))
    })
}

/// JavaScript's conversion for bitwise operators: the 32 lowest bits of the whole part.
pub fn to_i32_bits(value: f64) -> i32 {
    if !value.is_finite() {
        return 0;
    }
    let modulo = value.trunc().rem_euclid(4_294_967_296.0);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_possible_wrap,
        reason = "the value is within 0..2^32 and the wrap is what is asked for"
    )]
    let bits = modulo as u32 as i32;
    bits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_is_exact_beyond_53_bits() {
        let big = |text: &str| serde_json::from_str::<Number>(text).unwrap();
        assert_eq!(
            compare(&big("9007199254740993"), &big("9007199254740992")),
            Ordering::Greater
        );
        assert_eq!(
            compare(&big("9007199254740993"), &big("9007199254740992.0")),
            Ordering::Greater
        );
        assert_eq!(
            compare(&big("18446744073709551615"), &big("-1")),
            Ordering::Greater
        );
        assert_eq!(compare(&big("1"), &big("1.0")), Ordering::Equal);
        assert_eq!(compare(&big("1.5"), &big("1")), Ordering::Greater);
    }

    #[test]
    fn bits_wrap_as_in_javascript() {
        for (value, bits) in [
            (100.0, 100),
            (-100.0, -100),
            (2_147_483_648.0, -2_147_483_648),
            (2_147_483_649.0, -2_147_483_647),
            (6_442_450_944.0, -2_147_483_648),
            (-1.5, -1),
            (1e300, 0),
        ] {
            assert_eq!(to_i32_bits(value), bits, "{value}");
        }
    }
}
