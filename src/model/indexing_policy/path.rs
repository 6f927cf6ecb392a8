//! The paths of an indexing policy: `/a/?`, `/a/*`, `/a/[]/b/?`, `/"x-y"/?`.

use std::fmt;
use std::hash::{Hash, Hasher};

use serde::{Deserialize, Serialize};

use crate::model::checks::shown_text;
use crate::model::error::{Error, Result};
use crate::model::path::{PATH_BYTES_MAX, PATH_SEGMENTS_MAX};

/// One step from the root of an item towards a value.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Segment {
    /// Into the property of this name.
    Property(String),
    /// `[]`: into every element of the array.
    AnyElement,
}

/// What a path means at its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Tail {
    /// `/?`: the scalar at this very place.
    Scalar,
    /// `/*`: everything at and below this place.
    Subtree,
}

/// A path of an indexing policy. Two are equal when they mean the same, however they are quoted.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct IndexPath {
    segments: Vec<Segment>,
    tail: Tail,
    text: String,
}

impl IndexPath {
    pub fn parse(text: &str) -> Result<Self> {
        // Old clients write the root without its wildcard.
        if text == "/" {
            return Ok(Self::root());
        }
        match parse_path(text) {
            Ok((segments, tail)) => Ok(Self {
                segments,
                tail,
                text: text.to_owned(),
            }),
            Err(position) => Err(Error::bad_request(format!(
                "the indexing path '{}' could not be accepted, failed near position '{position}': a path starts with \
                 '/', ends in '/?' or '/*', steps into arrays with '/[]', and names with special characters are \
                 quoted, as in '/\"x*y\"/?'",
                shown_text(text)
            ))),
        }
    }

    /// `/*`: everything.
    pub fn root() -> Self {
        Self {
            segments: Vec::new(),
            tail: Tail::Subtree,
            text: "/*".to_owned(),
        }
    }

    /// `/"_etag"/?`, which changes with every write and is worth no index.
    pub fn etag() -> Self {
        Self {
            segments: vec![Segment::Property("_etag".to_owned())],
            tail: Tail::Scalar,
            text: "/\"_etag\"/?".to_owned(),
        }
    }

    pub fn is_root(&self) -> bool {
        self.segments.is_empty()
    }

    pub fn segments(&self) -> &[Segment] {
        &self.segments
    }

    pub fn tail(&self) -> Tail {
        self.tail
    }

    /// As the client wrote it.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

/// The parts, or the byte position at which the text stops being a path.
fn parse_path(text: &str) -> Result<(Vec<Segment>, Tail), usize> {
    if text.len() > PATH_BYTES_MAX {
        return Err(PATH_BYTES_MAX);
    }
    let mut segments = Vec::new();
    let mut rest = text;
    loop {
        let position = text.len() - rest.len();
        rest = rest.strip_prefix('/').ok_or(position)?;
        match rest {
            "*" => return Ok((segments, Tail::Subtree)),
            // The root of an item is an object, never a scalar.
            "?" if !segments.is_empty() => return Ok((segments, Tail::Scalar)),
            _ if segments.len() == PATH_SEGMENTS_MAX => return Err(position),
            _ => {}
        }
        let (segment, after) = match rest.chars().next() {
            Some('[') => (
                Segment::AnyElement,
                rest.strip_prefix("[]").ok_or(position + 1)?,
            ),
            Some(quote @ ('"' | '\'')) => quoted(rest, quote).ok_or(position + 1)?,
            _ => plain(rest).map_err(|offset| position + 1 + offset)?,
        };
        segments.push(segment);
        rest = after;
    }
}

/// A name up to the next slash; `Err` is the offset of the character that cannot be there.
fn plain(rest: &str) -> Result<(Segment, &str), usize> {
    let end = rest.find('/').unwrap_or(rest.len());
    let (name, after) = rest.split_at(end);
    let illegal =
        |c: char| matches!(c, '*' | '?' | '"' | '\'' | '[' | ']' | '\\') || c.is_control();
    match name.find(illegal) {
        Some(offset) => Err(offset),
        None if name.trim().is_empty() => Err(0),
        None => Ok((Segment::Property(name.to_owned()), after)),
    }
}

/// A name between quotes, in which a backslash makes the next character literal.
fn quoted(rest: &str, quote: char) -> Option<(Segment, &str)> {
    let mut name = String::new();
    let mut characters = rest.char_indices().skip(1);
    while let Some((at, c)) = characters.next() {
        if c == quote {
            return Some((Segment::Property(name), rest.get(at + c.len_utf8()..)?));
        }
        name.push(if c == '\\' { characters.next()?.1 } else { c });
    }
    None
}

impl PartialEq for IndexPath {
    fn eq(&self, other: &Self) -> bool {
        self.segments == other.segments && self.tail == other.tail
    }
}

impl Eq for IndexPath {}

impl Hash for IndexPath {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.segments.hash(state);
        self.tail.hash(state);
    }
}

impl fmt::Display for IndexPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl TryFrom<String> for IndexPath {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        Self::parse(&text)
    }
}

impl From<IndexPath> for String {
    fn from(path: IndexPath) -> Self {
        path.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn property(name: &str) -> Segment {
        Segment::Property(name.to_owned())
    }

    #[test]
    fn every_form_is_read() {
        let any = || Segment::AnyElement;
        let cases = [
            ("/*", vec![], Tail::Subtree),
            ("/a/?", vec![property("a")], Tail::Scalar),
            ("/a/*", vec![property("a")], Tail::Subtree),
            ("/a/b/?", vec![property("a"), property("b")], Tail::Scalar),
            (
                "/a/[]/b/?",
                vec![property("a"), any(), property("b")],
                Tail::Scalar,
            ),
            ("/a/[]/?", vec![property("a"), any()], Tail::Scalar),
            (
                "/a/[]/[]/*",
                vec![property("a"), any(), any()],
                Tail::Subtree,
            ),
            ("/\"x-y\"/?", vec![property("x-y")], Tail::Scalar),
            ("/\"_etag\"/?", vec![property("_etag")], Tail::Scalar),
            (
                r#"/"a/b"/"[]"/*"#,
                vec![property("a/b"), property("[]")],
                Tail::Subtree,
            ),
            (
                r#"/"say \"hi\""/?"#,
                vec![property("say \"hi\"")],
                Tail::Scalar,
            ),
            ("/naïve name/?", vec![property("naïve name")], Tail::Scalar),
            ("/'a'/?", vec![property("a")], Tail::Scalar),
        ];
        for (text, segments, tail) in cases {
            let path = IndexPath::parse(text).unwrap();
            assert_eq!(path.segments(), segments, "{text}");
            assert_eq!(path.tail(), tail, "{text}");
            assert_eq!(path.as_str(), text);
        }
    }

    #[test]
    fn the_root_has_an_old_form_that_is_modernised() {
        let path = IndexPath::parse("/").unwrap();
        assert!(path.is_root());
        assert_eq!(path.as_str(), "/*");
        assert_eq!(path, IndexPath::root());
        assert_eq!(IndexPath::etag(), IndexPath::parse("/_etag/?").unwrap());
    }

    #[test]
    fn bad_paths_are_refused_and_named() {
        let long = format!("/{}/?", "a".repeat(PATH_BYTES_MAX));
        let deep = format!("{}/?", "/a".repeat(PATH_SEGMENTS_MAX + 1));
        let cases = [
            ("", 0),
            ("*", 0),
            ("a/?", 0),
            ("/a", 2),
            ("/a/b", 4),
            ("/?", 1),
            ("/a/", 3),
            ("//?", 1),
            ("/a//?", 3),
            ("/a/?/b", 3),
            ("/a/*/b/?", 3),
            ("/*/?", 1),
            ("/a/**", 3),
            ("/a?", 2),
            ("/a[]/?", 2),
            ("/a/[]", 5),
            ("/a/[0]/?", 3),
            ("/a/[]b/?", 5),
            ("/\"a/?", 1),
            ("/\"a\"b/?", 4),
            ("/\"a\\", 1),
            ("/a\u{7}/?", 2),
            (" /a/?", 0),
            (&long, PATH_BYTES_MAX),
            (&deep, 2 * PATH_SEGMENTS_MAX),
        ];
        for (text, position) in cases {
            let error = IndexPath::parse(text).unwrap_err();
            assert_eq!(error.status(), 400, "{text}");
            let near = format!("could not be accepted, failed near position '{position}'");
            assert!(error.message.contains(&near), "{text}: {}", error.message);
            assert!(
                error.message.contains(&shown_text(text)),
                "{}",
                error.message
            );
        }
    }

    #[test]
    fn equality_is_by_meaning_and_serde_by_text() {
        let quoted = IndexPath::parse(r#"/"a"/?"#).unwrap();
        assert_eq!(quoted, IndexPath::parse("/a/?").unwrap());
        assert_ne!(quoted, IndexPath::parse("/a/*").unwrap());
        assert_ne!(quoted, IndexPath::parse("/a/[]/?").unwrap());
        let bytes = rmp_serde::to_vec(&quoted).unwrap();
        let back: IndexPath = rmp_serde::from_slice(&bytes).unwrap();
        assert_eq!(back.as_str(), r#"/"a"/?"#);
        assert!(serde_json::from_str::<IndexPath>("\"/a\"").is_err());
    }
}
