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
    pub(super) trailers: LateFields,
}

/// The trailers that are sent to a server.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) enum LateFields {
    /// None.
    #[default]
    None,
    /// Those that the request announces: a server that knows nothing of others may take them for what they are not.
    Announced(Vec<HeaderName>),
    /// All of a gRPC call, whose servers read trailers.
    Any,
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
            Written { framing: Framing::Length(0), trailers: LateFields::None }
        }
        Plan::Length(length) => {
            request.write(FRAMING, out);
            // Writing to a vector cannot fail.
            let _ = write!(out, "content-length: {length}\r\n\r\n");
            Written { framing: Framing::Length(length), trailers: LateFields::None }
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

/// The end of a head whose content is in chunks, by no word of its own, and that of one without content.
pub(super) const CODED: &[u8] = b"\r\ntransfer-encoding: chunked\r\n\r\n";
pub(super) const EMPTY: &[u8] = b"\r\ncontent-length: 0\r\n\r\n";

/// Whether a request with content of this size is to say so if there turns out to be none. One that waits to be asked for
/// content says nothing of it before.
pub(super) fn may_say_none(request: &Request, size: Size) -> bool {
    size == Size::Unknown && has_content(&request.method) && !request.fields.contains(Known::Expect)
}

/// Whether servers expect content with a method, and may refuse a request that says nothing of it (RFC 9110 §8.6).
fn has_content(method: &Method) -> bool {
    matches!(*method, Method::POST | Method::PUT | Method::PATCH)
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
        (Size::None, Said { length: None, .. }) if has_content(method) => Plan::Length(0),
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

/// The trailers of a request in chunks that may be sent.
fn trailers(request: &Request, framing: Framing) -> LateFields {
    if framing != Framing::Chunked {
        return LateFields::None;
    }
    let is_grpc = |value: &[u8]| {
        value.get(..GRPC.len()).is_some_and(|start| start.eq_ignore_ascii_case(GRPC))
            && matches!(value.get(GRPC.len()), None | Some(b'+' | b';' | b' ' | b'\t'))
    };
    if request.fields.named(b"content-type").next().is_some_and(is_grpc) {
        return LateFields::Any;
    }
    if !request.fields.contains(Known::Trailer) {
        return LateFields::None;
    }
    let names = request.fields.all(Known::Trailer).flat_map(|value| value.split(|&byte| byte == b','));
    LateFields::Announced(names.filter_map(|name| HeaderName::from_bytes(name.trim_ascii()).ok()).collect())
}

/// The media type of gRPC, which may have a suffix for its messages.
const GRPC: &[u8] = b"application/grpc";

impl LateFields {
    /// Whether a field with this name, in lower case, is sent: none that belongs before the content (RFC 9110 §6.5.1), or
    /// to one connection.
    pub(super) fn passes(&self, name: &[u8]) -> bool {
        const FORBIDDEN: [HeaderName; 15] = [
            header::AUTHORIZATION,
            header::CACHE_CONTROL,
            header::CONNECTION,
            header::CONTENT_ENCODING,
            header::CONTENT_LENGTH,
            header::CONTENT_RANGE,
            header::CONTENT_TYPE,
            header::EXPECT,
            header::HOST,
            header::MAX_FORWARDS,
            header::SET_COOKIE,
            header::TE,
            header::TRAILER,
            header::TRANSFER_ENCODING,
            header::UPGRADE,
        ];
        let is = |known: &HeaderName| known.as_str().as_bytes() == name;
        let wanted = match self {
            Self::None => false,
            Self::Announced(names) => names.iter().any(is),
            Self::Any => true,
        };
        wanted && !FORBIDDEN.iter().any(is)
    }
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
            ("POST", &[], Size::None, "content-length: 0\r\n", Length(0)),
            ("PUT", &[], Size::None, "content-length: 0\r\n", Length(0)),
            ("PATCH", &[], Size::None, "content-length: 0\r\n", Length(0)),
            ("DELETE", &[], Size::None, "", Length(0)),
            ("OPTIONS", &[], Size::None, "", Length(0)),
            ("POST", &[("content-length", "0")], Size::None, "content-length: 0\r\n", Length(0)),
            ("POST", &[CODED], Size::None, "content-length: 0\r\n", Length(0)),
            ("DELETE", &[CODED], Size::None, "", Length(0)),
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
    fn trailers_are_sent_that_were_announced_or_belong_to_grpc() {
        let announced = ("trailer", "X-Sum, content-length,  x-other");
        let grpc = |value| ("content-type", value);
        let all = ["x-sum", "x-other", "x-more", "content-length", "connection"];
        for (field, size, sent) in [
            (announced, Size::Unknown, &all[..2]),
            (announced, Size::Exact(1), &[]),
            (("x", ""), Size::Unknown, &[]),
            (grpc("application/grpc"), Size::Unknown, &all[..3]),
            (grpc("Application/gRPC+proto"), Size::Unknown, &all[..3]),
            (grpc("application/grpc;x"), Size::Unknown, &all[..3]),
            (grpc("application/grpc-web"), Size::Unknown, &[]),
            (grpc("application/grpc"), Size::Exact(1), &[]),
        ] {
            let (_, written) = written("POST", "/", &[field], size);
            let passed: Vec<_> = all.iter().filter(|name| written.trailers.passes(name.as_bytes())).collect();
            assert_eq!(passed, sent.iter().collect::<Vec<_>>(), "{field:?} {size:?}");
        }
    }
}
