//! Dates of the proleptic Gregorian calendar as ticks: tenths of a microsecond since 1970.

pub const TICKS_PER_MILLISECOND: i64 = 10_000;
pub const TICKS_PER_SECOND: i64 = 10_000_000;
pub const TICKS_PER_DAY: i64 = 86_400 * TICKS_PER_SECOND;

/// 0001-01-01 and the last tick of the year 9999.
const TICKS_MIN: i64 = days_from_civil(1, 1, 1) * TICKS_PER_DAY;
const TICKS_MAX: i64 = days_from_civil(10_000, 1, 1) * TICKS_PER_DAY - 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Civil {
    pub year: i64,
    pub month: i64,
    pub day: i64,
    pub hour: i64,
    pub minute: i64,
    pub second: i64,
    /// Ticks within the second.
    pub fraction: i64,
}

/// Days since 1970 (the year starts in March, so that the leap day comes last).
const fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year - era * 400;
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

pub const fn days_in_month(year: i64, month: i64) -> i64 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Ticks within the years 1 to 9999.
pub fn in_range(ticks: i128) -> Option<i64> {
    i64::try_from(ticks)
        .ok()
        .filter(|ticks| (TICKS_MIN..=TICKS_MAX).contains(ticks))
}

impl Civil {
    /// None if there is no such time.
    pub fn ticks(self) -> Option<i64> {
        let valid = (1..=9999).contains(&self.year)
            && (1..=12).contains(&self.month)
            && (1..=days_in_month(self.year, self.month)).contains(&self.day)
            && (0..24).contains(&self.hour)
            && (0..60).contains(&self.minute)
            && (0..60).contains(&self.second)
            && (0..TICKS_PER_SECOND).contains(&self.fraction);
        valid.then(|| {
            let days = days_from_civil(self.year, self.month, self.day);
            let seconds = (self.hour * 60 + self.minute) * 60 + self.second;
            days * TICKS_PER_DAY + seconds * TICKS_PER_SECOND + self.fraction
        })
    }

    pub fn from_ticks(ticks: i64) -> Self {
        let (days, within) = (
            ticks.div_euclid(TICKS_PER_DAY),
            ticks.rem_euclid(TICKS_PER_DAY),
        );
        let shifted = days + 719_468;
        let era = shifted.div_euclid(146_097);
        let day_of_era = shifted.rem_euclid(146_097);
        let year_of_era =
            (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month_from_march = (5 * day_of_year + 2) / 153;
        let month = if month_from_march < 10 {
            month_from_march + 3
        } else {
            month_from_march - 9
        };
        let seconds = within / TICKS_PER_SECOND;
        Self {
            year: year_of_era + era * 400 + i64::from(month <= 2),
            month,
            day: day_of_year - (153 * month_from_march + 2) / 5 + 1,
            hour: seconds / 3600,
            minute: seconds / 60 % 60,
            second: seconds % 60,
            fraction: within % TICKS_PER_SECOND,
        }
    }

    /// The same day some months later, or the last day of a shorter month.
    pub fn plus_months(self, months: i64) -> Option<Self> {
        let month = (self.year * 12 + self.month - 1).checked_add(months)?;
        let (year, month) = (month.div_euclid(12), month.rem_euclid(12) + 1);
        Some(Self {
            year,
            month,
            day: self.day.min(days_in_month(year, month)),
            ..self
        })
    }
}

/// `2020-07-03`, perhaps with `T` or a blank and `10:11:12`, one to seven decimals, and `Z`.
pub fn parse(text: &str) -> Option<i64> {
    let bytes = text.as_bytes();
    let bytes = bytes.strip_suffix(b"Z").unwrap_or(bytes);
    let number = |from: usize, length: usize| -> Option<i64> {
        bytes
            .get(from..from + length)?
            .iter()
            .try_fold(0, |value, digit| {
                digit
                    .is_ascii_digit()
                    .then(|| value * 10 + i64::from(digit - b'0'))
            })
    };
    let is = |at: usize, wanted: u8| (bytes.get(at) == Some(&wanted)).then_some(());
    let (year, month, day) = (number(0, 4)?, number(5, 2)?, number(8, 2)?);
    is(4, b'-')?;
    is(7, b'-')?;
    let mut civil = Civil {
        year,
        month,
        day,
        hour: 0,
        minute: 0,
        second: 0,
        fraction: 0,
    };
    if bytes.len() > 10 {
        is(10, b'T').or_else(|| is(10, b' '))?;
        is(13, b':')?;
        is(16, b':')?;
        civil.hour = number(11, 2)?;
        civil.minute = number(14, 2)?;
        civil.second = number(17, 2)?;
    }
    if bytes.len() > 19 {
        is(19, b'.')?;
        let digits = bytes.len() - 20;
        if !(1..=7).contains(&digits) {
            return None;
        }
        let missing = u32::try_from(7 - digits).ok()?;
        civil.fraction = number(20, digits)? * 10_i64.pow(missing);
    }
    civil.ticks()
}

/// `2020-07-03T10:11:12.0000000Z`.
pub fn format(ticks: i64) -> String {
    let Civil {
        year,
        month,
        day,
        hour,
        minute,
        second,
        fraction,
    } = Civil::from_ticks(ticks);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{fraction:07}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_day_of_the_calendar_comes_back() {
        let mut ticks = TICKS_MIN;
        while ticks <= TICKS_MAX {
            assert_eq!(Civil::from_ticks(ticks).ticks(), Some(ticks));
            // A step that visits all days of the week, of the month and of leap years.
            ticks += 97 * TICKS_PER_DAY + 1_234_567;
        }
        assert_eq!(format(TICKS_MIN), "0001-01-01T00:00:00.0000000Z");
        assert_eq!(format(TICKS_MAX), "9999-12-31T23:59:59.9999999Z");
        assert_eq!(format(0), "1970-01-01T00:00:00.0000000Z");
    }

    #[test]
    fn refuses_what_is_no_date() {
        for text in [
            "",
            "2020",
            "2020-13-01",
            "2021-02-29",
            "2020-07-03T",
            "2020-07-03T10",
            "2020-07-03T10:11:60",
            "2020-07-03T10:11:12.",
            "2020-07-03T10:11:12.12345678",
            "2020-07-03X10:11:12",
            "2020-07-0é",
            "2020-07-03T10:11:12+01:00",
            "0000-01-01",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
        assert_eq!(
            parse("2020-02-29 10:11:12.5Z").map(format).as_deref(),
            Some("2020-02-29T10:11:12.5000000Z")
        );
    }
}
