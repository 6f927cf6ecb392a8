//! REGEXMATCH: linear time in the text, with a bound on the compiled size.

use super::{Arguments, Function, function};
use crate::model::error::{Error, Result};
use crate::sql::error::shorten;
use crate::sql::eval::{Context, Evaluated, boolean};
use crate::sql::program::Node;
use regex::{Regex, RegexBuilder};
use serde_json::Value;

/// The largest compiled expression.
const COMPILED_BYTES_MAX: usize = 1024 * 1024;
/// How deep the groups of an expression nest.
const NESTING_MAX: u32 = 100;
/// What compiling an expression during evaluation is charged.
const COMPILATION_STEPS: u64 = 2_000;

pub const FUNCTIONS: &[Function] = &[function("REGEXMATCH", 2, 3, regex_match)];

pub fn compile(pattern: &str, modifiers: &str) -> Result<Regex, String> {
    let mut builder = RegexBuilder::new(pattern);
    builder
        .size_limit(COMPILED_BYTES_MAX)
        .dfa_size_limit(COMPILED_BYTES_MAX);
    builder.nest_limit(NESTING_MAX);
    for modifier in modifiers.chars() {
        match modifier {
            'm' => builder.multi_line(true),
            's' => builder.dot_matches_new_line(true),
            'i' => builder.case_insensitive(true),
            'x' => builder.ignore_whitespace(true),
            _ => {
                let shown = shorten(modifiers);
                return Err(format!(
                    "The regular expression modifiers '{shown}' are not valid."
                ));
            }
        };
    }
    builder.build().map_err(|error| {
        let why = match error {
            regex::Error::CompiledTooBig(_) => "it is too large".to_owned(),
            other => other
                .to_string()
                .lines()
                .last()
                .unwrap_or_default()
                .to_owned(),
        };
        format!(
            "The regular expression '{}' cannot be used: {why}.",
            shorten(pattern)
        )
    })
}

/// Compiles a constant expression once.
pub fn prepare(function: &'static Function, mut arguments: Vec<Node>) -> Result<Node, String> {
    let constant = |node: &Node| match node {
        Node::Constant(Value::String(text)) => Some(text.clone()),
        _ => None,
    };
    let pattern = arguments.get(1).and_then(constant);
    let modifiers = match arguments.get(2) {
        None => Some(String::new()),
        Some(node) => constant(node),
    };
    let (Some(pattern), Some(modifiers)) = (pattern, modifiers) else {
        return Ok(Node::Call {
            function,
            arguments,
        });
    };
    let regex = Box::new(compile(&pattern, &modifiers)?);
    let text = Box::new(arguments.swap_remove(0));
    Ok(Node::Regex { text, regex })
}

fn regex_match<'a>(arguments: &mut Arguments<'a>, context: &Context) -> Result<Evaluated<'a>> {
    let modifiers = match arguments.len() {
        2 => Some(""),
        _ => arguments.text(2),
    };
    let (Some(text), Some(pattern), Some(modifiers)) =
        (arguments.text(0), arguments.text(1), modifiers)
    else {
        return Ok(None);
    };
    context.charge(COMPILATION_STEPS)?;
    context.charge_bytes(text.len().saturating_add(pattern.len()))?;
    let regex = compile(pattern, modifiers).map_err(Error::bad_request)?;
    Ok(Some(boolean(regex.is_match(text))))
}
