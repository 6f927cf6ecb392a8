//! The report as one page: everything that it needs is in it.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::plot::{Plot, PlotLine, Scale};
use super::summary::{OperationSummary, Point, PointOperation, RunSummary};
use crate::bench::report::grouped;

const STYLE: &str = include_str!("report.css");
/// Shares that the curve of latencies names.
const CURVE_LABELS: [(f64, &str); 6] = [
    (0.0, "0 %"),
    (0.9, "90 %"),
    (0.99, "99 %"),
    (0.999, "99.9 %"),
    (0.9999, "99.99 %"),
    (0.5, "50 %"),
];

const TABLE_HEADS: [&str; 9] = [
    "operation",
    "achieved /s",
    "count",
    "p50 ms",
    "p90 ms",
    "p99 ms",
    "p99.9 ms",
    "max ms",
    "errors by status",
];

pub fn page(summary: &RunSummary) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                title { "bolide bench: " (summary.workload) }
                meta name="viewport" content="width=device-width";
                style { (PreEscaped(STYLE)) }
            }
            body {
                header {
                    h1 { (summary.workload) }
                    p { (summary.about) }
                    p.manner {
                        (summary.against) br; (summary.manner())
                        @if summary.is_interrupted { "; interrupted" }
                    }
                }
                (tiles(summary))
                (table(summary))
                @for plot in plots(summary) { (plot.section()) }
                @for evidence in &summary.evidence {
                    section.evidence {
                        h2 { (evidence.kind.name()) }
                        pre { (evidence.shown()) }
                    }
                }
            }
        }
    };
    page.into_string() + "\n"
}

fn tiles(summary: &RunSummary) -> Markup {
    let lag = &summary.expiry_seen_lag;
    let reads = lag.reads_of_due_items;
    let errors: u64 = summary.all.errors.values().sum();
    let nothing = || "–".to_owned();
    let (checked, checked_class) = match (summary.violations_total(), summary.is_checked) {
        (0, true) => ("right", "good"),
        (0, false) => ("–", ""),
        _ => ("WRONG", "bad"),
    };
    let asked = match summary.asked_rate {
        Some(rate) => format!("{} /s asked", grouped(rate)),
        None => "as many as it takes".to_owned(),
    };
    let seen = match reads {
        0 => nothing(),
        _ => format!("{:.3} s", lag.max_seconds),
    };
    let seen_class = match reads {
        0 => "",
        _ if lag.max_seconds > 0.0 => "bad",
        _ => "good",
    };
    let purge = summary
        .expiry_purge_lag
        .map(|purge| purge.p99_seconds_at_most);
    let purge = purge.filter(|seconds| seconds.is_finite());
    let purge = purge.map_or_else(nothing, |seconds| format!("≤ {seconds} s"));
    let all = &summary.all;
    let (rate, count) = (grouped(all.rate), grouped(all.count as f64));
    let (p50, p99) = (all.latency.p50_ms, all.latency.p99_ms);
    let reads = format!("{} reads after their second", grouped(reads as f64));
    let errors_class = if errors > 0 { "bad" } else { "good" };
    let errors = grouped(errors as f64);
    html! {
        section.tiles {
            (tile("achieved", &format!("{rate} /s"), &asked, ""))
            (tile("p99", &format!("{p99:.2} ms"), &format!("p50 {p50:.2} ms"), ""))
            (tile("expired items seen", &seen, &reads, seen_class))
            (tile("purge lag p99", &purge, "the node's own account", ""))
            (tile("errors", &errors, &format!("of {count}"), errors_class))
            (tile("checked", checked, &summary.verdict(), checked_class))
        }
    }
}

fn tile(name: &str, value: &str, note: &str, class: &str) -> Markup {
    html! { div class={ "tile " (class) } { h2 { (name) } b { (value) } small { (note) } } }
}

fn table(summary: &RunSummary) -> Markup {
    html! {
        div.wide {
            table {
                tr {
                    @for head in TABLE_HEADS { th { (head) } }
                }
                @for operation in summary.operations.iter().chain([&summary.all]) {
                    tr {
                        td { (operation.name) }
                        td { (grouped(operation.rate)) }
                        td { (grouped(operation.count as f64)) }
                        @for millis in operation.latency.shown() { td { (millis) } }
                        td { (operation.errors_shown()) }
                    }
                }
            }
        }
        p.lag {
            "expiry lag, items seen: " (summary.seen_lag_shown())
            br; "expiry lag, purge: " (summary.purge_lag_shown())
            @if let Some(shown) = summary.not_implemented_shown() { br; (shown) }
        }
    }
}

fn plots(summary: &RunSummary) -> Vec<Plot> {
    let whole = |name: &str, class: &str, value: fn(&PointOperation) -> f64| PlotLine {
        name: name.to_owned(),
        class: class.to_owned(),
        points: series(summary, |point| Some(value(&point.all))),
    };
    let of_point = |name: &str, class: &str, value: fn(&Point) -> f64| PlotLine {
        name: name.to_owned(),
        class: class.to_owned(),
        points: series(summary, |point| Some(value(point))),
    };
    let rates = |index: usize, _: &OperationSummary| {
        series(summary, |point| Some(point.operations.get(index)?.rate))
    };
    let warm = summary.points.iter().filter(|point| point.is_warm_up);
    let shaded_until = warm.map(|point| point.at_seconds).fold(0.0, f64::max);
    let time = |title, note, y_unit, scale, lines| Plot {
        title,
        note,
        y_unit,
        scale,
        lines,
        x_labels: None,
        shaded_until,
    };
    let mut plots = vec![
        time(
            "Rate",
            "Operations answered in each second; the warm-up is shaded.",
            "/s",
            Scale::Linear,
            by_operation(summary, rates),
        ),
        time(
            "Latency over time",
            "All operations. At a constant rate latency counts from the moment at which the \
             operation should have been sent.",
            "ms",
            Scale::Logarithmic,
            vec![
                whole("p50", "c0", |point| point.p50_ms),
                whole("p99", "c1", |point| point.p99_ms),
                whole("max", "c3", |point| point.max_ms),
            ],
        ),
        curve(summary),
        time(
            "Expiry lag",
            "An expired item that is seen is a violation: that line must lie at 0. The purge gives \
             space back behind it.",
            "s",
            Scale::Linear,
            vec![
                of_point("items seen after their second", "c3", |p| {
                    p.seen_lag_seconds
                }),
                of_point("the node's purge, p99", "c0", |p| {
                    p.purge_lag_seconds.unwrap_or(0.0)
                }),
            ],
        ),
    ];
    if summary.points.iter().any(|point| point.all.errors > 0) {
        let errors = vec![whole("errors", "c3", |point| point.errors as f64)];
        plots.push(time("Errors", "In each second.", "", Scale::Linear, errors));
    }
    plots
}

/// Returns a line for each operation.
fn by_operation(
    summary: &RunSummary,
    points: impl Fn(usize, &OperationSummary) -> Vec<(f64, f64)>,
) -> Vec<PlotLine> {
    let line = |(index, operation): (usize, &OperationSummary)| PlotLine {
        name: operation.name.clone(),
        class: format!("c{}", index % 7),
        points: points(index, operation),
    };
    summary.operations.iter().enumerate().map(line).collect()
}

fn series(summary: &RunSummary, value: impl Fn(&Point) -> Option<f64>) -> Vec<(f64, f64)> {
    let points = summary.points.iter();
    points
        .filter_map(|point| Some((point.at_seconds, value(point)?)))
        .collect()
}

fn curve(summary: &RunSummary) -> Plot {
    let x_of = |share: f64| -(1.0 - share.min(0.99995)).log10();
    let points = |_, operation: &OperationSummary| {
        let curve = operation.curve.iter();
        curve
            .map(|(share, millis)| (x_of(*share), *millis))
            .collect()
    };
    Plot {
        title: "Latency by share of the operations",
        note: "The further to the right, the rarer: each step is ten times as rare.",
        y_unit: "ms",
        scale: Scale::Logarithmic,
        lines: by_operation(summary, points),
        x_labels: Some(
            CURVE_LABELS
                .map(|(share, label)| (x_of(share), label))
                .to_vec(),
        ),
        shaded_until: 0.0,
    }
}
