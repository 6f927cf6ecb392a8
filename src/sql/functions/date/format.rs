//! DATETIMEFORMAT patterns: runs of `y M d H h m s f F t`; a backslash takes the next character
//! as it is, and so is every other character.

use super::calendar::{Civil, TICKS_PER_SECOND};

pub fn format(ticks: i64, pattern: &str) -> String {
    let civil = Civil::from_ticks(ticks);
    let mut result = String::with_capacity(pattern.len());
    let mut rest = pattern.chars().peekable();
    while let Some(c) = rest.next() {
        if c == '\\' {
            result.extend(rest.next());
            continue;
        }
        if !"yMdHhmsfFt".contains(c) {
            result.push(c);
            continue;
        }
        let mut run = 1;
        while rest.next_if_eq(&c).is_some() {
            run += 1;
        }
        push_part(&mut result, &civil, c, run);
    }
    result
}

fn push_part(result: &mut String, civil: &Civil, part: char, run: usize) {
    let half = if civil.hour < 12 { "AM" } else { "PM" };
    let text = match part {
        'y' if run <= 2 => format!("{:0run$}", civil.year % 100),
        'y' => format!("{:0run$}", civil.year),
        'M' => format!("{:0width$}", civil.month, width = run.min(2)),
        'd' => format!("{:0width$}", civil.day, width = run.min(2)),
        'H' => format!("{:0width$}", civil.hour, width = run.min(2)),
        'h' => format!("{:0width$}", (civil.hour + 11) % 12 + 1, width = run.min(2)),
        'm' => format!("{:0width$}", civil.minute, width = run.min(2)),
        's' => format!("{:0width$}", civil.second, width = run.min(2)),
        't' => half.chars().take(run).collect(),
        _ => fraction(civil.fraction, run),
    };
    // `F` leaves zeros at the end away.
    result.push_str(if part == 'F' {
        text.trim_end_matches('0')
    } else {
        &text
    });
}

/// The first decimals of the second.
fn fraction(ticks: i64, digits: usize) -> String {
    let all = format!("{:07}", ticks.clamp(0, TICKS_PER_SECOND - 1));
    all.chars().take(digits).collect()
}
