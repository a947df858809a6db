//! The head of a response, and the framing of its body (RFC 9112 §6).

use bytes::Bytes;
use http::StatusCode;
use offramp_http::h1::content_length;
use offramp_http::head::{Fields, Known, KnownSet, Response};

use super::ResponseTraits;
use super::outbox::Outbox;
use crate::l7::date::Date;

/// The length of a body, as far as it is known before it comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReplySize {
    /// The response has no content.
    None,
    Exact(u64),
    Unknown,
}

/// The mark of the end of a body.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Framing {
    /// There is none, whatever the response has.
    None,
    /// So many bytes are left.
    Length(u64),
    /// In chunks, with `trailers` where the client takes them (RFC 9110 §6.5.1). A server announces its trailers if it can
    /// (RFC 9110 §6.6.2); those that it did not are passed on as well.
    Chunked { trailers: bool },
    /// By the end of the connection.
    Close,
}

/// A head that was written.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Written {
    pub(super) framing: Framing,
    /// Another request may follow.
    pub(super) keep_alive: bool,
}

/// The fields of a response that matter here.
#[derive(Default)]
struct Said {
    length: Option<u64>,
    /// Set if `Connection` is there, and if it has `close`.
    connection: bool,
    close: bool,
    date: bool,
}

/// Writes the head of a response to a request that `asked` so. The connection may be kept only if
/// `keep_alive`, and that is said where a client cannot know it by itself (RFC 9112 §9.3).
pub(super) fn head<B>(
    out: &mut Vec<u8>,
    response: &Response<B>,
    size: ReplySize,
    asked: ResponseTraits,
    keep_alive: bool,
    date: &Date,
) -> Written {
    let (status, fields) = (response.status, &response.fields);
    status_line(out, response, asked.http10);
    let said = Said::of(fields);
    let bodiless = has_no_body(asked, status);
    let framing = framing(&said, size, asked, bodiless);
    // A length that is said once and is right goes with the other fields.
    let kept = said.length.is_some() && said.length == length_line(&said, &framing, size, asked, status);
    let mut without = KnownSet::of(&[Known::TransferEncoding]);
    if !kept {
        without = without.and(Known::ContentLength);
    }
    if asked.http10 || bodiless {
        without = without.and(Known::Trailer);
    }
    fields.write(without, out);
    if !kept && let Some(length) = length_line(&said, &framing, size, asked, status) {
        out.extend_from_slice(b"content-length: ");
        out.extend_from_slice(itoa::Buffer::new().format(length).as_bytes());
        out.extend_from_slice(b"\r\n");
    }
    if matches!(framing, Framing::Chunked { .. }) {
        out.extend_from_slice(b"transfer-encoding: chunked\r\n");
    }
    let switches = status == StatusCode::SWITCHING_PROTOCOLS;
    let keep_alive = keep_alive && !said.close && !switches && framing != Framing::Close;
    match (keep_alive, asked.http10) {
        (true, true) if !said.connection => out.extend_from_slice(b"connection: keep-alive\r\n"),
        (false, false) if !said.close && !switches => out.extend_from_slice(b"connection: close\r\n"),
        _ => {}
    }
    if !said.date {
        out.extend_from_slice(b"date: ");
        date.write(out);
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(b"\r\n");
    Written { framing, keep_alive }
}

impl Said {
    fn of(fields: &Fields) -> Self {
        let mut lengths = fields.all(Known::ContentLength);
        let (first, second) = (lengths.next(), lengths.next());
        let options = || fields.all(Known::Connection).flat_map(names);
        Self {
            // Several are of no use.
            length: first.filter(|_| second.is_none()).and_then(|value| content_length(value).ok()),
            connection: fields.contains(Known::Connection),
            close: options().any(|option| option.eq_ignore_ascii_case(b"close")),
            date: fields.contains(Known::Date),
        }
    }
}

fn status_line<B>(out: &mut Vec<u8>, response: &Response<B>, http10: bool) {
    let (status, custom) = (response.status, response.reason());
    if status == StatusCode::OK && !http10 && custom.is_none() {
        return out.extend_from_slice(b"HTTP/1.1 200 OK\r\n");
    }
    out.extend_from_slice(if http10 { b"HTTP/1.0 " } else { b"HTTP/1.1 " });
    out.extend_from_slice(status.as_str().as_bytes());
    // The space stays where there is no reason (RFC 9112 §4).
    out.push(b' ');
    out.extend_from_slice(custom.unwrap_or(status.canonical_reason().unwrap_or_default().as_bytes()));
    out.extend_from_slice(b"\r\n");
}

fn field(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    out.reserve(name.len() + value.len() + 4);
    out.extend_from_slice(name);
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

fn names(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii)
}

/// A response with this status ends with its head (RFC 9112 §6.3).
fn has_no_body(asked: ResponseTraits, status: StatusCode) -> bool {
    asked.head || has_no_length(status)
}

/// A response with this status has no length (RFC 9110 §8.6).
fn has_no_length(status: StatusCode) -> bool {
    status.is_informational() || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED)
}

/// The framing of the body.
fn framing(said: &Said, size: ReplySize, asked: ResponseTraits, bodiless: bool) -> Framing {
    if bodiless {
        return Framing::None;
    }
    let length = match size {
        ReplySize::None => Some(0),
        ReplySize::Exact(length) => Some(length),
        ReplySize::Unknown => said.length,
    };
    match length {
        Some(length) => Framing::Length(length),
        None if asked.http10 => Framing::Close,
        None => Framing::Chunked { trailers: asked.trailers },
    }
}

/// The length that the head says.
fn length_line(
    said: &Said,
    framing: &Framing,
    size: ReplySize,
    asked: ResponseTraits,
    status: StatusCode,
) -> Option<u64> {
    match (framing, size) {
        (Framing::Length(length), _) => Some(*length),
        // To a HEAD, it is the length that a GET would have had (RFC 9110 §8.6).
        (Framing::None, _) if !asked.head || has_no_length(status) => None,
        (Framing::None, ReplySize::Exact(length @ 1..)) => said.length.or(Some(length)),
        (Framing::None, _) => said.length,
        _ => None,
    }
}

impl Framing {
    /// Puts a piece of the body into `outbox`, which has room for it.
    pub(super) fn data(&mut self, mut data: Bytes, outbox: &mut Outbox) {
        if data.is_empty() {
            return;
        }
        match self {
            Self::None => {}
            Self::Length(left) => {
                // More than was promised would be taken for the next response.
                data.truncate(usize::try_from(*left).unwrap_or(usize::MAX));
                *left -= data.len() as u64;
                outbox.data(data);
            }
            Self::Chunked { .. } => {
                write_size(outbox.text(), data.len());
                outbox.data(data);
                outbox.text().extend_from_slice(b"\r\n");
            }
            Self::Close => outbox.data(data),
        }
    }

    /// The bytes of the body that may follow as they are, past the outbox.
    pub(super) fn direct(&self) -> u64 {
        if let Self::Length(left) = self { *left } else { 0 }
    }

    /// So many have gone past the outbox.
    pub(super) fn passed(&mut self, n: usize) {
        if let Self::Length(left) = self {
            *left = left.saturating_sub(n as u64);
        }
    }

    /// Puts the end of the body behind it. Not possible where some of it is missing.
    pub(super) fn end(&self, trailers: Option<&Fields>, outbox: &mut Outbox) -> Result<(), ()> {
        match self {
            Self::Length(1..) => return Err(()),
            Self::None | Self::Length(0) | Self::Close => {}
            Self::Chunked { trailers: wanted } => {
                let out = outbox.text();
                out.extend_from_slice(b"0\r\n");
                for (name, value) in trailers.filter(|_| *wanted).into_iter().flat_map(Fields::iter) {
                    if may_trail(name) {
                        field(out, name, value);
                    }
                }
                out.extend_from_slice(b"\r\n");
            }
        }
        Ok(())
    }
}

/// The line before a chunk.
fn write_size(out: &mut Vec<u8>, size: usize) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digits = (usize::BITS - size.leading_zeros()).div_ceil(4).max(1);
    for digit in (0..digits).rev() {
        out.push(DIGITS[size >> (4 * digit) & 15]);
    }
    out.extend_from_slice(b"\r\n");
}

/// Returns true if a field may come behind the body: not one that a recipient needs before it (RFC 9110 §6.5.1), or
/// that is for one connection.
fn may_trail(name: &[u8]) -> bool {
    const FIRST: [&[u8]; 16] = [
        b"authorization",
        b"cache-control",
        b"connection",
        b"content-encoding",
        b"content-length",
        b"content-range",
        b"content-type",
        b"host",
        b"keep-alive",
        b"max-forwards",
        b"proxy-connection",
        b"set-cookie",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    ];
    !FIRST.contains(&name)
}

#[cfg(test)]
mod tests;
