//! Etags: the name of one version of one item, and the conditions that clients put on it.

use std::fmt;

use serde::{Deserialize, Serialize};

const DIGITS: usize = 32;
const TEXT_BYTES: usize = 38;
/// The text with all digits zero.
const TEXT: [u8; TEXT_BYTES] = *b"\"00000000-0000-0000-0000-000000000000\"";

/// The name of one version: range (32 bits), log sequence number (64), place in its batch (16) and the low bits
/// of its second (16).
///
/// The first three are unique within a container; the second tells a version from one that a deleted
/// container of the same name had. Nothing is random, so every replica names a version alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Etag(u128);

impl Etag {
    pub fn new(range: u32, lsn: u64, index: u16, ts: i64) -> Self {
        let second = u128::from(ts as u16);
        Self(u128::from(range) << 96 | u128::from(lsn) << 32 | u128::from(index) << 16 | second)
    }

    pub const fn to_bytes(self) -> [u8; 16] {
        self.0.to_be_bytes()
    }

    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(u128::from_be_bytes(bytes))
    }

    /// In quotes, as the `etag` header has it; made by hand, for every read.
    pub fn text(self) -> [u8; TEXT_BYTES] {
        let mut text = TEXT;
        let digits = (0..DIGITS).map(|place| self.0 >> (4 * (DIGITS - 1 - place)) & 0xf);
        let places = text.iter_mut().filter(|sign| **sign == b'0');
        for (place, digit) in places.zip(digits) {
            *place = b"0123456789abcdef"[digit as usize];
        }
        text
    }

    /// Reads the text that [`Etag`] shows, with or without its quotes.
    pub fn parse(text: &str) -> Option<Self> {
        let bare = unquoted(text);
        let digits: String = bare.chars().filter(|sign| *sign != '-').collect();
        // The detour by the text refuses what merely looks alike: other groups, signs, upper case.
        let etag = Self(u128::from_str_radix(&digits, 16).ok()?);
        (unquoted(&etag.to_string()) == bare).then_some(etag)
    }
}

/// As [`Etag::text`].
impl fmt::Display for Etag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.text();
        f.write_str(std::str::from_utf8(&text).unwrap_or_default())
    }
}

/// The value of an If-Match or If-None-Match header, or of its twin in a batch operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EtagCondition {
    /// `*`: any existing version.
    Any,
    /// This version; without the quotes.
    Is(String),
}

impl EtagCondition {
    pub fn parse(text: &str) -> Self {
        match text.trim() {
            "*" => Self::Any,
            etag => Self::Is(unquoted(etag).to_owned()),
        }
    }

    /// Whether an existing item with this etag (in quotes or not) meets the condition.
    pub fn matches(&self, etag: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Is(wanted) => wanted == unquoted(etag),
        }
    }

    pub fn matches_etag(&self, etag: Etag) -> bool {
        match self {
            Self::Any => true,
            Self::Is(wanted) => Etag::parse(wanted) == Some(etag),
        }
    }
}

impl fmt::Display for EtagCondition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("*"),
            Self::Is(etag) => write!(f, "\"{etag}\""),
        }
    }
}

/// Takes one pair of quotes off; a text without the pair stays.
fn unquoted(text: &str) -> &str {
    text.strip_prefix('"')
        .and_then(|rest| rest.strip_suffix('"'))
        .unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn an_etag_has_one_fixed_form() {
        let etag = Etag::new(0x1234_5678, 0x9abc_def0_1122_3344, 0x5566, 0x7_7788);
        assert_eq!(etag.to_string(), "\"12345678-9abc-def0-1122-334455667788\"");
        assert_eq!(
            Etag::new(0, 1, 0, 0).to_string(),
            "\"00000000-0000-0000-0000-000100000000\""
        );
        assert_eq!(
            Etag::new(u32::MAX, u64::MAX, u16::MAX, -1).to_string(),
            "\"ffffffff-ffff-ffff-ffff-ffffffffffff\""
        );
    }

    #[test]
    fn versions_have_different_etags() {
        let mut seen = HashSet::new();
        for range in [0, 1, u32::MAX] {
            for lsn in [0, 1, 2, u64::from(u32::MAX) + 1, u64::MAX] {
                for index in [0, 1, u16::MAX] {
                    assert!(seen.insert(Etag::new(range, lsn, index, 1_790_000_000).to_string()));
                }
            }
        }
        assert_ne!(
            Etag::new(1, 1, 0, 1_790_000_000),
            Etag::new(1, 1, 0, 1_790_000_001)
        );
    }

    #[test]
    fn only_the_fixed_form_is_read_back() {
        let etag = Etag::new(7, 1 << 40, 3, 1_790_000_000);
        let text = etag.to_string();
        assert_eq!(Etag::parse(&text), Some(etag));
        assert_eq!(Etag::parse(text.trim_matches('"')), Some(etag));
        for other in [
            "",
            "\"\"",
            "*",
            "x",
            "00000000-0000-0000-0000-00010000000",
            "00000000-0000-0000-0000-0001000000000",
            "000000000000-0000-0000-000100000000",
            "0000000-00000-0000-0000-000100000000",
            "+0000000-0000-0000-0000-000100000000",
            "0000000A-0000-0000-0000-000100000000",
            "\"00000000-0000-0000-0000-000100000000",
            "é",
        ] {
            assert_eq!(Etag::parse(other), None, "{other}");
        }
    }

    #[test]
    fn conditions_match_with_or_without_quotes() {
        let etag = Etag::new(1, 2, 3, 4);
        let text = etag.to_string();
        let bare = text.trim_matches('"').to_owned();
        for (condition, holds) in [
            ("*", true),
            (" * ", true),
            (text.as_str(), true),
            (bare.as_str(), true),
            ("\"*\"", false),
            ("", false),
            ("\"\"", false),
            ("\"00000000-0000-0000-0000-000000000000\"", false),
            (&bare[1..], false),
            (&text[1..], false),
        ] {
            let parsed = EtagCondition::parse(condition);
            assert_eq!(parsed.matches(&text), holds, "{condition:?}");
            assert_eq!(parsed.matches(&bare), holds, "{condition:?}");
            assert_eq!(parsed.matches_etag(etag), holds, "{condition:?}");
        }
        assert!(EtagCondition::parse("\"foreign form\"").matches("\"foreign form\""));
    }
}
