//! VECTORDISTANCE: cosine unless the options name another measure.

use super::{Arguments, Function, function};
use crate::model::error::Result;
use crate::sql::ast::Expr;
use crate::sql::eval::{Context, Evaluated};
use crate::sql::number;
use serde_json::Value;
use std::borrow::Cow;

pub const FUNCTIONS: &[Function] = &[function("VECTORDISTANCE", 2, 4, vector_distance)];

#[derive(Clone, Copy, PartialEq)]
enum Measure {
    Cosine,
    DotProduct,
    Euclidean,
}

impl Measure {
    fn named(name: &str) -> Option<Self> {
        Some(match name.to_ascii_lowercase().as_str() {
            "cosine" => Self::Cosine,
            "dotproduct" => Self::DotProduct,
            "euclidean" => Self::Euclidean,
            _ => return None,
        })
    }

    fn of(self, a: &[f64], b: &[f64]) -> f64 {
        let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(x, y)| x * y).sum::<f64>();
        match self {
            Self::Cosine => dot(a, b) / (dot(a, a).sqrt() * dot(b, b).sqrt()),
            Self::DotProduct => dot(a, b),
            Self::Euclidean => a
                .iter()
                .zip(b)
                .map(|(x, y)| (x - y) * (x - y))
                .sum::<f64>()
                .sqrt(),
        }
    }
}

/// Whether near vectors have great scores, by the options that a query writes down.
pub fn nearest_is_greatest(options: Option<&Expr>) -> bool {
    let Some(Expr::Object(options)) = options else {
        return true;
    };
    let named = options.iter().find(|(name, _)| name == "distanceFunction");
    !matches!(named, Some((_, Expr::Literal(Value::String(name))))
        if Measure::named(name) == Some(Measure::Euclidean))
}

fn vector_distance<'a>(arguments: &mut Arguments<'a>, context: &Context) -> Result<Evaluated<'a>> {
    let vector = |at: usize| -> Option<Vec<f64>> {
        let number = |value: &Value| match value {
            Value::Number(number) => Some(number::to_f64(number)),
            _ => None,
        };
        arguments.array(at)?.iter().map(number).collect()
    };
    let (Some(a), Some(b)) = (vector(0), vector(1)) else {
        return Ok(None);
    };
    context.charge(a.len() as u64)?;
    if a.len() != b.len() {
        return Ok(None);
    }
    let named = arguments
        .get(3)
        .and_then(|options| options.get("distanceFunction")?.as_str());
    let measure = named.map_or(Some(Measure::Cosine), Measure::named);
    Ok(measure
        .and_then(|m| number::value(m.of(&a, &b)))
        .map(Cow::Owned))
}
