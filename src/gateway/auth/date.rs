//! The date of a request, which comes as text with every request.

use std::cell::Cell;
use std::time::UNIX_EPOCH;

use super::{shown, unauthorized};
use crate::model::error::{Error, Result};

/// Bytes of the longest date that can be valid: RFC 850 with `Wednesday` needs 33.
const DATE_BYTES_MAX: usize = 40;

/// The date that was parsed last: the same text comes with every request of a second.
#[derive(Clone, Copy)]
struct ParsedDate {
    text: [u8; DATE_BYTES_MAX],
    length: usize,
    seconds: i64,
}

thread_local! {
    static LAST_DATE: Cell<ParsedDate> =
        const { Cell::new(ParsedDate { text: [0; DATE_BYTES_MAX], length: 0, seconds: 0 }) };
}

/// Seconds since 1970 of an HTTP date.
pub fn seconds(date: &str) -> Result<i64> {
    let mut text = [0; DATE_BYTES_MAX];
    let Some(target) = text.get_mut(..date.len()) else {
        return Err(bad_date(date));
    };
    target.copy_from_slice(date.as_bytes());
    let last = LAST_DATE.get();
    if last.text == text && last.length == date.len() && !date.is_empty() {
        return Ok(last.seconds);
    }
    let seconds = parsed_date(date).ok_or_else(|| bad_date(date))?;
    LAST_DATE.set(ParsedDate {
        text,
        length: date.len(),
        seconds,
    });
    Ok(seconds)
}

fn parsed_date(date: &str) -> Option<i64> {
    let time = httpdate::parse_http_date(date)
        .or_else(|_| httpdate::parse_http_date(&capitalised(date)))
        .ok()?;
    let since = time.duration_since(UNIX_EPOCH).ok()?;
    i64::try_from(since.as_secs()).ok()
}

/// Hand-written clients send the date in the lower case in which they sign it.
fn capitalised(date: &str) -> String {
    let mut inside_word = false;
    let mut text = String::with_capacity(date.len());
    for c in date.chars() {
        text.push(if inside_word {
            c.to_ascii_lowercase()
        } else {
            c.to_ascii_uppercase()
        });
        inside_word = c.is_ascii_alphabetic();
    }
    match text.strip_suffix("Gmt") {
        Some(start) => format!("{start}GMT"),
        None => text,
    }
}

#[cold]
fn bad_date(date: &str) -> Error {
    unauthorized(format!(
        "the date '{}' is not of the form 'Thu, 01 Jan 2026 00:00:00 GMT'",
        shown(date)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn no_date_panics(
            date in "(Thu|Sunday|é)?,? ?[0-9é]{0,3}[- ](Jan|feb|x)[- ][0-9]{0,5} [0-9:]{0,9}( GMT)?",
        ) {
            let _ = seconds(&date);
        }
    }

    #[test]
    fn dates_of_all_clients_are_read() {
        let table = [
            ("Thu, 01 Jan 2026 00:00:00 GMT", 1_767_225_600),
            ("thu, 01 jan 2026 00:00:00 gmt", 1_767_225_600),
            ("THU, 01 JAN 2026 00:00:01 GMT", 1_767_225_601),
            ("Thursday, 01-Jan-26 00:00:00 GMT", 1_767_225_600),
            ("Thu Jan  1 00:00:00 2026", 1_767_225_600),
        ];
        // Twice: the second time, some come from the cache.
        for (text, expected) in table.into_iter().chain(table) {
            assert_eq!(seconds(text), Ok(expected), "{text}");
            assert_eq!(seconds(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn other_texts_are_refused_by_name() {
        let long = "Thu, 01 Jan 2026 00:00:00 GMT and more text";
        for text in [
            "",
            "now",
            "2026-01-01T00:00:00Z",
            "Thu, 32 Jan 2026 00:00:00 GMT",
            "\0",
            long,
        ] {
            let error = seconds(text).unwrap_err();
            assert_eq!(error.status(), 401);
            assert!(error.message.contains(&format!("'{text}'")), "{error}");
        }
    }
}
