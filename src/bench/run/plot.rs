//! Plots as SVG text: lines over an axis, drawn without anything from elsewhere.

use maud::{Markup, html};

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 260.0;
/// Room for the labels.
const LEFT: f64 = 70.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 16.0;
const BOTTOM: f64 = 36.0;
/// Steps of the axes, about.
const STEPS: f64 = 5.0;

/// One line of a plot; the class gives it its colour.
pub struct PlotLine {
    pub name: String,
    pub class: String,
    pub points: Vec<(f64, f64)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    Linear,
    /// Powers of ten, for latencies.
    Logarithmic,
}

pub struct Plot {
    pub title: &'static str,
    pub note: &'static str,
    pub y_unit: &'static str,
    pub scale: Scale,
    pub lines: Vec<PlotLine>,
    /// Labels below, with their values; absent: whole seconds.
    pub x_labels: Option<Vec<(f64, &'static str)>>,
    /// The part up to here is shaded.
    pub shaded_until: f64,
}

impl Plot {
    /// Returns the plot under its title, with the names of its lines.
    pub fn section(&self) -> Markup {
        html! {
            section.plot {
                h2 { (self.title) }
                p { (self.note) }
                div.legend {
                    @for line in &self.lines { span class={ "key " (line.class) } { (line.name) } }
                }
                div.wide { (self.svg()) }
            }
        }
    }

    fn svg(&self) -> Markup {
        let points = || self.lines.iter().flat_map(|line| &line.points);
        let x_max = points().map(|point| point.0).fold(1e-9, f64::max);
        let highest = points().map(|point| point.1).fold(0.0, f64::max);
        let lowest = points().map(|point| point.1).filter(|y| *y > 0.0);
        let lowest = lowest.fold(f64::INFINITY, f64::min);
        let axis = Axis::new(self.scale, lowest, highest);
        let x_of = |x: f64| LEFT + x / x_max * (WIDTH - LEFT - RIGHT);
        let y_of = |y: f64| HEIGHT - BOTTOM - axis.share(y) * (HEIGHT - TOP - BOTTOM);
        let short = |length: f64| format!("{length:.1}");
        let polyline = |line: &PlotLine| {
            let points = line.points.iter().map(|(x, y)| {
                let y = if y.is_finite() { *y } else { 0.0 };
                format!("{:.1},{:.1}", x_of(*x), y_of(y))
            });
            points.collect::<Vec<_>>().join(" ")
        };
        html! {
            svg viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } role="img" {
                @if self.shaded_until > 0.0 {
                    rect.warm x=(LEFT) y=(TOP) height=(HEIGHT - TOP - BOTTOM)
                        width=(short(x_of(self.shaded_until) - LEFT)) {}
                }
                @for (value, label) in axis.ticks() {
                    @let y = y_of(value);
                    line.grid x1=(LEFT) x2=(short(WIDTH - RIGHT)) y1=(short(y)) y2=(short(y)) {}
                    text.y x=(short(LEFT - 8.0)) y=(short(y + 4.0)) { (label) }
                }
                @for (value, label) in self.x_ticks(x_max) {
                    text.x x=(short(x_of(value))) y=(short(HEIGHT - BOTTOM + 18.0)) { (label) }
                }
                text.unit x="6" y=(TOP - 4.0) { (self.y_unit) }
                @for line in &self.lines { polyline class=(line.class) points=(polyline(line)) {} }
            }
        }
    }

    fn x_ticks(&self, x_max: f64) -> Vec<(f64, String)> {
        if let Some(labels) = &self.x_labels {
            let own = labels.iter().map(|(x, label)| (*x, (*label).to_owned()));
            return own.collect();
        }
        let step = round_step(x_max / STEPS / 2.0).max(1.0);
        let count = (x_max / step) as u32;
        let seconds = (0..=count).map(|index| f64::from(index) * step);
        seconds.map(|x| (x, format!("{x:.0} s"))).collect()
    }
}

/// From the lowest to the highest value that is drawn.
struct Axis {
    scale: Scale,
    low: f64,
    high: f64,
}

impl Axis {
    fn new(scale: Scale, lowest: f64, highest: f64) -> Self {
        let (low, high) = match scale {
            Scale::Linear => {
                // Nothing but zeros is drawn on an axis up to one.
                let highest = if highest > 0.0 { highest } else { 1.0 };
                let step = round_step(highest / STEPS);
                (0.0, (highest / step).ceil().max(1.0) * step)
            }
            Scale::Logarithmic => {
                let low = if lowest.is_finite() { lowest } else { 1.0 };
                let low = 10_f64.powf(low.log10().floor());
                let high = 10_f64.powf(highest.max(low).log10().ceil());
                (low, high.max(low * 10.0))
            }
        };
        Self { scale, low, high }
    }

    fn share(&self, value: f64) -> f64 {
        match self.scale {
            Scale::Linear => value / self.high,
            Scale::Logarithmic => {
                let value = value.max(self.low);
                (value / self.low).log10() / (self.high / self.low).log10()
            }
        }
    }

    fn ticks(&self) -> Vec<(f64, String)> {
        let mut ticks = Vec::new();
        let step = round_step(self.high / STEPS);
        let mut value = self.low;
        while value <= self.high * 1.000_001 {
            ticks.push((value, shown(value)));
            value = match self.scale {
                Scale::Linear => value + step,
                Scale::Logarithmic => value * 10.0,
            };
        }
        ticks
    }
}

/// 1, 2 or 5 times a power of ten, near this.
fn round_step(about: f64) -> f64 {
    let power = 10_f64.powf(about.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0];
    let fit = steps.iter().find(|step| *step * power >= about * 0.999);
    fit.copied().unwrap_or(10.0) * power
}

fn shown(value: f64) -> String {
    match value {
        v if v >= 10_000.0 => format!("{}k", (v / 1_000.0).round()),
        v if v >= 10.0 || v == 0.0 => format!("{v:.0}"),
        v => {
            let text = format!("{v:.3}");
            text.trim_end_matches('0').trim_end_matches('.').to_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_hold_all_values_and_have_round_labels() {
        let labels = |scale, low, high| -> Vec<String> {
            let axis = Axis::new(scale, low, high);
            for value in [low, high] {
                assert!((-0.001..=1.001).contains(&axis.share(value)), "{value}");
            }
            axis.ticks().into_iter().map(|(_, label)| label).collect()
        };
        let linear = labels(Scale::Linear, 0.0, 23_000.0);
        assert_eq!(linear, ["0", "5000", "10k", "15k", "20k", "25k"]);
        let zeros = labels(Scale::Linear, 0.0, 0.0);
        assert_eq!(zeros, ["0", "0.2", "0.4", "0.6", "0.8", "1"]);
        let powers = labels(Scale::Logarithmic, 0.05, 70.0);
        assert_eq!(powers, ["0.01", "0.1", "1", "10", "100"]);
        assert_eq!(labels(Scale::Linear, 0.0, 0.0).first().unwrap(), "0");
    }

    #[test]
    fn a_plot_draws_each_line_and_names_it() {
        let line = |name: &str| PlotLine {
            name: name.to_owned(),
            class: "c0".to_owned(),
            points: vec![(0.0, 1.0), (1.0, 2.0)],
        };
        let plot = Plot {
            title: "",
            note: "",
            y_unit: "ms",
            scale: Scale::Linear,
            lines: vec![line("a<b"), line("c")],
            x_labels: None,
            shaded_until: 0.5,
        };
        let section = plot.section().into_string();
        assert_eq!(section.matches("<polyline").count(), 2);
        assert!(section.contains("a&lt;b"));
    }
}
