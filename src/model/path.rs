//! Property paths of partition keys and unique keys: `/a/b`, `/"a b"/c`.

use std::fmt;
use std::hash::{Hash, Hasher};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::{Map, Value};

use super::error::{Error, Result};

/// The longest path, in bytes of text.
pub const PATH_BYTES_MAX: usize = 1_024;
/// The deepest path, in segments: items nest no deeper.
pub const PATH_SEGMENTS_MAX: usize = 128;
/// How much of a refused path is repeated in the message, in characters.
const QUOTED_CHARS_MAX: usize = 100;

/// Names one property of an item. Never empty; array elements cannot be named.
///
/// Two paths are equal when they name the same property, however they are quoted.
#[derive(Clone, Debug)]
pub struct PropertyPath {
    segments: Vec<String>,
    text: String,
}

impl PropertyPath {
    /// Reads a path; refuses wildcards, trailing slashes, array steps and bad quoting.
    pub fn parse(text: &str) -> Result<Self> {
        let segments = parse_segments(text).map_err(|position| refused(text, position))?;
        Ok(Self {
            segments,
            text: text.to_owned(),
        })
    }

    pub fn segments(&self) -> &[String] {
        &self.segments
    }

    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The value at this path; `None` when a step is missing or is not an object.
    pub fn get<'a>(&self, item: &'a Map<String, Value>) -> Option<&'a Value> {
        let (first, rest) = self.segments.split_first()?;
        rest.iter().try_fold(item.get(first)?, |value, segment| {
            value.as_object()?.get(segment)
        })
    }
}

fn refused(text: &str, position: usize) -> Error {
    let shown: String = text.chars().take(QUOTED_CHARS_MAX).collect();
    Error::bad_request(format!(
        "the component definition path '{shown}' could not be accepted, failed near position {position}. Partition key \
         paths must contain only valid characters and not contain a trailing slash or wildcard character; they start with a slash"
    ))
}

/// The segments, or the byte position at which the text stops being a path.
fn parse_segments(text: &str) -> Result<Vec<String>, usize> {
    if text.len() > PATH_BYTES_MAX {
        return Err(PATH_BYTES_MAX);
    }
    if text.is_empty() {
        return Err(0);
    }
    let mut segments = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let position = text.len() - rest.len();
        if segments.len() == PATH_SEGMENTS_MAX {
            return Err(position);
        }
        rest = rest.strip_prefix('/').ok_or(position)?;
        let (segment, after) = match rest.chars().next() {
            Some(quote @ ('"' | '\'')) => quoted_segment(rest, quote).ok_or(position + 1)?,
            _ => plain_segment(rest).map_err(|offset| position + 1 + offset)?,
        };
        segments.push(segment);
        rest = after;
    }
    Ok(segments)
}

/// A segment up to the next slash; `Err` is the offset of the character that cannot be there.
fn plain_segment(rest: &str) -> Result<(String, &str), usize> {
    let end = rest.find('/').unwrap_or(rest.len());
    let (segment, after) = rest.split_at(end);
    let illegal = |c: char| {
        matches!(c, '*' | '?' | '"' | '\'' | '[' | ']' | '\\')
            || c.is_control()
            || c.is_whitespace()
    };
    match segment.find(illegal) {
        Some(offset) => Err(offset),
        None if segment.trim().is_empty() => Err(0),
        None => Ok((segment.to_owned(), after)),
    }
}

/// A segment between quotes, in which a backslash makes the next character literal.
fn quoted_segment(rest: &str, quote: char) -> Option<(String, &str)> {
    let mut segment = String::new();
    let mut characters = rest.char_indices().skip(1);
    while let Some((at, c)) = characters.next() {
        if c == quote {
            return Some((segment, rest.get(at + c.len_utf8()..)?));
        }
        segment.push(if c == '\\' { characters.next()?.1 } else { c });
    }
    None
}

impl PartialEq for PropertyPath {
    fn eq(&self, other: &Self) -> bool {
        self.segments == other.segments
    }
}

impl Eq for PropertyPath {}

impl Hash for PropertyPath {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.segments.hash(state);
    }
}

impl fmt::Display for PropertyPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Serialize for PropertyPath {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

impl<'de> Deserialize<'de> for PropertyPath {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn paths_split_into_segments() {
        let cases: &[(&str, &[&str])] = &[
            ("/pk", &["pk"]),
            ("/a/b/c", &["a", "b", "c"]),
            (r#"/"a b"/c"#, &["a b", "c"]),
            (r#"/"a/b""#, &["a/b"]),
            (r#"/"x*y?""#, &["x*y?"]),
            (r#"/"say \"hi\"""#, &[r#"say "hi""#]),
            ("/'it'", &["it"]),
            ("/é-ü", &["é-ü"]),
            ("/_partitionKey", &["_partitionKey"]),
        ];
        for (text, segments) in cases {
            let path = PropertyPath::parse(text).unwrap();
            assert_eq!(path.segments(), *segments, "{text}");
            assert_eq!(path.to_string(), *text);
        }
    }

    #[test]
    fn bad_paths_are_refused_with_the_fragments_clients_look_for() {
        let long = format!("/{}", "a".repeat(PATH_BYTES_MAX));
        let deep = "/a".repeat(PATH_SEGMENTS_MAX + 1);
        let cases = [
            "", "/", "pk", "/a/", "//a", "/a//b", "/*", "/a/?", "/a/[]/b", "/a*", "/ ", "/a b",
            r#"/"a"#, r#"/"a"b"#, r#"/a"b""#, r#"/"a\"#, r#"/"a"/"#, "/a\u{7}", &long, &deep,
        ];
        for text in cases {
            let error = PropertyPath::parse(text).unwrap_err();
            assert_eq!(error.status(), 400, "{text}");
            assert!(
                error
                    .message
                    .contains("valid characters and not contain a trailing slash or wildcard"),
                "{text}"
            );
            assert!(error.message.len() < 400, "{text}");
        }
        let error = PropertyPath::parse("/a/*").unwrap_err();
        assert!(
            error
                .message
                .contains("component definition path '/a/*' could not be accepted")
        );
        assert!(error.message.contains("position 3"), "{error}");
    }

    #[test]
    fn get_walks_objects_only() {
        let item = json!({"a": {"b": {"c": 1}, "list": [{"c": 2}]}, "a b": null, "s": "text"});
        let item = item.as_object().unwrap();
        let cases = [
            ("/a/b/c", Some(json!(1))),
            ("/a/b", Some(json!({"c": 1}))),
            (r#"/"a b""#, Some(Value::Null)),
            ("/a/x", None),
            ("/x/y", None),
            ("/s/length", None),
            ("/a/list/0", None),
        ];
        for (path, expected) in cases {
            assert_eq!(
                PropertyPath::parse(path).unwrap().get(item),
                expected.as_ref(),
                "{path}"
            );
        }
    }

    #[test]
    fn equality_is_by_property_and_serde_by_text() {
        let quoted = PropertyPath::parse(r#"/"a"/b"#).unwrap();
        assert_eq!(quoted, PropertyPath::parse("/a/b").unwrap());
        assert_ne!(quoted, PropertyPath::parse("/b/a").unwrap());
        let bytes = rmp_serde::to_vec(&quoted).unwrap();
        assert_eq!(
            rmp_serde::from_slice::<PropertyPath>(&bytes)
                .unwrap()
                .as_str(),
            r#"/"a"/b"#
        );
        assert!(serde_json::from_str::<PropertyPath>(r#""/a/""#).is_err());
    }
}
