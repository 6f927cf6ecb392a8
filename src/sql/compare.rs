//! Equality, comparison and the total order of values of any type:
//! undefined < null < false < true < number < string < array < object.

use super::number;
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::cmp::Ordering;

/// The place of a value's type in the total order; undefined comes before all of them.
fn rank(value: &Value) -> u8 {
    match value {
        Value::Null => 1,
        Value::Bool(false) => 2,
        Value::Bool(true) => 3,
        Value::Number(_) => 4,
        Value::String(_) => 5,
        Value::Array(_) => 6,
        Value::Object(_) => 7,
    }
}

/// Whether two defined values are equal; values of different types are not. Objects compare
/// without regard to the order of their properties.
pub fn equal(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::String(a), Value::String(b)) => a == b,
        (Value::Number(a), Value::Number(b)) => number::compare(a, b) == Ordering::Equal,
        (Value::Null, Value::Null) => true,
        (Value::Bool(a), Value::Bool(b)) => a == b,
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| equal(a, b))
        }
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len()
                && a.iter()
                    .all(|(name, a)| b.get(name).is_some_and(|b| equal(a, b)))
        }
        _ => false,
    }
}

/// The result of `<`, `<=`, `>`, `>=`: undefined across types and between arrays or objects.
pub fn compare_same_type(a: &Value, b: &Value) -> Option<Ordering> {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => Some(number::compare(a, b)),
        (Value::String(a), Value::String(b)) => Some(a.cmp(b)),
        (Value::Bool(a), Value::Bool(b)) => Some(a.cmp(b)),
        (Value::Null, Value::Null) => Some(Ordering::Equal),
        _ => None,
    }
}

/// The total order of ORDER BY, MIN and MAX; `None` is undefined.
pub fn compare_ordering(a: Option<&Value>, b: Option<&Value>) -> Ordering {
    match (a, b) {
        (None, None) => Ordering::Equal,
        (None, Some(_)) => Ordering::Less,
        (Some(_), None) => Ordering::Greater,
        (Some(a), Some(b)) => compare_defined(a, b),
    }
}

/// A value as ORDER BY looks at it: arrays are equal to each other, and so are objects.
pub fn order_key(value: Cow<'_, Value>) -> Value {
    match value.as_ref() {
        Value::Array(_) => Value::Array(Vec::new()),
        Value::Object(_) => Value::Object(Map::new()),
        _ => value.into_owned(),
    }
}

/// The total order of defined values.
pub fn compare_defined(a: &Value, b: &Value) -> Ordering {
    match (a, b) {
        (Value::Array(a), Value::Array(b)) => a
            .iter()
            .zip(b)
            .map(|(a, b)| compare_defined(a, b))
            .find(|ordering| ordering.is_ne())
            .unwrap_or_else(|| a.len().cmp(&b.len())),
        (Value::Object(a), Value::Object(b)) => compare_objects(a, b),
        _ => compare_same_type(a, b).unwrap_or_else(|| rank(a).cmp(&rank(b))),
    }
}

/// By sorted names, then values: the order of properties is no part of an object.
fn compare_objects(a: &Map<String, Value>, b: &Map<String, Value>) -> Ordering {
    let (a, b) = (sorted(a), sorted(b));
    a.iter()
        .zip(&b)
        .map(|(a, b)| a.0.cmp(b.0).then_with(|| compare_defined(a.1, b.1)))
        .find(|ordering| ordering.is_ne())
        .unwrap_or_else(|| a.len().cmp(&b.len()))
}

fn sorted(object: &Map<String, Value>) -> Vec<(&String, &Value)> {
    let mut properties: Vec<_> = object.iter().collect();
    properties.sort_unstable_by_key(|(name, _)| *name);
    properties
}

/// Appends bytes that are the same exactly for equal values: the key of DISTINCT, GROUP BY and
/// sets.
pub fn canonical_key(value: Option<&Value>, key: &mut Vec<u8>) {
    let Some(value) = value else {
        key.push(0);
        return;
    };
    key.push(rank(value));
    match value {
        Value::Null | Value::Bool(_) => {}
        // A tag tells the three notations apart; equal numbers share one.
        Value::Number(number) => match (number::to_i64(number), number.as_u64()) {
            (Some(whole), _) => {
                key.push(0);
                key.extend(whole.to_be_bytes());
            }
            (None, Some(whole)) => {
                key.push(1);
                key.extend(whole.to_be_bytes());
            }
            (None, None) => canonical_double(number::to_f64(number), key),
        },
        Value::String(text) => canonical_text(text, key),
        Value::Array(items) => {
            key.extend(items.len().to_be_bytes());
            items.iter().for_each(|item| canonical_key(Some(item), key));
        }
        Value::Object(object) => {
            key.extend(object.len().to_be_bytes());
            for (name, value) in sorted(object) {
                canonical_text(name, key);
                canonical_key(Some(value), key);
            }
        }
    }
}

fn canonical_double(value: f64, key: &mut Vec<u8>) {
    // Whole doubles between 2^63 and 2^64 equal the integers there.
    if value.trunc() == value && value > 0.0 && value < 2f64.powi(64) {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "whole and within the range"
        )]
        let whole = value as u64;
        key.push(1);
        key.extend(whole.to_be_bytes());
    } else {
        key.push(2);
        key.extend(value.to_bits().to_be_bytes());
    }
}

fn canonical_text(text: &str, key: &mut Vec<u8>) {
    key.extend(text.len().to_be_bytes());
    key.extend(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn key(value: &Value) -> Vec<u8> {
        let mut key = Vec::new();
        canonical_key(Some(value), &mut key);
        key
    }

    #[test]
    fn total_order_of_types() {
        let ascending = [
            json!(null),
            json!(false),
            json!(true),
            json!(-1.5),
            json!(0),
            json!(1e30),
            json!(""),
            json!("A"),
            json!("a"),
            json!([]),
            json!([1]),
            json!([1, 2]),
            json!([2]),
            json!({}),
            json!({"a": 1}),
            json!({"a": 2}),
            json!({"b": 0}),
        ];
        assert_eq!(compare_ordering(None, ascending.first()), Ordering::Less);
        for (i, a) in ascending.iter().enumerate() {
            for (j, b) in ascending.iter().enumerate() {
                assert_eq!(compare_defined(a, b), i.cmp(&j), "{a} {b}");
                assert_eq!(equal(a, b), i == j, "{a} {b}");
                assert_eq!(key(a) == key(b), i == j, "{a} {b}");
            }
        }
    }

    #[test]
    fn equality_ignores_property_order_and_number_notation() {
        let (a, b) = (json!({"x": 1, "y": [1.0]}), json!({"y": [1], "x": 1.0}));
        assert!(equal(&a, &b));
        assert_eq!(key(&a), key(&b));
        assert_eq!(compare_defined(&a, &b), Ordering::Equal);
    }

    #[test]
    fn comparison_across_types_is_undefined() {
        assert_eq!(compare_same_type(&json!(1), &json!("1")), None);
        assert_eq!(compare_same_type(&json!([1]), &json!([1])), None);
        assert_eq!(
            compare_same_type(&json!(false), &json!(true)),
            Some(Ordering::Less)
        );
    }
}
