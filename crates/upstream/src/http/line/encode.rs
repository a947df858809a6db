//! Encoding of a request's head for a server, and the delimitation of its content (RFC 9112 §6).

use std::io::Write as _;

use http::Method;
use http::header::{self, HeaderName};
use offramp_http::h1::content_length;
use offramp_http::head::{Fields, Known, KnownSet, Request};

/// Delimitation of a request's content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OutgoingFraming {
    /// Remaining bytes of content with a length.
    Length(u64),
    Chunked,
}

/// Size of a body before it is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BodySize {
    /// Known to be empty: no content follows.
    None,
    Exact(u64),
    Unknown,
}

/// Result of writing a head.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct EncodedHead {
    pub(super) framing: OutgoingFraming,
    pub(super) trailers: LateFields,
}

/// Trailers that are sent to a server.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) enum LateFields {
    /// No trailers at all.
    #[default]
    None,
    /// Trailers announced by the request: servers may misinterpret others.
    Announced(Vec<HeaderName>),
    /// All trailers of a gRPC call; its servers read them.
    Any,
}

/// Appends a head to `out`. The framing declared by the fields is kept if possible: a transfer coding,
/// completed by `chunked`, or else a length. Otherwise the body decides. Content of unknown length is omitted
/// for methods that usually have none, unless the head declares it or `announce` is set.
pub(super) fn head(request: &Request, size: BodySize, announce: bool, out: &mut Vec<u8>) -> EncodedHead {
    let declared = Declared::of(&request.fields);
    let plan = plan(&request.method, declared, size, announce);
    // Plus the framing and the empty line.
    out.reserve(request.bytes().len() + 64);
    match plan {
        FramingPlan::AsDeclared(framing) => {
            request.write(KnownSet::default(), out);
            out.extend_from_slice(b"\r\n");
            EncodedHead { framing, trailers: trailers(request, framing) }
        }
        FramingPlan::None => {
            request.write(FRAMING, out);
            out.extend_from_slice(b"\r\n");
            EncodedHead { framing: OutgoingFraming::Length(0), trailers: LateFields::None }
        }
        FramingPlan::Length(length) => {
            request.write(FRAMING, out);
            // Writing to a vector cannot fail.
            let _ = write!(out, "content-length: {length}\r\n\r\n");
            EncodedHead { framing: OutgoingFraming::Length(length), trailers: LateFields::None }
        }
        FramingPlan::Coded => {
            request.write(KnownSet::of(&[Known::ContentLength]), out);
            if !ends_chunked(&request.fields) {
                field(b"transfer-encoding", b"chunked", out);
            }
            out.extend_from_slice(b"\r\n");
            EncodedHead {
                framing: OutgoingFraming::Chunked,
                trailers: trailers(request, OutgoingFraming::Chunked),
            }
        }
    }
}

/// End of a head with chunked content that declares no framing of its own, and of one with empty content.
pub(super) const CODED: &[u8] = b"\r\ntransfer-encoding: chunked\r\n\r\n";
pub(super) const EMPTY: &[u8] = b"\r\ncontent-length: 0\r\n\r\n";

/// Returns true if a request with content of this size must declare an empty content if it turns out so. A
/// request that waits for `100 Continue` declares nothing before.
pub(super) fn may_say_none(request: &Request, size: BodySize) -> bool {
    size == BodySize::Unknown && has_content(&request.method) && !request.fields.contains(Known::Expect)
}

/// Returns true for methods with which servers expect content, and may reject a request that declares none
/// (RFC 9110 §8.6).
fn has_content(method: &Method) -> bool {
    matches!(*method, Method::POST | Method::PUT | Method::PATCH)
}

/// Fields that frame content.
const FRAMING: KnownSet = KnownSet::of(&[Known::ContentLength, Known::TransferEncoding]);

/// Framing of a request's content.
enum FramingPlan {
    /// As declared by the fields.
    AsDeclared(OutgoingFraming),
    /// No content, and no declaration.
    None,
    /// A length that is written anew.
    Length(u64),
    /// Chunked, behind the declared transfer codings.
    Coded,
}

/// Framing declared by the fields.
#[derive(Debug, Clone, Copy, Default)]
struct Declared {
    coded: bool,
    length: Option<u64>,
    /// Set if a single declaration is present.
    simple: bool,
}

impl Declared {
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

/// Decides on the framing of the content.
fn plan(method: &Method, declared: Declared, size: BodySize, announce: bool) -> FramingPlan {
    let bodiless = matches!(*method, Method::GET | Method::HEAD | Method::CONNECT);
    match (size, declared) {
        (BodySize::None, Declared { length: None, .. }) if has_content(method) => FramingPlan::Length(0),
        (BodySize::None, Declared { length: None, simple: true, .. }) => {
            FramingPlan::AsDeclared(OutgoingFraming::Length(0))
        }
        (BodySize::None, Declared { length: None, .. }) => FramingPlan::None,
        (_, Declared { length: Some(length), simple: true, .. }) => {
            FramingPlan::AsDeclared(OutgoingFraming::Length(length))
        }
        (BodySize::None, Declared { length: Some(length), .. }) => FramingPlan::Length(length),
        (_, Declared { coded: true, .. }) => FramingPlan::Coded,
        (_, Declared { length: Some(length), .. }) | (BodySize::Exact(length), _) => {
            FramingPlan::Length(length)
        }
        (BodySize::Unknown, _) if bodiless && !announce => FramingPlan::None,
        (BodySize::Unknown, _) => FramingPlan::Coded,
    }
}

/// Returns true if the final transfer coding is `chunked`.
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

/// Trailers of a chunked request that may be sent.
fn trailers(request: &Request, framing: OutgoingFraming) -> LateFields {
    if framing != OutgoingFraming::Chunked {
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

/// Media type of gRPC, which may have a suffix for its messages.
const GRPC: &[u8] = b"application/grpc";

impl LateFields {
    /// Returns true for trailer names, in lower case, that are sent: none that must precede the content (RFC
    /// 9110 §6.5.1), or concerns one connection.
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

    fn written(method: &str, target: &str, fields: &[(&str, &str)], size: BodySize) -> (String, EncodedHead) {
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
            let (head, _) = written(method, target, &[("host", "app.test"), ("x", "")], BodySize::None);
            assert_eq!(head, format!("{method} {target} HTTP/1.1\r\nhost: app.test\r\nx: \r\n\r\n"));
        }
    }

    #[test]
    fn content_is_framed_by_what_is_known_of_it() {
        use OutgoingFraming::{Chunked, Length};
        const CODED: (&str, &str) = ("transfer-encoding", "chunked");
        const FIVE: (&str, &str) = ("content-length", "5");
        let chunked = "transfer-encoding: chunked\r\n";
        let five = "content-length: 5\r\n";
        type Row<'r> = (&'r str, &'r [(&'r str, &'r str)], BodySize, &'r str, OutgoingFraming);
        let table: &[Row<'_>] = &[
            ("GET", &[], BodySize::None, "", Length(0)),
            ("POST", &[], BodySize::None, "content-length: 0\r\n", Length(0)),
            ("PUT", &[], BodySize::None, "content-length: 0\r\n", Length(0)),
            ("PATCH", &[], BodySize::None, "content-length: 0\r\n", Length(0)),
            ("DELETE", &[], BodySize::None, "", Length(0)),
            ("OPTIONS", &[], BodySize::None, "", Length(0)),
            ("POST", &[("content-length", "0")], BodySize::None, "content-length: 0\r\n", Length(0)),
            ("POST", &[CODED], BodySize::None, "content-length: 0\r\n", Length(0)),
            ("DELETE", &[CODED], BodySize::None, "", Length(0)),
            ("POST", &[], BodySize::Exact(5), five, Length(5)),
            ("POST", &[], BodySize::Exact(0), "content-length: 0\r\n", Length(0)),
            ("POST", &[], BodySize::Unknown, chunked, Chunked),
            ("GET", &[], BodySize::Exact(5), five, Length(5)),
            ("GET", &[], BodySize::Unknown, "", Length(0)),
            ("HEAD", &[], BodySize::Unknown, "", Length(0)),
            ("GET", &[CODED], BodySize::Unknown, chunked, Chunked),
            ("PUT", &[CODED], BodySize::Exact(5), chunked, Chunked),
            ("PUT", &[CODED, FIVE], BodySize::Exact(5), chunked, Chunked),
            ("PUT", &[FIVE], BodySize::Unknown, five, Length(5)),
            ("PUT", &[FIVE, FIVE], BodySize::Unknown, five, Length(5)),
            ("PUT", &[FIVE, ("content-length", "6")], BodySize::Unknown, chunked, Chunked),
            ("PUT", &[("content-length", "x")], BodySize::Exact(5), five, Length(5)),
            (
                "PUT",
                &[("transfer-encoding", "gzip")],
                BodySize::Unknown,
                "transfer-encoding: gzip\r\ntransfer-encoding: chunked\r\n",
                Chunked,
            ),
            (
                "PUT",
                &[("transfer-encoding", "gzip, Chunked")],
                BodySize::Unknown,
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
        let (head, _) = written("POST", "/", &fields, BodySize::Exact(5));
        assert_eq!(head, "POST / HTTP/1.1\r\na: 1\r\na: 3\r\nb: 2\r\ncontent-length: 5\r\n\r\n");
    }

    #[test]
    fn trailers_are_sent_that_were_announced_or_belong_to_grpc() {
        let announced = ("trailer", "X-Sum, content-length,  x-other");
        let grpc = |value| ("content-type", value);
        let all = ["x-sum", "x-other", "x-more", "content-length", "connection"];
        for (field, size, sent) in [
            (announced, BodySize::Unknown, &all[..2]),
            (announced, BodySize::Exact(1), &[]),
            (("x", ""), BodySize::Unknown, &[]),
            (grpc("application/grpc"), BodySize::Unknown, &all[..3]),
            (grpc("Application/gRPC+proto"), BodySize::Unknown, &all[..3]),
            (grpc("application/grpc;x"), BodySize::Unknown, &all[..3]),
            (grpc("application/grpc-web"), BodySize::Unknown, &[]),
            (grpc("application/grpc"), BodySize::Exact(1), &[]),
        ] {
            let (_, written) = written("POST", "/", &[field], size);
            let passed: Vec<_> = all.iter().filter(|name| written.trailers.passes(name.as_bytes())).collect();
            assert_eq!(passed, sent.iter().collect::<Vec<_>>(), "{field:?} {size:?}");
        }
    }
}
