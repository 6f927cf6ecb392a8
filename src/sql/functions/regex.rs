//! REGEXMATCH: linear time in the text, with a bound on the compiled size.

use super::{Arguments, Function, function};
use crate::model::error::{Error, Result};
use crate::sql::error::shorten;
use crate::sql::eval::{Context, Evaluated, boolean};
use crate::sql::program::Node;
use regex::{Regex, RegexBuilder};
use serde_json::Value;

/// Sizes of compiled expressions, up to the largest that is taken, and what a byte of text is charged for each. The time of a match is
/// bounded by the text times the states of the expression, however it is written.
const SIZES: [(usize, u64); 4] = [
    (10 * 1024, 0),
    (40 * 1024, 8),
    (160 * 1024, 32),
    (1024 * 1024, 200),
];
/// Memory for the states that a match goes through.
const STATES_BYTES_MAX: usize = 1024 * 1024;
/// How deep the groups of an expression nest.
const NESTING_MAX: u32 = 100;
/// What compiling an expression of the smallest size during evaluation is charged; each size more costs four times as much.
const COMPILATION_STEPS: u64 = 2_000;

/// An expression and what using it costs.
#[derive(Debug)]
pub struct Compiled {
    regex: Regex,
    size: usize,
}

impl Compiled {
    pub fn is_match(&self, text: &str, context: &Context) -> Result<bool> {
        context.charge_bytes(text.len())?;
        let (_, steps) = SIZES.get(self.size).copied().unwrap_or_default();
        context.charge(steps.saturating_mul(text.len() as u64))?;
        Ok(self.regex.is_match(text))
    }
}

pub const FUNCTIONS: &[Function] = &[function("REGEXMATCH", 2, 3, regex_match)];

pub fn compile(pattern: &str, modifiers: &str) -> Result<Compiled, String> {
    let mut builder = RegexBuilder::new(pattern);
    builder
        .nest_limit(NESTING_MAX)
        .dfa_size_limit(STATES_BYTES_MAX);
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
    let mut outcome = Err(regex::Error::CompiledTooBig(0));
    for (size, (bytes_max, _)) in SIZES.into_iter().enumerate() {
        builder.size_limit(bytes_max);
        outcome = builder.build().map(|regex| Compiled { regex, size });
        if !matches!(outcome, Err(regex::Error::CompiledTooBig(_))) {
            break;
        }
    }
    outcome.map_err(|error| {
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
    context.charge_bytes(pattern.len())?;
    let regex = compile(pattern, modifiers).map_err(Error::bad_request)?;
    context.charge(COMPILATION_STEPS << (2 * regex.size))?;
    Ok(Some(boolean(regex.is_match(text, context)?)))
}
