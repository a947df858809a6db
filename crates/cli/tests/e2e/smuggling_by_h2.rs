//! Requests of HTTP/2 that would be others in HTTP/1, in which the application gets them.
//!
//! Lines and spaces that a frame may carry and a line may not, lengths that lie, fields that frame
//! (RFC 9113 §10.3): none of them reaches the application, or all that reaches it is one whole request.

use crate::h2_follows_rfc9113::http_instance;
use crate::support::h2_client::kind::{GOAWAY, HEADERS, RST_STREAM};
use crate::support::h2_client::{END_HEADERS, END_STREAM, H2, WHOLE, data, headers, request};
use crate::support::smuggling_backend::Backend;
use crate::support::smuggling_rows::SMUGGLED;

/// The fields of a request, and its body where it has one.
type Fields<'a> = Vec<(&'a str, &'a str)>;

/// A GET in which one pseudo field is another.
fn but<'a>(name: &'a str, value: &'a str) -> Fields<'a> {
    let mut fields = request("GET", "/bad", &[]);
    fields.iter_mut().filter(|field| field.0 == name).for_each(|field| field.1 = value);
    fields
}

fn with<'a>(more: &[(&'a str, &'a str)]) -> Fields<'a> {
    request("POST", "/bad", more)
}

/// What must not get through.
fn attacks() -> Vec<Fields<'static>> {
    let mut rows: Vec<_> = [
        "/bad HTTP/1.1\r\nhost: localhost\r\n\r\nGET /smuggled",
        "/bad\r\nx: /smuggled",
        "/bad\n/smuggled",
        "/bad\r/smuggled",
        "/bad /smuggled",
        "/bad\t/smuggled",
        "/bad\0/smuggled",
        "/bad HTTP/1.1",
        " /bad",
        "/bad\u{7f}",
        "http://localhost/bad",
        "//\r\n",
    ]
    .map(|path| but(":path", path))
    .into();
    rows.extend(
        [
            "GET /smuggled HTTP/1.1\r\nhost: localhost\r\n\r\nGET",
            "GET /smuggled",
            "GET\r\nx: y",
            "G\nET",
            "GET\t",
            "",
            "G\0ET",
            "GET:",
            "(GET)",
        ]
        .map(|method| but(":method", method)),
    );
    rows.extend(
        [
            "localhost\r\nx: /smuggled",
            "localhost\nx",
            "localhost x",
            "localhost\0",
            "localhost, a",
            "localhost:port",
            "[::1",
        ]
        .map(|authority| but(":authority", authority)),
    );
    rows.extend(["https\r\nx: /smuggled", "ht tp", "https\0"].map(|scheme| but(":scheme", scheme)));
    rows.extend([
        with(&[("x", "y\r\n\r\nGET /smuggled HTTP/1.1\r\nhost: localhost\r\n\r\n")]),
        with(&[("x", "y\r\ncontent-length: 0")]),
        with(&[("x", "y\nhost: /smuggled")]),
        with(&[("x", "y\r/smuggled")]),
        with(&[("x", "y\0")]),
        with(&[("x\r\ntransfer-encoding", "chunked")]),
        with(&[("x: y\r\ncontent-length", "0")]),
        with(&[("content-length ", "0")]),
        with(&[(" content-length", "0")]),
        with(&[("content-length:", "0")]),
        with(&[("transfer-encoding", "chunked")]),
        with(&[("transfer-encoding", "identity")]),
        with(&[("transfer-encoding ", "chunked")]),
        with(&[("transfer_encoding", "chunked")]),
        with(&[("content_length", "0")]),
        with(&[("content.length", "0")]),
        with(&[("transfer!encoding", "chunked")]),
        with(&[("connection", "content-length")]),
        with(&[("connection", "upgrade"), ("upgrade", "h2c")]),
        with(&[("upgrade", "websocket")]),
        with(&[("content-length", "1")]),
        with(&[("content-length", "1000")]),
        with(&[("content-length", "-1")]),
        with(&[("content-length", "+43")]),
        with(&[("content-length", "043")]),
        with(&[("content-length", "43, 43")]),
        with(&[("content-length", "43"), ("content-length", "0")]),
        with(&[("content-length", "43"), ("content-length", "43")]),
        with(&[("content-length", "0"), ("content-length", "43")]),
        with(&[("content-length", "0x2b")]),
        with(&[("content-length", "43\r\nx: y")]),
        with(&[("host", "a.example.org")]),
        with(&[("host", "localhost"), ("host", "localhost")]),
        with(&[("host", "localhost\r\nx: y")]),
    ]);
    rows
}

#[test]
fn what_hides_in_http2_does_not_come_out_in_http1() {
    let backend = Backend::start();
    let (instance, config) = http_instance(&backend, "workers = 1");
    assert_eq!(SMUGGLED.len(), 43);
    let mut wrong = Vec::new();
    for fields in attacks() {
        let get = fields.contains(&(":method", "GET"));
        let mut h2 = H2::open(&config, instance.address(), &[]);
        if get {
            h2.send(&headers(1, WHOLE, &fields));
        } else {
            h2.send(&[headers(1, END_HEADERS, &fields), data(1, END_STREAM, SMUGGLED.as_bytes())].concat());
        }
        let end = h2.find("end", |frame| matches!(frame.kind, RST_STREAM | GOAWAY | HEADERS));
        if end.kind == HEADERS && end.status() < 400 {
            wrong.push(format!("{fields:?} is answered {}", end.status()));
        }
        // A well request on a connection to the application that was used before finds nothing left over.
        H2::open(&config, instance.address(), &[]).is_well(1);
        let (raw, whole) = backend.take();
        let bad = whole.iter().any(|one| !one.head.starts_with("GET /well "));
        if bad || raw.windows(9).any(|bytes| bytes == b"/smuggled") {
            wrong.push(format!("{fields:?} arrives as {}", raw.escape_ascii()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    instance.stop();
}

/// What may pass is framed anew, and exactly once.
#[test]
fn what_is_honest_in_http2_is_whole_in_http1() {
    let backend = Backend::start();
    let (instance, config) = http_instance(&backend, "workers = 1");
    let length = SMUGGLED.len().to_string();
    let chunks = format!("2B\r\n{SMUGGLED}\r\n0\r\n\r\n");
    for (fields, head, body) in [
        (
            with(&[("content-length", &length)]),
            "POST /bad HTTP/1.1\r\nhost: localhost\r\ncontent-length: 43\r\n\r\n",
            SMUGGLED,
        ),
        (with(&[]), "POST /bad HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n", &*chunks),
        (
            with(&[("x", "a\tb"), ("cookie", "a=1"), ("cookie", "b=2")]),
            "POST /bad HTTP/1.1\r\nhost: localhost\r\nx: a\tb\r\ncookie: a=1; b=2\r\ntransfer-encoding: chunked\r\n\r\n",
            &*chunks,
        ),
    ] {
        let mut h2 = H2::open(&config, instance.address(), &[]);
        h2.send(&[headers(1, END_HEADERS, &fields), data(1, END_STREAM, SMUGGLED.as_bytes())].concat());
        let answer = h2.find("answer", |frame| frame.kind == HEADERS);
        assert_eq!(answer.status(), 200);
        let (raw, whole) = backend.take();
        assert_eq!(whole.len(), 1, "{}", raw.escape_ascii());
        assert_eq!(whole[0].plain_head(), head);
        assert_eq!(String::from_utf8_lossy(&whole[0].body), body);
        assert_eq!(raw.len(), whole[0].head.len() + whole[0].body.len());
    }
    instance.stop();
}
