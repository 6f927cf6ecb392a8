//! Evaluation of one expression or one row. Values are borrowed from the item and from the
//! program wherever they can be; undefined is `None`.

mod operators;
mod scope;

pub use scope::{Context, Frame, Guard, Scope, memory_size, parsed_size, size};

use super::STEP_BYTES;
use super::ast::{BinaryOp, SubqueryKind, UnaryOp};
use super::compare::{compare_defined, equal};
use super::execute;
use super::functions::Arguments;
use super::like::Pattern;
use super::number;
use super::program::{Input, LikePattern, Node, Program, Source, Step};
use crate::model::error::{Error, Result};
use serde_json::{Map, Value};
use std::borrow::Cow;

/// A value, or undefined.
pub type Evaluated<'a> = Option<Cow<'a, Value>>;

/// Whether a visitor wants more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    More,
    Enough,
}

/// Operands of one condition, or elements of an array that a function looks at, that count as one step.
pub const PARTS_PER_STEP: u64 = 8;

pub static TRUE: Value = Value::Bool(true);
pub static FALSE: Value = Value::Bool(false);

pub fn boolean(value: bool) -> Cow<'static, Value> {
    Cow::Borrowed(if value { &TRUE } else { &FALSE })
}

/// The value behind a path or a constant, without any copy; outer `None` for other nodes.
fn borrowed<'a>(node: &'a Node, scope: &Scope<'a>) -> Option<Option<&'a Value>> {
    match node {
        Node::Constant(value) => Some(Some(value)),
        Node::Path { up, steps } => Some(walk(scope.binding(*up), steps)),
        _ => None,
    }
}

/// Follows constant steps.
fn walk<'a>(start: Option<&'a Value>, steps: &[Step]) -> Option<&'a Value> {
    let mut value = start?;
    for step in steps {
        value = match (step, value) {
            (Step::Property(name), Value::Object(object)) => object.get(name)?,
            (Step::Index(index), Value::Array(items)) => items.get(*index)?,
            _ => return None,
        };
    }
    Some(value)
}

/// The truth of a condition in three values: `None` is undefined, as is all that is no boolean.
pub fn truth(node: &Node, scope: &Scope<'_>, context: &Context) -> Result<Option<bool>> {
    match node {
        Node::And(operands) => all(operands, true, scope, context),
        Node::Or(operands) => all(operands, false, scope, context),
        Node::Unary(UnaryOp::Not, operand) => Ok(truth(operand, scope, context)?.map(|t| !t)),
        Node::Binary(op, left, right) if operators::is_comparison(*op) => {
            if let (Some(left), Some(right)) = (borrowed(left, scope), borrowed(right, scope)) {
                return compare(*op, left, right, context);
            }
            let left = eval(left, scope, context)?;
            let right = eval(right, scope, context)?;
            compare(*op, left.as_deref(), right.as_deref(), context)
        }
        Node::Between { not, operands } => {
            let [value, low, high] = operands.as_ref();
            let value = eval(value, scope, context)?;
            let low = eval(low, scope, context)?;
            let high = eval(high, scope, context)?;
            let value = value.as_deref();
            let above = compare(BinaryOp::GreaterOrEqual, value, low.as_deref(), context)?;
            let below = compare(BinaryOp::LessOrEqual, value, high.as_deref(), context)?;
            let inside = match (above, below) {
                (Some(false), _) | (_, Some(false)) => Some(false),
                (Some(true), Some(true)) => Some(true),
                _ => None,
            };
            Ok(inside.map(|inside| inside != *not))
        }
        Node::InConstants {
            not,
            needle,
            sorted,
        } => {
            let needle = eval(needle, scope, context)?;
            let Some(needle) = needle.as_deref() else {
                return Ok(None);
            };
            let found = sorted
                .binary_search_by(|item| compare_defined(item, needle))
                .is_ok();
            Ok(Some(found != *not))
        }
        Node::In { not, needle, items } => {
            let needle = eval(needle, scope, context)?;
            let Some(needle) = needle.as_deref() else {
                return Ok(None);
            };
            context.charge(items.len() as u64 / PARTS_PER_STEP)?;
            for item in items {
                if eval(item, scope, context)?.is_some_and(|item| equal(&item, needle)) {
                    return Ok(Some(!not));
                }
            }
            Ok(Some(*not))
        }
        Node::Like {
            not,
            value,
            pattern,
        } => {
            let value = eval(value, scope, context)?;
            let matches = like(value.as_deref(), pattern, scope, context)?;
            Ok(matches.map(|matches| matches != *not))
        }
        Node::Regex { text, regex } => {
            let text = eval(text, scope, context)?;
            let Some(Value::String(text)) = text.as_deref() else {
                return Ok(None);
            };
            Ok(Some(regex.is_match(text, context)?))
        }
        Node::Subquery(SubqueryKind::Exists, program) => {
            Ok(Some(execute::exists(program, scope, context)?))
        }
        Node::Subquery(SubqueryKind::All, program) => {
            Ok(Some(!execute::exists(program, scope, context)?))
        }
        _ => Ok(eval(node, scope, context)?.and_then(|value| value.as_bool())),
    }
}

/// Charges for values whose comparison takes long.
fn compare(
    op: BinaryOp,
    left: Option<&Value>,
    right: Option<&Value>,
    context: &Context,
) -> Result<Option<bool>> {
    match (left, right) {
        (Some(Value::String(left)), Some(Value::String(right))) => {
            context.charge_bytes(left.len().min(right.len()) / PARTS_PER_STEP as usize)?;
        }
        (Some(left @ Value::Array(items)), Some(Value::Array(others)))
            if items.len() == others.len() =>
        {
            context.charge_bytes(size(left))?;
        }
        (Some(left @ Value::Object(parts)), Some(Value::Object(others)))
            if parts.len() == others.len() =>
        {
            context.charge_bytes(size(left))?;
        }
        _ => {}
    }
    Ok(operators::compare(op, left, right))
}

/// AND (`neutral` true) and OR (`neutral` false): the other value decides at once, then undefined.
fn all(
    operands: &[Node],
    neutral: bool,
    scope: &Scope<'_>,
    context: &Context,
) -> Result<Option<bool>> {
    context.charge(operands.len() as u64 / PARTS_PER_STEP)?;
    let mut result = Some(neutral);
    for operand in operands {
        match truth(operand, scope, context)? {
            Some(value) if value == neutral => {}
            Some(value) => return Ok(Some(value)),
            None => result = None,
        }
    }
    Ok(result)
}

fn like(
    value: Option<&Value>,
    pattern: &LikePattern,
    scope: &Scope<'_>,
    context: &Context,
) -> Result<Option<bool>> {
    let Some(Value::String(text)) = value else {
        return Ok(None);
    };
    match pattern {
        LikePattern::Constant(pattern) => matches(pattern, text, context),
        LikePattern::Computed { pattern, escape } => {
            let pattern = eval(pattern, scope, context)?;
            let Some(Value::String(pattern)) = pattern.as_deref() else {
                return Ok(None);
            };
            context.charge_bytes(text.len().saturating_add(pattern.len()))?;
            matches(&Pattern::new(pattern, *escape), text, context)
        }
    }
}

/// Charges for the comparisons that a pattern takes.
fn matches(pattern: &Pattern, text: &str, context: &Context) -> Result<Option<bool>> {
    let comparisons_max = context.steps_left().saturating_mul(STEP_BYTES as u64);
    let (answer, comparisons) = pattern.matches_within(text, comparisons_max);
    context.charge(comparisons / STEP_BYTES as u64)?;
    match answer {
        Some(_) => Ok(answer),
        None => context.charge(u64::MAX).map(|()| None),
    }
}

pub fn eval<'a>(node: &'a Node, scope: &Scope<'a>, context: &Context) -> Result<Evaluated<'a>> {
    if let Some(value) = borrowed(node, scope) {
        return Ok(value.map(Cow::Borrowed));
    }
    match node {
        Node::Undefined => Ok(None),
        Node::Member(base, steps) => {
            let base = eval(base, scope, context)?;
            member(base, steps, scope, context)
        }
        Node::Computed {
            up,
            name,
            program,
            steps,
        } => computed(scope.binding(*up), name, program, steps, context),
        Node::OfGroup { up, index } => Ok(scope.of_group(*up, *index).map(Cow::Borrowed)),
        Node::Unary(op, operand) if *op != UnaryOp::Not => {
            let operand = eval(operand, scope, context)?;
            Ok(operators::unary(*op, operand.as_deref()).map(Cow::Owned))
        }
        Node::Binary(BinaryOp::Coalesce, left, right) => match eval(left, scope, context)? {
            Some(value) => Ok(Some(value)),
            None => eval(right, scope, context),
        },
        Node::Binary(op, left, right) if !operators::is_comparison(*op) => {
            let left = eval(left, scope, context)?;
            let right = eval(right, scope, context)?;
            let (Some(left), Some(right)) = (left, right) else {
                return Ok(None);
            };
            Ok(operators::binary(*op, &left, &right, context)?.map(Cow::Owned))
        }
        Node::Conditional(parts) => {
            let [condition, then, otherwise] = parts.as_ref();
            let holds = truth(condition, scope, context)? == Some(true);
            eval(if holds { then } else { otherwise }, scope, context)
        }
        Node::Array(items) => array(items, scope, context),
        Node::Object(properties) => object(properties, scope, context),
        Node::Call {
            function,
            arguments,
        } => {
            context.charge(1)?;
            let mut values = Vec::with_capacity(arguments.len());
            for argument in arguments {
                values.push(eval(argument, scope, context)?);
            }
            (function.call)(&mut Arguments::new(values), context)
        }
        Node::Subquery(kind, program)
            if !matches!(kind, SubqueryKind::Exists | SubqueryKind::All) =>
        {
            let rows = execute::rows_of(program, scope, context)?;
            subquery(*kind, rows)
        }
        // What is left are conditions.
        _ => Ok(truth(node, scope, context)?.map(boolean)),
    }
}

fn subquery<'a>(kind: SubqueryKind, mut rows: Vec<Value>) -> Result<Evaluated<'a>> {
    Ok(match kind {
        SubqueryKind::Array => Some(Cow::Owned(Value::Array(rows))),
        SubqueryKind::First if !rows.is_empty() => Some(Cow::Owned(rows.swap_remove(0))),
        SubqueryKind::Scalar if rows.len() > 1 => {
            return Err(Error::bad_request(
                "the cardinality of a scalar subquery result set cannot be greater than 1",
            ));
        }
        _ => rows.pop().map(Cow::Owned),
    })
}

fn array<'a>(items: &'a [Node], scope: &Scope<'a>, context: &Context) -> Result<Evaluated<'a>> {
    let mut array = Vec::with_capacity(items.len());
    for item in items {
        if let Some(value) = eval(item, scope, context)? {
            array.push(context.own(value)?);
        }
    }
    Ok(Some(Cow::Owned(Value::Array(array))))
}

fn object<'a>(
    properties: &'a [(String, Node)],
    scope: &Scope<'a>,
    context: &Context,
) -> Result<Evaluated<'a>> {
    let mut object = Map::with_capacity(properties.len());
    for (name, node) in properties {
        if let Some(value) = eval(node, scope, context)? {
            object.insert(name.clone(), context.own(value)?);
        }
    }
    Ok(Some(Cow::Owned(Value::Object(object))))
}

/// Follows steps that may have to be computed.
fn member<'a>(
    base: Evaluated<'a>,
    steps: &'a [Step],
    scope: &Scope<'a>,
    context: &Context,
) -> Result<Evaluated<'a>> {
    let Some(mut value) = base else {
        return Ok(None);
    };
    for step in steps {
        let next = match step {
            Step::Property(name) => property(value, name),
            Step::Index(index) => element(value, *index),
            Step::Computed(node) => match eval(node, scope, context)?.as_deref() {
                Some(Value::String(name)) => property(value, name),
                Some(index) => number::to_index(index).and_then(|index| element(value, index)),
                None => None,
            },
        };
        match next {
            Some(next) => value = next,
            None => return Ok(None),
        }
    }
    Ok(Some(value))
}

fn property<'a>(value: Cow<'a, Value>, name: &str) -> Evaluated<'a> {
    match value {
        Cow::Borrowed(value) => value.as_object()?.get(name).map(Cow::Borrowed),
        Cow::Owned(Value::Object(mut object)) => object.swap_remove(name).map(Cow::Owned),
        Cow::Owned(_) => None,
    }
}

fn element(value: Cow<'_, Value>, index: usize) -> Evaluated<'_> {
    match value {
        Cow::Borrowed(value) => value.as_array()?.get(index).map(Cow::Borrowed),
        Cow::Owned(Value::Array(mut items)) => {
            (index < items.len()).then(|| Cow::Owned(items.swap_remove(index)))
        }
        Cow::Owned(_) => None,
    }
}

/// A computed property of an item; the item's own property of that name goes before it.
fn computed<'a>(
    item: Option<&'a Value>,
    name: &str,
    program: &'a Program,
    steps: &'a [Step],
    context: &Context,
) -> Result<Evaluated<'a>> {
    if let Some(own) = item.and_then(|item| item.get(name)) {
        return Ok(walk(Some(own), steps).map(Cow::Borrowed));
    }
    let rows = execute::rows_of(program, &Scope::root(item), context)?;
    let value = subquery(SubqueryKind::First, rows)?;
    member(value, steps, &Scope::root(item), context)
}

/// Visits every row of the sources within `scope`, the last source innermost.
pub fn rows(
    sources: &[Source],
    scope: &Scope<'_>,
    context: &Context,
    visit: &mut dyn FnMut(&Scope<'_>) -> Result<Flow>,
) -> Result<Flow> {
    // Also for a row that a later source leaves out.
    context.charge(1)?;
    let Some((source, rest)) = sources.split_first() else {
        return visit(scope);
    };
    let mut bind = |value: &Value| -> Result<Flow> {
        rows(
            rest,
            &Scope::inside(scope, Frame::Bound(Some(value))),
            context,
            visit,
        )
    };
    match &source.input {
        Input::Value(node) => match eval(node, scope, context)?.as_deref() {
            Some(value) => elements(value, source.iterate, &mut bind),
            None => Ok(Flow::More),
        },
        Input::Rows(program) => {
            for row in execute::rows_of(program, scope, context)? {
                if elements(&row, source.iterate, &mut bind)? == Flow::Enough {
                    return Ok(Flow::Enough);
                }
            }
            Ok(Flow::More)
        }
    }
}

/// The value itself, or its elements.
fn elements(
    value: &Value,
    iterate: bool,
    bind: &mut dyn FnMut(&Value) -> Result<Flow>,
) -> Result<Flow> {
    if !iterate {
        return bind(value);
    }
    for element in value.as_array().into_iter().flatten() {
        if bind(element)? == Flow::Enough {
            return Ok(Flow::Enough);
        }
    }
    Ok(Flow::More)
}
