//! The report as one page: everything that it needs is in it.

use std::fmt::Write as _;

use super::plot::{Line, Plot, Scale, escaped};
use super::summary::{OperationSummary, Point, PointOperation, Summary};
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

pub fn page(summary: &Summary) -> String {
    let title = format!("bolide bench: {}", escaped(&summary.workload));
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{title}</title>\
         <meta name=\"viewport\" content=\"width=device-width\"><style>{STYLE}</style></head><body>\n"
    );
    let _ = writeln!(
        page,
        "<header><h1>{}</h1><p>{}</p><p class=\"manner\">{}<br>{}{}</p></header>",
        escaped(&summary.workload),
        escaped(&summary.about),
        escaped(&summary.against),
        escaped(&summary.manner()),
        if summary.is_interrupted {
            "; interrupted"
        } else {
            ""
        },
    );
    page.push_str(&tiles(summary));
    page.push_str(&table(summary));
    page.push_str(&plots(summary));
    page.push_str(&evidence(summary));
    page.push_str("</body></html>\n");
    page
}

fn tiles(summary: &Summary) -> String {
    let lag = &summary.expiry_seen_lag;
    let is_right = summary.violations_total() == 0;
    let errors: u64 = summary.all.errors.values().sum();
    let tiles = [
        (
            "achieved",
            format!("{} /s", grouped(summary.all.rate)),
            match summary.asked_rate {
                Some(rate) => format!("{} /s asked", grouped(rate)),
                None => "as many as it takes".to_owned(),
            },
            "",
        ),
        (
            "p99",
            format!("{:.2} ms", summary.all.latency.p99_ms),
            format!("p50 {:.2} ms", summary.all.latency.p50_ms),
            "",
        ),
        (
            "expired items seen",
            match lag.reads_of_due_items {
                0 => "–".to_owned(),
                _ => format!("{:.3} s", lag.max_seconds),
            },
            format!(
                "{} reads after their second",
                grouped(lag.reads_of_due_items as f64)
            ),
            match lag.reads_of_due_items {
                0 => "",
                _ if lag.max_seconds > 0.0 => "bad",
                _ => "good",
            },
        ),
        (
            "purge lag p99",
            match summary.expiry_purge_lag {
                Some(purge) if purge.p99_seconds_at_most.is_finite() => {
                    format!("≤ {} s", purge.p99_seconds_at_most)
                }
                _ => "–".to_owned(),
            },
            "the node's own account".to_owned(),
            "",
        ),
        (
            "errors",
            grouped(errors as f64),
            format!("of {}", grouped(summary.all.count as f64)),
            if errors > 0 { "bad" } else { "good" },
        ),
        (
            "checked",
            match (is_right, summary.is_checked) {
                (false, _) => "WRONG".to_owned(),
                (true, true) => "right".to_owned(),
                (true, false) => "–".to_owned(),
            },
            summary.verdict(),
            match (is_right, summary.is_checked) {
                (false, _) => "bad",
                (true, true) => "good",
                (true, false) => "",
            },
        ),
    ];
    let mut text = "<section class=\"tiles\">".to_owned();
    for (name, value, note, class) in tiles {
        let _ = write!(
            text,
            "<div class=\"tile {class}\"><h2>{name}</h2><b>{}</b><small>{}</small></div>",
            escaped(&value),
            escaped(&note),
        );
    }
    text + "</section>\n"
}

fn table(summary: &Summary) -> String {
    let mut text = "<div class=\"wide\"><table><tr><th>operation<th>achieved /s<th>count<th>p50 ms<th>p90 ms<th>p99 ms\
        <th>p99.9 ms<th>max ms<th>errors by status</tr>"
        .to_owned();
    for operation in summary.operations.iter().chain([&summary.all]) {
        let latency = &operation.latency;
        let errors = operation
            .errors
            .iter()
            .map(|(status, n)| format!("{status}: {n}"));
        let errors: Vec<String> = errors.collect();
        let _ = write!(
            text,
            "<tr><td>{}<td>{}<td>{}<td>{:.2}<td>{:.2}<td>{:.2}<td>{:.2}<td>{:.2}<td>{}</tr>",
            operation.name,
            grouped(operation.rate),
            grouped(operation.count as f64),
            latency.p50_ms,
            latency.p90_ms,
            latency.p99_ms,
            latency.p999_ms,
            latency.max_ms,
            if errors.is_empty() {
                "none".to_owned()
            } else {
                errors.join(", ")
            },
        );
    }
    let _ = writeln!(
        text,
        "</table></div><p class=\"lag\">expiry lag, items seen: {}<br>expiry lag, purge: {}{}</p>",
        escaped(&summary.seen_lag_shown()),
        escaped(&summary.purge_lag_shown()),
        summary
            .not_implemented_shown()
            .map_or_else(String::new, |shown| format!("<br>{}", escaped(&shown))),
    );
    text
}

fn plots(summary: &Summary) -> String {
    let mut text = String::new();
    let over_time = |value: fn(&PointOperation) -> f64| -> Vec<Line> {
        let line = |(index, operation): (usize, &OperationSummary)| Line {
            name: operation.name.clone(),
            class: format!("c{}", index % 7),
            points: series(summary, |point| point.operations.get(index).map(value)),
        };
        summary.operations.iter().enumerate().map(line).collect()
    };
    let whole = |name: &str, class: &str, value: fn(&PointOperation) -> f64| Line {
        name: name.to_owned(),
        class: class.to_owned(),
        points: series(summary, |point| Some(value(&point.all))),
    };
    let warm = summary.points.iter().filter(|point| point.is_warm_up);
    let shaded_until = warm.map(|point| point.at_seconds).fold(0.0, f64::max);
    let time = |y_unit, scale, lines| Plot {
        y_unit,
        scale,
        lines,
        x_labels: None,
        shaded_until,
    };
    section(
        &mut text,
        "Rate",
        "Operations answered in each second; the warm-up is shaded.",
        &time("/s", Scale::Linear, over_time(|point| point.rate)),
    );
    let latency = vec![
        whole("p50", "c0", |point| point.p50_ms),
        whole("p99", "c1", |point| point.p99_ms),
        whole("max", "c3", |point| point.max_ms),
    ];
    section(
        &mut text,
        "Latency over time",
        "All operations. At a constant rate latency counts from the moment at which the operation should have been sent.",
        &time("ms", Scale::Logarithmic, latency),
    );
    section(
        &mut text,
        "Latency by share of the operations",
        "The further to the right, the rarer: each step is ten times as rare.",
        &curve(summary),
    );
    let purge = |point: &Point| Some(point.purge_lag_seconds.unwrap_or(0.0));
    let lags = vec![
        Line {
            name: "items seen after their second".to_owned(),
            class: "c3".to_owned(),
            points: series(summary, |point| Some(point.seen_lag_seconds)),
        },
        Line {
            name: "the node's purge, p99".to_owned(),
            class: "c0".to_owned(),
            points: series(summary, purge),
        },
    ];
    section(
        &mut text,
        "Expiry lag",
        "An expired item that is seen is a violation: that line must lie at 0. The purge gives space back behind it.",
        &time("s", Scale::Linear, lags),
    );
    if summary.points.iter().any(|point| point.all.errors > 0) {
        let errors = vec![whole("errors", "c3", |point| point.errors as f64)];
        section(
            &mut text,
            "Errors",
            "In each second.",
            &time("", Scale::Linear, errors),
        );
    }
    text
}

fn series(summary: &Summary, value: impl Fn(&Point) -> Option<f64>) -> Vec<(f64, f64)> {
    let points = summary.points.iter();
    points
        .filter_map(|point| Some((point.at_seconds, value(point)?)))
        .collect()
}

fn curve(summary: &Summary) -> Plot<'static> {
    let place = |share: f64| -(1.0 - share.min(0.99995)).log10();
    let line = |(index, operation): (usize, &OperationSummary)| Line {
        name: operation.name.clone(),
        class: format!("c{}", index % 7),
        points: operation
            .curve
            .iter()
            .map(|(share, millis)| (place(*share), *millis))
            .collect(),
    };
    Plot {
        y_unit: "ms",
        scale: Scale::Logarithmic,
        lines: summary.operations.iter().enumerate().map(line).collect(),
        x_labels: Some(
            CURVE_LABELS
                .map(|(share, label)| (place(share), label))
                .to_vec(),
        ),
        shaded_until: 0.0,
    }
}

fn section(text: &mut String, title: &str, note: &str, plot: &Plot<'_>) {
    let _ = writeln!(
        text,
        "<section class=\"plot\"><h2>{title}</h2><p>{note}</p>{}<div class=\"wide\">{}</div></section>",
        plot.legend(),
        plot.svg(),
    );
}

fn evidence(summary: &Summary) -> String {
    let mut text = String::new();
    for evidence in &summary.evidence {
        let _ = writeln!(
            text,
            "<section class=\"evidence\"><h2>{}</h2><pre>{}</pre></section>",
            evidence.kind.name(),
            escaped(&evidence.shown()),
        );
    }
    text
}
