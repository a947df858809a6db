//! Distributed traces: what servers are sent, and what the events say.

use std::num::NonZeroU32;

use offramp_proxy::Tracing;

use crate::requests::{Got, ask, mirrored};
use crate::test_proxy::{Setup, TestProxy};

const GIVEN: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

fn setup(sample_one_in: u32) -> Setup {
    Setup {
        tracing: NonZeroU32::new(sample_one_in).map(|sample_one_in| Tracing { sample_one_in }),
        ..Setup::default()
    }
}

/// Asks with `fields`; what the server saw is the body of the answer.
fn asked(proxy: &TestProxy, fields: &str) -> Got {
    let request = format!("GET / HTTP/1.1\r\nhost: a.test\r\n{fields}\r\n");
    let got = ask(proxy, &request);
    assert_eq!(got.status, 200, "{got:?}");
    got
}

/// The field of this name that the server saw.
fn seen(got: &Got, name: &str) -> Option<String> {
    let text = got.text();
    let seen = Got { status: 0, head: text, body: Vec::new() };
    seen.field(name).map(ToOwned::to_owned)
}

#[test]
fn without_tracing_the_header_passes_as_it_came() {
    let (_app, proxy) = mirrored(&Setup::default());
    for value in [GIVEN, "nonsense"] {
        let got = asked(&proxy, &format!("traceparent: {value}\r\ntracestate: a=b\r\n"));
        assert_eq!(seen(&got, "traceparent").as_deref(), Some(value));
        assert_eq!(seen(&got, "tracestate").as_deref(), Some("a=b"));
    }
    assert_eq!(seen(&asked(&proxy, ""), "traceparent"), None);
    for event in proxy.end() {
        assert_eq!(event.get("trace_id"), None, "{event}");
    }
}

#[test]
fn a_trace_goes_on_through_the_proxy() {
    // That none is begun changes nothing for those that came.
    let (_app, proxy) = mirrored(&setup(1_000_000));
    let got = asked(&proxy, &format!("traceparent: {GIVEN}\r\ntracestate: a=b\r\n"));
    let sent = seen(&got, "traceparent").unwrap();
    assert_eq!(seen(&got, "tracestate").as_deref(), Some("a=b"));
    let event = proxy.end_of_one();
    let span = event["span_id"].as_str().unwrap();
    assert_eq!(event["trace_id"], "4bf92f3577b34da6a3ce929d0e0e4736");
    assert_ne!(span, "00f067aa0ba902b7");
    assert_eq!(sent, format!("00-4bf92f3577b34da6a3ce929d0e0e4736-{span}-01"));
}

#[test]
fn requests_without_a_trace_begin_one() {
    let (_app, proxy) = mirrored(&setup(1));
    let sent: Vec<String> = ["", "traceparent: nonsense\r\ntracestate: a=b\r\n"]
        .map(|fields| {
            let got = asked(&proxy, fields);
            assert_eq!(seen(&got, "tracestate"), None);
            seen(&got, "traceparent").unwrap()
        })
        .into();
    let expected: Vec<String> = proxy
        .end()
        .iter()
        .map(|event| {
            format!("00-{}-{}-01", event["trace_id"].as_str().unwrap(), event["span_id"].as_str().unwrap())
        })
        .collect();
    assert_eq!(sent, expected);
    assert_ne!(sent[0], sent[1]);
}

#[test]
fn requests_that_begin_none_are_as_they_were() {
    let (_app, proxy) = mirrored(&setup(1_000_000));
    assert_eq!(seen(&asked(&proxy, ""), "traceparent"), None);
    let got = asked(&proxy, "traceparent: nonsense\r\n");
    assert_eq!(seen(&got, "traceparent").as_deref(), Some("nonsense"));
    for event in proxy.end() {
        assert_eq!(event.get("trace_id"), None, "{event}");
    }
}
