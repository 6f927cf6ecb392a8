//! JSON pointers: the paths of patch operations.

use std::fmt;

use serde_json::Value;

use crate::model::error::{Error, Result};
use crate::model::json::{JSON_DEPTH_MAX, shorten};

/// The longest path of a patch operation, in bytes.
pub const POINTER_BYTES_MAX: usize = 16 * 1024;

/// A path to a place below the root of an item; never the root itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pointer {
    /// At least one; unescaped.
    segments: Vec<String>,
}

impl Pointer {
    pub fn parse(text: &str) -> Result<Self> {
        let refuse = |why: &str| {
            Error::bad_request(format!(
                "the patch path '{}' is not valid: {why}",
                shorten(text)
            ))
        };
        if text.len() > POINTER_BYTES_MAX {
            return Err(refuse(&format!(
                "it is longer than {POINTER_BYTES_MAX} bytes"
            )));
        }
        let Some(below_root) = text.strip_prefix('/') else {
            return Err(refuse("it must start with '/'"));
        };
        let segments = below_root
            .split('/')
            .map(|segment| {
                unescape(segment).ok_or_else(|| refuse("'~' must be followed by 0 or 1"))
            })
            .collect::<Result<Vec<_>>>()?;
        if segments.len() > JSON_DEPTH_MAX {
            return Err(refuse(&format!(
                "it has more than {JSON_DEPTH_MAX} segments"
            )));
        }
        Ok(Self { segments })
    }

    /// The name of the top-level property that the path goes through.
    pub fn first(&self) -> &str {
        self.segments.first().map_or("", String::as_str)
    }

    /// The segments of the parent, and the last one.
    pub fn split_last(&self) -> (&[String], &str) {
        match self.segments.split_last() {
            Some((last, parents)) => (parents, last),
            None => (&[], ""),
        }
    }

    /// Whether this place lies strictly inside the other.
    pub fn is_inside(&self, other: &Self) -> bool {
        self.segments.len() > other.segments.len() && self.segments.starts_with(&other.segments)
    }
}

impl fmt::Display for Pointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let escaped: String = self
            .segments
            .iter()
            .map(|segment| format!("/{}", segment.replace('~', "~0").replace('/', "~1")))
            .collect();
        f.write_str(&shorten(&escaped))
    }
}

/// Goes down from a value; `None` when a segment leads nowhere.
pub fn descend<'a>(mut place: &'a mut Value, segments: &[String]) -> Option<&'a mut Value> {
    for segment in segments {
        place = match place {
            Value::Object(object) => object.get_mut(segment)?,
            Value::Array(items) => items.get_mut(array_index(segment)?)?,
            _ => return None,
        };
    }
    Some(place)
}

/// Digits without a leading zero; nothing else is an index.
pub fn array_index(segment: &str) -> Option<usize> {
    let digits_only = segment.bytes().all(|byte| byte.is_ascii_digit());
    let canonical = segment == "0" || !segment.starts_with('0');
    (digits_only && canonical).then(|| segment.parse().ok())?
}

fn unescape(segment: &str) -> Option<String> {
    let mut text = String::with_capacity(segment.len());
    let mut signs = segment.chars();
    while let Some(sign) = signs.next() {
        text.push(match sign {
            '~' => match signs.next()? {
                '0' => '~',
                '1' => '/',
                _ => return None,
            },
            other => other,
        });
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pointers_are_split_and_unescaped() {
        for (text, segments) in [
            ("/a", &["a"][..]),
            ("/a/b/0/-", &["a", "b", "0", "-"]),
            ("/", &[""]),
            ("/a//b/", &["a", "", "b", ""]),
            ("/a~1b/m~0n", &["a/b", "m~n"]),
            ("/~01", &["~1"]),
            ("/é 🦀\"", &["é 🦀\""]),
        ] {
            let pointer = Pointer::parse(text).expect(text);
            assert_eq!(pointer.segments, segments, "{text}");
            assert_eq!(pointer.to_string(), text, "shown as it was given");
        }
    }

    #[test]
    fn other_texts_are_refused_by_name() {
        let deep = "/a".repeat(JSON_DEPTH_MAX + 1);
        let long = format!("/{}", "x".repeat(POINTER_BYTES_MAX));
        for (text, fragment) in [
            ("", "start with '/'"),
            ("a/b", "'a/b'"),
            ("/a~", "'/a~'"),
            ("/~2", "0 or 1"),
            ("/~/a", "0 or 1"),
            (deep.as_str(), "128 segments"),
            (long.as_str(), "16384 bytes"),
        ] {
            let error = Pointer::parse(text).expect_err(text);
            assert_eq!(error.status(), 400);
            assert!(error.message.contains(fragment), "{error}");
            assert!(error.message.len() < 300, "{error}");
        }
    }

    #[test]
    fn indexes_are_plain_digits() {
        for (segment, index) in [
            ("0", Some(0)),
            ("10", Some(10)),
            ("", None),
            ("-", None),
            ("-1", None),
            ("+1", None),
            ("00", None),
            ("01", None),
            ("1.0", None),
            (" 1", None),
            ("99999999999999999999999", None),
        ] {
            assert_eq!(array_index(segment), index, "{segment:?}");
        }
    }

    #[test]
    fn inside_means_strictly_below() {
        let inside = |a: &str, b: &str| {
            Pointer::parse(a)
                .expect(a)
                .is_inside(&Pointer::parse(b).expect(b))
        };
        assert!(inside("/a/b", "/a"));
        assert!(inside("/a/b/c", "/a"));
        assert!(!inside("/a", "/a"));
        assert!(!inside("/ab", "/a"));
        assert!(!inside("/a", "/a/b"));
    }
}
