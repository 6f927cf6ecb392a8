//! Numbers: IEEE doubles; a result that is not finite is undefined.

use super::{Arguments, Function, function};
use crate::model::error::Result;
use crate::sql::eval::{Context, Evaluated};
use crate::sql::number;
use std::borrow::Cow;
use std::f64::consts::{E, PI};

macro_rules! of_one {
    ($name:literal, $compute:expr) => {
        function($name, 1, 1, |arguments, _| {
            let compute: fn(f64) -> f64 = $compute;
            Ok(arguments.number(0).and_then(|x| result(compute(x))))
        })
    };
}

pub const FUNCTIONS: &[Function] = &[
    of_one!("ABS", f64::abs),
    of_one!("ACOS", f64::acos),
    of_one!("ASIN", f64::asin),
    of_one!("ATAN", f64::atan),
    function("ATN2", 2, 2, |a, _| of_two(a, f64::atan2)),
    of_one!("CEILING", f64::ceil),
    of_one!("COS", f64::cos),
    of_one!("COT", |x| 1.0 / x.tan()),
    of_one!("DEGREES", |x| 180.0 / PI * x),
    of_one!("EXP", f64::exp),
    of_one!("FLOOR", f64::floor),
    function("LOG", 1, 2, log),
    of_one!("LOG10", f64::log10),
    function("NUMBERBIN", 1, 2, number_bin),
    function("PI", 0, 0, |_, _| Ok(result(PI))),
    function("POWER", 2, 2, |a, _| of_two(a, f64::powf)),
    of_one!("RADIANS", |x| PI * x / 180.0),
    function("RAND", 0, 0, |_, context| Ok(result(context.random()))),
    function("ROUND", 1, 2, round),
    of_one!("SIGN", |x| if x == 0.0 { 0.0 } else { x.signum() }),
    of_one!("SIN", f64::sin),
    of_one!("SQRT", f64::sqrt),
    of_one!("SQUARE", |x| x * x),
    of_one!("TAN", f64::tan),
    of_one!("TRUNC", f64::trunc),
];

fn result<'a>(value: f64) -> Evaluated<'a> {
    number::value(value).map(Cow::Owned)
}

fn of_two<'a>(arguments: &Arguments<'a>, compute: fn(f64, f64) -> f64) -> Result<Evaluated<'a>> {
    let both = arguments.number(0).zip(arguments.number(1));
    Ok(both.and_then(|(x, y)| result(compute(x, y))))
}

fn log<'a>(arguments: &mut Arguments<'a>, _: &Context) -> Result<Evaluated<'a>> {
    let base = match arguments.len() {
        1 => Some(E),
        _ => arguments.number(1),
    };
    Ok(arguments
        .number(0)
        .zip(base)
        .and_then(|(x, base)| match base {
            base if base == E => result(x.ln()),
            10.0 => result(x.log10()),
            2.0 => result(x.log2()),
            base => result(x.ln() / base.ln()),
        }))
}

/// To the whole, or to a number of decimals; halves go away from zero.
fn round<'a>(arguments: &mut Arguments<'a>, _: &Context) -> Result<Evaluated<'a>> {
    const DECIMALS_MAX: i64 = 15;
    let Some(x) = arguments.number(0) else {
        return Ok(None);
    };
    if arguments.len() == 1 {
        return Ok(result(x.round()));
    }
    let decimals = arguments
        .integer(1)
        .filter(|d| (-DECIMALS_MAX..=DECIMALS_MAX).contains(d));
    Ok(decimals.and_then(|decimals| {
        let scale = 10f64.powi(i32::try_from(decimals).unwrap_or(0));
        result((x * scale).round() / scale)
    }))
}

/// The greatest multiple of the bin size that is not above the number.
fn number_bin<'a>(arguments: &mut Arguments<'a>, _: &Context) -> Result<Evaluated<'a>> {
    let size = match arguments.len() {
        1 => Some(1.0),
        _ => arguments.number(1),
    };
    Ok(arguments.number(0).zip(size).and_then(|(x, size)| {
        if size == 0.0 {
            return None;
        }
        let bins = (x / size).floor();
        // Dividing by the inverse keeps 37.7 from becoming 37.700000000000003.
        let inverse = (1.0 / size).round();
        if size.abs() < 1.0 && (1.0 / inverse) == size {
            result(bins / inverse)
        } else {
            result(bins * size)
        }
    }))
}
