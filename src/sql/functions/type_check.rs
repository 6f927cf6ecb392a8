//! IS_ARRAY and its kin: the answer is true or false, never undefined.

use super::{Arguments, Function, date, function};
use crate::model::error::Result;
use crate::sql::eval::{Context, Evaluated, boolean};
use crate::sql::number;
use serde_json::Value;

macro_rules! check {
    ($name:literal, $test:expr) => {
        function($name, 1, 1, |arguments, _| {
            let test: fn(&Value) -> bool = $test;
            Ok(Some(boolean(arguments.get(0).is_some_and(test))))
        })
    };
}

pub const FUNCTIONS: &[Function] = &[
    function("IS_DEFINED", 1, 1, is_defined),
    check!("IS_ARRAY", Value::is_array),
    check!("IS_BOOL", Value::is_boolean),
    check!("IS_NULL", Value::is_null),
    check!("IS_NUMBER", Value::is_number),
    check!("IS_OBJECT", Value::is_object),
    check!("IS_STRING", Value::is_string),
    check!("IS_PRIMITIVE", |value| !value.is_array()
        && !value.is_object()),
    check!("IS_DATETIME", |value| value
        .as_str()
        .is_some_and(|text| date::parse(text).is_some())),
    check!("IS_FINITE_NUMBER", Value::is_number),
    check!("IS_INTEGER", |value| match value {
        Value::Number(number) => number::to_i64(number).is_some(),
        _ => false,
    }),
];

fn is_defined<'a>(arguments: &mut Arguments<'a>, _: &Context) -> Result<Evaluated<'a>> {
    Ok(Some(boolean(arguments.get(0).is_some())))
}
