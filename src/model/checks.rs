//! Reading JSON that must have a certain shape, with errors that name the offending value.

use serde_json::{Map, Value};

use super::error::{Error, Result};

/// How much of an offending value a message repeats, in characters.
pub const SHOWN_CHARS_MAX: usize = 100;

/// The text as a message shows it: cut when it is long.
pub fn shown_text(text: &str) -> String {
    match text.char_indices().nth(SHOWN_CHARS_MAX) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

/// The JSON as a message shows it: cut when it is long.
pub fn shown(value: &Value) -> String {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => value.to_string(),
        Value::String(text) => format!("\"{}\"", shown_text(text)),
        Value::Array(_) | Value::Object(_) => shown_text(&value.to_string()),
    }
}

/// The 400 for a property whose value is not what it must be.
pub fn invalid(property: &str, value: &Value, must_be: &str) -> Error {
    Error::bad_request(format!(
        "One of the specified inputs is invalid: '{property}' must be {must_be}, not {}",
        shown(value)
    ))
}

/// The 400 for a property that must be there.
pub fn missing(property: &str) -> Error {
    Error::bad_request(format!(
        "One of the specified inputs is invalid: '{property}' is missing"
    ))
}

/// The property, unless it is absent or null: clients write both for "not set".
pub fn present<'a>(object: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    object.get(name).filter(|value| !value.is_null())
}

pub fn expect_object<'a>(property: &str, value: &'a Value) -> Result<&'a Map<String, Value>> {
    value
        .as_object()
        .ok_or_else(|| invalid(property, value, "an object"))
}

pub fn expect_text<'a>(property: &str, value: &'a Value) -> Result<&'a str> {
    value
        .as_str()
        .ok_or_else(|| invalid(property, value, "a string"))
}

/// An array of at most `max` elements.
pub fn expect_array<'a>(property: &str, value: &'a Value, max: usize) -> Result<&'a [Value]> {
    let array = value
        .as_array()
        .ok_or_else(|| invalid(property, value, "an array"))?;
    if array.len() > max {
        return Err(Error::bad_request(format!(
            "'{property}' has {} elements, which is more than the maximum of {max}",
            array.len()
        )));
    }
    Ok(array)
}

/// The array under `name`; absent and null are empty.
pub fn array_or_empty<'a>(
    object: &'a Map<String, Value>,
    name: &str,
    max: usize,
) -> Result<&'a [Value]> {
    match present(object, name) {
        Some(value) => expect_array(name, value, max),
        None => Ok(&[]),
    }
}

/// The text under `name`, which must be there.
pub fn text_of<'a>(object: &'a Map<String, Value>, name: &str) -> Result<&'a str> {
    expect_text(name, present(object, name).ok_or_else(|| missing(name))?)
}

/// A whole number, also when it is written `60.0`; `None` for everything else.
pub fn whole_number(value: &Value) -> Option<i64> {
    if let Some(number) = value.as_i64() {
        return Some(number);
    }
    let number = value.as_f64()?;
    // Beyond 2^53 a double no longer tells neighbours apart.
    let exact = number.fract() == 0.0 && number.abs() < 9_007_199_254_740_992.0;
    exact.then_some(number as i64)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn long_values_are_cut_at_a_character() {
        assert_eq!(shown_text("short"), "short");
        assert_eq!(
            shown_text(&"é".repeat(200)),
            format!("{}…", "é".repeat(SHOWN_CHARS_MAX))
        );
        assert_eq!(shown(&json!(1.5)), "1.5");
        assert_eq!(shown(&json!("60")), "\"60\"");
        let long = shown(&json!({"a": "x".repeat(500)}));
        assert_eq!(long.chars().count(), SHOWN_CHARS_MAX + 1);
    }

    #[test]
    fn errors_name_property_and_value() {
        let error = expect_array("paths", &json!({"a": 1}), 3).unwrap_err();
        assert_eq!(
            error.message,
            "One of the specified inputs is invalid: 'paths' must be an array, not {\"a\":1}"
        );
        let error = expect_array("paths", &json!([1, 2]), 1).unwrap_err();
        assert!(error.message.contains("'paths' has 2 elements"), "{error}");
        let body = json!({"a": null});
        let body = body.as_object().unwrap();
        let error = text_of(body, "a").unwrap_err();
        assert!(error.message.ends_with("'a' is missing"), "{error}");
        assert_eq!(array_or_empty(body, "a", 1), Ok(&[][..]));
    }

    #[test]
    fn whole_numbers() {
        let cases = [
            (json!(5), Some(5)),
            (json!(-1), Some(-1)),
            (json!(60.0), Some(60)),
            (json!(1.5), None),
            (json!(1e300), None),
            (json!(u64::MAX), None),
            (json!("5"), None),
            (json!(true), None),
            (json!(null), None),
        ];
        for (value, expected) in cases {
            assert_eq!(whole_number(&value), expected, "{value}");
        }
    }
}
