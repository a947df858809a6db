//! The fields of responses as blocks (RFC 9113 §8.3.2, RFC 7541).

use http::StatusCode;
use offramp_http::head::{Fields, Known};
use offramp_http::hpack::{Encoder, Indexing};

use crate::l7::date::Date;
use crate::l7::session::decimal;

/// What a response says besides its fields.
#[derive(Clone, Copy)]
pub(super) struct Ends<'d> {
    /// Whether it ends with its head.
    pub(super) over: bool,
    /// How much content follows, where that is known and no field says it.
    pub(super) length: Option<u64>,
    /// What time it is, where no field says it.
    pub(super) date: &'d Date,
}

/// The head of a response, without the fields of a connection (RFC 9113 §8.2.2).
pub(super) fn response(
    encoder: &mut Encoder,
    status: StatusCode,
    fields: &Fields,
    ends: Ends<'_>,
    block: &mut Vec<u8>,
) {
    encoder.begin(block);
    encoder.status(status.as_u16(), block);
    let length = ends.length.filter(|_| !fields.contains(Known::ContentLength));
    fields.iter().for_each(|(name, value)| field(encoder, name, value, block));
    if !fields.contains(Known::Date) {
        encoder.field(b"date", ends.date.now().as_bytes(), Indexing::Yes, block);
    }
    if let Some(length) = length {
        encoder.field(b"content-length", decimal(length, &mut [0; 20]).as_bytes(), Indexing::No, block);
    }
}

/// The head of an interim response.
pub(super) fn interim(encoder: &mut Encoder, status: StatusCode, fields: &Fields, block: &mut Vec<u8>) {
    encoder.begin(block);
    encoder.status(status.as_u16(), block);
    fields.iter().for_each(|(name, value)| field(encoder, name, value, block));
}

/// Trailers.
pub(super) fn trailers(encoder: &mut Encoder, trailers: &Fields, block: &mut Vec<u8>) {
    encoder.begin(block);
    trailers.iter().for_each(|(name, value)| field(encoder, name, value, block));
}

fn field(encoder: &mut Encoder, name: &[u8], value: &[u8], block: &mut Vec<u8>) {
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
