//! Unique keys: what an item's values under each constraint come down to.

use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use crate::model::path::PropertyPath;

/// Each kind of value has a tag of its own, so that no two kinds share an encoding.
mod tag {
    pub const UNDEFINED: u8 = 0;
    pub const NULL: u8 = 1;
    pub const FALSE: u8 = 2;
    pub const TRUE: u8 = 3;
    pub const NUMBER: u8 = 4;
    pub const STRING: u8 = 5;
    pub const ARRAY: u8 = 6;
    pub const OBJECT: u8 = 7;
}

/// One fingerprint for each constraint. Two items of one logical partition violate a constraint when its
/// fingerprints are equal.
///
/// A missing path is a value of its own, equal to itself and to nothing else. Numbers compare as doubles and
/// objects whatever the order of their properties.
pub fn unique_fingerprints(keys: &[Vec<PropertyPath>], item: &Map<String, Value>) -> Vec<[u8; 32]> {
    let mut encoded = Vec::new();
    keys.iter()
        .zip(0u32..)
        .map(|(paths, constraint)| {
            encoded.clear();
            encoded.extend_from_slice(&constraint.to_be_bytes());
            for path in paths {
                match path.get(item) {
                    Some(value) => encode(&mut encoded, value),
                    None => encoded.push(tag::UNDEFINED),
                }
            }
            Sha256::digest(&encoded).into()
        })
        .collect()
}

/// Recursion is bounded by the depth to which every stored item is held.
fn encode(out: &mut Vec<u8>, value: &Value) {
    match value {
        Value::Null => out.push(tag::NULL),
        Value::Bool(false) => out.push(tag::FALSE),
        Value::Bool(true) => out.push(tag::TRUE),
        Value::Number(number) => {
            // Adding zero turns -0 into 0.
            let double = number.as_f64().unwrap_or_default() + 0.0;
            out.push(tag::NUMBER);
            out.extend_from_slice(&double.to_be_bytes());
        }
        Value::String(text) => {
            out.push(tag::STRING);
            encode_text(out, text);
        }
        Value::Array(items) => {
            out.push(tag::ARRAY);
            encode_count(out, items.len());
            for item in items {
                encode(out, item);
            }
        }
        Value::Object(object) => {
            out.push(tag::OBJECT);
            encode_count(out, object.len());
            let mut sorted: Vec<_> = object.iter().collect();
            sorted.sort_unstable_by_key(|(name, _)| *name);
            for (name, item) in sorted {
                encode_text(out, name);
                encode(out, item);
            }
        }
    }
}

/// Counts come first, so that neighbours cannot run into each other.
fn encode_count(out: &mut Vec<u8>, count: usize) {
    out.extend_from_slice(&(count as u64).to_be_bytes());
}

fn encode_text(out: &mut Vec<u8>, text: &str) {
    encode_count(out, text.len());
    out.extend_from_slice(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn fingerprints(keys: &[&[&str]], item: &Value) -> Vec<[u8; 32]> {
        let keys: Vec<Vec<PropertyPath>> = keys
            .iter()
            .map(|paths| {
                paths
                    .iter()
                    .map(|path| PropertyPath::parse(path).expect("a path"))
                    .collect()
            })
            .collect();
        unique_fingerprints(&keys, item.as_object().expect("an object"))
    }

    #[test]
    fn values_collide_exactly_when_they_are_equal() {
        let values = [
            (json!({"id": "1"}), "undefined"),
            (json!({"a": null}), "null"),
            (json!({"a": false}), "false"),
            (json!({"a": true}), "true"),
            (json!({"a": 0}), "zero"),
            (json!({"a": -0.0}), "zero"),
            (json!({"a": 1}), "one"),
            (json!({"a": 1.0, "id": "other"}), "one"),
            (json!({"a": "1"}), "string one"),
            (json!({"a": ""}), "empty string"),
            (json!({"a": []}), "empty array"),
            (json!({"a": {}}), "empty object"),
            (json!({"a": [1, 2]}), "array"),
            (json!({"a": [2, 1]}), "other order of an array"),
            (json!({"a": [[1], 2]}), "nested"),
            (json!({"a": [[1, 2]]}), "nested otherwise"),
            (json!({"a": {"x": 1, "y": 2}}), "object"),
            (json!({"a": {"y": 2.0, "x": 1.0}}), "object"),
            (json!({"a": 9_007_199_254_740_993_u64}), "2^53 as a double"),
            (json!({"a": 9_007_199_254_740_992_u64}), "2^53 as a double"),
        ];
        for (left, left_name) in &values {
            for (right, right_name) in &values {
                let equal = fingerprints(&[&["/a"]], left) == fingerprints(&[&["/a"]], right);
                assert_eq!(equal, left_name == right_name, "{left} and {right}");
            }
        }
    }

    #[test]
    fn constraints_and_paths_do_not_mix() {
        let item = json!({"a": "x", "b": "x", "c": {"d": "x"}});
        let prints = fingerprints(
            &[
                &["/a"],
                &["/b"],
                &["/c/d"],
                &["/a", "/b"],
                &["/a", "/missing"],
            ],
            &item,
        );
        for (index, print) in prints.iter().enumerate() {
            assert!(
                !prints[..index].contains(print),
                "constraint {index} has a fingerprint of its own"
            );
        }
        let split = |a: &str, b: &str| fingerprints(&[&["/a", "/b"]], &json!({"a": a, "b": b}));
        assert_ne!(split("ab", "c"), split("a", "bc"));
        assert_ne!(split("ab", ""), split("", "ab"));
        assert_eq!(split("a", "b"), split("a", "b"));
        assert!(fingerprints(&[], &item).is_empty());
    }

    #[test]
    fn one_missing_path_of_several_still_counts() {
        let prints = |item: Value| fingerprints(&[&["/a", "/b"]], &item);
        assert_eq!(prints(json!({"a": 1})), prints(json!({"a": 1, "c": 2})));
        assert_ne!(prints(json!({"a": 1})), prints(json!({"b": 1})));
        assert_ne!(prints(json!({"a": 1})), prints(json!({"a": 1, "b": null})));
    }
}
