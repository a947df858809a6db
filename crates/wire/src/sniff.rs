//! What protocol the first bytes of a connection belong to.
//!
//! A guess for choosing an answer, not for trust: whether a PROXY header is believed is decided by its
//! source, never by its presence. Needs 13 bytes at most, usually the first few. It refuses to look for
//! anything behind the front.

use std::convert::Infallible;

use crate::Step;
use crate::proxy::{SIGNATURE_V1, SIGNATURE_V2};

/// What the first bytes look like.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// A TLS record.
    Tls,
    /// Plain HTTP: the request line of HTTP/1, or the preface of HTTP/2 (RFC 9113 §3.4).
    Http,
    /// A PROXY header of version 1.
    ProxyV1,
    /// A PROXY header of version 2.
    ProxyV2,
    /// A ClientHello in the format of SSL 2.0 (RFC 5246 §E.2), which RFC 6176 and rustls refuse.
    Sslv2,
    /// None of these.
    Unknown,
}

/// Tells what the bytes at the front of `buf` look like, with `consumed: 0`. Never rejects: what fits nothing
/// is [`Protocol::Unknown`], which may come sooner than [`Step::Need`] said.
pub fn sniff(buf: &[u8]) -> Step<Protocol, Infallible> {
    let mut more: Option<usize> = None;
    let mut wait = |bytes: usize| more = Some(more.map_or(bytes, |least| least.min(bytes)));
    for (protocol, fit) in [
        (Protocol::Tls, tls(buf)),
        (Protocol::Sslv2, sslv2(buf)),
        (Protocol::ProxyV1, starts_with(buf, SIGNATURE_V1)),
        (Protocol::ProxyV2, starts_with(buf, SIGNATURE_V2)),
        (Protocol::Http, http(buf)),
    ] {
        match fit {
            Fit::Yes => return Step::Done { value: protocol, consumed: 0 },
            Fit::Perhaps(bytes) => wait(bytes),
            Fit::No => {}
        }
    }
    match more {
        Some(bytes) => Step::Need(bytes),
        None => Step::Done { value: Protocol::Unknown, consumed: 0 },
    }
}

/// How far a buffer agrees with a protocol. No two protocols can both get a yes.
enum Fit {
    Yes,
    /// So far; this many bytes are missing at least.
    Perhaps(usize),
    No,
}

fn starts_with(buf: &[u8], start: &[u8]) -> Fit {
    if buf.starts_with(start) {
        Fit::Yes
    } else if start.starts_with(buf) {
        Fit::Perhaps(start.len() - buf.len())
    } else {
        Fit::No
    }
}

/// A record of any content type (change_cipher_spec to heartbeat) and version 3.x.
fn tls(buf: &[u8]) -> Fit {
    match buf {
        [] => Fit::Perhaps(2),
        [20..=24] => Fit::Perhaps(1),
        [20..=24, 3, ..] => Fit::Yes,
        _ => Fit::No,
    }
}

/// A two-byte record header, the message type 1, and version 2.0 or 3.x.
fn sslv2(buf: &[u8]) -> Fit {
    let fits = match buf {
        [] => true,
        [first, rest @ ..] if first & 0x80 != 0 => {
            matches!(rest, [] | [_] | [_, 1] | [_, 1, 0 | 3] | [_, 1, 0, 2, ..] | [_, 1, 3, _, ..])
        }
        _ => false,
    };
    match (fits, buf.len()) {
        (false, _) => Fit::No,
        (true, 5..) => Fit::Yes,
        (true, have) => Fit::Perhaps(5 - have),
    }
}

/// A method in use and the space behind it (RFC 9112 §3).
fn http(buf: &[u8]) -> Fit {
    let mut least = None;
    for method in METHODS {
        match starts_with(buf, method) {
            Fit::Yes => return Fit::Yes,
            Fit::Perhaps(bytes) => least = Some(least.map_or(bytes, |other: usize| other.min(bytes))),
            Fit::No => {}
        }
    }
    least.map_or(Fit::No, Fit::Perhaps)
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

    fn done(buf: &[u8]) -> Protocol {
        match sniff(buf) {
            Step::Done { value, consumed: 0 } => value,
            other => panic!("{other:?} for {}", buf.escape_ascii()),
        }
    }

    #[test]
    fn each_protocol_by_its_first_bytes() {
        let cases: [(&[u8], Protocol); 16] = [
            (b"\x16\x03\x01", Protocol::Tls),
            (b"\x15\x03", Protocol::Tls),
            (b"GET / HTTP/1.1\r\n", Protocol::Http),
            (b"MKCALENDAR /", Protocol::Http),
            (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", Protocol::Http),
            (b"PROXY TCP4 ", Protocol::ProxyV1),
            (b"\r\n\r\n\0\r\nQUIT\n\x21", Protocol::ProxyV2),
            (b"\x80\x2e\x01\x00\x02", Protocol::Sslv2),
            (b"\x80\x2e\x01\x03\x01", Protocol::Sslv2),
            (b"\x80\x2e\x02", Protocol::Unknown),
            (b"\x80\x2e\x01\x00\x03", Protocol::Unknown),
            (b"\x16\x02", Protocol::Unknown),
            (b"SSH-2.0-OpenSSH", Protocol::Unknown),
            (b"get ", Protocol::Unknown),
            (b"EHLO x", Protocol::Unknown),
            (b"\0", Protocol::Unknown),
        ];
        for (buf, protocol) in cases {
            assert_eq!(done(buf), protocol, "{}", buf.escape_ascii());
        }
    }

    #[test]
    fn waits_for_as_little_as_can_decide() {
        assert_eq!(sniff(b""), Step::Need(2));
        assert_eq!(sniff(b"\x16"), Step::Need(1));
        assert_eq!(sniff(b"P"), Step::Need(3));
        assert_eq!(sniff(b"PRO"), Step::Need(3));
        assert_eq!(sniff(b"PROXY"), Step::Need(1));
        assert_eq!(sniff(b"\r\n\r\n"), Step::Need(8));
        assert_eq!(sniff(b"\x80\x2e\x01\x03"), Step::Need(1));
    }
}
