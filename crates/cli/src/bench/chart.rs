//! The picture of a result: the percentiles alone and behind Offramp, as SVG that follows the reader's light or dark setting.

use std::fmt::Write as _;
use std::time::Duration;

use super::report::{Arrangement, BenchReport, PERCENTILES, milliseconds};

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 60.0 + ROW * 4.0 + 46.0;
const LEFT: f64 = 110.0;
const RIGHT: f64 = 90.0;
const TOP: f64 = 60.0;
/// The height of a percentile: two bars and a gap.
const ROW: f64 = 56.0;
const BAR: f64 = 18.0;

/// Draws a result.
pub(super) fn draw(report: &BenchReport) -> String {
    let longest = [&report.alone, &report.behind].map(|of| of.percentile(99.9)).into_iter().max();
    let longest = longest.unwrap_or_default().max(Duration::from_micros(1));
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-labelledby=\"t\">\n\
         <title id=\"t\">{}</title>\n\
         <style>text{{font:13px system-ui,sans-serif;fill:#24292f}}.alone{{fill:#8c959f}}.behind{{fill:#0969da}}.small{{font-size:11px;fill:#57606a}}\n\
         @media(prefers-color-scheme:dark){{text{{fill:#e6edf3}}.small{{fill:#9198a1}}.alone{{fill:#6e7681}}.behind{{fill:#4493f8}}}}</style>\n",
        escaped(&format!("{} alone and behind Offramp", report.url))
    );
    let title = format!("{}, {} requests a second", report.url, report.plan.rate);
    let _ = writeln!(out, "<text x=\"12\" y=\"22\">{}</text>", escaped(&cut(&title)));
    for (x, class, name) in [(12.0, "alone", "alone"), (90.0, "behind", "behind Offramp")] {
        let _ = writeln!(out, "<rect class=\"{class}\" x=\"{x}\" y=\"34\" width=\"12\" height=\"12\"/>");
        let _ = writeln!(out, "<text class=\"small\" x=\"{}\" y=\"44\">{name}</text>", x + 18.0);
    }
    for (index, percentile) in PERCENTILES.into_iter().enumerate() {
        let y = TOP + ROW * index as f64;
        let _ = writeln!(out, "<text x=\"12\" y=\"{}\">{percentile} % within</text>", y + BAR + 5.0);
        let mut bar = |y: f64, class: &str, of: &Arrangement| {
            let time = of.percentile(percentile);
            let width = (time.as_secs_f64() / longest.as_secs_f64() * (WIDTH - LEFT - RIGHT)).max(1.0);
            let _ = writeln!(
                out,
                "<rect class=\"{class}\" x=\"{LEFT}\" y=\"{y}\" width=\"{width:.1}\" height=\"{BAR}\"/>\n\
                 <text class=\"small\" x=\"{:.1}\" y=\"{}\">{}</text>",
                LEFT + width + 6.0,
                y + 13.0,
                milliseconds(time)
            );
        };
        bar(y, "alone", &report.alone);
        bar(y + BAR + 2.0, "behind", &report.behind);
    }
    let note = format!(
        "{} rounds in turns, timed from when each request was due; offramp {}",
        report.rounds,
        env!("CARGO_PKG_VERSION")
    );
    let _ = writeln!(out, "<text class=\"small\" x=\"12\" y=\"{}\">{note}</text>", HEIGHT - 14.0);
    out + "</svg>\n"
}

/// The beginning of a text that fits.
fn cut(text: &str) -> String {
    const MOST: usize = 80;
    if text.chars().count() <= MOST {
        text.to_owned()
    } else {
        text.chars().take(MOST - 1).chain(['…']).collect()
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_as_long_as_the_times_and_text_is_text() {
        let mut report = super::super::report::tests::report();
        report.url = "http://127.0.0.1:3000/<script>?a&b\"".to_owned();
        let svg = draw(&report);
        assert!(svg.contains("/&lt;script&gt;?a&amp;b&quot;") && !svg.contains("<script>"), "{svg}");
        let widths: Vec<f64> =
            svg.split("width=\"").skip(3).filter_map(|rest| rest.split('"').next()?.parse().ok()).collect();
        assert_eq!(widths.len(), 8, "{svg}");
        assert!((widths[1] / widths[0] - 2.0).abs() < 0.01, "{widths:?}");
    }
}
