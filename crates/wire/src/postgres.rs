//! How a PostgreSQL client begins: it asks for TLS, for GSSAPI encryption, for a session in clear, or for the end of
//! another session's query; or it speaks TLS at once.
//!
//! The packets are those of "Message Formats" in PostgreSQL's documentation: a length of four bytes, which counts
//! itself, and a code of four bytes. [`peek`] reads these eight bytes only. It refuses to read what a client wants
//! of a database: behind TLS that is between the client and the server.
//!
//! Towards servers, [`SSL_REQUEST`] asks for TLS, and [`Answer`] is the one byte with which a server answers.

use crate::{PostgresFault, Step};

/// What a client begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Opening {
    /// `SSLRequest`: the client waits for one byte, [`ACCEPT`] or [`DECLINE`]. All of the packet was read.
    Ssl,
    /// `GSSENCRequest`: the same for GSSAPI encryption. All of the packet was read.
    Gss,
    /// `StartupMessage` of protocol 2 or 3: a session in clear.
    Startup,
    /// `CancelRequest`: a client of another connection wants its query to end. It waits for no answer.
    Cancel,
    /// The first byte of a TLS handshake record (`sslnegotiation=direct`).
    Tls,
}

/// The answer to a request for encryption that is granted.
pub const ACCEPT: u8 = b'S';
/// The answer to a request for encryption that is declined. The client goes on in clear, or asks for another kind.
pub const DECLINE: u8 = b'N';
/// The protocol that clients of PostgreSQL 17 and later offer by ALPN.
pub const ALPN: &[u8] = b"postgresql";

/// Looks at the front of `buf`. `consumed` is 8 for a request for encryption, which is whole then, and 0 for
/// everything else.
///
/// Never asks for more than 8 bytes in all.
pub fn peek(buf: &[u8]) -> Step<Opening, PostgresFault> {
    let found = |value, consumed| Step::Done { value, consumed };
    match buf.first() {
        None => return Step::Need(1),
        Some(&HANDSHAKE_RECORD) => return found(Opening::Tls, 0),
        // The first byte of a length that is far beyond all bounds.
        Some(1..) => return Step::Reject(PostgresFault::NotPostgres),
        Some(0) => {}
    }
    let Some((&length, rest)) = buf.split_first_chunk() else { return Step::Need(HEAD - buf.len()) };
    let length = u32::from_be_bytes(length);
    if !(HEAD as u32..=MAX_STARTUP).contains(&length) {
        return Step::Reject(PostgresFault::BadLength(length));
    }
    let Some(&code) = rest.first_chunk() else { return Step::Need(HEAD - buf.len()) };
    match (u32::from_be_bytes(code), length) {
        (SSL, 8) => found(Opening::Ssl, HEAD),
        (GSS, 8) => found(Opening::Gss, HEAD),
        (SSL | GSS, _) => Step::Reject(PostgresFault::BadLength(length)),
        (CANCEL, _) => found(Opening::Cancel, 0),
        // The major version of the protocol; 2 was the last before 3.0 of the year 2003.
        (version, _) if matches!(version >> 16, 2 | 3) => found(Opening::Startup, 0),
        (code, _) => Step::Reject(PostgresFault::UnknownCode(code)),
    }
}

/// What a client sends to ask for TLS.
pub const SSL_REQUEST: [u8; HEAD] = {
    let [a, b, c, d] = SSL.to_be_bytes();
    [0, 0, 0, 8, a, b, c, d]
};

/// What a server answers to [`SSL_REQUEST`], by its first byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Answer {
    /// The handshake may begin. The byte must have been read alone: what follows it is TLS (CVE-2021-23222).
    Accepts,
    /// The server has no TLS, or not for this client.
    Declines,
    /// An error message follows: see [`error_text`].
    Error,
    /// Something else.
    Unknown(u8),
}

impl Answer {
    /// What this byte says.
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

/// The message in an `ErrorResponse`, of which `rest` is what has come behind the type: the text of its field `M`, or,
/// where the server has no process for the client, the text itself, as in protocol 2.
///
/// Nobody has vouched for the text yet. It has no control characters, and 200 characters at most.
#[must_use]
pub fn error_text(rest: &[u8]) -> String {
    let text = match rest {
        // A length, which counts itself; a message of 16 MiB would be none.
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
    // The length counts itself and not the type; our messages are short.
    let length = (out.len() - 1) as u32;
    out[1..5].copy_from_slice(&length.to_be_bytes());
    out
}

/// Length and code.
const HEAD: usize = 8;
/// The longest packet that PostgreSQL takes from a client that it does not know yet.
const MAX_STARTUP: u32 = 10_000;
const HANDSHAKE_RECORD: u8 = 22;
/// The most characters of a server's message that are shown.
const MAX_TEXT: usize = 200;
/// 1234 in the high half, where a version would be, and 5678 to 5680 in the low one.
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

    fn done(bytes: &[u8]) -> (Opening, usize) {
        match peek(bytes) {
            Step::Done { value, consumed } => (value, consumed),
            other => panic!("{other:?} for {}", bytes.escape_ascii()),
        }
    }

    #[test]
    fn each_opening_has_its_code() {
        assert_eq!(packet(8, SSL, b""), b"\0\0\0\x08\x04\xd2\x16\x2f");
        assert_eq!(done(&packet(8, SSL, b"")), (Opening::Ssl, 8));
        assert_eq!(done(&packet(8, SSL, b"more")), (Opening::Ssl, 8));
        assert_eq!(done(&packet(8, GSS, b"")), (Opening::Gss, 8));
        assert_eq!(done(&packet(16, CANCEL, &[7; 8])), (Opening::Cancel, 0));
        // The key of protocol 3.2 has up to 256 bytes.
        assert_eq!(done(&packet(44, CANCEL, &[7; 36])), (Opening::Cancel, 0));
        assert_eq!(done(&packet(41, 3 << 16, b"user\0")), (Opening::Startup, 0));
        assert_eq!(done(&packet(41, (3 << 16) | 2, b"user\0")), (Opening::Startup, 0));
        assert_eq!(done(&packet(296, 2 << 16, b"")), (Opening::Startup, 0));
        assert_eq!(done(b"\x16"), (Opening::Tls, 0));
    }

    #[test]
    fn a_server_answers_with_one_byte() {
        assert_eq!(done(&SSL_REQUEST), (Opening::Ssl, 8));
        assert_eq!(Answer::of(b'S'), Answer::Accepts);
        assert_eq!(Answer::of(b'N'), Answer::Declines);
        assert_eq!(Answer::of(b'E'), Answer::Error);
        assert_eq!(Answer::of(b'H'), Answer::Unknown(b'H'));
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
    fn each_refusal_has_its_name() {
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
            assert_eq!(peek(&bytes), Step::Reject(fault), "{}", bytes.escape_ascii());
            assert!(!fault.to_string().is_empty());
        }
    }

    #[test]
    fn a_refusal_is_an_error_response() {
        let bytes = fatal("28000", "TLS is required");
        assert_eq!(bytes, b"E\0\0\0\x2bSFATAL\0VFATAL\0C28000\0MTLS is required\0\0");
        assert_eq!(bytes.len(), 1 + 0x2b);
    }

    proptest! {
        /// Whatever comes and however it is cut: a prefix is waited for, or has the verdict of the whole.
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
                    Step::Need(more) => {
                        prop_assert!(more > 0 && end + more <= HEAD);
                        prop_assert!(end < HEAD);
                    }
                    verdict => prop_assert_eq!(verdict, whole),
                }
            }
        }
    }
}
