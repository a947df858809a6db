//! Faults other than bad framing, each with its reason and status.

use offramp_http::Http1Fault;
use offramp_http::h1::HeadLimits;
use offramp_http::target::MAX_METHOD;

use super::{End, feed, refusal};

#[test]
fn request_lines() {
    for (line, fault, status) in [
        ("GET /", Http1Fault::RequestLine, 400),
        ("GET", Http1Fault::RequestLine, 400),
        ("GET  / HTTP/1.1", Http1Fault::RequestLineSpace, 400),
        ("GET /  HTTP/1.1", Http1Fault::RequestLineSpace, 400),
        ("GET\t/ HTTP/1.1", Http1Fault::RequestLineSpace, 400),
        ("GET /\tHTTP/1.1", Http1Fault::RequestLineSpace, 400),
        (" GET / HTTP/1.1", Http1Fault::RequestLineSpace, 400),
        ("GET / HTTP/1.1 ", Http1Fault::RequestLineSpace, 400),
        ("GET / HTTP/1.1\t", Http1Fault::RequestLineSpace, 400),
        ("GET /a b HTTP/1.1", Http1Fault::RequestLineSpace, 400),
        ("G(T / HTTP/1.1", Http1Fault::Method, 400),
        ("G\u{e9}T / HTTP/1.1", Http1Fault::Method, 400),
        (":GET / HTTP/1.1", Http1Fault::Method, 400),
        ("GET / http/1.1", Http1Fault::VersionMalformed, 400),
        ("GET / HTTP/1.1x", Http1Fault::VersionMalformed, 400),
        ("GET / HTTP/11", Http1Fault::VersionMalformed, 400),
        ("GET / HTTP/1.x", Http1Fault::VersionMalformed, 400),
        ("GET / FTP/1.1", Http1Fault::VersionMalformed, 400),
        ("GET / ", Http1Fault::VersionMalformed, 400),
        ("GET / HTTP/0.9", Http1Fault::Version, 505),
        ("GET / HTTP/1.2", Http1Fault::Version, 505),
        ("GET / HTTP/2.0", Http1Fault::Version, 505),
        ("GET /#top HTTP/1.1", Http1Fault::TargetFragment, 400),
        ("GET /caf\u{e9} HTTP/1.1", Http1Fault::TargetByte, 400),
        ("GET /<script> HTTP/1.1", Http1Fault::TargetByte, 400),
        ("GET /\"a\" HTTP/1.1", Http1Fault::TargetByte, 400),
        ("GET /\"a\"?q HTTP/1.1", Http1Fault::TargetByte, 400),
        ("GET /?q=\"a\"#b HTTP/1.1", Http1Fault::TargetFragment, 400),
        ("GET /?q=\"a\"\u{7f} HTTP/1.1", Http1Fault::ControlByte, 400),
        ("GET /a\\b HTTP/1.1", Http1Fault::TargetByte, 400),
        ("GET /a`b HTTP/1.1", Http1Fault::TargetByte, 400),
        ("GET http://a/b\\c HTTP/1.1", Http1Fault::TargetByte, 400),
        ("GET http://a/\u{e9}?\u{e9} HTTP/1.1", Http1Fault::TargetByte, 400),
        ("GET http://\u{e9}?\u{e9} HTTP/1.1", Http1Fault::TargetByte, 400),
        ("GET http:?\u{e9} HTTP/1.1", Http1Fault::TargetForm, 400),
        ("GET http://a?#x HTTP/1.1", Http1Fault::TargetFragment, 400),
        ("GET a HTTP/1.1", Http1Fault::TargetForm, 400),
        ("GET ?a HTTP/1.1", Http1Fault::TargetForm, 400),
        ("GET * HTTP/1.1", Http1Fault::TargetForm, 400),
        ("GET a:80 HTTP/1.1", Http1Fault::TargetForm, 400),
        ("GET ftp://a/ HTTP/1.1", Http1Fault::TargetForm, 400),
        ("GET http:/a HTTP/1.1", Http1Fault::TargetForm, 400),
        ("GET http:///a HTTP/1.1", Http1Fault::TargetForm, 400),
        ("GET http://user@a/ HTTP/1.1", Http1Fault::TargetForm, 400),
        ("GET http://a:b/ HTTP/1.1", Http1Fault::TargetForm, 400),
        ("CONNECT a:443 HTTP/1.1", Http1Fault::Connect, 501),
        ("CONNECT a HTTP/1.1", Http1Fault::TargetForm, 400),
        ("CONNECT / HTTP/1.1", Http1Fault::TargetForm, 400),
        ("GET /\u{0} HTTP/1.1", Http1Fault::ControlByte, 400),
        ("GET /\u{7f} HTTP/1.1", Http1Fault::ControlByte, 400),
        ("GET /\rHTTP/1.1", Http1Fault::BareCarriageReturn, 400),
        ("GET / HTTP/1.1\n", Http1Fault::BareLineFeed, 400),
        ("\n", Http1Fault::BareLineFeed, 400),
        ("\r", Http1Fault::BareCarriageReturn, 400),
        ("\r\n\r\nGET / HTTP/1.1", Http1Fault::LeadingLines, 400),
    ] {
        let stream = format!("{line}\r\nHost: a\r\n\r\n");
        assert_eq!(refusal(stream.as_bytes()), Some(fault), "{line:?}");
        assert_eq!(fault.status(), status, "{line:?}");
    }
}

#[test]
fn fields() {
    for (field, fault) in [
        (" X: y", Http1Fault::LeadingSpace),
        ("\tX: y", Http1Fault::LeadingSpace),
        ("A: b\r\n c", Http1Fault::ObsFold),
        ("A: b\r\n\tc: d", Http1Fault::ObsFold),
        ("A: b\r\n ", Http1Fault::ObsFold),
        ("X : y", Http1Fault::SpaceBeforeColon),
        ("X\t: y", Http1Fault::SpaceBeforeColon),
        (": y", Http1Fault::EmptyName),
        ("X", Http1Fault::NoColon),
        ("X y: z", Http1Fault::Name),
        ("X(y): z", Http1Fault::Name),
        ("X\"y\": z", Http1Fault::Name),
        ("X\u{e9}: z", Http1Fault::Name),
        ("X: y\u{0}", Http1Fault::ControlByte),
        ("X: \u{1b}[2J", Http1Fault::ControlByte),
        ("X: y\u{7f}", Http1Fault::ControlByte),
        ("X\u{0}: y", Http1Fault::ControlByte),
        ("X: y\u{b}", Http1Fault::ControlByte),
        ("X: y\nZ: w", Http1Fault::BareLineFeed),
        ("X: y\n", Http1Fault::BareLineFeed),
        ("X: y\rZ: w", Http1Fault::BareCarriageReturn),
        ("X: y\r", Http1Fault::BareCarriageReturn),
        ("\r\r\n", Http1Fault::BareCarriageReturn),
        ("Connection: close, Host", Http1Fault::ConnectionOption),
        ("Connection: content-length", Http1Fault::ConnectionOption),
        ("Connection: Transfer-Encoding", Http1Fault::ConnectionOption),
    ] {
        let stream = format!("GET / HTTP/1.1\r\n{field}\r\nHost: a\r\n\r\n");
        assert_eq!(refusal(stream.as_bytes()), Some(fault), "{field:?}");
        assert_eq!(fault.status(), 400);
    }
}

#[test]
fn hosts() {
    for (fields, fault) in [
        ("", Http1Fault::HostMissing),
        ("Host: a\r\nHost: a", Http1Fault::HostRepeated),
        ("Host: a\r\nhOST: b", Http1Fault::HostRepeated),
        ("Host:", Http1Fault::HostMalformed),
        ("Host: a b", Http1Fault::HostMalformed),
        ("Host: a, b", Http1Fault::HostMalformed),
        ("Host: a/b", Http1Fault::HostMalformed),
        ("Host: user@a", Http1Fault::HostMalformed),
        ("Host: a:port", Http1Fault::HostMalformed),
        ("Host: [::1", Http1Fault::HostMalformed),
        ("Host: http://a", Http1Fault::HostMalformed),
    ] {
        let stream =
            format!("GET / HTTP/1.1\r\nX: y\r\n{fields}{}\r\n", if fields.is_empty() { "" } else { "\r\n" });
        assert_eq!(refusal(stream.as_bytes()), Some(fault), "{fields:?}");
    }
    for (target, host, contradicts) in [
        ("http://a/", "b", true),
        ("http://a:81/", "a", true),
        ("https://a/", "a:80", true),
        ("http://a./", "A:80", false),
        ("https://a", "a:443", false),
    ] {
        let stream = format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n");
        assert_eq!(
            refusal(stream.as_bytes()),
            contradicts.then_some(Http1Fault::HostContradicts),
            "{stream:?}"
        );
    }
    // Two Host fields are a fault in HTTP/1.0, too.
    assert_eq!(refusal(b"GET / HTTP/1.0\r\nHost: a\r\nHost: a\r\n\r\n"), Some(Http1Fault::HostRepeated));
}

#[test]
fn length_limits() {
    let fault = |stream: &str| refusal(stream.as_bytes());
    let limits = HeadLimits::default();
    let target = |length: usize| format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "a".repeat(length - 1));
    assert_eq!(fault(&target(limits.target as usize)), None);
    assert_eq!(fault(&target(limits.target as usize + 1)), Some(Http1Fault::TargetTooLong));
    assert_eq!(Http1Fault::TargetTooLong.status(), 414);
    // Detected before the end of the line.
    assert_eq!(
        fault(&format!("GET /{}", "a".repeat(limits.target as usize))),
        Some(Http1Fault::TargetTooLong)
    );
    let method = |length: usize| format!("{} / HTTP/1.1\r\nHost: a\r\n\r\n", "M".repeat(length));
    assert_eq!(fault(&method(MAX_METHOD)), None);
    assert_eq!(fault(&method(MAX_METHOD + 1)), Some(Http1Fault::MethodTooLong));
    assert_eq!(Http1Fault::MethodTooLong.status(), 501);
    let fields = |count: usize| format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "A: b\r\n".repeat(count - 1));
    assert_eq!(fault(&fields(usize::from(limits.fields))), None);
    assert_eq!(fault(&fields(usize::from(limits.fields) + 1)), Some(Http1Fault::TooManyFields));
    let long = format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}", "x".repeat(limits.head as usize));
    assert_eq!(fault(&long), Some(Http1Fault::HeadTooLong));
    assert_eq!(Http1Fault::HeadTooLong.status(), 431);
    let chunked = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n";
    let trailers = |count: usize| format!("{chunked}{}\r\n", "A: b\r\n".repeat(count));
    assert_eq!(fault(&trailers(usize::from(limits.fields))), None);
    assert_eq!(fault(&trailers(usize::from(limits.fields) + 1)), Some(Http1Fault::TooManyTrailers));
    let long = format!("{chunked}X: {}", "x".repeat(limits.head as usize));
    assert_eq!(fault(&long), Some(Http1Fault::TrailersTooLong));
}

#[test]
fn connect_has_no_content() {
    let limits = HeadLimits { connect: true, ..HeadLimits::default() };
    for length in ["Content-Length: 0", "Transfer-Encoding: chunked"] {
        let stream = format!("CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n{length}\r\n\r\n");
        let end = feed(stream.as_bytes(), limits, []).end;
        assert_eq!(end, Some(End::Refused(Http1Fault::ConnectWithBody)));
    }
}

#[test]
fn every_fault_has_a_name_and_a_sentence() {
    let mut words: Vec<&str> = Http1Fault::ALL.iter().map(|fault| fault.name()).collect();
    for (fault, word) in Http1Fault::ALL.iter().zip(&words) {
        assert!(
            word.starts_with("http1_")
                && word.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_'))
        );
        assert!(!fault.to_string().is_empty());
    }
    words.sort_unstable();
    words.dedup();
    assert_eq!(words.len(), Http1Fault::ALL.len());
}
