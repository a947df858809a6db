//! The head of a request as a server gets it, and how the content behind it is delimited (RFC 9112 §6).

use std::io::Write as _;

use http::header::{CONTENT_LENGTH, HeaderMap, HeaderName, HeaderValue, TRAILER, TRANSFER_ENCODING};
use http::request::Parts;
use http::{Method, Uri, header};
use offramp_http::h1::content_length;

use crate::http::send::Aside;

/// How the content of a request is delimited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Framing {
    /// So many bytes are to come.
    Length(u64),
    Chunked,
}

/// What is known of a body before it is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Size {
    /// There is none.
    None,
    Exact(u64),
    Unknown,
}

/// A head that was written.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Written {
    pub(super) framing: Framing,
    /// The trailers that were announced and may be sent.
    pub(super) trailers: Vec<HeaderName>,
}

/// Writes a head behind `out`. What the caller says of the framing counts, as long as it can be kept to: a
/// transfer coding, which ends in `chunked` where it did not, or else a length. Otherwise the body decides.
/// Content of unknown length is left out with methods that have none, unless the head says that there is some.
pub(super) fn head(parts: &Parts, size: Size, aside: Option<Aside<'_>>, out: &mut Vec<u8>) -> Written {
    out.extend_from_slice(parts.method.as_str().as_bytes());
    out.push(b' ');
    target(&parts.uri, out);
    out.extend_from_slice(b" HTTP/1.1\r\n");
    if let Some(host) = aside.and_then(|aside| aside.host) {
        field("host", host.as_bytes(), out);
    }
    let (mut announced, mut framed) = (false, None);
    for (name, value) in &parts.headers {
        if *name == CONTENT_LENGTH || *name == TRANSFER_ENCODING {
            // All that there is of them is said in the place of the first.
            framed.get_or_insert_with(|| framing(parts, Said::of(&parts.headers), size, out));
            continue;
        }
        announced |= *name == TRAILER;
        field(name.as_str(), value.as_bytes(), out);
    }
    let framing = framed.unwrap_or_else(|| framing(parts, Said::default(), size, out));
    if let Some(aside) = aside {
        (aside.fields)(out);
    }
    out.extend_from_slice(b"\r\n");
    let trailers = match framing {
        Framing::Chunked if announced => trailers(&parts.headers),
        _ => Vec::new(),
    };
    Written { framing, trailers }
}

/// What the caller says of the framing.
#[derive(Debug, Clone, Copy, Default)]
struct Said {
    coded: bool,
    length: Option<u64>,
}

impl Said {
    #[inline(never)]
    fn of(headers: &HeaderMap) -> Self {
        let mut lengths =
            headers.get_all(CONTENT_LENGTH).iter().map(|value| content_length(value.as_bytes()));
        let first = lengths.next().and_then(Result::ok);
        let agreed = lengths.all(|length| length.ok() == first);
        Self { coded: headers.contains_key(TRANSFER_ENCODING), length: first.filter(|_| agreed) }
    }
}

/// Writes the fields that frame the content, and says how they do.
fn framing(parts: &Parts, said: Said, size: Size, out: &mut Vec<u8>) -> Framing {
    let bodiless = matches!(parts.method, Method::GET | Method::HEAD | Method::CONNECT);
    let length = match (size, said) {
        (Size::None, Said { length: None, .. }) => return Framing::Length(0),
        (Size::None, Said { length: Some(length), .. }) => length,
        (_, Said { coded: true, .. }) => {
            codings(&parts.headers, out);
            return Framing::Chunked;
        }
        (_, Said { length: Some(length), .. }) | (Size::Exact(length), _) => length,
        (Size::Unknown, _) if bodiless => return Framing::Length(0),
        (Size::Unknown, _) => {
            out.extend_from_slice(b"transfer-encoding: chunked\r\n");
            return Framing::Chunked;
        }
    };
    // Writing to a vector cannot fail.
    let _ = write!(out, "content-length: {length}\r\n");
    Framing::Length(length)
}

/// Writes the transfer codings of the caller, `chunked` last.
fn codings(headers: &HeaderMap, out: &mut Vec<u8>) {
    let mut chunked = false;
    for value in headers.get_all(TRANSFER_ENCODING) {
        let last = value.as_bytes().rsplit(|&byte| byte == b',').next().unwrap_or_default();
        chunked = last.trim_ascii().eq_ignore_ascii_case(b"chunked");
        field("transfer-encoding", value.as_bytes(), out);
    }
    if !chunked {
        field("transfer-encoding", b"chunked", out);
    }
}

fn target(uri: &Uri, out: &mut Vec<u8>) {
    match uri.path_and_query() {
        Some(path) if uri.authority().is_none() => out.extend_from_slice(path.as_str().as_bytes()),
        // Writing to a vector cannot fail.
        _ => drop(write!(out, "{uri}")),
    }
}

pub(super) fn field(name: &str, value: &[u8], out: &mut Vec<u8>) {
    out.reserve(name.len() + value.len() + 4);
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

/// The trailers that `headers` announce, without those that belong into no trailers (RFC 9110 §6.5.1).
fn trailers(headers: &HeaderMap) -> Vec<HeaderName> {
    const FORBIDDEN: [HeaderName; 12] = [
        header::AUTHORIZATION,
        header::CACHE_CONTROL,
        header::CONTENT_ENCODING,
        header::CONTENT_LENGTH,
        header::CONTENT_RANGE,
        header::CONTENT_TYPE,
        header::HOST,
        header::MAX_FORWARDS,
        header::SET_COOKIE,
        header::TE,
        header::TRAILER,
        header::TRANSFER_ENCODING,
    ];
    let values = headers.get_all(TRAILER).iter().map(HeaderValue::as_bytes);
    let names = values.flat_map(|value| value.split(|&byte| byte == b','));
    let names = names.filter_map(|name| HeaderName::from_bytes(name.trim_ascii()).ok());
    names.filter(|name| !FORBIDDEN.contains(name)).collect()
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn written(method: &str, target: &str, fields: &[(&str, &str)], size: Size) -> (String, Written) {
        let mut request = Request::builder().method(method).uri(target);
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        let (parts, ()) = request.body(()).unwrap().into_parts();
        let mut out = Vec::new();
        let written = head(&parts, size, None, &mut out);
        (String::from_utf8(out).unwrap(), written)
    }

    #[test]
    fn targets_keep_their_form() {
        for (method, target) in [
            ("GET", "/a%20b?c=d"),
            ("GET", "/"),
            ("OPTIONS", "*"),
            ("CONNECT", "app.test:443"),
            ("GET", "http://app.test/x?y"),
        ] {
            let (head, _) = written(method, target, &[("host", "app.test"), ("x", "")], Size::None);
            assert_eq!(head, format!("{method} {target} HTTP/1.1\r\nhost: app.test\r\nx: \r\n\r\n"));
        }
    }

    #[test]
    fn content_is_framed_by_what_is_known_of_it() {
        use Framing::{Chunked, Length};
        const CODED: (&str, &str) = ("transfer-encoding", "chunked");
        const FIVE: (&str, &str) = ("content-length", "5");
        let chunked = "transfer-encoding: chunked\r\n";
        let five = "content-length: 5\r\n";
        type Row<'r> = (&'r str, &'r [(&'r str, &'r str)], Size, &'r str, Framing);
        let table: &[Row<'_>] = &[
            ("GET", &[], Size::None, "", Length(0)),
            ("POST", &[], Size::None, "", Length(0)),
            ("POST", &[("content-length", "0")], Size::None, "content-length: 0\r\n", Length(0)),
            ("POST", &[CODED], Size::None, "", Length(0)),
            ("POST", &[], Size::Exact(5), five, Length(5)),
            ("POST", &[], Size::Exact(0), "content-length: 0\r\n", Length(0)),
            ("POST", &[], Size::Unknown, chunked, Chunked),
            ("GET", &[], Size::Exact(5), five, Length(5)),
            ("GET", &[], Size::Unknown, "", Length(0)),
            ("HEAD", &[], Size::Unknown, "", Length(0)),
            ("GET", &[CODED], Size::Unknown, chunked, Chunked),
            ("PUT", &[CODED], Size::Exact(5), chunked, Chunked),
            ("PUT", &[CODED, FIVE], Size::Exact(5), chunked, Chunked),
            ("PUT", &[FIVE], Size::Unknown, five, Length(5)),
            ("PUT", &[FIVE, FIVE], Size::Unknown, five, Length(5)),
            ("PUT", &[FIVE, ("content-length", "6")], Size::Unknown, chunked, Chunked),
            ("PUT", &[("content-length", "x")], Size::Exact(5), five, Length(5)),
            (
                "PUT",
                &[("transfer-encoding", "gzip")],
                Size::Unknown,
                "transfer-encoding: gzip\r\ntransfer-encoding: chunked\r\n",
                Chunked,
            ),
            (
                "PUT",
                &[("transfer-encoding", "gzip, Chunked")],
                Size::Unknown,
                "transfer-encoding: gzip, Chunked\r\n",
                Chunked,
            ),
        ];
        for (method, fields, size, line, framing) in table {
            let (head, written) = written(method, "/", fields, *size);
            assert_eq!(head, format!("{method} / HTTP/1.1\r\n{line}\r\n"), "{fields:?} {size:?}");
            assert_eq!(written.framing, *framing);
        }
    }

    #[test]
    fn fields_keep_their_order() {
        let fields = [("a", "1"), ("content-length", "5"), ("b", "2"), ("a", "3"), ("content-length", "5")];
        let (head, _) = written("POST", "/", &fields, Size::Exact(5));
        assert_eq!(head, "POST / HTTP/1.1\r\na: 1\r\na: 3\r\ncontent-length: 5\r\nb: 2\r\n\r\n");
    }

    #[test]
    fn only_trailers_that_were_announced_may_be_sent() {
        let trailer = ("trailer", "X-Sum, content-length,  x-other");
        let (_, chunked) = written("POST", "/", &[trailer], Size::Unknown);
        assert_eq!(chunked.trailers, ["x-sum", "x-other"].map(HeaderName::from_static));
        let (_, sized) = written("POST", "/", &[trailer], Size::Exact(1));
        assert!(sized.trailers.is_empty());
    }
}
