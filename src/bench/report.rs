//! What was measured, beside what has to be reached.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::measure::Measured;

/// What a figure has to reach.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bar {
    AtMost(f64),
    Below(f64),
    AtLeast(f64),
    /// Shown for the reader.
    None,
}

impl Bar {
    fn is_met(self, value: f64) -> Option<bool> {
        match self {
            Self::AtMost(bar) => Some(value <= bar),
            Self::Below(bar) => Some(value < bar),
            Self::AtLeast(bar) => Some(value >= bar),
            Self::None => None,
        }
    }

    fn parts(self) -> Option<(&'static str, f64)> {
        match self {
            Self::AtMost(bar) => Some(("≤", bar)),
            Self::Below(bar) => Some(("<", bar)),
            Self::AtLeast(bar) => Some(("≥", bar)),
            Self::None => None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Multiples of what it is compared with.
    Times,
    Share,
    Count,
    PerSecond,
    Micros,
    Millis,
    Seconds,
    Kilobytes,
    Megabytes,
    /// Of something that a whole number has, on average.
    Each,
}

impl Unit {
    const fn name(self) -> &'static str {
        match self {
            Self::Times => "x",
            Self::Share => "share",
            Self::Count | Self::Each => "",
            Self::PerSecond => "/s",
            Self::Micros => "µs",
            Self::Millis => "ms",
            Self::Seconds => "s",
            Self::Kilobytes => "KB",
            Self::Megabytes => "MB",
        }
    }

    fn show(self, value: f64) -> String {
        match self {
            Self::Share => format!("{:.1} %", value * 100.0),
            Self::Times => format!("{value:.2} ×"),
            Self::Count => grouped(value),
            Self::PerSecond => format!("{} /s", grouped(value)),
            Self::Micros if value >= 1_000.0 => format!("{} µs", grouped(value)),
            Self::Micros => format!("{value:.1} µs"),
            Self::Kilobytes | Self::Megabytes => format!("{} {}", grouped(value), self.name()),
            Self::Each => format!("{value:.2}"),
            Self::Millis | Self::Seconds => format!("{value:.2} {}", self.name()),
        }
    }
}

struct Row {
    case: &'static str,
    figure: String,
    value: f64,
    unit: Unit,
    bar: Bar,
}

#[derive(Default)]
pub struct Report {
    rows: Vec<Row>,
}

impl Report {
    pub fn add(
        &mut self,
        case: &'static str,
        figure: impl Into<String>,
        value: f64,
        unit: Unit,
        bar: Bar,
    ) {
        let row = Row {
            case,
            figure: figure.into(),
            value,
            unit,
            bar,
        };
        eprintln!(
            "  {}: {} {}",
            row.case,
            row.figure,
            row.unit.show(row.value)
        );
        self.rows.push(row);
    }

    /// Rate, latencies and CPU of a measurement, and its wrong answers if there were any.
    pub fn add_measured(&mut self, case: &'static str, name: &str, measured: &Measured) {
        let mut add = |figure, value, unit| {
            self.add(case, format!("{name}, {figure}"), value, unit, Bar::None);
        };
        add("rate", measured.rate(), Unit::PerSecond);
        add("p50", measured.latency_micros(0.5), Unit::Micros);
        add("p99", measured.latency_micros(0.99), Unit::Micros);
        add("p99.9", measured.latency_micros(0.999), Unit::Micros);
        add("CPU per operation", measured.cpu_micros(), Unit::Micros);
        add("operations", measured.tally.operations as f64, Unit::Count);
        add(
            "taken by other processes",
            measured.others_share(),
            Unit::Share,
        );
        for (status, count) in &measured.tally.unexpected {
            let figure = format!("{name}, wrong answers ({status})");
            self.add(case, figure, *count as f64, Unit::Count, Bar::AtMost(0.0));
        }
    }

    /// One line for each figure, and how many bars were met.
    pub fn table(&self) -> String {
        let mut lines = vec![["case", "figure", "measured", "bar", ""].map(str::to_owned)];
        for row in &self.rows {
            let bar = row.bar.parts().map_or_else(String::new, |(sign, bar)| {
                format!("{sign} {}", row.unit.show(bar))
            });
            let verdict = match row.bar.is_met(row.value) {
                Some(true) => "met",
                Some(false) => "MISSED",
                None => "",
            };
            lines.push([
                row.case.to_owned(),
                row.figure.clone(),
                row.unit.show(row.value),
                bar,
                verdict.to_owned(),
            ]);
        }
        let mut text = aligned(&lines, &[2, 3]);
        let verdicts = self.rows.iter().filter_map(|row| row.bar.is_met(row.value));
        let (met, missed): (Vec<bool>, Vec<bool>) = verdicts.partition(|met| *met);
        let _ = writeln!(text, "{} bars met, {} missed", met.len(), missed.len());
        text
    }

    pub fn json(&self) -> String {
        let figures = self.rows.iter().map(|row| {
            let bar = row.bar.parts();
            json!({
                "case": row.case,
                "figure": row.figure,
                "value": row.value,
                "unit": row.unit.name(),
                "bar": bar.map(|(sign, bar)| json!({ "sign": sign, "value": bar })),
                "met": row.bar.is_met(row.value),
            })
        });
        let figures = Value::Array(figures.collect());
        let mut text = format!("{:#}", json!({ "figures": figures }));
        text.push('\n');
        text
    }
}

/// Cells in columns; those of numbers stand to the right.
pub fn aligned<const COLUMNS: usize>(
    lines: &[[String; COLUMNS]],
    number_columns: &[usize],
) -> String {
    let mut widths = [0; COLUMNS];
    for line in lines {
        for (width, cell) in widths.iter_mut().zip(line) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut text = String::new();
    for line in lines {
        for (column, (cell, width)) in line.iter().zip(widths).enumerate() {
            let _ = match number_columns.contains(&column) {
                true => write!(text, "{cell:>width$}  "),
                false => write!(text, "{cell:<width$}  "),
            };
        }
        text.truncate(text.trim_end().len());
        text.push('\n');
    }
    text
}

/// A whole number with a comma between its thousands.
pub fn grouped(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index) % 3 == 0 && !text.ends_with('-') {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_met_at_their_edge_as_their_sign_says() {
        let table = [
            (Bar::AtMost(2.5), 2.5, Some(true)),
            (Bar::AtMost(2.5), 2.51, Some(false)),
            (Bar::Below(50.0), 50.0, Some(false)),
            (Bar::AtLeast(8.0), 8.0, Some(true)),
            (Bar::AtLeast(8.0), 7.9, Some(false)),
            // A figure that could not be formed misses.
            (Bar::AtMost(1.0), f64::NAN, Some(false)),
            (Bar::None, 1.0, None),
        ];
        for (bar, value, expected) in table {
            assert_eq!(bar.is_met(value), expected, "{bar:?} {value}");
        }
    }

    #[test]
    fn the_table_has_a_line_for_each_figure_and_the_verdicts() {
        let mut report = Report::default();
        report.add("a", "ratio", 2.0, Unit::Times, Bar::AtMost(2.5));
        report.add("a", "rate", 1_234_567.0, Unit::PerSecond, Bar::None);
        report.add("b", "time", 60.0, Unit::Millis, Bar::Below(50.0));
        let table = report.table();
        assert_eq!(table.lines().count(), 5, "{table}");
        for part in [
            "≤ 2.50 ×  met",
            "1,234,567 /s",
            "MISSED",
            "1 bars met, 1 missed",
        ] {
            assert!(table.contains(part), "{part}: {table}");
        }
        let json: Value = serde_json::from_str(&report.json()).unwrap();
        assert_eq!(json["figures"][2]["met"], false);
        assert_eq!(json["figures"][1]["bar"], Value::Null);
    }
}
