//! Integers of 64 bits: undefined for other numbers and on overflow.

use super::{Arguments, Function, function, owned};
use crate::model::error::Result;
use crate::sql::eval::Evaluated;

macro_rules! of_two {
    ($name:literal, $compute:expr) => {
        function($name, 2, 2, |arguments, _| {
            let compute: fn(i64, i64) -> Option<i64> = $compute;
            of_two(arguments, compute)
        })
    };
}

pub const FUNCTIONS: &[Function] = &[
    of_two!("INTADD", i64::checked_add),
    of_two!("INTBITAND", |x, y| Some(x & y)),
    of_two!("INTBITLEFTSHIFT", |x, y| bits(y).map(|y| x.wrapping_shl(y))),
    function("INTBITNOT", 1, 1, |a, _| {
        Ok(a.integer(0).and_then(|x| owned(!x)))
    }),
    of_two!("INTBITOR", |x, y| Some(x | y)),
    of_two!("INTBITRIGHTSHIFT", |x, y| bits(y)
        .map(|y| x.wrapping_shr(y))),
    of_two!("INTBITXOR", |x, y| Some(x ^ y)),
    of_two!("INTDIV", i64::checked_div),
    of_two!("INTMOD", i64::checked_rem),
    of_two!("INTMUL", i64::checked_mul),
    of_two!("INTSUB", i64::checked_sub),
];

/// A shift wraps at 64 bits, as the processor's does.
fn bits(count: i64) -> Option<u32> {
    u32::try_from(count & 63).ok()
}

fn of_two<'a>(
    arguments: &Arguments<'a>,
    compute: fn(i64, i64) -> Option<i64>,
) -> Result<Evaluated<'a>> {
    let both = arguments.integer(0).zip(arguments.integer(1));
    Ok(both.and_then(|(x, y)| compute(x, y)).and_then(owned))
}
