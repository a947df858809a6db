//! Protocol detection from the first bytes of a connection.
//!
//! The result selects an error response; nothing may trust it. Whether a PROXY header is honoured depends on
//! the source address, never on its presence. Needs at most 13 bytes, usually the first few, and reads
//! nothing behind them.

use std::convert::Infallible;

use crate::ParseStep;
use crate::proxy::{SIGNATURE_V1, SIGNATURE_V2};

/// Protocol that the first bytes match.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DetectedProtocol {
    /// A TLS record of version 3.x.
    Tls,
    /// Plain HTTP: the request line of HTTP/1, or the preface of HTTP/2 (RFC 9113 §3.4).
    Http,
    /// A PROXY header of version 1.
    ProxyV1,
    /// A PROXY header of version 2.
    ProxyV2,
    /// A ClientHello in the format of SSL 2.0 (RFC 5246 §E.2), which RFC 6176 and rustls refuse.
    Sslv2,
    /// None of the protocols above.
    Unknown,
}

/// Detects the protocol of the bytes at the front of `buf`, with `consumed: 0`. Never rejects: bytes that
/// match nothing are [`DetectedProtocol::Unknown`], possibly before the number of bytes in
/// [`ParseStep::Need`] has arrived.
pub fn sniff(buf: &[u8]) -> ParseStep<DetectedProtocol, Infallible> {
    let mut more: Option<usize> = None;
    let mut wait = |bytes: usize| more = Some(more.map_or(bytes, |least| least.min(bytes)));
    for (protocol, fit) in [
        (DetectedProtocol::Tls, tls(buf)),
        (DetectedProtocol::Sslv2, sslv2(buf)),
        (DetectedProtocol::ProxyV1, starts_with(buf, SIGNATURE_V1)),
        (DetectedProtocol::ProxyV2, starts_with(buf, SIGNATURE_V2)),
        (DetectedProtocol::Http, http(buf)),
    ] {
        match fit {
            ProtocolMatch::Yes => return ParseStep::Done { value: protocol, consumed: 0 },
            ProtocolMatch::Perhaps(bytes) => wait(bytes),
            ProtocolMatch::No => {}
        }
    }
    match more {
        Some(bytes) => ParseStep::Need(bytes),
        None => ParseStep::Done { value: DetectedProtocol::Unknown, consumed: 0 },
    }
}

/// Match of a buffer with one protocol. At most one protocol can match in full.
enum ProtocolMatch {
    Yes,
    /// A match so far; at least this many bytes are missing.
    Perhaps(usize),
    No,
}

fn starts_with(buf: &[u8], start: &[u8]) -> ProtocolMatch {
    if buf.starts_with(start) {
        ProtocolMatch::Yes
    } else if start.starts_with(buf) {
        ProtocolMatch::Perhaps(start.len() - buf.len())
    } else {
        ProtocolMatch::No
    }
}

/// A record of any content type (change_cipher_spec to heartbeat) and version 3.x.
fn tls(buf: &[u8]) -> ProtocolMatch {
    match buf {
        [] => ProtocolMatch::Perhaps(2),
        [20..=24] => ProtocolMatch::Perhaps(1),
        [20..=24, 3, ..] => ProtocolMatch::Yes,
        _ => ProtocolMatch::No,
    }
}

/// A two-byte record header, the message type 1, and version 2.0 or 3.x.
fn sslv2(buf: &[u8]) -> ProtocolMatch {
    let fits = match buf {
        [] => true,
        [first, rest @ ..] if first & 0x80 != 0 => {
            matches!(rest, [] | [_] | [_, 1] | [_, 1, 0 | 3] | [_, 1, 0, 2, ..] | [_, 1, 3, _, ..])
        }
        _ => false,
    };
    match (fits, buf.len()) {
        (false, _) => ProtocolMatch::No,
        (true, 5..) => ProtocolMatch::Yes,
        (true, have) => ProtocolMatch::Perhaps(5 - have),
    }
}

/// An HTTP method in use and the space behind it (RFC 9112 §3).
fn http(buf: &[u8]) -> ProtocolMatch {
    let mut least = None;
    for method in METHODS {
        match starts_with(buf, method) {
            ProtocolMatch::Yes => return ProtocolMatch::Yes,
            ProtocolMatch::Perhaps(bytes) => {
                least = Some(least.map_or(bytes, |other: usize| other.min(bytes)));
            }
            ProtocolMatch::No => {}
        }
    }
    least.map_or(ProtocolMatch::No, ProtocolMatch::Perhaps)
}

/// Methods of the IANA registry that clients use, and the first word of the HTTP/2 preface. A list, because
/// other line protocols (SMTP, FTP) also start with a word in capitals.
const METHODS: &[&[u8]] = &[
    b"GET ",
    b"HEAD ",
    b"POST ",
    b"PUT ",
    b"DELETE ",
    b"OPTIONS ",
    b"PATCH ",
    b"CONNECT ",
    b"TRACE ",
    b"QUERY ",
    b"PRI ",
    b"PROPFIND ",
    b"PROPPATCH ",
    b"MKCOL ",
    b"COPY ",
    b"MOVE ",
    b"LOCK ",
    b"UNLOCK ",
    b"REPORT ",
    b"SEARCH ",
    b"MKCALENDAR ",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn done(buf: &[u8]) -> DetectedProtocol {
        match sniff(buf) {
            ParseStep::Done { value, consumed: 0 } => value,
            other => panic!("{other:?} for {}", buf.escape_ascii()),
        }
    }

    #[test]
    fn protocols_by_their_first_bytes() {
        let cases: [(&[u8], DetectedProtocol); 16] = [
            (b"\x16\x03\x01", DetectedProtocol::Tls),
            (b"\x15\x03", DetectedProtocol::Tls),
            (b"GET / HTTP/1.1\r\n", DetectedProtocol::Http),
            (b"MKCALENDAR /", DetectedProtocol::Http),
            (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", DetectedProtocol::Http),
            (b"PROXY TCP4 ", DetectedProtocol::ProxyV1),
            (b"\r\n\r\n\0\r\nQUIT\n\x21", DetectedProtocol::ProxyV2),
            (b"\x80\x2e\x01\x00\x02", DetectedProtocol::Sslv2),
            (b"\x80\x2e\x01\x03\x01", DetectedProtocol::Sslv2),
            (b"\x80\x2e\x02", DetectedProtocol::Unknown),
            (b"\x80\x2e\x01\x00\x03", DetectedProtocol::Unknown),
            (b"\x16\x02", DetectedProtocol::Unknown),
            (b"SSH-2.0-OpenSSH", DetectedProtocol::Unknown),
            (b"get ", DetectedProtocol::Unknown),
            (b"EHLO x", DetectedProtocol::Unknown),
            (b"\0", DetectedProtocol::Unknown),
        ];
        for (buf, protocol) in cases {
            assert_eq!(done(buf), protocol, "{}", buf.escape_ascii());
        }
    }

    #[test]
    fn waits_for_no_more_bytes_than_needed() {
        assert_eq!(sniff(b""), ParseStep::Need(2));
        assert_eq!(sniff(b"\x16"), ParseStep::Need(1));
        assert_eq!(sniff(b"P"), ParseStep::Need(3));
        assert_eq!(sniff(b"PRO"), ParseStep::Need(3));
        assert_eq!(sniff(b"PROXY"), ParseStep::Need(1));
        assert_eq!(sniff(b"\r\n\r\n"), ParseStep::Need(8));
        assert_eq!(sniff(b"\x80\x2e\x01\x03"), ParseStep::Need(1));
    }
}
