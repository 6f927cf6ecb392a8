//! Arrays.

use super::{Arguments, Function, MANY, function, owned};
use crate::model::error::Result;
use crate::sql::compare::{canonical_key, compare_defined, equal};
use crate::sql::eval::{Context, Evaluated, PARTS_PER_STEP, boolean, size};
use crate::sql::number;
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::collections::HashSet;

pub const FUNCTIONS: &[Function] = &[
    function("ARRAY_AVG", 1, 1, |a, c| {
        Ok(numbers(a, c)?.filter(|n| !n.is_empty()).and_then(|n| {
            #[expect(clippy::cast_precision_loss, reason = "far below 2^53 elements")]
            let count = n.len() as f64;
            number::value(n.iter().sum::<f64>() / count).map(Cow::Owned)
        }))
    }),
    function("ARRAY_CONCAT", 2, MANY, concat),
    function("ARRAY_CONTAINS", 2, 3, contains),
    function("ARRAY_CONTAINS_ALL", 2, MANY, |a, c| {
        contains_many(a, c, false)
    }),
    function("ARRAY_CONTAINS_ANY", 2, MANY, |a, c| {
        contains_many(a, c, true)
    }),
    function("ARRAY_LENGTH", 1, 1, |a, _| {
        Ok(a.array(0).and_then(|items| owned(items.len())))
    }),
    function("ARRAY_MAX", 1, 1, |a, c| extreme(a, c, true)),
    function("ARRAY_MEDIAN", 1, 1, |a, c| {
        Ok(numbers(a, c)?.and_then(median))
    }),
    function("ARRAY_MIN", 1, 1, |a, c| extreme(a, c, false)),
    function("ARRAY_SLICE", 2, 3, slice),
    function("ARRAY_SUM", 1, 1, |a, c| {
        Ok(numbers(a, c)?.and_then(|n| number::value(n.iter().sum()).map(Cow::Owned)))
    }),
    function("CHOOSE", 2, MANY, choose),
    function("OBJECTTOARRAY", 1, 3, object_to_array),
    function("SETDIFFERENCE", 2, 2, |a, c| {
        sets(a, c, |one, other| pick(one, other, false))
    }),
    function("SETEQUAL", 2, 2, set_equal),
    function("SETINTERSECT", 2, 2, |a, c| {
        sets(a, c, |one, other| pick(other, one, true))
    }),
    function("SETUNION", 2, 2, |a, c| {
        sets(a, c, |one, other| distinct(one.iter().chain(other)))
    }),
];

/// The elements, if all are numbers.
fn numbers(arguments: &Arguments<'_>, context: &Context) -> Result<Option<Vec<f64>>> {
    let Some(items) = arguments.array(0) else {
        return Ok(None);
    };
    context.charge(items.len() as u64 / PARTS_PER_STEP)?;
    let number = |value: &Value| match value {
        Value::Number(number) => Some(number::to_f64(number)),
        _ => None,
    };
    Ok(items.iter().map(number).collect())
}

fn median<'a>(mut numbers: Vec<f64>) -> Evaluated<'a> {
    numbers.sort_by(f64::total_cmp);
    let middle = numbers.len() / 2;
    let upper = *numbers.get(middle)?;
    let value = if numbers.len() % 2 == 1 {
        upper
    } else {
        f64::midpoint(*numbers.get(middle.checked_sub(1)?)?, upper)
    };
    number::value(value).map(Cow::Owned)
}

/// The greatest or least in the total order; undefined with an array or object among them.
fn extreme<'a>(
    arguments: &Arguments<'a>,
    context: &Context,
    greatest: bool,
) -> Result<Evaluated<'a>> {
    let Some(items) = arguments.array(0) else {
        return Ok(None);
    };
    context.charge(items.len() as u64 / PARTS_PER_STEP)?;
    if items.iter().any(|item| item.is_array() || item.is_object()) {
        return Ok(None);
    }
    let by = |a: &&Value, b: &&Value| compare_defined(a, b);
    let found = if greatest {
        items.iter().max_by(by)
    } else {
        items.iter().min_by(by)
    };
    Ok(found.and_then(|value| owned(value.clone())))
}

fn concat<'a>(arguments: &mut Arguments<'a>, context: &Context) -> Result<Evaluated<'a>> {
    let mut result = Vec::new();
    for at in 0..arguments.len() {
        let Some(items) = arguments.array(at) else {
            return Ok(None);
        };
        context.charge_values(items.iter())?;
        result.extend_from_slice(items);
    }
    Ok(owned(result))
}

fn contains<'a>(arguments: &mut Arguments<'a>, context: &Context) -> Result<Evaluated<'a>> {
    let (Some(items), Some(wanted)) = (arguments.array(0), arguments.get(1)) else {
        return Ok(None);
    };
    context.charge(items.len() as u64 / 8)?;
    let partial = arguments.boolean(2) == Some(true);
    let found = match wanted {
        Value::Object(wanted) if partial => items.iter().any(|item| has_all(item, wanted)),
        _ => items.iter().any(|item| equal(item, wanted)),
    };
    Ok(Some(boolean(found)))
}

/// Whether an object has all the wanted properties.
fn has_all(item: &Value, wanted: &Map<String, Value>) -> bool {
    wanted
        .iter()
        .all(|(name, value)| item.get(name).is_some_and(|own| equal(own, value)))
}

fn contains_many<'a>(
    arguments: &mut Arguments<'a>,
    context: &Context,
    any: bool,
) -> Result<Evaluated<'a>> {
    let Some(items) = arguments.array(0) else {
        return Ok(None);
    };
    let mut result = Some(!any);
    for at in 1..arguments.len() {
        context.charge(items.len() as u64 / 8)?;
        match arguments.get(at) {
            None => result = None,
            Some(wanted) if items.iter().any(|item| equal(item, wanted)) == any => {
                return Ok(Some(boolean(any)));
            }
            Some(_) => {}
        }
    }
    Ok(result.map(boolean))
}

fn slice<'a>(arguments: &mut Arguments<'a>, context: &Context) -> Result<Evaluated<'a>> {
    let (Some(items), Some(start)) = (arguments.array(0), arguments.integer(1)) else {
        return Ok(None);
    };
    let count = match arguments.len() {
        2 => i64::MAX,
        _ => match arguments.integer(2) {
            Some(count) => count,
            None => return Ok(None),
        },
    };
    let length = i64::try_from(items.len()).unwrap_or(i64::MAX);
    let start = if start < 0 {
        start.saturating_add(length).max(0)
    } else {
        start
    };
    let skip = usize::try_from(start).unwrap_or(usize::MAX);
    let take = usize::try_from(count.max(0)).unwrap_or(usize::MAX);
    let part = items.iter().skip(skip).take(take);
    context.charge_values(part.clone())?;
    Ok(owned(part.cloned().collect::<Vec<_>>()))
}

/// One of the following arguments, counted from one.
fn choose<'a>(arguments: &mut Arguments<'a>, _: &Context) -> Result<Evaluated<'a>> {
    let at = arguments
        .get(0)
        .and_then(number::to_index)
        .filter(|at| *at > 0);
    Ok(at.and_then(|at| arguments.take(at)))
}

fn object_to_array<'a>(arguments: &mut Arguments<'a>, context: &Context) -> Result<Evaluated<'a>> {
    let Some(Value::Object(object)) = arguments.get(0) else {
        return Ok(None);
    };
    let name = |at: usize, otherwise: &'static str| {
        if arguments.len() > at {
            arguments.text(at)
        } else {
            Some(otherwise)
        }
    };
    let (Some(key), Some(value)) = (name(1, "k"), name(2, "v")) else {
        return Ok(None);
    };
    let mut pairs = Vec::with_capacity(object.len());
    for (property, content) in object {
        context.charge_bytes(
            size(content)
                .saturating_add(key.len())
                .saturating_add(value.len()),
        )?;
        let mut pair = Map::with_capacity(2);
        pair.insert(key.to_owned(), Value::String(property.clone()));
        pair.insert(value.to_owned(), content.clone());
        pairs.push(Value::Object(pair));
    }
    Ok(owned(pairs))
}

fn key(value: &Value) -> Vec<u8> {
    let mut key = Vec::new();
    canonical_key(Some(value), &mut key);
    key
}

/// Each value once, in the order of first sight.
fn distinct<'v>(values: impl Iterator<Item = &'v Value>) -> Vec<Value> {
    let mut seen = HashSet::new();
    values
        .filter(|value| seen.insert(key(value)))
        .cloned()
        .collect()
}

/// The distinct values of the first that are (or are not) in the second.
fn pick(from: &[Value], other: &[Value], present: bool) -> Vec<Value> {
    let other: HashSet<Vec<u8>> = other.iter().map(key).collect();
    distinct(
        from.iter()
            .filter(|value| other.contains(&key(value)) == present),
    )
}

fn sets<'a>(
    arguments: &mut Arguments<'a>,
    context: &Context,
    compute: fn(&[Value], &[Value]) -> Vec<Value>,
) -> Result<Evaluated<'a>> {
    let (Some(one), Some(other)) = (arguments.array(0), arguments.array(1)) else {
        return Ok(None);
    };
    context.charge_values(one.iter().chain(other))?;
    Ok(owned(compute(one, other)))
}

fn set_equal<'a>(arguments: &mut Arguments<'a>, context: &Context) -> Result<Evaluated<'a>> {
    let (Some(one), Some(other)) = (arguments.array(0), arguments.array(1)) else {
        return Ok(None);
    };
    context.charge_values(one.iter().chain(other))?;
    let set = |values: &[Value]| values.iter().map(key).collect::<HashSet<_>>();
    Ok(Some(boolean(set(one) == set(other))))
}
