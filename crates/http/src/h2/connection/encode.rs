//! The fields of what we send as header blocks (RFC 9113 §8.3, RFC 7541).

use http::{Method, StatusCode};

use crate::head::{Fields, Known, Request};
use crate::hpack::{Encoder, Indexing};

/// The longest path that is put into the table of fields: longer ones mostly come once.
const SHORT_PATH: usize = 64;

/// What a response says besides its fields.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ends<'d> {
    /// Whether it ends with its head.
    pub end: bool,
    /// How much content follows, where that is known and no field says it.
    pub length: Option<u64>,
    /// What time it is, where no field says it.
    pub date: Option<&'d [u8]>,
}

impl From<bool> for Ends<'_> {
    fn from(end: bool) -> Self {
        Self { end, ..Self::default() }
    }
}

/// Whether it can be `:authority`: something visible, and no user information (RFC 9113 §8.3.1).
pub(super) fn is_authority(host: &[u8]) -> bool {
    !host.is_empty() && host.iter().all(|byte| byte.is_ascii_graphic() && *byte != b'@')
}

/// The head of a request, without the fields of a connection (RFC 9113 §8.2.2).
pub(super) fn request(
    encoder: &mut Encoder,
    request: &Request,
    (scheme, host): (&str, &[u8]),
    length: Option<u64>,
    block: &mut Vec<u8>,
) {
    encoder.begin(block);
    encoder.field(b":method", request.method.as_str().as_bytes(), Indexing::Yes, block);
    // What is behind such a host is no resource (RFC 9113 §8.5).
    if request.method != Method::CONNECT {
        let path = request.target().as_bytes();
        let short = path.len() <= SHORT_PATH && !path.contains(&b'?');
        encoder.field(b":scheme", scheme.as_bytes(), Indexing::Yes, block);
        encoder.field(b":path", path, if short { Indexing::Yes } else { Indexing::No }, block);
    }
    encoder.field(b":authority", host, Indexing::Yes, block);
    request.fields.iter().for_each(|(name, value)| field(encoder, name, value, block));
    if let Some(length) = length.filter(|_| !request.fields.contains(Known::ContentLength)) {
        encoder.field(b"content-length", decimal(length, &mut [0; 20]), Indexing::No, block);
    }
}

/// The head of a response, without the fields of a connection (RFC 9113 §8.2.2).
pub(super) fn response(
    encoder: &mut Encoder,
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
        encoder.field(b"content-length", decimal(length, &mut [0; 20]), Indexing::No, block);
    }
}

/// The head of an interim response.
pub(super) fn interim(encoder: &mut Encoder, status: StatusCode, fields: &Fields, block: &mut Vec<u8>) {
    encoder.begin(block);
    encoder.status(status.as_u16(), block);
    fields.iter().for_each(|(name, value)| response_field(encoder, name, value, block));
}

/// Trailers of either side.
pub(super) fn trailers<'f>(
    encoder: &mut Encoder,
    trailers: impl Iterator<Item = (&'f [u8], &'f [u8])>,
    block: &mut Vec<u8>,
) {
    encoder.begin(block);
    trailers.for_each(|(name, value)| field(encoder, name, value, block));
}

/// A field of a response, unless it is one of a connection.
fn response_field(encoder: &mut Encoder, name: &[u8], value: &[u8], block: &mut Vec<u8>) {
    let indexing = match name {
        b"connection" | b"transfer-encoding" | b"upgrade" | b"keep-alive" | b"proxy-connection" => return,
        // Whose cookie it is must not be found out by trying (RFC 7541 §7.1.3).
        b"set-cookie" => Indexing::Never,
        // Said once, and never again.
        b"age" | b"content-length" | b"content-range" | b"etag" | b"location" => Indexing::No,
        _ => Indexing::Yes,
    };
    encoder.field(name, value, indexing, block);
}

/// A field of a request or a trailer, unless it is one of a connection, or says what `:authority` says.
fn field(encoder: &mut Encoder, name: &[u8], value: &[u8], block: &mut Vec<u8>) {
    let indexing = match name {
        b"connection" | b"host" | b"http2-settings" | b"keep-alive" | b"proxy-connection"
        | b"transfer-encoding" | b"upgrade" => return,
        b"te" if value != b"trailers" => return,
        // Whose secret it is must not be found out by trying (RFC 7541 §7.1.3).
        b"authorization" | b"cookie" | b"proxy-authorization" | b"set-cookie" => Indexing::Never,
        // Said once, and never again.
        b"age" | b"content-length" | b"content-range" | b"etag" | b"grpc-timeout" | b"if-modified-since"
        | b"if-none-match" | b"location" | b"range" | b"traceparent" | b"tracestate" | b"x-request-id" => {
            Indexing::No
        }
        _ => Indexing::Yes,
    };
    encoder.field(name, value, indexing, block);
}

/// A number in decimal, without the machinery of formatting.
fn decimal(mut number: u64, digits: &mut [u8; 20]) -> &[u8] {
    let mut at = digits.len();
    loop {
        at -= 1;
        // The remainder is a digit.
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            return &digits[at..];
        }
    }
}
