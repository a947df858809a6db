//! Values that determine where a message ends: Content-Length, Transfer-Encoding, Connection.
//!
//! A single spelling of each length is accepted. All others are rejected, with the most specific reason.

use crate::fault::Http1Fault;
use crate::scan;

/// Parses a Content-Length (RFC 9110 §8.6).
#[inline]
pub(super) fn content_length(value: &[u8]) -> Result<u64, Http1Fault> {
    let mut length: u64 = 0;
    for &byte in value {
        if !byte.is_ascii_digit() {
            return Err(if value.contains(&b',') {
                Http1Fault::ContentLengthList
            } else {
                Http1Fault::ContentLength
            });
        }
        // Saturates far above the bound.
        length = length.saturating_mul(10).saturating_add(u64::from(byte - b'0'));
    }
    match value {
        [] => Err(Http1Fault::ContentLength),
        [b'0', _, ..] => Err(Http1Fault::ContentLengthZeros),
        _ if length > MAX_LENGTH => Err(Http1Fault::ContentLengthTooLarge),
        _ => Ok(length),
    }
}

/// Validates a Transfer-Encoding (RFC 9112 §6.1): only `chunked` is accepted.
pub(super) fn transfer_encoding(value: &[u8]) -> Result<(), Http1Fault> {
    if value.eq_ignore_ascii_case(b"chunked") {
        return Ok(());
    }
    let mut seen = 0;
    let mut last = false;
    for coding in value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii) {
        let name = coding.split(|&byte| byte == b';').next().unwrap_or_default().trim_ascii();
        if name.is_empty() || !name.iter().all(|&byte| scan::is_token(byte)) {
            return Err(Http1Fault::TransferEncoding);
        }
        last = name.eq_ignore_ascii_case(b"chunked");
        if last && name.len() < coding.len() {
            return Err(Http1Fault::TransferEncoding);
        }
        seen += usize::from(last);
    }
    Err(match seen {
        0 => Http1Fault::TransferCodingUnknown,
        1 if last => Http1Fault::TransferCodingUnknown,
        1 => Http1Fault::ChunkedNotLast,
        _ => Http1Fault::TransferEncodingRepeated,
    })
}

/// Options of the Connection fields (RFC 9110 §7.6.1).
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ConnectionOptions {
    pub(super) close: bool,
    pub(super) keep_alive: bool,
    pub(super) upgrade: bool,
}

impl ConnectionOptions {
    /// Adds the options of one field.
    #[inline]
    pub(super) fn read(&mut self, value: &[u8]) -> Result<(), Http1Fault> {
        // Fast path: browsers and servers send nothing else.
        if value.eq_ignore_ascii_case(b"keep-alive") {
            self.keep_alive = true;
            return Ok(());
        }
        for option in value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii) {
            match option.len() {
                4 if option.eq_ignore_ascii_case(b"host") => return Err(Http1Fault::ConnectionOption),
                5 => self.close |= option.eq_ignore_ascii_case(b"close"),
                7 => self.upgrade |= option.eq_ignore_ascii_case(b"upgrade"),
                10 => self.keep_alive |= option.eq_ignore_ascii_case(b"keep-alive"),
                14 if option.eq_ignore_ascii_case(b"content-length") => {
                    return Err(Http1Fault::ConnectionOption);
                }
                17 if option.eq_ignore_ascii_case(b"transfer-encoding") => {
                    return Err(Http1Fault::ConnectionOption);
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// Longest message and longest chunk, in bytes: fits the signed integers of every server.
pub(super) const MAX_LENGTH: u64 = i64::MAX as u64;
