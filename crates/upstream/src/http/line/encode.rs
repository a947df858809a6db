//! The head of a request as a server gets it, and how the content behind it is delimited (RFC 9112 §6).

use std::io::Write as _;

use http::Method;
use http::header::{self, HeaderName};
use offramp_http::h1::content_length;
use offramp_http::head::{Fields, Known, KnownSet, Request};

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
/// Content of unknown length is left out with methods that have none, unless the head says that there is some, or
/// `announce` wants it.
pub(super) fn head(request: &Request, size: Size, announce: bool, out: &mut Vec<u8>) -> Written {
    let said = Said::of(&request.fields);
    let plan = plan(&request.method, said, size, announce);
    // With what frames the content, and the empty line.
    out.reserve(request.bytes().len() + 64);
    match plan {
        Plan::AsSaid(framing) => {
            request.write(KnownSet::default(), out);
            out.extend_from_slice(b"\r\n");
            Written { framing, trailers: trailers(request, framing) }
        }
        Plan::None => {
            request.write(FRAMING, out);
            out.extend_from_slice(b"\r\n");
            Written { framing: Framing::Length(0), trailers: Vec::new() }
        }
        Plan::Length(length) => {
            request.write(FRAMING, out);
            // Writing to a vector cannot fail.
            let _ = write!(out, "content-length: {length}\r\n\r\n");
            Written { framing: Framing::Length(length), trailers: Vec::new() }
        }
        Plan::Coded => {
            request.write(KnownSet::of(&[Known::ContentLength]), out);
            if !ends_chunked(&request.fields) {
                field(b"transfer-encoding", b"chunked", out);
            }
            out.extend_from_slice(b"\r\n");
            Written { framing: Framing::Chunked, trailers: trailers(request, Framing::Chunked) }
        }
    }
}

/// The fields that frame content.
const FRAMING: KnownSet = KnownSet::of(&[Known::ContentLength, Known::TransferEncoding]);

/// How the content of a request is to be framed.
enum Plan {
    /// As the fields say.
    AsSaid(Framing),
    /// There is none, and nothing says so.
    None,
    /// By a length that is said anew.
    Length(u64),
    /// In chunks, by the transfer codings that are said and `chunked`.
    Coded,
}

/// What the caller says of the framing.
#[derive(Debug, Clone, Copy, Default)]
struct Said {
    coded: bool,
    length: Option<u64>,
    /// Whether that is all that is said, once.
    simple: bool,
}

impl Said {
    fn of(fields: &Fields) -> Self {
        if !fields.may_have(FRAMING) {
            return Self { simple: true, ..Self::default() };
        }
        let mut lengths = fields.all(Known::ContentLength).map(|value| content_length(value).ok());
        let count = fields.all(Known::ContentLength).count();
        let first = lengths.next().flatten();
        let agreed = lengths.all(|length| length == first);
        let coded = fields.contains(Known::TransferEncoding);
        let length = first.filter(|_| agreed);
        Self { coded, length, simple: !coded && count == usize::from(length.is_some()) }
    }
}

/// Says how the content is framed.
fn plan(method: &Method, said: Said, size: Size, announce: bool) -> Plan {
    let bodiless = matches!(*method, Method::GET | Method::HEAD | Method::CONNECT);
    match (size, said) {
        (Size::None, Said { length: None, simple: true, .. }) => Plan::AsSaid(Framing::Length(0)),
        (Size::None, Said { length: None, .. }) => Plan::None,
        (_, Said { length: Some(length), simple: true, .. }) => Plan::AsSaid(Framing::Length(length)),
        (Size::None, Said { length: Some(length), .. }) => Plan::Length(length),
        (_, Said { coded: true, .. }) => Plan::Coded,
        (_, Said { length: Some(length), .. }) | (Size::Exact(length), _) => Plan::Length(length),
        (Size::Unknown, _) if bodiless && !announce => Plan::None,
        (Size::Unknown, _) => Plan::Coded,
    }
}

/// Whether the last transfer coding is `chunked`.
fn ends_chunked(fields: &Fields) -> bool {
    let last = fields.all(Known::TransferEncoding).next_back().unwrap_or_default();
    let last = last.rsplit(|&byte| byte == b',').next().unwrap_or_default();
    last.trim_ascii().eq_ignore_ascii_case(b"chunked")
}

pub(super) fn field(name: &[u8], value: &[u8], out: &mut Vec<u8>) {
    out.reserve(name.len() + value.len() + 4);
    out.extend_from_slice(name);
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

/// The trailers that a request in chunks announces, without those that belong into no trailers (RFC 9110 §6.5.1).
fn trailers(request: &Request, framing: Framing) -> Vec<HeaderName> {
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
    if framing != Framing::Chunked || !request.fields.contains(Known::Trailer) {
        return Vec::new();
    }
    let names = request.fields.all(Known::Trailer).flat_map(|value| value.split(|&byte| byte == b','));
    let names = names.filter_map(|name| HeaderName::from_bytes(name.trim_ascii()).ok());
    names.filter(|name| !FORBIDDEN.contains(name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(method: &str, target: &str, fields: &[(&str, &str)], size: Size) -> (String, Written) {
        let mut request = http::Request::builder().method(method).uri(target);
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        let request = Request::from(&request.body(()).unwrap());
        let mut out = Vec::new();
        let written = head(&request, size, false, &mut out);
        (String::from_utf8(out).unwrap(), written)
    }

    #[test]
    fn targets_keep_their_form() {
        for (method, target) in [("GET", "/a%20b?c=d"), ("GET", "/"), ("OPTIONS", "*")] {
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
        assert_eq!(head, "POST / HTTP/1.1\r\na: 1\r\na: 3\r\nb: 2\r\ncontent-length: 5\r\n\r\n");
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
