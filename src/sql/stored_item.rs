//! Reads some properties of a stored item. Most of the cost of a scan is reading what nobody looks at, so an item is walked from
//! one property to the next without reading values, and the walk ends with the last property that is wanted.
//!
//! The item is JSON that we have written: valid, and without a name twice.

use super::eval::{Guard, parsed_size};
use super::wanted::Wanted;
use crate::model::error::{Error, Result};
use serde_json::{Map, Number, Value};
use std::sync::Arc;

/// Whole numbers of so many digits fit 64 bits.
const WHOLE_DIGITS_MAX: usize = 18;
/// Memory for JSON of at least this many bytes is reserved before it is read: a list of small
/// numbers takes many times its text.
const RESERVED_JSON_BYTES_MIN: usize = 16 * 1024;

/// Reads item after item into one value, so that items that are alike need little memory.
pub struct ItemReader<'q> {
    wanted: &'q Wanted,
    item: Value,
    /// Of each name, whether the item under way has it.
    found: Vec<bool>,
    guard: Option<Arc<dyn Guard>>,
}

impl<'q> ItemReader<'q> {
    pub fn new(wanted: &'q Wanted) -> Self {
        Self {
            wanted,
            item: Value::Object(Map::new()),
            found: Vec::new(),
            guard: None,
        }
    }

    /// Has the reading watched.
    #[must_use]
    pub fn guarded(mut self, guard: Arc<dyn Guard>) -> Self {
        self.guard = Some(guard);
        self
    }

    /// The item with the wanted properties, until the next one is read.
    pub fn read(&mut self, bytes: &[u8]) -> Result<&Value> {
        let guard = self.guard.as_deref();
        match (self.wanted, &mut self.item) {
            (Wanted::Only(names), Value::Object(object)) => {
                self.found.clear();
                self.found.resize(names.len(), false);
                if !names.is_empty() {
                    read_properties(bytes, names, object, &mut self.found, guard)?;
                    for (name, found) in names.iter().zip(&self.found) {
                        if !found {
                            object.swap_remove(name);
                        }
                    }
                }
            }
            (_, item) => {
                reserve(bytes, guard)?;
                *item = serde_json::from_slice(bytes).map_err(|_| unreadable())?;
            }
        }
        Ok(&self.item)
    }
}

fn unreadable() -> Error {
    Error::internal("a stored item cannot be read")
}

fn read_properties(
    bytes: &[u8],
    names: &[String],
    object: &mut Map<String, Value>,
    found: &mut [bool],
    guard: Option<&dyn Guard>,
) -> Result<()> {
    let mut walk = Walk { bytes, at: 0 };
    let mut lacking = names.len();
    walk.pass(b'{').ok_or_else(unreadable)?;
    if walk.peek() == Some(b'}') {
        return Ok(());
    }
    loop {
        let (place, value) = walk.property(names).ok_or_else(unreadable)?;
        if let Some(at) = place
            && let (Some(name), Some(found)) = (names.get(at), found.get_mut(at))
        {
            reserve(value, guard)?;
            let value = parse(value).ok_or_else(unreadable)?;
            match object.get_mut(name) {
                Some(place) => *place = value,
                None => {
                    object.insert(name.clone(), value);
                }
            }
            *found = true;
            lacking -= 1;
            if lacking == 0 {
                return Ok(());
            }
        }
        match walk.peek() {
            Some(b',') => walk.at += 1,
            Some(b'}') => return Ok(()),
            _ => return Err(unreadable()),
        }
    }
}

/// Asks for the memory that JSON takes when it is read.
fn reserve(json: &[u8], guard: Option<&dyn Guard>) -> Result<()> {
    match guard {
        Some(guard) if json.len() >= RESERVED_JSON_BYTES_MIN => guard.check(parsed_size(json)),
        _ => Ok(()),
    }
}

/// Which of the names this is, between its quotes.
fn place_of(quoted: &[u8], names: &[String]) -> Option<Option<usize>> {
    let name = quoted.get(1..quoted.len() - 1)?;
    if name.contains(&b'\\') {
        let name: String = serde_json::from_slice(quoted).ok()?;
        return Some(names.iter().position(|known| *known == name));
    }
    Some(names.iter().position(|known| known.as_bytes() == name))
}

fn parse(json: &[u8]) -> Option<Value> {
    match json {
        [b'"', text @ .., b'"'] if !text.contains(&b'\\') => {
            Some(Value::String(std::str::from_utf8(text).ok()?.to_owned()))
        }
        [b'1'..=b'9', ..]
            if json.len() <= WHOLE_DIGITS_MAX && json.iter().all(u8::is_ascii_digit) =>
        {
            let whole = json
                .iter()
                .fold(0, |whole, digit| whole * 10 + u64::from(digit - b'0'));
            Some(Value::Number(Number::from(whole)))
        }
        _ => serde_json::from_slice(json).ok(),
    }
}

/// A way through JSON without reading it.
struct Walk<'b> {
    bytes: &'b [u8],
    at: usize,
}

impl<'b> Walk<'b> {
    /// The next byte that means something.
    fn peek(&mut self) -> Option<u8> {
        loop {
            match *self.bytes.get(self.at)? {
                b' ' | b'\n' | b'\r' | b'\t' => self.at += 1,
                byte => return Some(byte),
            }
        }
    }

    fn pass(&mut self, expected: u8) -> Option<()> {
        (self.peek()? == expected).then(|| self.at += 1)
    }

    /// A property: which of the names it has, and its value.
    fn property(&mut self, names: &[String]) -> Option<(Option<usize>, &'b [u8])> {
        let name = self.text()?;
        self.pass(b':')?;
        let value = self.value()?;
        Some((place_of(name, names)?, value))
    }

    /// A string with its quotes.
    fn text(&mut self) -> Option<&'b [u8]> {
        let start = self.at;
        if self.peek()? != b'"' {
            return None;
        }
        let start = start.max(self.at);
        self.at += 1;
        loop {
            let rest = self.bytes.get(self.at..)?;
            let end = memchr::memchr2(b'"', b'\\', rest)?;
            match rest.get(end)? {
                b'"' => {
                    self.at += end + 1;
                    return self.bytes.get(start..self.at);
                }
                // What follows a backslash is no end.
                _ => self.at += end + 2,
            }
        }
    }

    fn value(&mut self) -> Option<&'b [u8]> {
        match self.peek()? {
            b'"' => self.text(),
            b'{' | b'[' => self.nested(),
            _ => {
                let rest = self.bytes.get(self.at..)?;
                let length = rest.iter().position(|byte| {
                    matches!(byte, b',' | b'}' | b']' | b' ' | b'\n' | b'\r' | b'\t')
                })?;
                self.at += length;
                rest.get(..length)
            }
        }
    }

    /// An array or an object.
    fn nested(&mut self) -> Option<&'b [u8]> {
        let start = self.at;
        let mut depth = 0_usize;
        loop {
            match *self.bytes.get(self.at)? {
                b'"' => {
                    self.text()?;
                    continue;
                }
                b'{' | b'[' => depth += 1,
                b'}' | b']' => depth -= 1,
                _ => {}
            }
            self.at += 1;
            if depth == 0 {
                return self.bytes.get(start..self.at);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn only(names: &[&str]) -> Wanted {
        Wanted::Only(names.iter().map(|name| (*name).to_owned()).collect())
    }

    fn json_value() -> impl Strategy<Value = Value> {
        let text = r#"[a"\\/\n\u{e9}\{\}\[\],: ]{0,6}"#;
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            (-1e9..1e9).prop_map(|number: f64| json!(number)),
            text.prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 20, 4, move |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map(text, inner, 0..4)
                    .prop_map(|object| Value::Object(object.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn what_is_read_is_what_was_stored(
            items in prop::collection::vec(prop::collection::btree_map("[ab\"\\\\\u{e9}]{1,2}", json_value(), 0..5), 1..4),
            names in prop::collection::vec("[ab\"\\\\\u{e9}]{1,2}", 0..4),
            pretty in any::<bool>(),
        ) {
            let mut names = names;
            names.sort();
            names.dedup();
            let wanted = Wanted::Only(names.clone());
            let mut reader = ItemReader::new(&wanted);
            for item in items {
                let item: Map<String, Value> = item.into_iter().collect();
                let stored = if pretty {
                    serde_json::to_vec_pretty(&item)
                } else {
                    serde_json::to_vec(&item)
                };
                let read = reader.read(&stored.unwrap()).unwrap();
                let mut expected = item;
                expected.retain(|name, _| names.contains(name));
                prop_assert_eq!(read, &Value::Object(expected));
            }
        }
    }

    #[test]
    fn numbers_are_what_the_parser_makes_of_them() {
        let wanted = only(&["n"]);
        let mut reader = ItemReader::new(&wanted);
        for number in [
            "0",
            "-0",
            "7",
            "-7",
            "1e3",
            "1.0",
            "999999999999999999",
            "9999999999999999999",
            "18446744073709551615",
            "99999999999999999999",
            "-9223372036854775808",
        ] {
            let stored = format!(r#"{{"a":[{{}}],"n":{number}}}"#);
            let expected: Value = serde_json::from_str(&stored).unwrap();
            let read = reader.read(stored.as_bytes()).unwrap();
            assert_eq!(read["n"], expected["n"], "{number}");
            assert_eq!(read["n"].is_f64(), expected["n"].is_f64(), "{number}");
        }
    }

    #[test]
    fn nothing_of_an_item_is_left_for_the_next() {
        let wanted = only(&["a", "b"]);
        let mut reader = ItemReader::new(&wanted);
        for (stored, expected) in [
            (r#"{"a":1,"b":2}"#, json!({"a": 1, "b": 2})),
            (r#"{"b":3,"c":0}"#, json!({"b": 3})),
            ("{}", json!({})),
            (r#"{"x":[1,{"a":2}],"a":"y"}"#, json!({"a": "y"})),
        ] {
            assert_eq!(reader.read(stored.as_bytes()).unwrap(), &expected);
        }
    }

    #[test]
    fn what_is_cut_off_is_refused() {
        let wanted = only(&["z"]);
        let mut reader = ItemReader::new(&wanted);
        let stored = r#"{"a":"x\"","b":[1,{"c":"}"}],"z":5}"#;
        assert_eq!(reader.read(stored.as_bytes()).unwrap(), &json!({"z": 5}));
        for cut in 0..stored.len() - 1 {
            assert!(reader.read(&stored.as_bytes()[..cut]).is_err(), "{cut}");
        }
        assert!(reader.read(b"5").is_err());
    }
}
