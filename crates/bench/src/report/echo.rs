//! The classic echo matrix: median response time by body size, every repetition a jittered point, and the
//! same as CSV with times in milliseconds.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::metrics;
use crate::report::plots::Plot;
use crate::report::raw::Sample;
use crate::report::svg::{escape, frame, jitter, nice};
use crate::scenario::apps::{Arrangement, ECHO};
use crate::stats::median;

/// The scenario that this belongs to.
pub(crate) const SCENARIO: &str = "echo";

/// One line for each repetition; empty when the scenario was not run.
pub(crate) fn csv(samples: &[Sample]) -> String {
    let mut lines: BTreeMap<(usize, &str, usize), BTreeMap<&str, f64>> = BTreeMap::new();
    for sample in samples.iter().filter(|s| s.scenario == SCENARIO) {
        let key = (body(sample), sample.contestant.as_str(), sample.round + 1);
        lines.entry(key).or_default().insert(&sample.metric, sample.value);
    }
    if lines.is_empty() {
        return String::new();
    }
    let mut out = "configuration,body,repetition,requests,mean,stdev,p50,p90,p99\n".to_owned();
    for ((body, arrangement, repetition), figures) in &lines {
        let value = |name: &str| figures.get(name).copied().unwrap_or_default();
        let _ = write!(out, "{arrangement},{body},{repetition},{:.0}", value(metrics::REQUESTS));
        for name in ["mean", "stdev", "p50", "p90", "p99"] {
            let _ = write!(out, ",{:.4}", value(name) / 1e3);
        }
        out.push('\n');
    }
    out
}

/// Body size from left to right, response time upwards; none when the scenario was not run.
pub(crate) fn plot(samples: &[Sample]) -> Option<Plot> {
    let mut columns: BTreeMap<usize, BTreeMap<&str, Vec<f64>>> = BTreeMap::new();
    for sample in samples.iter().filter(|s| s.scenario == SCENARIO && s.metric == "p50") {
        let cell = columns.entry(body(sample)).or_default().entry(&sample.contestant).or_default();
        cell.push(sample.value / 1e3);
    }
    if columns.is_empty() {
        return None;
    }
    let sentence = "Each point is the median response time of one repetition, by the size of the body that \
                    Node.js echoes: alone without TLS (http), with its own TLS (https), behind Offramp in mode \
                    tcp (tls-off) and http (tls-off-http), and behind nginx; the bar is the median of the repetitions; lower is better.";
    Some(Plot { file: "echo.svg".to_owned(), svg: draw(&columns), sentence: sentence.to_owned() })
}

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 340.0;
const LEFT: f64 = 60.0;
const TOP: f64 = 50.0;
const BOTTOM: f64 = 290.0;

/// The class that colours an arrangement.
fn class(arrangement: Arrangement) -> &'static str {
    match arrangement {
        Arrangement::Http => "quiet",
        Arrangement::TlsOff | Arrangement::TlsOffHttp => "ours",
        Arrangement::Https | Arrangement::Nginx => "peer",
    }
}

fn draw(columns: &BTreeMap<usize, BTreeMap<&str, Vec<f64>>>) -> String {
    let most = columns.values().flat_map(|c| c.values().flatten()).copied().fold(0.0, f64::max);
    let step = nice(most.max(1e-6) / 5.0);
    let top = (most / step).ceil().max(1.0) * step;
    let y = |value: f64| BOTTOM - value / top * (BOTTOM - TOP);
    let mut out = frame("echo: median response time by body size, ms", WIDTH, HEIGHT);
    let mut tick = 0.0;
    while tick <= top * 1.001 {
        let at = y(tick);
        let _ = writeln!(out, r#"<line class="grid" x1="{LEFT}" x2="{WIDTH}" y1="{at:.1}" y2="{at:.1}"/>"#);
        let (x, below) = (LEFT - 24.0, at + 4.0);
        let _ = writeln!(out, r#"<text class="tick" x="{x}" y="{below:.1}">{tick:.3}</text>"#);
        tick += step;
    }
    for (index, arrangement) in ECHO.into_iter().enumerate() {
        let class = class(arrangement);
        let x = LEFT + 110.0 * count(index);
        let name = escape(arrangement.name());
        let _ = writeln!(out, r#"<circle class="{class} full" cx="{x}" cy="34" r="4"/>"#);
        let _ = writeln!(out, r#"<text x="{}" y="38">{name}</text>"#, x + 10.0);
    }
    let width = (WIDTH - LEFT) / count(columns.len());
    for (index, (body, cells)) in columns.iter().enumerate() {
        let centre = LEFT + width * (count(index) + 0.5);
        let below = BOTTOM + 18.0;
        let _ = writeln!(out, r#"<text class="tick" x="{centre:.1}" y="{below}">{body} bytes</text>"#);
        for (place, arrangement) in ECHO.into_iter().enumerate() {
            let Some(values) = cells.get(arrangement.name()) else { continue };
            let class = class(arrangement);
            let lane = width / count(ECHO.len() + 1);
            let x = centre + lane * (count(place) - count(ECHO.len() - 1) / 2.0);
            for (round, &value) in values.iter().enumerate() {
                let (x, y) = (x + jitter(round) * lane * 0.3, y(value));
                let _ = writeln!(out, r#"<circle class="{class}" cx="{x:.1}" cy="{y:.1}" r="3.2"/>"#);
            }
            if let Some(middle) = median(values) {
                let (from, to, y) = (x - lane * 0.4, x + lane * 0.4, y(middle));
                let _ = writeln!(
                    out,
                    r#"<line class="{class} median" x1="{from:.1}" x2="{to:.1}" y1="{y:.1}" y2="{y:.1}"/>"#
                );
            }
        }
    }
    out + "</svg>\n"
}

/// The size of the body, which is the end of the case's name.
fn body(sample: &Sample) -> usize {
    sample.case.rsplit('/').next().and_then(|size| size.parse().ok()).unwrap_or_default()
}

fn count(n: usize) -> f64 {
    n as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples() -> Vec<Sample> {
        let sample = |case: &str, contestant: &str, round, metric: &str, value| Sample {
            scenario: SCENARIO.into(),
            case: case.into(),
            contestant: contestant.into(),
            round,
            metric: metric.into(),
            value,
        };
        vec![
            sample("echo/1000", "https", 0, "p50", 300.0),
            sample("echo/1000", "https", 0, "requests", 4000.0),
            sample("echo/10", "http", 0, "p50", 100.0),
            sample("echo/10", "http", 1, "p50", 120.0),
        ]
    }

    #[test]
    fn the_matrix_is_in_milliseconds_and_sorted_by_size() {
        let csv = csv(&samples());
        let lines: Vec<&str> = csv.lines().collect();
        assert_eq!(lines[1], "http,10,1,0,0.0000,0.0000,0.1000,0.0000,0.0000");
        assert_eq!(lines[3], "https,1000,1,4000,0.0000,0.0000,0.3000,0.0000,0.0000");
        assert_eq!(super::csv(&[]), "");
    }

    #[test]
    fn every_repetition_is_a_point() {
        let plot = plot(&samples()).unwrap();
        // Three repetitions, and the points of the legend.
        assert_eq!(plot.svg.matches("<circle").count(), 3 + ECHO.len());
        assert!(super::plot(&[]).is_none());
    }
}
