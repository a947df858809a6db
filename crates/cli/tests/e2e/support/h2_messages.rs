//! What RFC 9113 says of requests (§8), as rows. Malformed ones are errors of their stream (§8.1.1).

use crate::support::h2_client::{END_HEADERS, END_STREAM, WHOLE, data, headers, post, request};
use crate::support::h2_rules::{PROTOCOL, Row, Status, Stream, with};
use crate::support::h2_rules::{Then, row};

/// A malformed request: reset, or refused before.
const MALFORMED: &[Then] = &[Stream(PROTOCOL), Status(400)];

fn fields(fields: &[(&str, &str)]) -> Vec<u8> {
    headers(1, WHOLE, fields)
}

/// §8.1: the order of frames, and what the length says.
pub(crate) fn order() -> Vec<Row> {
    let length = |value| post(1, "/", &[("content-length", value)]);
    let trailers = |flags, fields: &[(&str, &str)]| headers(1, flags, fields);
    let sum = [("x-sum", "1")];
    let open = || post(1, "/", &[]);
    let empty = headers(1, WHOLE, &request("POST", "/", &[("content-length", "5")]));
    let lies = &[Stream(PROTOCOL)];
    vec![
        row("8.1", "trailers", [open(), data(1, 0, b"abc"), trailers(WHOLE, &sum)], &[Status(200)]),
        row("8.1", "trailers that do not end the stream", [open(), trailers(END_HEADERS, &sum)], lies),
        row("8.1", "a pseudo field in trailers", [open(), trailers(WHOLE, &[(":path", "/")])], lies),
        row("8.1.1", "as much as was said", [length("5"), data(1, END_STREAM, b"12345")], &[Status(200)]),
        row("8.1.1", "less than was said", [length("5"), data(1, END_STREAM, b"1234")], lies),
        row("8.1.1", "more than was said", [length("5"), data(1, END_STREAM, b"123456")], lies),
        row("8.1.1", "nothing where something was said", empty, lies),
        row("8.1.1", "trailers too early", [length("5"), data(1, 0, b"12"), trailers(WHOLE, &sum)], lies),
    ]
}

/// §8.1.1, RFC 9110 §8.6: lengths that some read in another way.
pub(crate) fn lengths() -> Vec<Row> {
    let one = |what, value| {
        let bytes = [post(1, "/", &[("content-length", value)]), data(1, END_STREAM, b"12345")];
        row("8.1.1", what, bytes, MALFORMED)
    };
    let two = |what, first, second| {
        let fields = [("content-length", first), ("content-length", second)];
        row("8.1.1", what, [post(1, "/", &fields), data(1, END_STREAM, b"12345")], MALFORMED)
    };
    vec![
        one("a length that is no number", "5x"),
        one("a length with a sign", "+5"),
        one("a length that is a list", "5, 5"),
        one("an empty length", ""),
        one("a length with zeros before it", "005"),
        one("a length above 64 bits", "18446744073709551621"),
        two("two lengths, the first true", "5", "6"),
        two("two lengths, the second true", "6", "5"),
        two("one length twice", "5", "5"),
    ]
}

/// §8.2: fields.
pub(crate) fn names_and_values() -> Vec<Row> {
    vec![
        row("8.2", "a name with capitals", with(&[("X-Capital", "1")]), MALFORMED),
        row("8.2.1", "an empty name", with(&[("", "1")]), &[Stream(PROTOCOL)]),
        row("8.2.1", "a space in a name", with(&[("x y", "1")]), MALFORMED),
        row("8.2.1", "a colon in a name", with(&[("x:y", "1")]), MALFORMED),
        row("8.2.1", "CRLF in a name", with(&[("x\r\ny", "1")]), MALFORMED),
        row("8.2.1", "NUL in a name", with(&[("x\0", "1")]), MALFORMED),
        row("8.2.1", "DEL in a name", with(&[("x\x7f", "1")]), MALFORMED),
        row("8.2.1", "CRLF in a value", with(&[("x-a", "1\r\nx-b: 2")]), MALFORMED),
        row("8.2.1", "LF in a value", with(&[("x-a", "1\nx-b: 2")]), MALFORMED),
        row("8.2.1", "CR in a value", with(&[("x-a", "1\rx-b: 2")]), MALFORMED),
        row("8.2.1", "NUL in a value", with(&[("x-a", "1\x002")]), MALFORMED),
        row("8.2.1", "whitespace around a value", with(&[("x-a", " 1\t")]), MALFORMED),
        row("8.2.2", "connection", with(&[("connection", "close")]), MALFORMED),
        row("8.2.2", "keep-alive", with(&[("keep-alive", "1")]), MALFORMED),
        row("8.2.2", "proxy-connection", with(&[("proxy-connection", "close")]), MALFORMED),
        row("8.2.2", "transfer-encoding", with(&[("transfer-encoding", "chunked")]), MALFORMED),
        row("8.2.2", "upgrade", with(&[("upgrade", "websocket")]), MALFORMED),
        row("8.2.2", "te other than trailers", with(&[("te", "gzip")]), MALFORMED),
        row("8.2.2", "te: trailers", with(&[("te", "trailers")]), &[Status(200)]),
        row("8.2.3", "cookies in crumbs", with(&[("cookie", "a=1"), ("cookie", "b=2")]), &[Status(200)]),
    ]
}

/// The fields of a plain GET, in their order.
const GET: [(&str, &str); 4] =
    [(":method", "GET"), (":scheme", "https"), (":authority", "localhost"), (":path", "/")];

/// A GET with one more field before, or behind.
fn before(field: (&str, &str)) -> Vec<u8> {
    fields(&[&[field], &GET[..]].concat())
}

fn behind(field: (&str, &str)) -> Vec<u8> {
    fields(&[&GET[..], &[field]].concat())
}

/// A GET without one of its fields, and with others instead.
fn without(name: &str, more: &[(&str, &str)]) -> Vec<u8> {
    let rest: Vec<_> = GET.into_iter().filter(|field| field.0 != name).collect();
    fields(&[&rest[..], more].concat())
}

/// A GET in which one field has another value.
fn but(name: &str, value: &str) -> Vec<u8> {
    fields(&GET.map(|field| if field.0 == name { (name, value) } else { field }))
}

/// §8.3: which pseudo fields there are, and how often.
pub(crate) fn pseudo_fields() -> Vec<Row> {
    vec![
        row(
            "8.3",
            "a pseudo field behind others",
            without(":path", &[("x-a", "1"), (":path", "/")]),
            MALFORMED,
        ),
        row("8.3", ":unknown", before((":unknown", "1")), MALFORMED),
        row("8.3", ":status in a request", before((":status", "200")), MALFORMED),
        row("8.3.1", ":method twice", behind((":method", "GET")), MALFORMED),
        row("8.3.1", ":path twice", behind((":path", "/2")), MALFORMED),
        row("8.3.1", ":scheme twice", behind((":scheme", "https")), MALFORMED),
        row("8.3.1", ":authority twice", behind((":authority", "localhost")), MALFORMED),
        row("8.3.1", "no :method", without(":method", &[]), MALFORMED),
        row("8.3.1", "no :scheme", without(":scheme", &[]), MALFORMED),
        row("8.3.1", "no :path", without(":path", &[]), MALFORMED),
        row("8.3.1", "neither :authority nor host", without(":authority", &[]), MALFORMED),
        row("8.3.1", "host alone", without(":authority", &[("host", "localhost")]), &[Status(200)]),
        row("8.3.1", "host twice", without(":authority", &[("host", "a"), ("host", "localhost")]), MALFORMED),
        row("8.3.1", "host that agrees", behind(("host", "localhost")), &[Status(200)]),
        row("8.3.1", "host that contradicts", behind(("host", "a.example.org")), MALFORMED),
    ]
}

/// §8.3.1, §8.5: what pseudo fields may say.
pub(crate) fn pseudo_values() -> Vec<Row> {
    let connect = (":method", "CONNECT");
    let to = (":authority", "localhost:22");
    vec![
        row("8.3.1", "an empty :path", but(":path", ""), MALFORMED),
        row("8.3.1", "a :path without a slash", but(":path", "path"), MALFORMED),
        row("8.3.1", "a :path that is a whole URI", but(":path", "https://localhost/"), MALFORMED),
        row("8.3.1", "* for GET", but(":path", "*"), MALFORMED),
        row("8.3.1", "a fragment in :path", but(":path", "/a#b"), &[Status(400)]),
        row("8.3.1", "a user in :authority", but(":authority", "user@localhost"), MALFORMED),
        row("8.3.1", "a path in :authority", but(":authority", "localhost/path"), MALFORMED),
        row("8.3.1", "a space in :authority", but(":authority", "local host"), MALFORMED),
        row("8.3.1", "a :scheme that is none", but(":scheme", "ht tp"), MALFORMED),
        row("8.5", "CONNECT", fields(&[connect, to]), &[Status(501), Stream(PROTOCOL)]),
        row(
            "8.5",
            "CONNECT with :path",
            fields(&[connect, to, (":path", "/"), (":scheme", "https")]),
            MALFORMED,
        ),
        row("8.5", "CONNECT without :authority", fields(&[connect]), MALFORMED),
    ]
}
