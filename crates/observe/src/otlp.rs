//! Metrics and spans for OpenTelemetry collectors, in the JSON encoding of OTLP 1.x.
//!
//! This module writes the bodies of `POST /v1/metrics` and `POST /v1/traces`; it sends nothing. The encoding
//! is that of proto3 in JSON, with ids of traces and spans in hexadecimal (OTLP specification, "JSON Protobuf
//! Encoding"); 64-bit numbers are strings. Each request of a sampled trace is one span of kind SERVER, with
//! the attributes of the semantic conventions for HTTP. The query of its target is left out, since it may
//! hold secrets.

use std::fmt::Display;
use std::io::Write;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::clients::ClientKey;
use crate::event::{Event, Tap};
use crate::exposition::{Build, Distribution, Exposition, MetricVisitor, SampleValue};
use crate::facts::{Fault, HttpVersion, RequestFacts, Trace};
use crate::names::{Metric, MetricKind};

mod queue;

pub use queue::{SpanQueue, SpanTally};

impl Exposition {
    /// Appends the body of a request that exports every metric as of `now`.
    pub fn render_otlp(&self, now: SystemTime, out: &mut Vec<u8>) {
        let mut figures = Figures { out, began: nanos(self.counters.began()), now: nanos(now), open: None };
        begin(&self.build, "resourceMetrics", "scopeMetrics", "metrics", figures.out);
        self.walk(&mut figures);
        figures.close();
        figures.out.extend_from_slice(END);
    }
}

/// Appends the body of a request that exports `spans` from a [`SpanQueue`].
pub fn render_spans(build: &Build, spans: &[Box<[u8]>], out: &mut Vec<u8>) {
    begin(build, "resourceSpans", "scopeSpans", "spans", out);
    for (index, span) in spans.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        out.extend_from_slice(span);
    }
    out.extend_from_slice(END);
}

/// Writes the start of an export, down to its list; [`END`] closes it.
fn begin(build: &Build, resource: &str, scope: &str, list: &str, out: &mut Vec<u8>) {
    let _ = write!(out, r#"{{"{resource}":[{{"resource":{{"attributes":["#);
    text_attribute("service.name", "offramp", out);
    out.push(b',');
    text_attribute("service.version", build.version, out);
    let _ = write!(out, r#"]}},"{scope}":[{{"scope":{{"name":"offramp","version":"#);
    text(build.version, out);
    let _ = write!(out, r#"}},"{list}":["#);
}

const END: &[u8] = b"]}]}]}";

/// The metrics under construction. Writing into a `Vec` cannot fail, so the results of `write!` are dropped.
struct Figures<'a> {
    out: &'a mut Vec<u8>,
    began: u128,
    now: u128,
    /// The metric of the data points that are being written, and a flag that it has some.
    open: Option<(MetricKind, bool)>,
}

impl MetricVisitor for Figures<'_> {
    fn family(&mut self, metric: &Metric) {
        let is_first = self.open.is_none();
        self.close();
        if !is_first {
            self.out.push(b',');
        }
        let _ = write!(self.out, r#"{{"name":"{}","description":"#, metric.family());
        text(metric.help, self.out);
        let unit = match metric.unit() {
            Some("seconds") => "s",
            Some("bytes") => "By",
            _ => "1",
        };
        let _ = write!(self.out, r#","unit":"{unit}","#);
        // Aggregation temporality 2 is CUMULATIVE.
        let data = match metric.kind {
            MetricKind::Counter => r#""sum":{"aggregationTemporality":2,"isMonotonic":true,"dataPoints":["#,
            MetricKind::Gauge | MetricKind::Info => r#""gauge":{"dataPoints":["#,
            MetricKind::Histogram => r#""histogram":{"aggregationTemporality":2,"dataPoints":["#,
        };
        self.out.extend_from_slice(data.as_bytes());
        self.open = Some((metric.kind, false));
    }

    fn sample(&mut self, metric: &Metric, labels: &[&str], value: SampleValue) {
        self.point(metric, labels);
        let _ = match value {
            SampleValue::Whole(value) => write!(self.out, r#","asInt":"{value}"}}"#),
            SampleValue::Real(value) => write!(self.out, r#","asDouble":{value:?}}}"#),
        };
    }

    fn histogram(&mut self, metric: &Metric, labels: &[&str], distribution: &Distribution) {
        self.point(metric, labels);
        let Distribution { buckets, count, sum } = distribution;
        let _ = write!(self.out, r#","count":"{count}","sum":{sum:?},"bucketCounts":["#);
        // OTLP buckets are not cumulative.
        let mut below = 0;
        for (_, within) in buckets {
            let _ = write!(self.out, r#""{}","#, within - below);
            below = *within;
        }
        let _ = write!(self.out, r#""{}"],"explicitBounds":["#, count - below);
        for (index, (bound, _)) in buckets.iter().enumerate() {
            let comma = if index > 0 { "," } else { "" };
            let _ = write!(self.out, "{comma}{bound:?}");
        }
        self.out.extend_from_slice(b"]}");
    }
}

impl Figures<'_> {
    /// Writes a data point up to its value.
    fn point(&mut self, metric: &Metric, labels: &[&str]) {
        if let Some((_, has_points)) = &mut self.open
            && std::mem::replace(has_points, true)
        {
            self.out.push(b',');
        }
        self.out.extend_from_slice(br#"{"attributes":["#);
        for (index, (name, value)) in metric.labels.iter().zip(labels).enumerate() {
            if index > 0 {
                self.out.push(b',');
            }
            text_attribute(name, value, self.out);
        }
        let _ = write!(self.out, r#"],"timeUnixNano":"{}""#, self.now);
        if matches!(metric.kind, MetricKind::Counter | MetricKind::Histogram) && !metric.begins_anew() {
            let _ = write!(self.out, r#","startTimeUnixNano":"{}""#, self.began);
        }
    }

    /// Closes the current metric.
    fn close(&mut self) {
        if self.open.take().is_some() {
            self.out.extend_from_slice(b"]}}");
        }
    }
}

/// Encodes a span for each request of a sampled trace, and queues it.
#[derive(Debug)]
pub struct SpanTap {
    queue: SpanQueue,
    /// Set to write networks in place of client addresses.
    anonymize: bool,
    batch: Vec<Box<[u8]>>,
}

impl SpanTap {
    /// A tap that fills `queue`; with `anonymize` it writes networks in place of client addresses.
    #[must_use]
    pub const fn new(queue: SpanQueue, anonymize: bool) -> Self {
        Self { queue, anonymize, batch: Vec::new() }
    }
}

impl Tap for SpanTap {
    fn take(&mut self, event: &Event) {
        if let Event::Request(facts) = event
            && let Some(trace) = facts.trace.filter(|trace| trace.sampled)
        {
            let mut out = Vec::with_capacity(1024);
            span(facts, &trace, self.anonymize, &mut out);
            self.batch.push(out.into());
        }
    }

    fn flush(&mut self) {
        if !self.batch.is_empty() {
            self.queue.add(&mut self.batch);
        }
    }
}

/// Appends one span as a JSON object.
fn span(facts: &RequestFacts, trace: &Trace, anonymize: bool, out: &mut Vec<u8>) {
    let begun = nanos(facts.begun);
    let ended = begun + facts.times.total.as_nanos();
    let _ = write!(out, r#"{{"traceId":"{:032x}","spanId":"{:016x}","#, trace.id, trace.span);
    if let Some(parent) = trace.parent {
        let _ = write!(out, r#""parentSpanId":"{parent:016x}","#);
    }
    out.extend_from_slice(br#""name":"#);
    match &facts.path.route {
        Some(route) => text(&format!("{} {route}", facts.request.method), out),
        None => text(&facts.request.method, out),
    }
    // Span kind 2 is SERVER.
    let _ =
        write!(out, r#","kind":2,"startTimeUnixNano":"{begun}","endTimeUnixNano":"{ended}","attributes":["#);
    attributes(facts, anonymize, out);
    out.extend_from_slice(br#"],"status":{"#);
    // Faults of the client are not errors of a SERVER span.
    if facts.status >= 500 || matches!(facts.close.fault, Fault::Server | Fault::Us) {
        out.extend_from_slice(br#""code":2,"message":"#);
        text(facts.close.cause.name(), out);
    }
    out.extend_from_slice(b"}}");
}

fn attributes(facts: &RequestFacts, anonymize: bool, out: &mut Vec<u8>) {
    let line = &facts.request;
    text_attribute("http.request.method", &line.method, out);
    let mut add = |key: &str, value: &str| {
        out.push(b',');
        text_attribute(key, value, out);
    };
    add("url.scheme", line.scheme.name());
    add("url.path", line.path());
    if !line.host.is_empty() {
        add("server.address", &line.host);
    }
    let version = match line.version {
        HttpVersion::Http10 => "1.0",
        HttpVersion::Http11 => "1.1",
        HttpVersion::Http2 => "2",
    };
    add("network.protocol.version", version);
    let client = ClientKey::new(&facts.client());
    match facts.client_ip() {
        Some(ip) if !anonymize => add("client.address", &ip.to_string()),
        Some(_) => add("client.address", &client.anonymized(true).show(true)),
        None => {}
    }
    if let Some(agent) = &line.user_agent {
        add("user_agent.original", &String::from_utf8_lossy(agent));
    }
    let places = [
        ("offramp.route", &facts.path.route),
        ("offramp.backend", &facts.path.backend),
        ("offramp.server", &facts.path.server),
    ];
    for (key, place) in places {
        if let Some(place) = place {
            add(key, place);
        }
    }
    add("offramp.request_id", &facts.id);
    add("offramp.cause", facts.close.cause.name());
    let mut number = |key: &str, value: u64| {
        let _ = write!(out, r#",{{"key":"{key}","value":{{"intValue":"{value}"}}}}"#);
    };
    if facts.status > 0 {
        number("http.response.status_code", facts.status.into());
    }
    number("http.request.body.size", facts.traffic.from_client);
    number("http.response.body.size", facts.traffic.to_client);
    number("offramp.tries", facts.path.tries.into());
}

/// Writes a string attribute. The key must need no escapes.
fn text_attribute(key: impl Display, value: &str, out: &mut Vec<u8>) {
    let _ = write!(out, r#"{{"key":"{key}","value":{{"stringValue":"#);
    text(value, out);
    out.extend_from_slice(b"}}");
}

/// Writes a quoted and escaped string.
fn text(text: &str, out: &mut Vec<u8>) {
    // Writing a string into a `Vec` cannot fail.
    let _ = serde_json::to_writer(out, text);
}

fn nanos(time: SystemTime) -> u128 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos()
}
