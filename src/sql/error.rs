//! Errors with a place in the query text, in the form clients parse.

use crate::model::error::Error;
use serde_json::json;

/// A range of bytes in the query text. All spans are equal to each other, so that two syntax
/// trees compare by meaning and not by place.
#[derive(Clone, Copy, Debug, Default)]
pub struct Span {
    pub start: usize,
    pub end: usize,
}

impl PartialEq for Span {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Span {
    pub fn new(start: usize, end: usize) -> Self {
        Self { start, end }
    }

    pub fn to(self, end: Span) -> Self {
        Self::new(self.start, end.end)
    }
}

/// A fault of the query text, not yet tied to the text itself.
#[derive(Clone, Debug, PartialEq)]
pub struct Fault {
    pub code: &'static str,
    pub span: Span,
    pub message: String,
}

pub type Checked<T> = std::result::Result<T, Fault>;

/// Syntax.
pub const SYNTAX: &str = "SC1001";
/// A limit on the size or shape of the query.
pub const LIMIT: &str = "SC1010";
/// A name that no FROM clause in reach binds.
pub const UNRESOLVED_NAME: &str = "SC2001";
/// A function that does not exist.
pub const UNKNOWN_FUNCTION: &str = "SC2005";
/// A parameter that the request does not carry.
pub const UNKNOWN_PARAMETER: &str = "SC2007";
/// `SELECT *` without exactly one input.
pub const STAR_NEEDS_ONE_INPUT: &str = "SC2040";
/// `SELECT *` with GROUP BY.
pub const STAR_WITH_GROUP_BY: &str = "SC2041";
/// Wrong number of arguments.
pub const ARGUMENT_COUNT: &str = "SC2050";
/// An argument of a kind the function or clause does not take.
pub const BAD_ARGUMENT: &str = "SC2051";
/// An aggregate inside an aggregate, or where none may be.
pub const MISPLACED_AGGREGATE: &str = "SC2101";
/// A property outside of an aggregate that is not in GROUP BY.
pub const NOT_GROUPED: &str = "SC2102";
/// A construct that is understood but not offered.
pub const UNSUPPORTED: &str = "SC2202";
/// ORDER BY on something that is no path.
pub const ORDER_BY_NEEDS_PATH: &str = "2206";

impl Fault {
    pub fn new(code: &'static str, span: Span, message: impl Into<String>) -> Self {
        Self {
            code,
            span,
            message: message.into(),
        }
    }

    /// The error of the request: its message is the JSON that clients look into, with character
    /// offsets from zero, end exclusive.
    pub fn into_error(self, text: &str) -> Error {
        let characters_before = |offset: usize| {
            text.char_indices()
                .take_while(|(at, _)| *at < offset)
                .count()
        };
        let body = json!({"errors": [{
            "severity": "Error",
            "location": {
                "start": characters_before(self.span.start),
                "end": characters_before(self.span.end),
            },
            "code": self.code,
            "message": self.message,
        }]});
        Error::bad_request(body.to_string())
    }
}

/// Shortens a value for a message.
pub fn shorten(text: &str) -> String {
    const SHOWN_CHARACTERS_MAX: usize = 100;
    let mut characters = text.chars();
    let head: String = characters.by_ref().take(SHOWN_CHARACTERS_MAX).collect();
    if characters.next().is_some() {
        format!("{head}…")
    } else {
        head
    }
}
