//! Strings to values and back.

use super::{Arguments, Function, function, owned};
use crate::model::error::Result;
use crate::sql::eval::{Context, Evaluated, memory_size, parsed_size};
use serde_json::Value;

pub const FUNCTIONS: &[Function] = &[
    function("STRINGTOARRAY", 1, 1, |a, c| parsed(a, c, Value::is_array)),
    function("STRINGTOBOOLEAN", 1, 1, |a, c| {
        parsed(a, c, Value::is_boolean)
    }),
    function("STRINGTONULL", 1, 1, |a, c| parsed(a, c, Value::is_null)),
    function("STRINGTONUMBER", 1, 1, |a, c| {
        parsed(a, c, Value::is_number)
    }),
    function("STRINGTOOBJECT", 1, 1, |a, c| {
        parsed(a, c, Value::is_object)
    }),
    function("TOSTRING", 1, 1, to_string),
];

/// The JSON in a string, if it is of the wanted kind.
fn parsed<'a>(
    arguments: &mut Arguments<'a>,
    context: &Context,
    wanted: fn(&Value) -> bool,
) -> Result<Evaluated<'a>> {
    let Some(text) = arguments.text(0) else {
        return Ok(None);
    };
    context.charge_bytes(text.len())?;
    context.reserve(parsed_size(text.as_bytes()))?;
    let value = serde_json::from_str::<Value>(text).ok().filter(wanted);
    Ok(value.and_then(owned))
}

fn to_string<'a>(arguments: &mut Arguments<'a>, context: &Context) -> Result<Evaluated<'a>> {
    let Some(value) = arguments.take(0) else {
        return Ok(None);
    };
    if value.is_string() {
        return Ok(Some(value));
    }
    context.reserve(memory_size(&value))?;
    let text = value.to_string();
    context.charge_bytes(text.len())?;
    Ok(owned(text))
}
