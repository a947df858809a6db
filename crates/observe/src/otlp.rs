//! Figures and spans for an OpenTelemetry collector, in the JSON encoding of OTLP 1.x.
//!
//! This module writes the bodies of `POST /v1/metrics` and `POST /v1/traces`; it sends nothing. The encoding is
//! that of proto3 in JSON, with the ids of traces and spans in hexadecimal (OTLP specification, "JSON Protobuf
//! Encoding"); numbers of 64 bits are texts. A request that is part of a sampled trace is one span of kind
//! SERVER, with the attributes of the semantic conventions for HTTP. The query of its target is left out: it
//! may hold what no third party should see.

use std::fmt::Display;
use std::io::Write;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::clients::Client;
use crate::event::{Event, Tap};
use crate::exposition::{Build, Distribution, Exposition, Reader, Value};
use crate::facts::{Fault, HttpVersion, RequestFacts, Trace};
use crate::names::{Kind, Metric};

mod queue;

pub use queue::{SpanQueue, SpanTally};

impl Exposition {
    /// Appends the body of a request that exports every figure as of `now`.
    pub fn render_otlp(&self, now: SystemTime, out: &mut Vec<u8>) {
        let mut figures = Figures { out, began: nanos(self.counters.began()), now: nanos(now), open: None };
        begin(&self.build, "resourceMetrics", "scopeMetrics", "metrics", figures.out);
        self.walk(&mut figures);
        figures.close();
        figures.out.extend_from_slice(END);
    }
}

/// Appends the body of a request that exports `spans`, which a [`SpanQueue`] gave.
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

/// The beginning of every export: the resource. `END` ends it.
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

/// The figures as they grow. Writing into a Vec cannot fail, so the results of `write!` are dropped.
struct Figures<'a> {
    out: &'a mut Vec<u8>,
    began: u128,
    now: u128,
    /// The metric whose data points are being written, and whether there are any yet.
    open: Option<(Kind, bool)>,
}

impl Reader for Figures<'_> {
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
        // Temporality 2 is CUMULATIVE.
        let data = match metric.kind {
            Kind::Counter => r#""sum":{"aggregationTemporality":2,"isMonotonic":true,"dataPoints":["#,
            Kind::Gauge | Kind::Info => r#""gauge":{"dataPoints":["#,
            Kind::Histogram => r#""histogram":{"aggregationTemporality":2,"dataPoints":["#,
        };
        self.out.extend_from_slice(data.as_bytes());
        self.open = Some((metric.kind, false));
    }

    fn sample(&mut self, metric: &Metric, labels: &[&str], value: Value) {
        self.point(metric, labels);
        let _ = match value {
            Value::Whole(value) => write!(self.out, r#","asInt":"{value}"}}"#),
            Value::Real(value) => write!(self.out, r#","asDouble":{value:?}}}"#),
        };
    }

    fn histogram(&mut self, metric: &Metric, labels: &[&str], distribution: &Distribution) {
        self.point(metric, labels);
        let Distribution { buckets, count, sum } = distribution;
        let _ = write!(self.out, r#","count":"{count}","sum":{sum:?},"bucketCounts":["#);
        // Here each bucket has what is in it alone.
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
    /// A data point up to its value.
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
        if matches!(metric.kind, Kind::Counter | Kind::Histogram) && !metric.begins_anew() {
            let _ = write!(self.out, r#","startTimeUnixNano":"{}""#, self.began);
        }
    }

    /// Ends the metric that is open.
    fn close(&mut self) {
        if self.open.take().is_some() {
            self.out.extend_from_slice(b"]}}");
        }
    }
}

/// Takes the spans of sampled requests out of the events, and queues them.
#[derive(Debug)]
pub struct SpanTap {
    queue: SpanQueue,
    /// Whether clients are written as networks.
    anonymize: bool,
    batch: Vec<Box<[u8]>>,
}

impl SpanTap {
    /// A tap that fills `queue`; with `anonymize` it writes only the networks of clients.
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

/// Appends one span.
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
    // Kind 2 is SERVER.
    let _ =
        write!(out, r#","kind":2,"startTimeUnixNano":"{begun}","endTimeUnixNano":"{ended}","attributes":["#);
    attributes(facts, anonymize, out);
    out.extend_from_slice(br#"],"status":{"#);
    // What is the client's fault is no error of a server span.
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
    let client = Client::new(&facts.client());
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

/// An attribute whose value is a text. The key needs no escapes.
fn text_attribute(key: impl Display, value: &str, out: &mut Vec<u8>) {
    let _ = write!(out, r#"{{"key":"{key}","value":{{"stringValue":"#);
    text(value, out);
    out.extend_from_slice(b"}}");
}

/// A text in quotes, escaped.
fn text(text: &str, out: &mut Vec<u8>) {
    // Writing a text into a Vec cannot fail.
    let _ = serde_json::to_writer(out, text);
}

fn nanos(time: SystemTime) -> u128 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos()
}
