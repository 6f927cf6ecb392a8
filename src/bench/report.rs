//! Figures beside the targets that they have to meet.

use std::cell::RefCell;
use std::fmt::Write as _;

use serde_json::json;

use super::load::LoadTally;
use super::measure::{Compared, Measured, Spread};

/// What a figure has to reach.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FigureTarget {
    AtMost(f64),
    Below(f64),
    AtLeast(f64),
}

impl FigureTarget {
    /// Returns whether a value reaches the target. What is no number does not.
    fn is_met(self, value: f64) -> bool {
        match self {
            Self::AtMost(target) => value <= target,
            Self::Below(target) => value < target,
            Self::AtLeast(target) => value >= target,
        }
    }

    fn sign_and_value(self) -> (&'static str, f64) {
        match self {
            Self::AtMost(target) => ("≤", target),
            Self::Below(target) => ("<", target),
            Self::AtLeast(target) => ("≥", target),
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
            Self::Each => format!("{value:.2}"),
            Self::Micros if value < 1_000.0 => format!("{value:.1} µs"),
            Self::Millis | Self::Seconds => format!("{value:.2} {}", self.name()),
            Self::PerSecond | Self::Micros | Self::Kilobytes | Self::Megabytes => {
                format!("{} {}", grouped(value), self.name())
            }
        }
    }
}

struct Row {
    case: &'static str,
    figure: String,
    value: f64,
    unit: Unit,
    /// None: shown for the reader.
    target: Option<FigureTarget>,
}

impl Row {
    fn is_met(&self) -> Option<bool> {
        self.target.map(|target| target.is_met(self.value))
    }
}

#[derive(Default)]
pub struct Report {
    rows: Vec<Row>,
}

impl Report {
    fn add(&mut self, row: Row) {
        let shown = row.unit.show(row.value);
        eprintln!("  {}: {} {shown}", row.case, row.figure);
        self.rows.push(row);
    }

    /// Returns a line for each figure, and how many targets were met.
    pub fn table(&self) -> String {
        let mut lines = vec![["case", "figure", "measured", "target", ""].map(str::to_owned)];
        lines.extend(self.rows.iter().map(|row| {
            let target = row.target.map(|target| {
                let (sign, value) = target.sign_and_value();
                format!("{sign} {}", row.unit.show(value))
            });
            let verdict = match row.is_met() {
                Some(true) => "met",
                Some(false) => "MISSED",
                None => "",
            };
            let measured = row.unit.show(row.value);
            let (case, target) = (row.case.to_owned(), target.unwrap_or_default());
            [
                case,
                row.figure.clone(),
                measured,
                target,
                verdict.to_owned(),
            ]
        }));
        let mut text = aligned(&lines, &[2, 3]);
        let count = |met| {
            self.rows
                .iter()
                .filter(|row| row.is_met() == Some(met))
                .count()
        };
        let _ = writeln!(text, "{} targets met, {} missed", count(true), count(false));
        text
    }

    pub fn json(&self) -> String {
        let figures = self.rows.iter().map(|row| {
            let target = row.target.map(FigureTarget::sign_and_value);
            json!({
                "case": row.case,
                "figure": row.figure,
                "value": row.value,
                "unit": row.unit.name(),
                "bar": target.map(|(sign, value)| json!({ "sign": sign, "value": value })),
                "met": row.is_met(),
            })
        });
        format!("{:#}\n", json!({ "figures": figures.collect::<Vec<_>>() }))
    }
}

/// One case of a report: adds figures under its name.
#[derive(Clone, Copy)]
pub struct CaseReport<'a> {
    name: &'static str,
    report: &'a RefCell<Report>,
}

impl<'a> CaseReport<'a> {
    pub fn new(name: &'static str, report: &'a RefCell<Report>) -> Self {
        Self { name, report }
    }

    fn add(&self, figure: String, value: f64, unit: Unit, target: Option<FigureTarget>) {
        let case = self.name;
        let row = Row {
            case,
            figure,
            value,
            unit,
            target,
        };
        self.report.borrow_mut().add(row);
    }

    /// Adds a figure that has no target.
    pub fn show(&self, figure: impl Into<String>, value: f64, unit: Unit) {
        self.add(figure.into(), value, unit, None);
    }

    pub fn at_most(&self, figure: impl Into<String>, value: f64, unit: Unit, target: f64) {
        self.add(
            figure.into(),
            value,
            unit,
            Some(FigureTarget::AtMost(target)),
        );
    }

    pub fn below(&self, figure: impl Into<String>, value: f64, unit: Unit, target: f64) {
        self.add(
            figure.into(),
            value,
            unit,
            Some(FigureTarget::Below(target)),
        );
    }

    pub fn at_least(&self, figure: impl Into<String>, value: f64, unit: Unit, target: f64) {
        self.add(
            figure.into(),
            value,
            unit,
            Some(FigureTarget::AtLeast(target)),
        );
    }

    /// Adds rate, latencies and CPU of a measurement, and its wrong answers if there were any.
    pub fn measured(&self, name: &str, measured: &Measured) {
        let micros = |share| (measured.latency_micros(share), Unit::Micros);
        for (figure, (value, unit)) in [
            ("rate", (measured.rate(), Unit::PerSecond)),
            ("p50", micros(0.5)),
            ("p99", micros(0.99)),
            ("p99.9", micros(0.999)),
            ("CPU per operation", (measured.cpu_micros(), Unit::Micros)),
            (
                "operations",
                (measured.tally.operations as f64, Unit::Count),
            ),
            (
                "taken by other processes",
                (measured.others_share(), Unit::Share),
            ),
        ] {
            self.show(format!("{name}, {figure}"), value, unit);
        }
        self.wrong_answers(&format!("{name}, "), &measured.tally);
    }

    /// Adds the wrong answers by status, if there were any.
    pub fn wrong_answers(&self, prefix: &str, tally: &LoadTally) {
        for (status, count) in &tally.unexpected {
            let figure = format!("{prefix}wrong answers ({status})");
            self.at_most(figure, *count as f64, Unit::Count, 0.0);
        }
    }

    /// Adds the median of the ratios of all rounds, and the lowest and the highest.
    pub fn ratios(&self, figure: &str, ratios: &[f64], unit: Unit, at_least: Option<f64>) {
        let spread = Spread::of(ratios);
        let target = at_least.map(FigureTarget::AtLeast);
        self.add(figure.to_owned(), spread.median, unit, target);
        self.show(format!("{figure}, lowest round"), spread.low, unit);
        self.show(format!("{figure}, highest round"), spread.high, unit);
    }

    /// Adds rates and latencies of both, and the ratio of the rates.
    pub fn rates(&self, (base, subject): (&str, &str), compared: &Compared, at_least: Option<f64>) {
        self.measured(base, &compared.base);
        self.measured(subject, &compared.subject);
        let figure = format!("rate of {subject}, of {base}");
        self.ratios(&figure, &compared.rate_ratios, Unit::Share, at_least);
    }

    /// Adds the median latencies of both, one request at a time, and their ratio.
    pub fn latencies(
        &self,
        (base, subject): (&str, &str),
        compared: &Compared,
        at_most: Option<f64>,
    ) {
        let [of_base, of_subject] =
            [&compared.base, &compared.subject].map(|measured| measured.latency_micros(0.5));
        self.show(format!("{base}, p50"), of_base, Unit::Micros);
        self.show(format!("{subject}, p50"), of_subject, Unit::Micros);
        let figure = format!("{subject}, p50, in that of {base}");
        let target = at_most.map(FigureTarget::AtMost);
        self.add(figure, of_subject / of_base, Unit::Times, target);
        self.wrong_answers("", &compared.base.tally);
        self.wrong_answers("", &compared.subject.tally);
    }
}

/// Returns cells in columns; those of numbers stand to the right.
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

/// Returns a whole number with a comma between its thousands.
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

pub fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / (1024.0 * 1024.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_met_at_their_edge_as_their_sign_says() {
        let table = [
            (FigureTarget::AtMost(2.5), 2.5, true),
            (FigureTarget::AtMost(2.5), 2.51, false),
            (FigureTarget::Below(50.0), 50.0, false),
            (FigureTarget::AtLeast(8.0), 8.0, true),
            (FigureTarget::AtLeast(8.0), 7.9, false),
            // A figure that could not be formed misses.
            (FigureTarget::AtMost(1.0), f64::NAN, false),
        ];
        for (target, value, expected) in table {
            assert_eq!(target.is_met(value), expected, "{target:?} {value}");
        }
    }

    #[test]
    fn the_table_has_a_line_for_each_figure_and_the_verdicts() {
        let report = RefCell::new(Report::default());
        let case = |name| CaseReport::new(name, &report);
        case("a").at_most("ratio", 2.0, Unit::Times, 2.5);
        case("a").show("rate", 1_234_567.0, Unit::PerSecond);
        case("b").below("time", 60.0, Unit::Millis, 50.0);
        let report = report.into_inner();
        let table = report.table();
        assert_eq!(table.lines().count(), 5, "{table}");
        let verdicts = [
            "≤ 2.50 ×  met",
            "1,234,567 /s",
            "MISSED",
            "1 targets met, 1 missed",
        ];
        for part in verdicts {
            assert!(table.contains(part), "{part}: {table}");
        }
        let json: serde_json::Value = serde_json::from_str(&report.json()).unwrap();
        assert_eq!(json["figures"][2]["met"], false);
        assert_eq!(json["figures"][1]["bar"], serde_json::Value::Null);
    }
}
