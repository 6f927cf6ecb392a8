//! Strings: searching, cutting, changing case. Positions and lengths count characters.

use super::{Arguments, Function, MANY, function, owned};
use crate::model::error::Result;
use crate::sql::eval::{Context, Evaluated, boolean};
use crate::sql::number;
use serde_json::Value;

/// The least that the allocator gives to a text.
const TEXT_BYTES_MIN: usize = 8;
/// The longest result of REPLICATE.
const REPLICATE_CHARACTERS_MAX: u64 = 10_000;
/// A string is searched about so many times faster than copied.
const SEARCH_SPEED: usize = 8;

pub const FUNCTIONS: &[Function] = &[
    function("CONCAT", 2, MANY, concat),
    function("CONTAINS", 2, 3, |a, c| {
        search(a, c, |text, part| text.contains(part))
    }),
    function("CONTAINS_ALL_CI", 2, MANY, |a, c| {
        contains_many(a, c, false, true)
    }),
    function("CONTAINS_ALL_CS", 2, MANY, |a, c| {
        contains_many(a, c, false, false)
    }),
    function("CONTAINS_ANY_CI", 2, MANY, |a, c| {
        contains_many(a, c, true, true)
    }),
    function("CONTAINS_ANY_CS", 2, MANY, |a, c| {
        contains_many(a, c, true, false)
    }),
    function("ENDSWITH", 2, 3, |a, c| {
        search(a, c, |text, part| text.ends_with(part))
    }),
    function("INDEX_OF", 2, 3, index_of),
    function("LASTINDEXOF", 2, 3, last_index_of),
    function("LEFT", 2, 2, left),
    function("LENGTH", 1, 1, length),
    function("LOWER", 1, 1, |a, c| changed(a, c, str::to_lowercase)),
    function("LTRIM", 1, 2, |a, c| trimmed(a, c, true, false)),
    function("REPLACE", 3, 3, replace),
    function("REPLICATE", 2, 2, replicate),
    function("REVERSE", 1, 1, |a, c| {
        changed(a, c, |text| text.chars().rev().collect())
    }),
    function("RIGHT", 2, 2, right),
    function("RTRIM", 1, 2, |a, c| trimmed(a, c, false, true)),
    function("STARTSWITH", 2, 3, |a, c| {
        search(a, c, |text, part| text.starts_with(part))
    }),
    function("STRINGEQUALS", 2, 3, |a, c| {
        search(a, c, |text, part| text == part)
    }),
    function("STRINGJOIN", 2, 2, join),
    function("STRINGSPLIT", 2, 2, split),
    function("SUBSTRING", 2, 3, substring),
    function("TRIM", 1, 2, |a, c| trimmed(a, c, true, true)),
    function("UPPER", 1, 1, |a, c| changed(a, c, str::to_uppercase)),
];

/// A test of two strings, with a third argument to ignore case.
fn search<'a>(
    arguments: &Arguments<'a>,
    context: &Context,
    test: fn(&str, &str) -> bool,
) -> Result<Evaluated<'a>> {
    let ignores_case = match arguments.len() {
        2 => Some(false),
        _ => arguments.boolean(2),
    };
    let (Some(text), Some(part), Some(ignores_case)) =
        (arguments.text(0), arguments.text(1), ignores_case)
    else {
        return Ok(None);
    };
    // A search is faster than a copy.
    context.charge_bytes(text.len() / if ignores_case { 1 } else { SEARCH_SPEED })?;
    let found = if !ignores_case {
        test(text, part)
    } else if text.is_ascii() && part.is_ascii() {
        test(&text.to_ascii_lowercase(), &part.to_ascii_lowercase())
    } else {
        test(&text.to_lowercase(), &part.to_lowercase())
    };
    Ok(Some(boolean(found)))
}

/// CONTAINS of each part, joined by AND or OR in three-valued logic.
fn contains_many<'a>(
    arguments: &mut Arguments<'a>,
    context: &Context,
    any: bool,
    ignores_case: bool,
) -> Result<Evaluated<'a>> {
    let Some(text) = arguments.text(0) else {
        return Ok(None);
    };
    context.reserve(text.len())?;
    let text = if ignores_case {
        text.to_lowercase()
    } else {
        text.to_owned()
    };
    let mut result = Some(!any);
    for at in 1..arguments.len() {
        context.charge_bytes(text.len())?;
        match arguments.text(at) {
            None => result = None,
            Some(part) => {
                let found = if ignores_case {
                    text.contains(&part.to_lowercase())
                } else {
                    text.contains(part)
                };
                if found == any {
                    return Ok(Some(boolean(any)));
                }
            }
        }
    }
    Ok(result.map(boolean))
}

fn concat<'a>(arguments: &mut Arguments<'a>, context: &Context) -> Result<Evaluated<'a>> {
    let mut result = String::new();
    for at in 0..arguments.len() {
        let Some(text) = arguments.text(at) else {
            return Ok(None);
        };
        context.charge_bytes(text.len())?;
        result.push_str(text);
    }
    Ok(owned(result))
}

fn changed<'a>(
    arguments: &mut Arguments<'a>,
    context: &Context,
    change: fn(&str) -> String,
) -> Result<Evaluated<'a>> {
    let Some(text) = arguments.text(0) else {
        return Ok(None);
    };
    context.charge_bytes(text.len())?;
    Ok(owned(change(text)))
}

/// Cuts blanks, or the characters of the second argument, from the ends.
fn trimmed<'a>(
    arguments: &mut Arguments<'a>,
    context: &Context,
    start: bool,
    end: bool,
) -> Result<Evaluated<'a>> {
    let Some(mut text) = arguments.text(0) else {
        return Ok(None);
    };
    context.charge_bytes(text.len())?;
    let set = match arguments.len() {
        1 => None,
        _ => match arguments.text(1) {
            Some(set) => Some(set),
            None => return Ok(None),
        },
    };
    let cuts = |c: char| set.map_or_else(|| c.is_whitespace(), |set| set.contains(c));
    if start {
        text = text.trim_start_matches(cuts);
    }
    if end {
        text = text.trim_end_matches(cuts);
    }
    Ok(owned(text))
}

fn length<'a>(arguments: &mut Arguments<'a>, _: &Context) -> Result<Evaluated<'a>> {
    Ok(arguments
        .text(0)
        .and_then(|text| owned(text.chars().count())))
}

/// `count` characters from `start`; negative numbers give the empty string.
fn slice(text: &str, start: i64, count: i64) -> String {
    let (Ok(start), Ok(count)) = (usize::try_from(start), usize::try_from(count)) else {
        return String::new();
    };
    text.chars().skip(start).take(count).collect()
}

fn substring<'a>(arguments: &mut Arguments<'a>, context: &Context) -> Result<Evaluated<'a>> {
    let (Some(text), Some(start)) = (arguments.text(0), arguments.integer(1)) else {
        return Ok(None);
    };
    let count = match arguments.len() {
        2 => Some(i64::MAX),
        _ => arguments.integer(2),
    };
    context.charge_bytes(text.len())?;
    Ok(count.and_then(|count| owned(slice(text, start, count))))
}

fn left<'a>(arguments: &mut Arguments<'a>, context: &Context) -> Result<Evaluated<'a>> {
    let (Some(text), Some(count)) = (arguments.text(0), arguments.integer(1)) else {
        return Ok(None);
    };
    context.charge_bytes(text.len())?;
    Ok(owned(slice(text, 0, count)))
}

fn right<'a>(arguments: &mut Arguments<'a>, context: &Context) -> Result<Evaluated<'a>> {
    let (Some(text), Some(count)) = (arguments.text(0), arguments.integer(1)) else {
        return Ok(None);
    };
    context.charge_bytes(text.len())?;
    let length = i64::try_from(text.chars().count()).unwrap_or(i64::MAX);
    let count = count.clamp(0, length);
    Ok(owned(slice(text, length - count, count)))
}

/// Where a byte position is in characters.
fn characters_before(text: &str, bytes: usize) -> usize {
    text.get(..bytes).map_or(0, |before| before.chars().count())
}

/// Where a character position is in bytes; the end if it is beyond.
fn bytes_before(text: &str, characters: usize) -> usize {
    text.char_indices()
        .nth(characters)
        .map_or(text.len(), |(at, _)| at)
}

fn index_of<'a>(arguments: &mut Arguments<'a>, context: &Context) -> Result<Evaluated<'a>> {
    let (Some(text), Some(part)) = (arguments.text(0), arguments.text(1)) else {
        return Ok(None);
    };
    context.charge_bytes(text.len())?;
    let from = match arguments.len() {
        2 => 0,
        _ => match arguments.get(2).and_then(number::to_index) {
            Some(from) => bytes_before(text, from),
            None => return Ok(None),
        },
    };
    let found = text
        .get(from..)
        .and_then(|rest| rest.find(part))
        .map(|at| at + from);
    Ok(match found {
        Some(at) => owned(characters_before(text, at)),
        None => owned(-1),
    })
}

/// The last occurrence that ends at or before the position of the third argument.
fn last_index_of<'a>(arguments: &mut Arguments<'a>, context: &Context) -> Result<Evaluated<'a>> {
    let (Some(text), Some(part)) = (arguments.text(0), arguments.text(1)) else {
        return Ok(None);
    };
    context.charge_bytes(text.len())?;
    let until = match arguments.len() {
        2 => text.len(),
        _ => match arguments.get(2).and_then(number::to_index) {
            Some(last) => bytes_before(text, last.saturating_add(1)),
            None => return Ok(None),
        },
    };
    Ok(match text.get(..until).and_then(|head| head.rfind(part)) {
        Some(at) => owned(characters_before(text, at)),
        None => owned(-1),
    })
}

fn replace<'a>(arguments: &mut Arguments<'a>, context: &Context) -> Result<Evaluated<'a>> {
    let (Some(text), Some(old), Some(new)) =
        (arguments.text(0), arguments.text(1), arguments.text(2))
    else {
        return Ok(None);
    };
    if old.is_empty() {
        return Ok(None);
    }
    let grown = text.matches(old).count().saturating_mul(new.len());
    context.charge_bytes(text.len().saturating_add(grown))?;
    Ok(owned(text.replace(old, new)))
}

fn replicate<'a>(arguments: &mut Arguments<'a>, context: &Context) -> Result<Evaluated<'a>> {
    let (Some(text), Some(count)) = (arguments.text(0), arguments.integer(1)) else {
        return Ok(None);
    };
    let (Ok(length), Ok(count)) = (u64::try_from(text.chars().count()), u64::try_from(count))
    else {
        return Ok(None);
    };
    if length.saturating_mul(count) > REPLICATE_CHARACTERS_MAX {
        return Ok(None);
    }
    // An empty string may be asked for any number of times.
    let count = if text.is_empty() {
        0
    } else {
        usize::try_from(count).unwrap_or(0)
    };
    let result = text.repeat(count);
    context.charge_bytes(result.len())?;
    Ok(owned(result))
}

fn join<'a>(arguments: &mut Arguments<'a>, context: &Context) -> Result<Evaluated<'a>> {
    let (Some(items), Some(between)) = (arguments.array(0), arguments.text(1)) else {
        return Ok(None);
    };
    context.reserve(items.len().saturating_mul(size_of::<&str>()))?;
    let Some(parts) = items.iter().map(Value::as_str).collect::<Option<Vec<_>>>() else {
        return Ok(None);
    };
    let bytes: usize = parts.iter().map(|part| part.len()).sum();
    context.charge_bytes(bytes.saturating_add(parts.len().saturating_mul(between.len())))?;
    Ok(owned(parts.join(between)))
}

fn split<'a>(arguments: &mut Arguments<'a>, context: &Context) -> Result<Evaluated<'a>> {
    let (Some(text), Some(between)) = (arguments.text(0), arguments.text(1)) else {
        return Ok(None);
    };
    if between.is_empty() {
        return Ok(owned(vec![text]));
    }
    let count = text.matches(between).count() + 1;
    context.charge(count as u64)?;
    context.charge_bytes(text.len())?;
    // The parts, and each of them a value with text of its own.
    let part_bytes = size_of::<&str>() + size_of::<Value>() + TEXT_BYTES_MIN;
    context.reserve(count.saturating_mul(part_bytes))?;
    Ok(owned(text.split(between).collect::<Vec<_>>()))
}
