//! Partition keys: the header that carries one, the definition that finds one in an item, and its place in the key space.

use std::fmt;

use serde::de::{self, MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use super::error::{Error, Result};

mod definition;
mod place;

pub use definition::{HashVersion, KEY_BYTES_MAX, KeyKind, PartitionKeyDefinition, mismatch};

/// The deepest hierarchical key, in levels.
pub const LEVELS_MAX: usize = 3;
/// How much of a refused value is repeated in the message, in characters.
const QUOTED_CHARS_MAX: usize = 100;
/// Whole numbers below this are written without a fraction; above it a double may not hold the digits.
const EXACT_INTEGER_MAX: f64 = 9_007_199_254_740_992.0;

/// The value of one level of a partition key.
///
/// Numbers are doubles, so `1` and `1.0` are one key; -0.0 from the wire becomes 0.0 for the same reason.
#[derive(Clone, Debug, PartialEq)]
pub enum KeyComponent {
    /// The item has no such property; `{}` on the wire.
    Undefined,
    Null,
    Bool(bool),
    Number(f64),
    String(String),
}

impl KeyComponent {
    /// The byte that stands for the type in hash inputs and version 1 keys.
    pub(super) fn marker(&self) -> u8 {
        match self {
            Self::Undefined => 0x00,
            Self::Null => 0x01,
            Self::Bool(false) => 0x02,
            Self::Bool(true) => 0x03,
            Self::Number(_) => 0x05,
            Self::String(_) => 0x08,
        }
    }

    fn number(number: f64) -> Self {
        // Adding 0.0 turns -0.0 into 0.0 and changes nothing else.
        Self::Number(number + 0.0)
    }

    /// From the property of an item; `None` for objects and arrays, which cannot be keys.
    pub fn from_json(value: &Value) -> Option<Self> {
        match value {
            Value::Null => Some(Self::Null),
            Value::Bool(value) => Some(Self::Bool(*value)),
            Value::Number(number) => number.as_f64().map(Self::number),
            Value::String(text) => Some(Self::String(text.clone())),
            Value::Array(_) | Value::Object(_) => None,
        }
    }

    /// As the header writes it: undefined is `{}`.
    pub fn to_json(&self) -> Value {
        match self {
            Self::Undefined => Value::Object(Map::new()),
            Self::Null => Value::Null,
            Self::Bool(value) => Value::Bool(*value),
            Self::Number(number) if number.fract() == 0.0 && number.abs() < EXACT_INTEGER_MAX => {
                Value::from(*number as i64)
            }
            Self::Number(number) => Value::from(*number),
            Self::String(text) => Value::from(text.as_str()),
        }
    }
}

impl Serialize for KeyComponent {
    /// The value itself; undefined is an empty map.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Undefined => serializer.serialize_map(Some(0))?.end(),
            Self::Null => serializer.serialize_unit(),
            Self::Bool(value) => serializer.serialize_bool(*value),
            Self::Number(number) => serializer.serialize_f64(*number),
            Self::String(text) => serializer.serialize_str(text),
        }
    }
}

impl<'de> Deserialize<'de> for KeyComponent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ComponentVisitor)
    }
}

struct ComponentVisitor;

impl<'de> Visitor<'de> for ComponentVisitor {
    type Value = KeyComponent;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string, a number, a boolean, null or {}")
    }

    fn visit_unit<E: de::Error>(self) -> Result<KeyComponent, E> {
        Ok(KeyComponent::Null)
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<KeyComponent, E> {
        Ok(KeyComponent::Bool(value))
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<KeyComponent, E> {
        Ok(KeyComponent::number(value as f64))
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<KeyComponent, E> {
        Ok(KeyComponent::number(value as f64))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<KeyComponent, E> {
        Ok(KeyComponent::number(value))
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<KeyComponent, E> {
        Ok(KeyComponent::String(value.to_owned()))
    }

    fn visit_string<E: de::Error>(self, value: String) -> Result<KeyComponent, E> {
        Ok(KeyComponent::String(value))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<KeyComponent, A::Error> {
        match map.next_key::<de::IgnoredAny>()? {
            None => Ok(KeyComponent::Undefined),
            Some(_) => Err(de::Error::invalid_type(de::Unexpected::Map, &self)),
        }
    }
}

/// A partition key, one component a level. Fewer components than levels make a prefix; none makes the empty key.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PartitionKey(pub Vec<KeyComponent>);

impl PartitionKey {
    /// Reads the partition key header: a JSON array of up to three components.
    pub fn parse_header(text: &str) -> Result<Self> {
        if let Some(plain) = plain_string(text) {
            return Ok(Self(vec![KeyComponent::String(plain.to_owned())]));
        }
        let key: Self = serde_json::from_str(text).map_err(|error| {
            Error::bad_request(format!(
                "the partition key '{}' is not valid: {error}",
                shown(text)
            ))
        })?;
        if key.0.len() > LEVELS_MAX {
            return Err(Error::bad_request(format!(
                "the partition key '{}' is not valid: it has {} components, {LEVELS_MAX} is the most",
                shown(text),
                key.0.len()
            )));
        }
        Ok(key)
    }

    /// The array that [`Self::parse_header`] reads.
    pub fn to_json(&self) -> Value {
        self.0.iter().map(KeyComponent::to_json).collect()
    }
}

impl fmt::Display for PartitionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.to_json().fmt(f)
    }
}

/// The string of a header `["text"]` in which nothing is escaped.
fn plain_string(text: &str) -> Option<&str> {
    let inner = text.strip_prefix("[\"")?.strip_suffix("\"]")?;
    let plain = inner
        .bytes()
        .all(|byte| byte >= 0x20 && byte != b'"' && byte != b'\\');
    plain.then_some(inner)
}

fn shown(text: &str) -> String {
    text.chars().take(QUOTED_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::KeyComponent::{Bool, Null, Number, Undefined};
    use super::*;

    fn text(value: &str) -> KeyComponent {
        KeyComponent::String(value.to_owned())
    }

    fn key(header: &str) -> PartitionKey {
        PartitionKey::parse_header(header).unwrap()
    }

    #[test]
    fn headers_are_read() {
        let cases = [
            (r#"["p1"]"#, vec![text("p1")]),
            (r#"[""]"#, vec![text("")]),
            (r#" [ "p1" ] "#, vec![text("p1")]),
            (r#"["a\"b"]"#, vec![text("a\"b")]),
            (r#"["\u00e4\ud83d\ude00"]"#, vec![text("ä😀")]),
            (r#"["ä"]"#, vec![text("ä")]),
            ("[1]", vec![Number(1.0)]),
            ("[1.0]", vec![Number(1.0)]),
            ("[-1.5e3]", vec![Number(-1500.0)]),
            (
                "[18446744073709551615]",
                vec![Number(18_446_744_073_709_551_615.0)],
            ),
            ("[true]", vec![Bool(true)]),
            ("[null]", vec![Null]),
            ("[{}]", vec![Undefined]),
            ("[]", vec![]),
            (r#"["T","U"]"#, vec![text("T"), text("U")]),
            (r#"["T",1,{}]"#, vec![text("T"), Number(1.0), Undefined]),
        ];
        for (header, expected) in cases {
            assert_eq!(key(header).0, expected, "{header}");
        }
    }

    #[test]
    fn negative_zero_is_zero() {
        for header in ["[-0.0]", "[-0]"] {
            let [Number(number)] = key(header).0[..] else {
                panic!("{header}")
            };
            assert!(number.is_sign_positive());
        }
    }

    #[test]
    fn bad_headers_are_refused() {
        let cases = [
            "",
            "p1",
            r#""p1""#,
            "[",
            "[1",
            r#"["a]"#,
            r#"["a"]x"#,
            r#"["a"b"]"#,
            r#"["a\"]"#,
            "[[1]]",
            "[[]]",
            r#"[{"a":1}]"#,
            "{}",
            "null",
            "[1e999]",
            "[NaN]",
            r#"["\ud800"]"#,
            "[1,2,3,4]",
            "[\"a\nb\"]",
            "[,]",
        ];
        for header in cases {
            let error = PartitionKey::parse_header(header).unwrap_err();
            assert_eq!((error.status(), error.substatus()), (400, 0), "{header}");
        }
        let deep = "[".repeat(100_000);
        assert!(PartitionKey::parse_header(&deep).unwrap_err().message.len() < 400);
    }

    #[test]
    fn keys_are_written_as_headers_and_stored_small() {
        for header in [
            r#"["a\"ä"]"#,
            "[1]",
            "[1.5]",
            "[-3]",
            "[1e100]",
            "[true]",
            "[null]",
            "[{}]",
            "[]",
            r#"["T",0,{}]"#,
        ] {
            let key = key(header);
            assert_eq!(
                key.to_json(),
                serde_json::from_str::<Value>(header).unwrap()
            );
            assert_eq!(PartitionKey::parse_header(&key.to_string()).unwrap(), key);
            let bytes = rmp_serde::to_vec(&key).unwrap();
            assert_eq!(rmp_serde::from_slice::<PartitionKey>(&bytes).unwrap(), key);
        }
    }
}
