//! The counters as text: Prometheus 0.0.4 and OpenMetrics 1.0.
//!
//! Both come from one walk over [`names`]; they differ in the names of families, the
//! kind of `_info`, units and the end mark. Rendering allocates nothing that lasts and touches no worker.

use std::io::Write;

use crate::counters::{Counters, Direction, Histogram, PauseReason, Totals};
use crate::facts::{Cause, Fault, Handshake, TlsVersion};
use crate::names::{self, Kind, Metric};
use crate::process::ProcessFigures;
use crate::ring::EventMonitor;

/// Everything that the metrics page shows.
#[derive(Clone, Debug)]
pub struct Exposition {
    /// What the workers count.
    pub counters: Counters,
    /// What became of the events; absent where there is no access log.
    pub events: Option<EventMonitor>,
    /// What runs.
    pub build: Build,
}

/// The version that runs.
#[derive(Clone, Copy, Debug)]
pub struct Build {
    /// The version, as `0.1.0`.
    pub version: &'static str,
    /// The commit it was built from; empty if unknown.
    pub commit: &'static str,
}

impl Exposition {
    /// Appends the whole page to `out`.
    pub fn render(&self, format: ExpositionFormat, out: &mut Vec<u8>) {
        let totals = self.counters.totals();
        let mut page = Page { out, format };
        page.family(&names::BUILD);
        let build = [("version", self.build.version), ("commit", self.build.commit)];
        page.sample(&names::BUILD, &build, 1);
        page.single(&names::WORKERS, self.counters.workers());
        connections(&mut page, &totals);
        handshakes(&mut page, &totals);
        traffic(&mut page, &totals);
        page.single(&names::CONNECT_ATTEMPTS, totals.connect_attempts());
        page.single(&names::CONNECT_FAILURES, totals.connect_failures());
        if let Some(events) = &self.events {
            let tally = events.tally();
            page.single(&names::EVENTS_WRITTEN, tally.written);
            page.family(&names::EVENTS_DROPPED);
            page.sample(&names::EVENTS_DROPPED, &[("reason", "queue_full")], tally.queue_full);
            page.sample(&names::EVENTS_DROPPED, &[("reason", "output_failed")], tally.output_failed);
        }
        process(&mut page, &ProcessFigures::read());
        if format == ExpositionFormat::OpenMetrics {
            page.out.extend_from_slice(b"# EOF\n");
        }
    }
}

/// How the page is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpositionFormat {
    /// The text format of Prometheus, version 0.0.4.
    Prometheus,
    /// OpenMetrics 1.0.0.
    OpenMetrics,
}

impl ExpositionFormat {
    /// Chooses by the value of the request's `Accept` header (RFC 9110 §12.5.1): OpenMetrics where it is
    /// named, in a version that we speak, and liked at least as well as plain text; else Prometheus.
    #[must_use]
    pub fn from_accept(accept: Option<&str>) -> Self {
        let (mut open_metrics, mut plain) = (0, 0);
        for range in accept.unwrap_or_default().split(',') {
            let range = MediaRange::parse(range);
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

struct MediaRange<'a> {
    name: String,
    version: Option<&'a str>,
    /// In thousandths.
    quality: u16,
}

impl<'a> MediaRange<'a> {
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

fn connections(page: &mut Page<'_>, totals: &Totals) {
    page.single(&names::CONNECTIONS, totals.accepted());
    page.single(&names::CONNECTIONS_ACTIVE, totals.active());
    page.family(&names::CONNECTIONS_CLOSED);
    for cause in Cause::ALL {
        for fault in Fault::ALL {
            let count = totals.closed(cause, fault);
            // Every cause is there from the start, with its usual fault, so that rates have a beginning;
            // other pairs appear when they happen.
            if count > 0 || fault == cause.fault() {
                let labels = [("cause", cause.name()), ("fault", fault.name())];
                page.sample(&names::CONNECTIONS_CLOSED, &labels, count);
            }
        }
    }
    page.histogram(&names::CONNECTION_DURATION, &totals.connection_time());
}

fn handshakes(page: &mut Page<'_>, totals: &Totals) {
    page.family(&names::HANDSHAKES);
    for version in TlsVersion::ALL {
        for kind in Handshake::ALL {
            let labels = [("version", version.name()), ("kind", kind.name())];
            page.sample(&names::HANDSHAKES, &labels, totals.handshakes(version, kind));
        }
    }
    page.single(&names::HANDSHAKES_FAILED, totals.handshakes_failed());
    page.histogram(&names::HANDSHAKE_DURATION, &totals.handshake_time());
}

fn traffic(page: &mut Page<'_>, totals: &Totals) {
    const IN: Direction = Direction::ClientToServer;
    const OUT: Direction = Direction::ServerToClient;
    page.family(&names::RELAYED_BYTES);
    page.sample(&names::RELAYED_BYTES, &[("direction", "client_to_server")], totals.bytes_relayed(IN));
    page.sample(&names::RELAYED_BYTES, &[("direction", "server_to_client")], totals.bytes_relayed(OUT));
    page.family(&names::RECORDS);
    page.sample(&names::RECORDS, &[("operation", "open")], totals.records(IN));
    page.sample(&names::RECORDS, &[("operation", "seal")], totals.records(OUT));
    page.family(&names::KEY_UPDATES);
    page.sample(&names::KEY_UPDATES, &[("direction", "received")], totals.key_updates(IN));
    page.sample(&names::KEY_UPDATES, &[("direction", "sent")], totals.key_updates(OUT));
    page.family(&names::ACCEPT_PAUSES);
    for reason in PauseReason::ALL {
        page.sample(&names::ACCEPT_PAUSES, &[("reason", reason.name())], totals.accept_pauses(reason));
    }
}

fn process(page: &mut Page<'_>, figures: &ProcessFigures) {
    if let Some(cpu) = figures.cpu {
        page.single(&names::PROCESS_CPU, cpu.as_secs_f64());
    }
    if let Some(bytes) = figures.resident_bytes {
        page.single(&names::PROCESS_RESIDENT_MEMORY, bytes);
    }
    if let Some(open) = figures.open_fds {
        page.single(&names::PROCESS_OPEN_FDS, open);
    }
    if let Some(max) = figures.max_fds {
        page.single(&names::PROCESS_MAX_FDS, max);
    }
    if let Some(started) = figures.started {
        page.single(&names::PROCESS_START_TIME, started.as_secs_f64());
    }
}

/// The page as it grows. Writing into a Vec cannot fail, so the results of `write!` are dropped.
struct Page<'a> {
    out: &'a mut Vec<u8>,
    format: ExpositionFormat,
}

impl Page<'_> {
    /// The head of a metric: it comes once, before all of its samples.
    fn family(&mut self, metric: &Metric) {
        let (family, kind) = match self.format {
            ExpositionFormat::OpenMetrics => (metric.family(), metric.kind),
            ExpositionFormat::Prometheus if metric.kind == Kind::Info => (metric.name, Kind::Gauge),
            ExpositionFormat::Prometheus => (metric.name, metric.kind),
        };
        let _ = writeln!(self.out, "# HELP {family} {}", metric.help);
        let _ = writeln!(self.out, "# TYPE {family} {}", kind.name());
        if let (ExpositionFormat::OpenMetrics, Some(unit)) = (self.format, metric.unit()) {
            let _ = writeln!(self.out, "# UNIT {family} {unit}");
        }
    }

    fn sample(&mut self, metric: &Metric, labels: &[(&str, &str)], value: impl std::fmt::Display) {
        debug_assert!(labels.iter().map(|label| label.0).eq(metric.labels.iter().copied()));
        self.out.extend_from_slice(metric.name.as_bytes());
        for (index, (name, value)) in labels.iter().enumerate() {
            let open = if index == 0 { '{' } else { ',' };
            let _ = write!(self.out, "{open}{name}=\"");
            self.label_value(value);
            self.out.push(b'"');
        }
        if !labels.is_empty() {
            self.out.push(b'}');
        }
        let _ = writeln!(self.out, " {value}");
    }

    /// A metric of one sample without labels.
    fn single(&mut self, metric: &Metric, value: impl std::fmt::Display) {
        self.family(metric);
        self.sample(metric, &[], value);
    }

    fn histogram(&mut self, metric: &Metric, histogram: &Histogram<'_>) {
        self.family(metric);
        let name = metric.name;
        for (bound, count) in histogram.cumulative() {
            let _ = match bound {
                // `{:?}` writes 1.0 for one second, the canonical form of OpenMetrics.
                Some(micros) => writeln!(self.out, "{name}_bucket{{le=\"{:?}\"}} {count}", seconds(micros)),
                None => writeln!(self.out, "{name}_bucket{{le=\"+Inf\"}} {count}"),
            };
        }
        let _ = writeln!(self.out, "{name}_sum {}", seconds(histogram.sum_micros()));
        let _ = writeln!(self.out, "{name}_count {}", histogram.count());
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

fn seconds(micros: u64) -> f64 {
    micros as f64 / 1_000_000.0
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
            // What Prometheus 2.50 and 3.0 send.
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
