//! Dates and times: ISO 8601 text in UTC with seven decimals, ticks of 100 ns, milliseconds.

mod calendar;
mod format;

pub use calendar::parse;

use super::{Arguments, Function, function, owned};
use crate::sql::eval::{Context, Evaluated};
use crate::sql::number;
use calendar::{Civil, TICKS_PER_DAY, TICKS_PER_MILLISECOND, TICKS_PER_SECOND, in_range};
use std::borrow::Cow;

pub const FUNCTIONS: &[Function] = &[
    function("AGO", 2, 2, |a, context| {
        Ok(shifted(now(context), a, 0, -1))
    }),
    function("DATETIMEADD", 3, 3, |a, _| {
        Ok(a.text(2)
            .and_then(parse)
            .and_then(|at| shifted(at, a, 0, 1)))
    }),
    function("DATETIMEBIN", 2, 4, |a, _| Ok(bin(a))),
    function("DATETIMEDIFF", 3, 3, |a, _| Ok(difference(a))),
    function("DATETIMEFORMAT", 2, 2, |a, _| {
        let both = a.text(0).and_then(parse).zip(a.text(1));
        Ok(both.and_then(|(at, pattern)| owned(format::format(at, pattern))))
    }),
    function("DATETIMEFROMPARTS", 3, 7, |a, _| Ok(from_parts(a))),
    function("DATETIMEPART", 2, 2, |a, _| {
        Ok(Part::named(a.text(0))
            .zip(a.text(1).and_then(parse))
            .and_then(|(part, at)| owned(part.of(at))))
    }),
    function("DATETIMETOTICKS", 1, 1, |a, _| {
        Ok(a.text(0).and_then(parse).and_then(owned))
    }),
    function("DATETIMETOTIMESTAMP", 1, 1, |a, _| {
        Ok(a.text(0)
            .and_then(parse)
            .and_then(|at| owned(at.div_euclid(TICKS_PER_MILLISECOND))))
    }),
    function("DAY", 1, 1, |a, _| Ok(part_of(a, Part::Day))),
    function("GETCURRENTDATETIME", 0, 0, |_, context| {
        Ok(text(now(context)))
    }),
    function("GETCURRENTDATETIMESTATIC", 0, 0, |_, context| {
        Ok(text(now(context)))
    }),
    function("GETCURRENTTICKS", 0, 0, |_, context| {
        Ok(owned(now(context)))
    }),
    function("GETCURRENTTICKSSTATIC", 0, 0, |_, context| {
        Ok(owned(now(context)))
    }),
    function("GETCURRENTTIMESTAMP", 0, 0, |_, context| {
        Ok(owned(context.now_ms))
    }),
    function("GETCURRENTTIMESTAMPSTATIC", 0, 0, |_, context| {
        Ok(owned(context.now_ms))
    }),
    function("MONTH", 1, 1, |a, _| Ok(part_of(a, Part::Month))),
    function("NOW", 0, 2, |a, context| {
        Ok(if a.len() == 0 {
            text(now(context))
        } else {
            shifted(now(context), a, 0, 1)
        })
    }),
    function("TICKSTODATETIME", 1, 1, |a, _| {
        Ok(a.integer(0)
            .and_then(|ticks| in_range(ticks.into()))
            .and_then(text))
    }),
    function("TIMESTAMPTODATETIME", 1, 1, |a, _| {
        let ticks = a
            .integer(0)
            .map(|ms| i128::from(ms) * i128::from(TICKS_PER_MILLISECOND));
        Ok(ticks.and_then(in_range).and_then(text))
    }),
    function("YEAR", 1, 1, |a, _| Ok(part_of(a, Part::Year))),
];

#[derive(Clone, Copy)]
enum Part {
    Year,
    Month,
    Day,
    Hour,
    Minute,
    Second,
    Millisecond,
    Microsecond,
    Nanosecond,
}

impl Part {
    fn named(name: Option<&str>) -> Option<Self> {
        Some(match name?.to_ascii_lowercase().as_str() {
            "year" | "yyyy" | "yy" => Self::Year,
            "month" | "mm" | "m" => Self::Month,
            "day" | "dd" | "d" => Self::Day,
            "hour" | "hh" => Self::Hour,
            "minute" | "mi" | "n" => Self::Minute,
            "second" | "ss" | "s" => Self::Second,
            "millisecond" | "ms" => Self::Millisecond,
            "microsecond" | "mcs" => Self::Microsecond,
            "nanosecond" | "ns" => Self::Nanosecond,
            _ => return None,
        })
    }

    fn of(self, at: i64) -> i64 {
        let civil = Civil::from_ticks(at);
        match self {
            Self::Year => civil.year,
            Self::Month => civil.month,
            Self::Day => civil.day,
            Self::Hour => civil.hour,
            Self::Minute => civil.minute,
            Self::Second => civil.second,
            Self::Millisecond => civil.fraction / TICKS_PER_MILLISECOND,
            Self::Microsecond => civil.fraction / 10,
            Self::Nanosecond => civil.fraction * 100,
        }
    }

    /// Its length in nanoseconds, if that is always the same.
    fn nanoseconds(self) -> Option<i128> {
        let ticks = match self {
            Self::Year | Self::Month => return None,
            Self::Day => TICKS_PER_DAY,
            Self::Hour => 3600 * TICKS_PER_SECOND,
            Self::Minute => 60 * TICKS_PER_SECOND,
            Self::Second => TICKS_PER_SECOND,
            Self::Millisecond => TICKS_PER_MILLISECOND,
            Self::Microsecond => 10,
            Self::Nanosecond => return Some(1),
        };
        Some(i128::from(ticks) * NANOSECONDS_PER_TICK)
    }
}

const NANOSECONDS_PER_TICK: i128 = 100;

fn now(context: &Context) -> i64 {
    in_range(i128::from(context.now_ms) * i128::from(TICKS_PER_MILLISECOND)).unwrap_or(0)
}

fn text<'a>(ticks: i64) -> Evaluated<'a> {
    owned(calendar::format(ticks))
}

fn part_of<'a>(arguments: &Arguments<'a>, part: Part) -> Evaluated<'a> {
    arguments
        .text(0)
        .and_then(parse)
        .and_then(|at| owned(part.of(at)))
}

/// `at` plus a count of parts, both named by the arguments from `first` on.
fn shifted<'a>(at: i64, arguments: &Arguments<'a>, first: usize, sign: i64) -> Evaluated<'a> {
    let part = Part::named(arguments.text(first))?;
    let count = arguments.integer(first + 1)?.checked_mul(sign)?;
    let months = match part {
        Part::Year => count.checked_mul(12)?,
        Part::Month => count,
        _ => {
            let shift = part.nanoseconds()?.checked_mul(count.into())? / NANOSECONDS_PER_TICK;
            return in_range(i128::from(at) + shift).and_then(text);
        }
    };
    Civil::from_ticks(at)
        .plus_months(months)?
        .ticks()
        .and_then(text)
}

/// The number of boundaries of a part between two times.
fn difference<'a>(arguments: &Arguments<'a>) -> Evaluated<'a> {
    let part = Part::named(arguments.text(0))?;
    let (start, end) = (parse(arguments.text(1)?)?, parse(arguments.text(2)?)?);
    let (from, to) = (Civil::from_ticks(start), Civil::from_ticks(end));
    match part {
        Part::Year => owned(to.year - from.year),
        Part::Month => owned((to.year - from.year) * 12 + to.month - from.month),
        _ => {
            let length = part.nanoseconds()?;
            let boundary = |at: i64| (i128::from(at) * NANOSECONDS_PER_TICK).div_euclid(length);
            let count = boundary(end) - boundary(start);
            match i64::try_from(count) {
                Ok(count) => owned(count),
                #[expect(clippy::cast_precision_loss, reason = "beyond 64 bits it is a double")]
                Err(_) => number::value(count as f64).map(Cow::Owned),
            }
        }
    }
}

/// Rounds down to a multiple of some parts since a start.
fn bin<'a>(arguments: &Arguments<'a>) -> Evaluated<'a> {
    /// Bins may not start before the year 1601.
    const START_TICKS_MIN: i64 = -116_444_736_000_000_000;
    let at = parse(arguments.text(0)?)?;
    let part = Part::named(arguments.text(1)?.into())?;
    let size = if arguments.len() > 2 {
        arguments.integer(2)?
    } else {
        1
    };
    let start = if arguments.len() > 3 {
        parse(arguments.text(3)?)?
    } else {
        0
    };
    if size <= 0 || start < START_TICKS_MIN {
        return None;
    }
    let months = match part {
        Part::Year => size.checked_mul(12)?,
        Part::Month => size,
        _ => {
            let length = part.nanoseconds()?.checked_mul(size.into())?;
            let since = i128::from(at - start) * NANOSECONDS_PER_TICK;
            let binned = since.div_euclid(length).checked_mul(length)? / NANOSECONDS_PER_TICK;
            return in_range(i128::from(start) + binned).and_then(text);
        }
    };
    let (from, to) = (Civil::from_ticks(start), Civil::from_ticks(at));
    let mut passed = (to.year - from.year) * 12 + to.month - from.month;
    if from.plus_months(passed)?.ticks()? > at {
        passed -= 1;
    }
    from.plus_months(passed.div_euclid(months) * months)?
        .ticks()
        .and_then(text)
}

fn from_parts<'a>(arguments: &Arguments<'a>) -> Evaluated<'a> {
    let part = |at: usize| {
        if arguments.len() > at {
            arguments.integer(at)
        } else {
            Some(0)
        }
    };
    let civil = Civil {
        year: part(0)?,
        month: part(1)?,
        day: part(2)?,
        hour: part(3)?,
        minute: part(4)?,
        second: part(5)?,
        fraction: part(6)?,
    };
    civil.ticks().and_then(text)
}
