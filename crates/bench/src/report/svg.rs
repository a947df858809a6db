//! Plots as SVG: every round a point, the median a line, nothing hidden in a bar.
//!
//! Each plot is a file of its own and can stand inside a page; it follows the reader's light or dark
//! setting.

use std::fmt::Write;

use crate::report::markdown::number;

/// One row of a plot.
#[derive(Clone, Debug)]
pub(crate) struct Series {
    pub(crate) label: String,
    /// Drawn in the accent colour.
    pub(crate) accent: bool,
    /// One value for each round.
    pub(crate) points: Vec<f64>,
    pub(crate) median: f64,
}

/// One row of a plot of percentiles: names and values in ascending order.
#[derive(Clone, Debug)]
pub(crate) struct Ladder {
    pub(crate) label: String,
    pub(crate) accent: bool,
    pub(crate) steps: Vec<(&'static str, f64)>,
}

const WIDTH: f64 = 760.0;
const LEFT: f64 = 130.0;
const RIGHT: f64 = 90.0;
const TOP: f64 = 34.0;
const ROW: f64 = 36.0;
const BOTTOM: f64 = 44.0;

/// Rows of points from zero, with the median of each marked and written.
pub(crate) fn dots(title: &str, metric: &str, axis: &str, rows: &[Series]) -> String {
    let most = rows.iter().flat_map(|r| &r.points).copied().fold(0.0, f64::max);
    let scale = Scale::linear(most);
    let mut out = open(title, axis, rows.len());
    grid(&mut out, &scale, rows.len(), metric);
    for (index, row) in rows.iter().enumerate() {
        let y = middle(index);
        let class = if row.accent { "ours" } else { "peer" };
        label(&mut out, y, &row.label, class);
        for (round, &value) in row.points.iter().enumerate() {
            let (x, y) = (scale.x(value), y + jitter(round) * ROW * 0.3);
            let _ = writeln!(out, r#"<circle class="{class}" cx="{x:.1}" cy="{y:.1}" r="3.2"/>"#);
        }
        let x = scale.x(row.median);
        let (from, to) = (y - ROW * 0.36, y + ROW * 0.36);
        let _ = writeln!(
            out,
            r#"<line class="{class} median" x1="{x:.1}" x2="{x:.1}" y1="{from:.1}" y2="{to:.1}"/>"#
        );
        let text = number(metric, row.median);
        let (x, y) = (WIDTH - RIGHT + 10.0, y + 4.0);
        let _ = writeln!(out, r#"<text class="{class} value" x="{x:.1}" y="{y:.1}">{text}</text>"#);
    }
    out + "</svg>\n"
}

/// Rows of percentiles on a logarithmic axis.
pub(crate) fn ladders(title: &str, axis: &str, rows: &[Ladder]) -> String {
    let values = || rows.iter().flat_map(|r| r.steps.iter().map(|s| s.1)).filter(|v| *v > 0.0);
    let scale = Scale::logarithmic(values().fold(f64::INFINITY, f64::min), values().fold(0.0, f64::max));
    let mut out = open(title, axis, rows.len());
    grid(&mut out, &scale, rows.len(), "p50");
    for (index, row) in rows.iter().enumerate() {
        let y = middle(index);
        let class = if row.accent { "ours" } else { "peer" };
        label(&mut out, y, &row.label, class);
        let ends = row.steps.first().zip(row.steps.last());
        if let Some(((_, from), (_, to))) = ends {
            let (from, to) = (scale.x(*from), scale.x(*to));
            let _ = writeln!(
                out,
                r#"<line class="{class}" x1="{from:.1}" x2="{to:.1}" y1="{y:.1}" y2="{y:.1}"/>"#
            );
        }
        for (name, value) in &row.steps {
            let x = scale.x(*value);
            let _ = writeln!(out, r#"<circle class="{class} full" cx="{x:.1}" cy="{y:.1}" r="4"/>"#);
            let above = y - 8.0;
            let _ = writeln!(out, r#"<text class="step" x="{x:.1}" y="{above:.1}">{name}</text>"#);
        }
    }
    out + "</svg>\n"
}

/// Values on an axis to positions in the picture.
struct Scale {
    low: f64,
    high: f64,
    logarithmic: bool,
    ticks: Vec<f64>,
}

impl Scale {
    fn linear(most: f64) -> Self {
        let step = nice(most.max(f64::MIN_POSITIVE) / 5.0);
        let mut ticks = vec![0.0];
        let mut at = 0.0;
        while at < most {
            at += step;
            ticks.push(at);
        }
        Self { low: 0.0, high: at.max(step), logarithmic: false, ticks }
    }

    fn logarithmic(least: f64, most: f64) -> Self {
        let least = if least.is_finite() { least } else { 1.0 };
        let (first, last) =
            (least.log10().floor(), most.max(least).log10().ceil().max(least.log10().floor() + 1.0));
        let mut ticks = Vec::new();
        let mut exponent = first;
        while exponent <= last {
            ticks.push(10_f64.powf(exponent));
            exponent += 1.0;
        }
        Self { low: first, high: last, logarithmic: true, ticks }
    }

    fn x(&self, value: f64) -> f64 {
        let value = if self.logarithmic { value.max(f64::MIN_POSITIVE).log10() } else { value };
        let share = ((value - self.low) / (self.high - self.low)).clamp(0.0, 1.0);
        LEFT + share * (WIDTH - LEFT - RIGHT)
    }
}

/// The next of 1, 2, 2.5, 5 times a power of ten.
pub(crate) fn nice(step: f64) -> f64 {
    let power = 10_f64.powf(step.log10().floor());
    [1.0, 2.0, 2.5, 5.0, 10.0].map(|m| m * power).into_iter().find(|s| *s >= step).unwrap_or(10.0 * power)
}

/// Spreads points over the height of a row: the golden ratio never bunches them, and needs no randomness.
pub(crate) fn jitter(index: usize) -> f64 {
    let turned = (index as f64 + 1.0) * 0.618_033_988_75;
    (turned - turned.floor()) * 2.0 - 1.0
}

fn middle(row: usize) -> f64 {
    TOP + ROW * (row as f64 + 0.5)
}

/// The beginning of a picture with its title.
pub(crate) fn frame(title: &str, width: f64, height: f64) -> String {
    let title = escape(title);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" role=\"img\" \
         aria-label=\"{title}\">\n<style>{STYLE}</style>\n<text class=\"title\" x=\"0\" y=\"18\">{title}</text>\n"
    )
}

fn open(title: &str, axis: &str, rows: usize) -> String {
    let height = middle(rows) - ROW / 2.0 + BOTTOM;
    let mut out = frame(title, WIDTH, height);
    let (x, y) = (f64::midpoint(LEFT, WIDTH - RIGHT), height - 6.0);
    let _ = writeln!(out, r#"<text class="axis" x="{x}" y="{y}">{}</text>"#, escape(axis));
    out
}

fn grid(out: &mut String, scale: &Scale, rows: usize, metric: &str) {
    let bottom = middle(rows) - ROW / 2.0;
    for &tick in &scale.ticks {
        let x = scale.x(tick);
        let text = if tick == 0.0 { "0".to_owned() } else { number(metric, tick) };
        let below = bottom + 15.0;
        let _ = writeln!(out, r#"<line class="grid" x1="{x:.1}" x2="{x:.1}" y1="{TOP}" y2="{bottom:.1}"/>"#);
        let _ = writeln!(out, r#"<text class="tick" x="{x:.1}" y="{below:.1}">{text}</text>"#);
    }
}

fn label(out: &mut String, y: f64, text: &str, class: &str) {
    let (x, y) = (LEFT - 12.0, y + 4.0);
    let _ = writeln!(out, r#"<text class="{class} name" x="{x}" y="{y:.1}">{}</text>"#, escape(text));
}

/// For text and attributes of XML.
pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

const STYLE: &str = "\
svg{--ink:#1f2430;--soft:#6b7280;--line:#d9dde3;--ours:#c2410c;--peer:#2f6f9f;\
font-family:system-ui,sans-serif;font-size:13px}\
@media(prefers-color-scheme:dark){svg{--ink:#e5e7eb;--soft:#9ca3af;--line:#374151;--ours:#fb923c;--peer:#7cb7e0}}\
text{fill:var(--ink)}.title{font-weight:600;font-size:14px}.axis,.tick,.step{fill:var(--soft);\
text-anchor:middle;font-size:11px}.step{font-size:9px}.name{text-anchor:end}.name.ours,.value.ours{font-weight:600}\
.grid{stroke:var(--line)}circle{fill-opacity:.55}circle.full{fill-opacity:1}\
circle.quiet{fill:var(--soft)}line.quiet{stroke:var(--soft)}circle.ours{fill:var(--ours)}circle.peer{fill:var(--peer)}\
line.ours{stroke:var(--ours);stroke-width:1.6}line.peer{stroke:var(--peer);stroke-width:1.6}\
line.median{stroke-width:2.6}";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_round_is_a_point_and_names_are_escaped() {
        let row = |label: &str, points: &[f64]| Series {
            label: label.into(),
            accent: label == "offramp",
            points: points.to_vec(),
            median: points[0],
        };
        let rows = [row("offramp", &[1.0, 2.0, 3.0]), row("a<b", &[10.0])];
        let svg = dots("t & u", "cpu_us", "µs", &rows);
        assert_eq!(svg.matches("<circle").count(), 4);
        assert!(svg.contains("a&lt;b") && svg.contains("t &amp; u"));
        assert_eq!(svg.matches("<svg").count(), svg.matches("</svg>").count());
    }

    #[test]
    fn axes_have_round_ticks_that_cover_the_values() {
        let scale = Scale::linear(37.2);
        assert_eq!(scale.ticks, [0.0, 10.0, 20.0, 30.0, 40.0]);
        let log = Scale::logarithmic(30.0, 4_000.0);
        assert_eq!(log.ticks, [10.0, 100.0, 1_000.0, 10_000.0]);
        assert!(log.x(30.0) > log.x(10.0) && log.x(4_000.0) < log.x(10_000.0));
        // No values at all must not divide by zero.
        assert!(Scale::linear(0.0).x(0.0).is_finite());
        assert!(Scale::logarithmic(f64::INFINITY, 0.0).x(5.0).is_finite());
    }

    #[test]
    fn points_of_a_row_do_not_bunch() {
        let mut all: Vec<f64> = (0..8).map(jitter).collect();
        all.sort_by(f64::total_cmp);
        assert!(all.windows(2).all(|w| w[1] - w[0] > 0.05), "{all:?}");
        assert!(all.iter().all(|v| (-1.0..=1.0).contains(v)));
    }
}
