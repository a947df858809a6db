//! Every way in which a response is framed, by what asked for it, what it is, and what is known of its body.

use http::StatusCode;

use super::*;

const MODERN: ResponseTraits =
    ResponseTraits { head: false, http10: false, keep_alive: true, trailers: false };
const OLD: ResponseTraits = ResponseTraits { http10: true, ..MODERN };
const HEAD: ResponseTraits = ResponseTraits { head: true, ..MODERN };
const TRAILED: ResponseTraits = ResponseTraits { trailers: true, ..MODERN };

/// The lines of a head but its date, and what was decided.
fn written(
    asked: ResponseTraits,
    status: u16,
    size: ReplySize,
    keep_alive: bool,
    more: &[(&'static str, &'static str)],
) -> (String, Written) {
    let mut response = Response::new(StatusCode::from_u16(status).unwrap(), ());
    response.fields = more.iter().copied().collect();
    let mut out = Vec::new();
    let written = head(&mut out, &response, size, asked, keep_alive, &Date::default());
    let text = String::from_utf8(out).unwrap();
    let text = text.strip_suffix("\r\n\r\n").expect("a head ends so");
    let lines: Vec<_> = text.split("\r\n").filter(|line| !line.starts_with("date: ")).collect();
    assert_eq!(text.split("\r\n").count(), lines.len() + 1, "one date: {text}");
    (lines.join(" | "), written)
}

#[test]
fn framings() {
    let length = |left| Framing::Length(left);
    let chunked = || Framing::Chunked { trailers: false };
    let rows = [
        (MODERN, 200, ReplySize::None, "HTTP/1.1 200 OK | content-length: 0", length(0), true),
        (MODERN, 200, ReplySize::Exact(7), "HTTP/1.1 200 OK | content-length: 7", length(7), true),
        (MODERN, 200, ReplySize::Unknown, "HTTP/1.1 200 OK | transfer-encoding: chunked", chunked(), true),
        (MODERN, 404, ReplySize::Exact(7), "HTTP/1.1 404 Not Found | content-length: 7", length(7), true),
        (MODERN, 299, ReplySize::None, "HTTP/1.1 299  | content-length: 0", length(0), true),
        (MODERN, 204, ReplySize::None, "HTTP/1.1 204 No Content", Framing::None, true),
        (MODERN, 204, ReplySize::Unknown, "HTTP/1.1 204 No Content", Framing::None, true),
        (MODERN, 304, ReplySize::Exact(7), "HTTP/1.1 304 Not Modified", Framing::None, true),
        (MODERN, 101, ReplySize::None, "HTTP/1.1 101 Switching Protocols", Framing::None, false),
        (HEAD, 200, ReplySize::None, "HTTP/1.1 200 OK", Framing::None, true),
        (HEAD, 200, ReplySize::Exact(7), "HTTP/1.1 200 OK | content-length: 7", Framing::None, true),
        (HEAD, 200, ReplySize::Unknown, "HTTP/1.1 200 OK", Framing::None, true),
        (HEAD, 204, ReplySize::Exact(7), "HTTP/1.1 204 No Content", Framing::None, true),
        (
            OLD,
            200,
            ReplySize::None,
            "HTTP/1.0 200 OK | content-length: 0 | connection: keep-alive",
            length(0),
            true,
        ),
        (
            OLD,
            200,
            ReplySize::Exact(7),
            "HTTP/1.0 200 OK | content-length: 7 | connection: keep-alive",
            length(7),
            true,
        ),
        (OLD, 200, ReplySize::Unknown, "HTTP/1.0 200 OK", Framing::Close, false),
        (OLD, 204, ReplySize::None, "HTTP/1.0 204 No Content | connection: keep-alive", Framing::None, true),
    ];
    for (asked, status, size, text, framing, keep_alive) in rows {
        let expected = (text.to_owned(), Written { framing, keep_alive });
        assert_eq!(written(asked, status, size, true, &[]), expected, "{asked:?} {status} {size:?}");
    }
}

#[test]
fn the_last_response_says_so() {
    let rows: [(_, &[(&str, &str)], _); 5] = [
        (MODERN, &[], "HTTP/1.1 200 OK | content-length: 0 | connection: close"),
        (OLD, &[], "HTTP/1.0 200 OK | content-length: 0"),
        (MODERN, &[("connection", "x, Close")], "HTTP/1.1 200 OK | connection: x, Close | content-length: 0"),
        (OLD, &[("connection", "close")], "HTTP/1.0 200 OK | connection: close | content-length: 0"),
        (
            MODERN,
            &[("connection", "x")],
            "HTTP/1.1 200 OK | connection: x | content-length: 0 | connection: close",
        ),
    ];
    for (asked, fields, text) in rows {
        let (lines, written) = written(asked, 200, ReplySize::None, false, fields);
        assert_eq!((&*lines, written.keep_alive), (text, false));
    }
    // A response that says close is the last one, whatever was meant.
    let (lines, written) = written(MODERN, 413, ReplySize::None, true, &[("connection", "close")]);
    assert_eq!(lines, "HTTP/1.1 413 Payload Too Large | connection: close | content-length: 0");
    assert!(!written.keep_alive);
    let (_, written) = self::written(OLD, 101, ReplySize::None, true, &[("connection", "upgrade")]);
    assert!(!written.keep_alive);
}

#[test]
fn fields_of_the_server() {
    // Its own length counts where the body tells none; one that is none does not.
    let (lines, known) =
        written(MODERN, 200, ReplySize::Unknown, true, &[("content-length", "12"), ("x-a", "b")]);
    assert_eq!(
        (&*lines, known.framing),
        ("HTTP/1.1 200 OK | content-length: 12 | x-a: b", Framing::Length(12))
    );
    let (lines, _) = written(MODERN, 200, ReplySize::Unknown, true, &[("content-length", "+12")]);
    assert_eq!(lines, "HTTP/1.1 200 OK | transfer-encoding: chunked");
    // What the body is counts more.
    let fields = [("content-length", "12"), ("transfer-encoding", "gzip, chunked")];
    let (lines, _) = written(MODERN, 200, ReplySize::Exact(3), true, &fields);
    assert_eq!(lines, "HTTP/1.1 200 OK | content-length: 3");
    let (lines, _) = written(MODERN, 204, ReplySize::None, true, &fields);
    assert_eq!(lines, "HTTP/1.1 204 No Content");
    let (lines, head) = written(HEAD, 200, ReplySize::None, true, &fields);
    assert_eq!((&*lines, head.framing), ("HTTP/1.1 200 OK | content-length: 12", Framing::None));
    // A date is not written twice.
    let mut response = Response::new(StatusCode::OK, ());
    response.fields.append_known(Known::Date, b"then");
    let mut out = Vec::new();
    super::head(&mut out, &response, ReplySize::None, MODERN, true, &Date::default());
    assert_eq!(out, b"HTTP/1.1 200 OK\r\ndate: then\r\ncontent-length: 0\r\n\r\n");
}

/// What the outbox has.
fn sent(outbox: &Outbox) -> String {
    String::from_utf8(outbox.all()).unwrap()
}

fn trailers() -> Fields {
    let fields = [("x-sum", "1"), ("x-other", "2"), ("content-length", "3")];
    fields.into_iter().collect()
}

#[test]
fn bodies() {
    let body = |mut framing: Framing, pieces: &[usize], trailers: Option<&Fields>| {
        let mut outbox = Outbox::default();
        for &length in pieces {
            framing.data(Bytes::from(vec![b'x'; length]), &mut outbox);
        }
        framing.end(trailers, &mut outbox).map(|()| sent(&outbox))
    };
    assert_eq!(body(Framing::Length(5), &[2, 3], None), Ok("xxxxx".to_owned()));
    assert_eq!(body(Framing::Length(5), &[2, 4], None), Ok("xxxxx".to_owned()));
    assert_eq!(body(Framing::Length(5), &[2, 2], None), Err(()));
    assert_eq!(body(Framing::Close, &[2, 2], None), Ok("xxxx".to_owned()));
    assert_eq!(body(Framing::None, &[2], None), Ok(String::new()));
    let chunked = || Framing::Chunked { trailers: false };
    assert_eq!(
        body(chunked(), &[2, 0, 17], None),
        Ok(format!("2\r\nxx\r\n11\r\n{}\r\n0\r\n\r\n", "x".repeat(17)))
    );
    let large = body(chunked(), &[0x12345], None).unwrap();
    assert_eq!(large, format!("12345\r\n{}\r\n0\r\n\r\n", "x".repeat(0x12345)));
    // Only to clients that take them, and what may come so late.
    assert_eq!(body(chunked(), &[], Some(&trailers())), Ok("0\r\n\r\n".to_owned()));
    let wanted = Framing::Chunked { trailers: true };
    let text = "1\r\nx\r\n0\r\nx-sum: 1\r\nx-other: 2\r\n\r\n";
    assert_eq!(body(wanted, &[1], Some(&trailers())), Ok(text.to_owned()));
}

#[test]
fn trailers_go_to_clients_that_take_them() {
    let fields = [("trailer", "X-Sum, x-more"), ("trailer", "x-last")];
    let (lines, taken) = written(TRAILED, 200, ReplySize::Unknown, true, &fields);
    assert_eq!(
        lines,
        "HTTP/1.1 200 OK | trailer: X-Sum, x-more | trailer: x-last | transfer-encoding: chunked"
    );
    assert_eq!(taken.framing, Framing::Chunked { trailers: true });
    let (_, unannounced) = written(TRAILED, 200, ReplySize::Unknown, true, &[]);
    assert_eq!(unannounced.framing, Framing::Chunked { trailers: true });
    let (_, unasked) = written(MODERN, 200, ReplySize::Unknown, true, &fields);
    assert_eq!(unasked.framing, Framing::Chunked { trailers: false });
    for (asked, status) in [(OLD, 200), (HEAD, 200), (MODERN, 304)] {
        let (lines, _) = written(asked, status, ReplySize::Unknown, true, &fields);
        assert!(!lines.contains("trailer"), "{lines}");
    }
}
