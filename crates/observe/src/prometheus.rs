//! Metrics as text: Prometheus 0.0.4 and OpenMetrics 1.0.
//!
//! Both come from one [walk](crate::exposition) over the figures; they differ in the names of families, the
//! type of `_info`, units, creation times, and the end marker. Creation times (`_created`) are written on
//! request only: a Prometheus without support for them stores each as a series of its own.

use std::io::Write;
use std::time::{SystemTime, UNIX_EPOCH};

pub use crate::exposition::{Build, Exposition};

use crate::exposition::{Distribution, MetricVisitor, SampleValue};
use crate::names::{Metric, MetricKind};

impl Exposition {
    /// Appends the whole page to `out`.
    pub fn render(&self, format: ExpositionFormat, out: &mut Vec<u8>) {
        self.write(TextPage { out, format, created: None });
    }

    /// Like [`render`](Self::render) in OpenMetrics, with the creation times of counters and histograms.
    pub fn render_with_created(&self, out: &mut Vec<u8>) {
        let created = Some(self.counters.began());
        self.write(TextPage { out, format: ExpositionFormat::OpenMetrics, created });
    }

    fn write(&self, mut page: TextPage<'_>) {
        self.walk(&mut page);
        if page.format == ExpositionFormat::OpenMetrics {
            page.out.extend_from_slice(b"# EOF\n");
        }
    }
}

/// The format of the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpositionFormat {
    /// The text format of Prometheus, version 0.0.4.
    Prometheus,
    /// The OpenMetrics text format, version 1.0.0.
    OpenMetrics,
}

impl ExpositionFormat {
    /// Negotiates by the request's `Accept` header (RFC 9110 §12.5.1): OpenMetrics if a supported version is
    /// listed with at least the weight of plain text, else Prometheus.
    #[must_use]
    pub fn from_accept(accept: Option<&str>) -> Self {
        let (mut open_metrics, mut plain) = (0, 0);
        for range in accept.unwrap_or_default().split(',') {
            let range = AcceptRange::parse(range);
            match range.name.as_str() {
                "application/openmetrics-text" if range.version.is_none_or(|v| v == "1.0.0") => {
                    open_metrics = open_metrics.max(range.quality);
                }
                "text/plain" if range.version.is_none_or(|v| v == "0.0.4") => {
                    plain = plain.max(range.quality);
                }
                _ => {}
            }
        }
        if open_metrics > 0 && open_metrics >= plain { Self::OpenMetrics } else { Self::Prometheus }
    }

    /// The `Content-Type` of the page.
    #[must_use]
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

struct AcceptRange<'a> {
    name: String,
    version: Option<&'a str>,
    /// The weight in thousandths.
    quality: u16,
}

impl<'a> AcceptRange<'a> {
    fn parse(range: &'a str) -> Self {
        let mut parts = range.split(';').map(str::trim);
        let name = parts.next().unwrap_or_default().to_ascii_lowercase();
        let (mut version, mut quality) = (None, 1000);
        for (key, value) in parts.filter_map(|part| part.split_once('=')) {
            let value = value.trim().trim_matches('"');
            if key.trim().eq_ignore_ascii_case("version") {
                version = Some(value);
            } else if key.trim().eq_ignore_ascii_case("q") {
                let weight = value.parse::<f32>().ok().filter(|weight| (0.0..=1.0).contains(weight));
                quality = weight.map_or(0, |weight| (weight * 1000.0) as u16);
            }
        }
        Self { name, version, quality }
    }
}

/// The page under construction. Writing into a `Vec` cannot fail, so the results of `write!` are dropped.
struct TextPage<'a> {
    out: &'a mut Vec<u8>,
    format: ExpositionFormat,
    created: Option<SystemTime>,
}

impl MetricVisitor for TextPage<'_> {
    fn family(&mut self, metric: &Metric) {
        let (family, kind) = match self.format {
            ExpositionFormat::OpenMetrics => (metric.family(), metric.kind),
            ExpositionFormat::Prometheus if metric.kind == MetricKind::Info => {
                (metric.name, MetricKind::Gauge)
            }
            ExpositionFormat::Prometheus => (metric.name, metric.kind),
        };
        let _ = writeln!(self.out, "# HELP {family} {}", metric.help);
        let _ = writeln!(self.out, "# TYPE {family} {}", kind.name());
        if let (ExpositionFormat::OpenMetrics, Some(unit)) = (self.format, metric.unit()) {
            let _ = writeln!(self.out, "# UNIT {family} {unit}");
        }
    }

    fn sample(&mut self, metric: &Metric, labels: &[&str], value: SampleValue) {
        self.line(metric.name, "", metric, labels, None);
        let _ = match value {
            SampleValue::Whole(value) => writeln!(self.out, " {value}"),
            SampleValue::Real(value) => writeln!(self.out, " {value}"),
        };
        if metric.kind == MetricKind::Counter {
            self.since(metric, labels);
        }
    }

    fn histogram(&mut self, metric: &Metric, labels: &[&str], distribution: &Distribution) {
        for (bound, count) in &distribution.buckets {
            self.line(metric.name, "_bucket", metric, labels, Some(*bound));
            let _ = writeln!(self.out, " {count}");
        }
        self.line(metric.name, "_bucket", metric, labels, Some(f64::INFINITY));
        let _ = writeln!(self.out, " {}", distribution.count);
        self.line(metric.name, "_sum", metric, labels, None);
        let _ = writeln!(self.out, " {}", distribution.sum);
        self.line(metric.name, "_count", metric, labels, None);
        let _ = writeln!(self.out, " {}", distribution.count);
        self.since(metric, labels);
    }
}

impl TextPage<'_> {
    /// Writes the creation time of a counter or histogram.
    fn since(&mut self, metric: &Metric, labels: &[&str]) {
        // The start time of series that can be evicted is unknown.
        let Some(created) = self.created.filter(|_| !metric.begins_anew()) else { return };
        self.line(metric.family(), "_created", metric, labels, None);
        let since = created.duration_since(UNIX_EPOCH).unwrap_or_default();
        let _ = writeln!(self.out, " {}.{:03}", since.as_secs(), since.subsec_millis());
    }

    /// Writes a line up to its value.
    fn line(&mut self, name: &str, suffix: &str, metric: &Metric, labels: &[&str], bound: Option<f64>) {
        self.out.extend_from_slice(name.as_bytes());
        self.out.extend_from_slice(suffix.as_bytes());
        let mut open = b'{';
        for (name, value) in metric.labels.iter().zip(labels) {
            self.out.push(open);
            let _ = write!(self.out, "{name}=\"");
            self.label_value(value);
            self.out.push(b'"');
            open = b',';
        }
        if let Some(bound) = bound {
            self.out.push(open);
            // `{:?}` writes 1.0 for one second, the canonical form of OpenMetrics.
            let _ = match bound {
                f64::INFINITY => write!(self.out, "le=\"+Inf\""),
                bound => write!(self.out, "le=\"{bound:?}\""),
            };
            open = b',';
        }
        if open == b',' {
            self.out.push(b'}');
        }
    }

    fn label_value(&mut self, value: &str) {
        for byte in value.bytes() {
            match byte {
                b'\\' => self.out.extend_from_slice(br"\\"),
                b'"' => self.out.extend_from_slice(br#"\""#),
                b'\n' => self.out.extend_from_slice(br"\n"),
                _ => self.out.push(byte),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::ExpositionFormat::{self, OpenMetrics, Prometheus};

    #[test]
    fn the_accept_header_chooses() {
        let cases = [
            (None, Prometheus),
            (Some("*/*"), Prometheus),
            (Some("text/html,application/xhtml+xml,*/*;q=0.8"), Prometheus),
            (Some("application/openmetrics-text"), OpenMetrics),
            (Some("Application/OpenMetrics-Text; Version=1.0.0; charset=utf-8"), OpenMetrics),
            (Some("application/openmetrics-text;version=0.0.1,text/plain;version=0.0.4;q=0.5"), Prometheus),
            // The headers of Prometheus 2.50 and 3.0.
            (
                Some(
                    "application/openmetrics-text;version=1.0.0;q=0.5,application/openmetrics-text;\
                     version=0.0.1;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2",
                ),
                OpenMetrics,
            ),
            (
                Some(
                    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,text/plain;\
                     version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2",
                ),
                OpenMetrics,
            ),
            (Some("text/plain;version=0.0.4,application/openmetrics-text;version=1.0.0;q=0.5"), Prometheus),
            (Some("application/openmetrics-text;q=0"), Prometheus),
            (Some("application/openmetrics-text;q=nonsense"), Prometheus),
            (Some(",;=;,"), Prometheus),
        ];
        for (accept, expected) in cases {
            assert_eq!(ExpositionFormat::from_accept(accept), expected, "{accept:?}");
        }
    }
}
