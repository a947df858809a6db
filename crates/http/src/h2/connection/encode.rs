//! Encoding of outgoing messages as header blocks (RFC 9113 §8.3, RFC 7541).

use http::{Method, StatusCode};

use crate::head::{Fields, Known, Request};
use crate::hpack::{HpackEncoder, Indexing};

/// Longest path that enters the dynamic table: longer ones rarely repeat.
const SHORT_PATH: usize = 64;

/// Properties of a response beyond its fields.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ends<'d> {
    /// Set if the response has no content.
    pub end: bool,
    /// Content length, if it is known and no field declares it.
    pub length: Option<u64>,
    /// Value of `date`, for a response without that field.
    pub date: Option<&'d [u8]>,
}

impl From<bool> for Ends<'_> {
    fn from(end: bool) -> Self {
        Self { end, ..Self::default() }
    }
}

/// Checks that a host is a valid `:authority`: visible characters, no user information (RFC 9113 §8.3.1).
pub(super) fn is_authority(host: &[u8]) -> bool {
    !host.is_empty() && host.iter().all(|byte| byte.is_ascii_graphic() && *byte != b'@')
}

/// Encodes the head of a request, without connection-specific fields (RFC 9113 §8.2.2).
pub(super) fn request(
    encoder: &mut HpackEncoder,
    request: &Request,
    scheme: &str,
    host: &[u8],
    length: Option<u64>,
    block: &mut Vec<u8>,
) {
    encoder.begin(block);
    encoder.field(b":method", request.method.as_str().as_bytes(), Indexing::Yes, block);
    // CONNECT has neither scheme nor path (RFC 9113 §8.5).
    if request.method != Method::CONNECT {
        let path = request.target().as_bytes();
        let short = path.len() <= SHORT_PATH && !path.contains(&b'?');
        encoder.field(b":scheme", scheme.as_bytes(), Indexing::Yes, block);
        encoder.field(b":path", path, if short { Indexing::Yes } else { Indexing::No }, block);
    }
    encoder.field(b":authority", host, Indexing::Yes, block);
    request.fields.iter().for_each(|(name, value)| field(encoder, name, value, block));
    if let Some(length) = length.filter(|_| !request.fields.contains(Known::ContentLength)) {
        encoder.field(b"content-length", itoa::Buffer::new().format(length).as_bytes(), Indexing::No, block);
    }
}

/// Encodes the head of a response, without connection-specific fields (RFC 9113 §8.2.2).
pub(super) fn response(
    encoder: &mut HpackEncoder,
    status: StatusCode,
    fields: &Fields,
    ends: Ends<'_>,
    block: &mut Vec<u8>,
) {
    interim(encoder, status, fields, block);
    if let Some(date) = ends.date.filter(|_| !fields.contains(Known::Date)) {
        encoder.field(b"date", date, Indexing::Yes, block);
    }
    if let Some(length) = ends.length.filter(|_| !fields.contains(Known::ContentLength)) {
        encoder.field(b"content-length", itoa::Buffer::new().format(length).as_bytes(), Indexing::No, block);
    }
}

/// Encodes the head of an interim response.
pub(super) fn interim(encoder: &mut HpackEncoder, status: StatusCode, fields: &Fields, block: &mut Vec<u8>) {
    encoder.begin(block);
    encoder.status(status.as_u16(), block);
    fields.iter().for_each(|(name, value)| response_field(encoder, name, value, block));
}

/// Encodes trailers of either side.
pub(super) fn trailers<'f>(
    encoder: &mut HpackEncoder,
    trailers: impl Iterator<Item = (&'f [u8], &'f [u8])>,
    block: &mut Vec<u8>,
) {
    encoder.begin(block);
    trailers.for_each(|(name, value)| field(encoder, name, value, block));
}

/// Encodes a field of a response, unless it is connection-specific.
fn response_field(encoder: &mut HpackEncoder, name: &[u8], value: &[u8], block: &mut Vec<u8>) {
    let indexing = match name {
        b"connection" | b"transfer-encoding" | b"upgrade" | b"keep-alive" | b"proxy-connection" => return,
        // Never indexed: protects the cookie against probing attacks (RFC 7541 §7.1.3).
        b"set-cookie" => Indexing::Never,
        // Values that rarely repeat.
        b"age" | b"content-length" | b"content-range" | b"etag" | b"location" => Indexing::No,
        _ => Indexing::Yes,
    };
    encoder.field(name, value, indexing, block);
}

/// Encodes a field of a request or a trailer, unless it is connection-specific or repeats `:authority`.
fn field(encoder: &mut HpackEncoder, name: &[u8], value: &[u8], block: &mut Vec<u8>) {
    let indexing = match name {
        b"connection" | b"host" | b"http2-settings" | b"keep-alive" | b"proxy-connection"
        | b"transfer-encoding" | b"upgrade" => return,
        b"te" if value != b"trailers" => return,
        // Never indexed: protects secrets against probing attacks (RFC 7541 §7.1.3).
        b"authorization" | b"cookie" | b"proxy-authorization" | b"set-cookie" => Indexing::Never,
        // Values that rarely repeat.
        b"age" | b"content-length" | b"content-range" | b"etag" | b"grpc-timeout" | b"if-modified-since"
        | b"if-none-match" | b"location" | b"range" | b"traceparent" | b"tracestate" | b"x-request-id" => {
            Indexing::No
        }
        _ => Indexing::Yes,
    };
    encoder.field(name, value, indexing, block);
}
