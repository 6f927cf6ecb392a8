//! Strict JSON from request bodies: one pass that refuses what a store must not keep (duplicate keys,
//! too deep nesting, invalid UTF-8, numbers out of range) and gives every number its one normal form.

use std::fmt;

use serde::de::{DeserializeSeed, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::map::Entry;
use serde_json::{Map, Number, Value};

use super::binary_json;
use super::error::{Error, Result};

/// The deepest nesting of arrays and objects in a body, in levels; the outermost is level 1.
pub const JSON_DEPTH_MAX: usize = 128;

/// The first byte of a body in the Cosmos binary form; no JSON text can start with it.
const BINARY_MARK: u8 = 0x80;

/// How much of an offending value a message shows, in characters.
const SHOWN_CHARS_MAX: usize = 100;

/// How much text a message shows on either side of a syntax error, in bytes.
const NEAR_BYTES: usize = 20;

/// An array of so many values grows by a quarter, not to twice its size: hostile bodies are nothing
/// but values, each of which takes many times its bytes.
const LARGE_ARRAY_VALUES: usize = 16 * 1024;

/// Room for the properties of a usual item, so that its map is not rehashed as it grows.
const TOP_PROPERTIES_EXPECTED: usize = 28;

/// Reads a body that must be one object, as text or in the binary form.
pub fn parse_object(body: &[u8]) -> Result<Map<String, Value>> {
    match parse_value(body)? {
        Value::Object(object) => Ok(object),
        other => Err(Error::bad_request(format!(
            "the body must be a JSON object, but it is {}: {}",
            kind_name(&other),
            show(&other)
        ))),
    }
}

/// Reads a body that must be one JSON value, as text or in the binary form.
pub fn parse_value(body: &[u8]) -> Result<Value> {
    if body.first() == Some(&BINARY_MARK) {
        let mut value = binary_json::decode(body)?;
        normalise(&mut value, 0)?;
        return Ok(value);
    }
    let text = std::str::from_utf8(body).map_err(|error| not_utf8(body, &error))?;
    let mut deserializer = serde_json::Deserializer::from_str(text);
    // Our own bound replaces the library's, because the message must name the limit.
    deserializer.disable_recursion_limit();
    Nested { depth: 0 }
        .deserialize(&mut deserializer)
        .and_then(|value| deserializer.end().map(|()| value))
        .map_err(|error| not_json(text, &error))
}

/// Appends the compact text of a value.
pub fn write_value(out: &mut Vec<u8>, value: &Value) {
    serde_json::to_writer(out, value)
        .expect("a Value has only string keys and a Vec takes every byte, so writing cannot fail");
}

/// Appends a string as JSON, in quotes and escaped.
pub fn write_string(out: &mut Vec<u8>, text: &str) {
    serde_json::to_writer(out, text).expect("a Vec takes every byte, so writing cannot fail");
}

/// A double in its normal form: whole numbers within 64 bits as integers (`3.0` is 3, `-0.0` is 0);
/// `None` when it is not finite.
pub fn normal_number(number: f64) -> Option<Number> {
    // Both bounds are powers of two, hence exact doubles.
    const BELOW_U64: f64 = 18_446_744_073_709_551_616.0;
    const LOWEST_I64: f64 = -9_223_372_036_854_775_808.0;
    if number.trunc() != number || !(LOWEST_I64..BELOW_U64).contains(&number) {
        return Number::from_f64(number);
    }
    if number < 0.0 {
        Some(Number::from(number as i64))
    } else {
        Some(Number::from(number as u64))
    }
}

/// Whether arrays and objects nest deeper than a body may; looks no further down than the limit.
pub fn too_deep(value: &Value) -> bool {
    fn deeper(value: &Value, room: usize) -> bool {
        match value {
            Value::Array(items) => room == 0 || items.iter().any(|item| deeper(item, room - 1)),
            Value::Object(object) => {
                room == 0 || object.values().any(|item| deeper(item, room - 1))
            }
            _ => false,
        }
    }
    deeper(value, JSON_DEPTH_MAX)
}

/// What a message calls the type of a value.
pub fn kind_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

/// A value as a message shows it: its JSON, cut when long.
pub fn show(value: &Value) -> String {
    shorten(&value.to_string())
}

/// A text as a message shows it: cut when long.
pub fn shorten(text: &str) -> String {
    match text.char_indices().nth(SHOWN_CHARS_MAX) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
    }
}

/// One value of the body; `depth` containers are open around it.
#[derive(Clone, Copy)]
struct Nested {
    depth: usize,
}

impl Nested {
    fn enter<E: serde::de::Error>(self) -> Result<Self, E> {
        if self.depth >= JSON_DEPTH_MAX {
            return Err(E::custom(depth_message()));
        }
        Ok(Self {
            depth: self.depth + 1,
        })
    }
}

impl<'de> DeserializeSeed<'de> for Nested {
    type Value = Value;

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Nested {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        normal_number(value)
            .map(Value::Number)
            .ok_or_else(|| E::custom("number out of range"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let inside = self.enter()?;
        let mut items = Vec::new();
        while let Some(item) = access.next_element_seed(inside)? {
            if items.len() == items.capacity() && items.len() >= LARGE_ARRAY_VALUES {
                items.reserve_exact(items.len() / 4);
            }
            items.push(item);
        }
        Ok(Value::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let inside = self.enter()?;
        let mut object = if self.depth == 0 {
            Map::with_capacity(TOP_PROPERTIES_EXPECTED)
        } else {
            Map::new()
        };
        while let Some(key) = access.next_key::<String>()? {
            match object.entry(key) {
                Entry::Vacant(vacant) => vacant.insert(access.next_value_seed(inside)?),
                Entry::Occupied(taken) => {
                    let key = shorten(taken.key());
                    return Err(A::Error::custom(format_args!("duplicate key '{key}'")));
                }
            };
        }
        Ok(Value::Object(object))
    }
}

fn depth_message() -> String {
    format!("arrays and objects are nested deeper than the limit of {JSON_DEPTH_MAX} levels")
}

/// Brings the numbers of a decoded value into their normal form and holds it to the depth limit.
fn normalise(value: &mut Value, depth: usize) -> Result<()> {
    match value {
        Value::Number(number) => {
            if let Some(normal) = number.as_f64().filter(|_| number.is_f64()) {
                *number = normal_number(normal).ok_or_else(|| {
                    Error::bad_request(format!("the number {normal} is out of range"))
                })?;
            }
        }
        Value::Array(_) | Value::Object(_) if depth >= JSON_DEPTH_MAX => {
            return Err(Error::bad_request(format!(
                "the body is not valid: {}",
                depth_message()
            )));
        }
        Value::Array(items) => {
            for item in items {
                normalise(item, depth + 1)?;
            }
        }
        Value::Object(object) => {
            for item in object.values_mut() {
                normalise(item, depth + 1)?;
            }
        }
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
    Ok(())
}

fn not_utf8(body: &[u8], error: &std::str::Utf8Error) -> Error {
    let at = error.valid_up_to();
    let byte = body.get(at).copied().unwrap_or_default();
    Error::bad_request(format!(
        "the body is not valid UTF-8: byte 0x{byte:02x} at offset {at} starts no character"
    ))
}

fn not_json(text: &str, error: &serde_json::Error) -> Error {
    if text.trim().is_empty() {
        return Error::bad_request("the body is empty where JSON is needed");
    }
    let at = offset(text, error.line(), error.column());
    let message = error.to_string();
    if message.starts_with("number out of range")
        && let Some(number) = number_at(text, at)
    {
        return Error::bad_request(format!(
            "the body is not valid JSON: the number {} at line {} is out of the range of a double",
            shorten(number),
            error.line()
        ));
    }
    Error::bad_request(format!(
        "the body is not valid JSON: {message}, near '{}'",
        near(text, at)
    ))
}

/// The byte offset of a position that the library reports as line and column.
fn offset(text: &str, line: usize, column: usize) -> usize {
    let before: usize = text
        .split_inclusive('\n')
        .take(line.saturating_sub(1))
        .map(str::len)
        .sum();
    (before + column).min(text.len())
}

/// The number that reaches up to or over an offset.
fn number_at(text: &str, at: usize) -> Option<&str> {
    let of_number = |byte: &u8| byte.is_ascii_digit() || b"+-.eE".contains(byte);
    let (head, tail) = text.as_bytes().split_at_checked(at)?;
    let start = at - head.iter().rev().take_while(|byte| of_number(byte)).count();
    let end = at + tail.iter().take_while(|byte| of_number(byte)).count();
    text.get(start..end).filter(|number| !number.is_empty())
}

fn near(text: &str, at: usize) -> &str {
    let mut start = at.saturating_sub(NEAR_BYTES);
    while !text.is_char_boundary(start) {
        start -= 1;
    }
    let mut end = (at + NEAR_BYTES).min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(start..end).unwrap_or_default()
}

#[cfg(test)]
mod tests;
