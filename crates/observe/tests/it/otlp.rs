//! What a collector is told, read back as JSON and by the schema of OTLP itself.

use crate::exposition::exposition;
use crate::python::{python, succeed};
use crate::samples;
use offramp_observe::event::Tap;
use offramp_observe::facts::{Cause, Close, Trace};
use offramp_observe::otlp::{SpanQueue, SpanTap, render_spans};
use offramp_observe::prometheus::Build;
use offramp_observe::{Event, RequestFacts};
use serde_json::{Value, json};
use std::fs;
use std::process::{Command, Stdio};

/// What the schema is taken from.
const PACKAGE: &str = "opentelemetry-proto==1.30.0";

/// Reads a body by the schema, which refuses unknown fields and wrong types.
const PROGRAM: &str = "
import sys
from google.protobuf import json_format
if sys.argv[1] == 'metrics':
    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest as Body
else:
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest as Body
print(len(str(json_format.Parse(sys.stdin.read(), Body()))))
";

const BUILD: Build = Build { version: "0.1.0", commit: "" };

fn check_by_schema(kind: &str, body: &[u8]) {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("body");
    fs::write(&file, body).unwrap();
    let mut reader = Command::new(python(PACKAGE));
    reader.args(["-c", PROGRAM, kind]).stdin(Stdio::from(fs::File::open(file).unwrap()));
    succeed(&mut reader, "the body is not what the schema has");
}

fn traced() -> RequestFacts {
    let mut facts = samples::request();
    facts.trace = Some(Trace { id: 0xaf7, span: 0xb7ad, parent: Some(0x331), sampled: true });
    facts
}

/// The spans of these requests, as the collector gets them.
fn export(requests: Vec<RequestFacts>, anonymize: bool) -> Vec<u8> {
    let queue = SpanQueue::default();
    let mut tap = SpanTap::new(queue.clone(), anonymize);
    requests.into_iter().for_each(|facts| tap.take(&Event::Request(Box::new(facts))));
    tap.flush();
    let mut body = Vec::new();
    render_spans(&BUILD, &queue.take(usize::MAX), &mut body);
    body
}

fn spans(body: &[u8]) -> Vec<Value> {
    let body: Value = serde_json::from_slice(body).unwrap();
    let resource = &body["resourceSpans"][0];
    assert_eq!(
        resource["resource"]["attributes"][0],
        json!({"key": "service.name", "value": {"stringValue": "offramp"}})
    );
    resource["scopeSpans"][0]["spans"].as_array().unwrap().clone()
}

fn attribute<'a>(span: &'a Value, key: &str) -> &'a Value {
    let attributes = span["attributes"].as_array().unwrap();
    attributes.iter().find(|attribute| attribute["key"] == key).map_or(&Value::Null, |found| &found["value"])
}

#[test]
fn a_sampled_request_is_a_span() {
    let mut unsampled = traced();
    unsampled.trace = None;
    let body = export(vec![traced(), unsampled], false);
    check_by_schema("traces", &body);
    let spans = spans(&body);
    assert_eq!(spans.len(), 1);
    let span = &spans[0];
    assert_eq!(span["traceId"], "00000000000000000000000000000af7");
    assert_eq!(
        (&span["spanId"], &span["parentSpanId"]),
        (&json!("000000000000b7ad"), &json!("0000000000000331"))
    );
    assert_eq!((&span["name"], &span["kind"]), (&json!("GET git.example.org"), &json!(2)));
    let time = |key: &str| span[key].as_str().unwrap().parse::<u64>().unwrap();
    assert_eq!(time("endTimeUnixNano") - time("startTimeUnixNano"), 8_402_000);
    assert_eq!(attribute(span, "http.response.status_code")["intValue"], "200");
    assert_eq!(attribute(span, "url.path")["stringValue"], "/explore/repos");
    assert_eq!(attribute(span, "client.address")["stringValue"], "192.0.2.1");
    assert_eq!(span["status"], json!({}));
    assert!(!String::from_utf8_lossy(&body).contains("newest"), "the query is nobody's business");
}

#[test]
fn faults_of_servers_are_errors_and_those_of_clients_are_not() {
    let with = |cause: Cause| {
        let mut facts = traced();
        facts.close = Close::from(cause);
        facts.request.host = "a \"quoted\" \\ host\n".into();
        facts.request.user_agent = Some((*b"\xff\x00").into());
        facts
    };
    let body = export(vec![with(Cause::ServerAborted), with(Cause::ClientAborted)], true);
    check_by_schema("traces", &body);
    let spans = spans(&body);
    assert_eq!(spans[0]["status"], json!({"code": 2, "message": "server_aborted"}));
    assert_eq!(spans[1]["status"], json!({}));
    assert_eq!(attribute(&spans[0], "client.address")["stringValue"], "192.0.2.0/24");
    assert_eq!(attribute(&spans[0], "server.address")["stringValue"], "a \"quoted\" \\ host\n");
}

#[test]
fn figures_are_exported_with_their_kinds() {
    let (exposition, _flusher) = exposition();
    let mut body = Vec::new();
    exposition.render_otlp(samples::accepted(), &mut body);
    check_by_schema("metrics", &body);
    let body: Value = serde_json::from_slice(&body).unwrap();
    let metrics = body["resourceMetrics"][0]["scopeMetrics"][0]["metrics"].as_array().unwrap();
    let find = |name: &str| metrics.iter().find(|metric| metric["name"] == name).unwrap();
    let connections = &find("offramp_connections")["sum"];
    assert_eq!(
        (&connections["isMonotonic"], &connections["aggregationTemporality"]),
        (&json!(true), &json!(2))
    );
    assert_eq!(connections["dataPoints"][0]["asInt"], "6");
    assert!(connections["dataPoints"][0]["startTimeUnixNano"].is_string());
    assert_eq!(find("offramp_requests_active")["gauge"]["dataPoints"][0]["asInt"], "2");
    let duration = find("offramp_request_duration_seconds");
    assert_eq!(duration["unit"], "s");
    let point = &duration["histogram"]["dataPoints"][0];
    let counts = point["bucketCounts"].as_array().unwrap();
    let sum: u64 = counts.iter().map(|count| count.as_str().unwrap().parse::<u64>().unwrap()).sum();
    assert_eq!((sum, counts.len()), (8, 1 + point["explicitBounds"].as_array().unwrap().len()));
    assert_eq!(point["count"], "8");
    let label = &point["attributes"][0];
    assert_eq!(label, &json!({"key": "route", "value": {"stringValue": "git.example.org"}}));
}
