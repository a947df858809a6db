//! The first packet of a PostgreSQL client: a request for TLS or GSSAPI encryption, a session in clear, a
//! query cancellation, or a TLS record.
//!
//! The packets are those of "Message Formats" in PostgreSQL's documentation: a length of four bytes, which
//! includes itself, and a code of four bytes. [`peek`] reads these eight bytes only; the session behind TLS
//! is between the client and the server.
//!
//! Towards servers, [`SSL_REQUEST`] asks for TLS, and [`SslReply`] is the one byte of the reply.

use crate::{ParseStep, PostgresFault};

/// Kind of the first packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FirstPacket {
    /// `SSLRequest`: the client waits for one byte, [`ACCEPT`] or [`DECLINE`]. The whole packet was read.
    Ssl,
    /// `GSSENCRequest`: like [`Ssl`](Self::Ssl), for GSSAPI encryption.
    Gss,
    /// `StartupMessage` of protocol 2 or 3: a session in clear.
    Startup,
    /// `CancelRequest`: cancels the query of another connection. The client expects no reply.
    Cancel,
    /// The first byte of a TLS handshake record (`sslnegotiation=direct`).
    Tls,
}

/// Reply that grants encryption.
pub const ACCEPT: u8 = b'S';
/// Reply that declines encryption. The client goes on in clear, or asks for another kind.
pub const DECLINE: u8 = b'N';
/// The ALPN protocol of PostgreSQL clients, version 17 and later.
pub const ALPN: &[u8] = b"postgresql";

/// Identifies the packet at the front of `buf`. `consumed` is 8 for a request for encryption, which is whole
/// then, and 0 for everything else.
///
/// Asks for at most 8 bytes in all.
pub fn peek(buf: &[u8]) -> ParseStep<FirstPacket, PostgresFault> {
    let found = |value, consumed| ParseStep::Done { value, consumed };
    match buf.first() {
        None => return ParseStep::Need(1),
        Some(&HANDSHAKE_RECORD) => return found(FirstPacket::Tls, 0),
        // First byte of a length far above every bound.
        Some(1..) => return ParseStep::Reject(PostgresFault::NotPostgres),
        Some(0) => {}
    }
    let Some((&length, rest)) = buf.split_first_chunk() else { return ParseStep::Need(HEAD - buf.len()) };
    let length = u32::from_be_bytes(length);
    if !(HEAD as u32..=MAX_STARTUP).contains(&length) {
        return ParseStep::Reject(PostgresFault::BadLength(length));
    }
    let Some(&code) = rest.first_chunk() else { return ParseStep::Need(HEAD - buf.len()) };
    match (u32::from_be_bytes(code), length) {
        (SSL, 8) => found(FirstPacket::Ssl, HEAD),
        (GSS, 8) => found(FirstPacket::Gss, HEAD),
        (SSL | GSS, _) => ParseStep::Reject(PostgresFault::BadLength(length)),
        (CANCEL, _) => found(FirstPacket::Cancel, 0),
        // Major version of the protocol; 2 was the last one before 3.0 (2003).
        (version, _) if matches!(version >> 16, 2 | 3) => found(FirstPacket::Startup, 0),
        (code, _) => ParseStep::Reject(PostgresFault::UnknownCode(code)),
    }
}

/// The `SSLRequest` packet that a client sends to ask for TLS.
pub const SSL_REQUEST: [u8; HEAD] = {
    let [a, b, c, d] = SSL.to_be_bytes();
    [0, 0, 0, 8, a, b, c, d]
};

/// Reply of a server to [`SSL_REQUEST`], by its first byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SslReply {
    /// TLS is granted. Read this byte alone: whatever was received behind it must not be treated as part of
    /// the TLS session (CVE-2021-23222).
    Accepts,
    /// TLS is not available, or not for this client.
    Declines,
    /// An error message follows: see [`error_text`].
    Error,
    /// A byte that is no valid reply.
    Unknown(u8),
}

impl SslReply {
    /// Classifies the first byte of a reply.
    #[must_use]
    pub fn of(byte: u8) -> Self {
        match byte {
            ACCEPT => Self::Accepts,
            DECLINE => Self::Declines,
            b'E' => Self::Error,
            other => Self::Unknown(other),
        }
    }
}

/// The message in an `ErrorResponse`, where `rest` is the data after the type byte: the text of field `M`, or
/// the bare text that protocol 2 uses and that servers send when they cannot start a process for the client.
///
/// The text comes from an unauthenticated server. Control characters become spaces, and it is cut at 200
/// characters.
#[must_use]
pub fn error_text(rest: &[u8]) -> String {
    let text = match rest {
        // A length that includes itself; its first byte is zero in messages below 16 MiB.
        [0, _, _, _, fields @ ..] => {
            let mut fields = fields.split(|byte| *byte == 0);
            fields.find_map(|field| field.strip_prefix(b"M")).unwrap_or_default()
        }
        text => text.split(|byte| *byte == 0).next().unwrap_or_default(),
    };
    let text = String::from_utf8_lossy(text);
    let shown = text.trim().chars().map(|char| if char.is_control() { ' ' } else { char });
    shown.take(MAX_TEXT).collect()
}

/// An `ErrorResponse` of protocol 3 with the severity FATAL: the server closes after it.
///
/// `code` is the SQLSTATE. Neither text has a zero byte.
#[must_use]
pub fn fatal(code: &str, message: &str) -> Vec<u8> {
    let mut out = vec![b'E', 0, 0, 0, 0];
    for (field, text) in [(b'S', "FATAL"), (b'V', "FATAL"), (b'C', code), (b'M', message)] {
        out.push(field);
        out.extend_from_slice(text.as_bytes());
        out.push(0);
    }
    out.push(0);
    // The length includes itself but not the type; our messages are short.
    let length = (out.len() - 1) as u32;
    out[1..5].copy_from_slice(&length.to_be_bytes());
    out
}

/// Bytes of length and code.
const HEAD: usize = 8;
/// Longest packet that PostgreSQL accepts from an unauthenticated client, in bytes.
const MAX_STARTUP: u32 = 10_000;
const HANDSHAKE_RECORD: u8 = 22;
/// Maximum number of characters kept of a server's message.
const MAX_TEXT: usize = 200;
/// Request codes: 1234 in the high half, in place of a protocol version, and 5678 to 5680 in the low one.
const CANCEL: u32 = 80_877_102;
const SSL: u32 = 80_877_103;
const GSS: u32 = 80_877_104;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn packet(length: u32, code: u32, body: &[u8]) -> Vec<u8> {
        [&length.to_be_bytes()[..], &code.to_be_bytes(), body].concat()
    }

    fn done(bytes: &[u8]) -> (FirstPacket, usize) {
        match peek(bytes) {
            ParseStep::Done { value, consumed } => (value, consumed),
            other => panic!("{other:?} for {}", bytes.escape_ascii()),
        }
    }

    #[test]
    fn openings_by_code() {
        assert_eq!(packet(8, SSL, b""), b"\0\0\0\x08\x04\xd2\x16\x2f");
        assert_eq!(done(&packet(8, SSL, b"")), (FirstPacket::Ssl, 8));
        assert_eq!(done(&packet(8, SSL, b"more")), (FirstPacket::Ssl, 8));
        assert_eq!(done(&packet(8, GSS, b"")), (FirstPacket::Gss, 8));
        assert_eq!(done(&packet(16, CANCEL, &[7; 8])), (FirstPacket::Cancel, 0));
        // The cancel key of protocol 3.2 has up to 256 bytes.
        assert_eq!(done(&packet(44, CANCEL, &[7; 36])), (FirstPacket::Cancel, 0));
        assert_eq!(done(&packet(41, 3 << 16, b"user\0")), (FirstPacket::Startup, 0));
        assert_eq!(done(&packet(41, (3 << 16) | 2, b"user\0")), (FirstPacket::Startup, 0));
        assert_eq!(done(&packet(296, 2 << 16, b"")), (FirstPacket::Startup, 0));
        assert_eq!(done(b"\x16"), (FirstPacket::Tls, 0));
    }

    #[test]
    fn answers_by_first_byte() {
        assert_eq!(done(&SSL_REQUEST), (FirstPacket::Ssl, 8));
        assert_eq!(SslReply::of(b'S'), SslReply::Accepts);
        assert_eq!(SslReply::of(b'N'), SslReply::Declines);
        assert_eq!(SslReply::of(b'E'), SslReply::Error);
        assert_eq!(SslReply::of(b'H'), SslReply::Unknown(b'H'));
        let text = "sorry, too many clients already";
        assert_eq!(error_text(&fatal("53300", text)[1..]), text);
        assert_eq!(error_text(b"could not fork new process\n\0"), "could not fork new process");
        assert_eq!(error_text(b"\x1b[2Jx\ny"), " [2Jx y");
        assert_eq!(error_text(&[b'x'; 1000]).len(), MAX_TEXT);
        for end in 0..40 {
            let cut = fatal("53300", text);
            assert!(text.starts_with(&error_text(&cut[1..end.clamp(1, cut.len())])), "{end}");
        }
    }

    #[test]
    fn faults() {
        use PostgresFault as F;
        let cases = [
            (b"GET / HTTP/1.1".to_vec(), F::NotPostgres),
            (b"\x01".to_vec(), F::NotPostgres),
            (packet(7, SSL, b""), F::BadLength(7)),
            (packet(9, SSL, b"x"), F::BadLength(9)),
            (packet(16, GSS, b""), F::BadLength(16)),
            (packet(10_001, 3 << 16, b""), F::BadLength(10_001)),
            (b"\0\0\0\0".to_vec(), F::BadLength(0)),
            (packet(8, 80_877_105, b""), F::UnknownCode(80_877_105)),
            (packet(8, 1 << 16, b""), F::UnknownCode(1 << 16)),
        ];
        for (bytes, fault) in cases {
            assert_eq!(peek(&bytes), ParseStep::Reject(fault), "{}", bytes.escape_ascii());
            assert!(!fault.to_string().is_empty());
        }
    }

    #[test]
    fn fatal_writes_an_error_response() {
        let bytes = fatal("28000", "TLS is required");
        assert_eq!(bytes, b"E\0\0\0\x2bSFATAL\0VFATAL\0C28000\0MTLS is required\0\0");
        assert_eq!(bytes.len(), 1 + 0x2b);
    }

    proptest! {
        /// A prefix of any input yields `Need` or the verdict on the whole.
        #[test]
        fn every_prefix_agrees_with_the_whole(
            bytes in prop_oneof![
                proptest::collection::vec(any::<u8>(), 0..24),
                (0u32..20, prop_oneof![Just(SSL), Just(GSS), Just(CANCEL), Just(3u32 << 16), any::<u32>()])
                    .prop_map(|(length, code)| packet(length, code, b"body")),
            ],
        ) {
            let whole = peek(&bytes);
            for end in 0..=bytes.len() {
                match peek(&bytes[..end]) {
                    ParseStep::Need(more) => {
                        prop_assert!(more > 0 && end + more <= HEAD);
                        prop_assert!(end < HEAD);
                    }
                    verdict => prop_assert_eq!(verdict, whole),
                }
            }
        }
    }
}
