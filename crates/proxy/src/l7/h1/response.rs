//! The head of a response, and the framing of its body (RFC 9112 §6).

use bytes::Bytes;
use http::StatusCode;
use http::header::{
    AUTHORIZATION, CACHE_CONTROL, CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE,
    DATE, HOST, HeaderMap, HeaderName, HeaderValue, MAX_FORWARDS, SET_COOKIE, TE, TRAILER, TRANSFER_ENCODING,
};
use http::response::Parts;
use hyper::ext::ReasonPhrase;
use offramp_http::h1::content_length;

use super::Asked;
use super::outbox::Outbox;
use crate::l7::date::Date;
use crate::l7::session::decimal;

/// What is known of the length of a body before it comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Size {
    /// There is none.
    None,
    Exact(u64),
    Unknown,
}

/// How the end of a body is told.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Framing {
    /// There is none, whatever the response has.
    None,
    /// So many bytes are left.
    Length(u64),
    /// In chunks, with trailers of these names.
    Chunked(Vec<HeaderName>),
    /// By the end of the connection.
    Close,
}

/// A head that was written.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Written {
    pub(super) framing: Framing,
    /// Whether another request may follow.
    pub(super) keep_alive: bool,
}

/// What the fields of a response say that is not passed on as it is.
#[derive(Default)]
struct Special<'h> {
    length: Option<&'h HeaderValue>,
    /// Whether `Connection` was written, and whether it has `close`.
    connection: bool,
    close: bool,
    date: bool,
    trailers: Vec<HeaderName>,
}

/// Writes the head of a response to a request that `asked` so. The connection may be kept only if
/// `keep_alive`, and that is said where a client cannot know it by itself (RFC 9112 §9.3).
pub(super) fn head(
    out: &mut Vec<u8>,
    parts: &Parts,
    size: Size,
    asked: Asked,
    keep_alive: bool,
    date: &Date,
) -> Written {
    status_line(out, parts, asked.http10);
    let bodiless = has_no_body(asked, parts.status);
    let special = fields(out, &parts.headers, !asked.http10 && !bodiless);
    let framing = framing(out, &special, size, asked, parts.status);
    let switches = parts.status == StatusCode::SWITCHING_PROTOCOLS;
    let keep_alive = keep_alive && !special.close && !switches && framing != Framing::Close;
    match (keep_alive, asked.http10) {
        (true, true) if !special.connection => out.extend_from_slice(b"connection: keep-alive\r\n"),
        (false, false) if !special.close && !switches => out.extend_from_slice(b"connection: close\r\n"),
        _ => {}
    }
    if !special.date {
        out.extend_from_slice(b"date: ");
        date.write(out);
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(b"\r\n");
    let framing = match framing {
        Framing::Chunked(_) if asked.trailers => Framing::Chunked(special.trailers),
        framing => framing,
    };
    Written { framing, keep_alive }
}

fn status_line(out: &mut Vec<u8>, parts: &Parts, http10: bool) {
    let custom = parts.extensions.get::<ReasonPhrase>();
    if parts.status == StatusCode::OK && !http10 && custom.is_none() {
        return out.extend_from_slice(b"HTTP/1.1 200 OK\r\n");
    }
    out.extend_from_slice(if http10 { b"HTTP/1.0 " } else { b"HTTP/1.1 " });
    out.extend_from_slice(parts.status.as_str().as_bytes());
    // The space stays where there is no reason (RFC 9112 §4).
    out.push(b' ');
    match custom {
        Some(reason) => out.extend_from_slice(reason.as_bytes()),
        None => out.extend_from_slice(parts.status.canonical_reason().unwrap_or_default().as_bytes()),
    }
    out.extend_from_slice(b"\r\n");
}

/// Writes what is passed on as it is; `Trailer` only where `chunks` may be sent.
fn fields<'h>(out: &mut Vec<u8>, headers: &'h HeaderMap, chunks: bool) -> Special<'h> {
    let mut special = Special::default();
    for (name, value) in headers {
        match *name {
            CONTENT_LENGTH => {
                special.length = special.length.or(Some(value));
                continue;
            }
            TRANSFER_ENCODING => continue,
            CONNECTION => {
                special.connection = true;
                special.close |= names(value).any(|option| option.eq_ignore_ascii_case(b"close"));
            }
            TRAILER if !chunks => continue,
            TRAILER => {
                special.trailers.extend(names(value).filter_map(|name| HeaderName::from_bytes(name).ok()));
            }
            DATE => special.date = true,
            _ => {}
        }
        field(out, name, value);
    }
    special
}

fn field(out: &mut Vec<u8>, name: &HeaderName, value: &HeaderValue) {
    out.reserve(name.as_str().len() + value.len() + 4);
    out.extend_from_slice(name.as_str().as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value.as_bytes());
    out.extend_from_slice(b"\r\n");
}

fn names(value: &HeaderValue) -> impl Iterator<Item = &[u8]> {
    value.as_bytes().split(|&byte| byte == b',').map(<[u8]>::trim_ascii)
}

/// Whether a response ends with its head (RFC 9112 §6.3).
fn has_no_body(asked: Asked, status: StatusCode) -> bool {
    asked.head
        || status.is_informational()
        || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED)
}

/// Writes how the body is framed.
fn framing(
    out: &mut Vec<u8>,
    special: &Special<'_>,
    size: Size,
    asked: Asked,
    status: StatusCode,
) -> Framing {
    if has_no_body(asked, status) {
        // To a HEAD, it is the length that a GET would have had (RFC 9110 §8.6).
        if asked.head
            && !status.is_informational()
            && !matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED)
        {
            match (special.length, size) {
                (Some(length), _) => field(out, &CONTENT_LENGTH, length),
                (None, Size::Exact(length)) if length > 0 => write_length(out, length),
                _ => {}
            }
        }
        return Framing::None;
    }
    let told = || content_length(special.length?.as_bytes()).ok();
    let length = match size {
        Size::None => Some(0),
        Size::Exact(length) => Some(length),
        Size::Unknown => told(),
    };
    match length {
        Some(length) => {
            write_length(out, length);
            Framing::Length(length)
        }
        None if asked.http10 => Framing::Close,
        None => {
            out.extend_from_slice(b"transfer-encoding: chunked\r\n");
            Framing::Chunked(Vec::new())
        }
    }
}

fn write_length(out: &mut Vec<u8>, length: u64) {
    out.extend_from_slice(b"content-length: ");
    out.extend_from_slice(decimal(length, &mut [0; 20]).as_bytes());
    out.extend_from_slice(b"\r\n");
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
            Self::Chunked(_) => {
                write_size(outbox.text(), data.len());
                outbox.data(data);
                outbox.text().extend_from_slice(b"\r\n");
            }
            Self::Close => outbox.data(data),
        }
    }

    /// How many bytes of the body may follow as they are, past the outbox.
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
    pub(super) fn end(&self, trailers: Option<&HeaderMap>, outbox: &mut Outbox) -> Result<(), ()> {
        match self {
            Self::Length(1..) => return Err(()),
            Self::None | Self::Length(0) | Self::Close => {}
            Self::Chunked(names) => {
                let out = outbox.text();
                out.extend_from_slice(b"0\r\n");
                for (name, value) in trailers.into_iter().flatten() {
                    if names.contains(name) && may_trail(name) {
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

/// Whether a field may come behind the body: not one that a recipient needs before it (RFC 9110 §6.5.1).
fn may_trail(name: &HeaderName) -> bool {
    ![
        AUTHORIZATION,
        CACHE_CONTROL,
        CONTENT_ENCODING,
        CONTENT_LENGTH,
        CONTENT_RANGE,
        CONTENT_TYPE,
        HOST,
        MAX_FORWARDS,
        SET_COOKIE,
        TE,
        TRAILER,
        TRANSFER_ENCODING,
    ]
    .contains(name)
}

#[cfg(test)]
mod tests;
