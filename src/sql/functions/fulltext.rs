//! FULLTEXTCONTAINS and its kin: phrases of whole words, whatever their case.

use super::{Arguments, Function, MANY, function};
use crate::model::error::Result;
use crate::sql::eval::{Context, Evaluated, boolean};

pub const FUNCTIONS: &[Function] = &[
    function("FULLTEXTCONTAINS", 2, 2, |a, c| contains(a, c, true)),
    function("FULLTEXTCONTAINSALL", 2, MANY, |a, c| contains(a, c, false)),
    function("FULLTEXTCONTAINSANY", 2, MANY, |a, c| contains(a, c, true)),
];

fn words(text: &str) -> Vec<String> {
    let parts = text
        .split(|c: char| !c.is_alphanumeric())
        .filter(|part| !part.is_empty());
    parts.map(str::to_lowercase).collect()
}

fn contains<'a>(
    arguments: &mut Arguments<'a>,
    context: &Context,
    any: bool,
) -> Result<Evaluated<'a>> {
    let Some(text) = arguments.text(0) else {
        return Ok(None);
    };
    context.charge_bytes(text.len().saturating_mul(arguments.len()))?;
    let text = words(text);
    let mut result = Some(!any);
    for at in 1..arguments.len() {
        match arguments.text(at) {
            None => result = None,
            Some(phrase) => {
                let phrase = words(phrase);
                let found = !phrase.is_empty()
                    && text
                        .windows(phrase.len())
                        .any(|window| window == phrase.as_slice());
                if found == any {
                    return Ok(Some(boolean(any)));
                }
            }
        }
    }
    Ok(result.map(boolean))
}
