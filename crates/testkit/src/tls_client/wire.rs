//! Numbers and framing of the TLS wire format (RFC 8446 §4, §5, §6; RFC 5246 §6, §7).
//!
//! Nothing here checks anything: a framing function writes the bytes that it is told to write, since
//! most of its callers want to write wrong ones.

/// Content types of records (RFC 8446 §5.1).
pub mod content {
    /// `change_cipher_spec`.
    pub const CHANGE_CIPHER_SPEC: u8 = 20;
    /// `alert`.
    pub const ALERT: u8 = 21;
    /// `handshake`.
    pub const HANDSHAKE: u8 = 22;
    /// `application_data`.
    pub const APPLICATION_DATA: u8 = 23;
    /// `heartbeat` (RFC 6520): known to the registry, never negotiated here.
    pub const HEARTBEAT: u8 = 24;
}

/// Alert levels and descriptions (RFC 8446 §6, RFC 5246 §7.2).
pub mod alert {
    /// Level `warning`.
    pub const WARNING: u8 = 1;
    /// Level `fatal`.
    pub const FATAL: u8 = 2;

    /// `close_notify`.
    pub const CLOSE_NOTIFY: u8 = 0;
    /// `unexpected_message`.
    pub const UNEXPECTED_MESSAGE: u8 = 10;
    /// `bad_record_mac`.
    pub const BAD_RECORD_MAC: u8 = 20;
    /// `record_overflow`.
    pub const RECORD_OVERFLOW: u8 = 22;
    /// `handshake_failure`.
    pub const HANDSHAKE_FAILURE: u8 = 40;
    /// `illegal_parameter`.
    pub const ILLEGAL_PARAMETER: u8 = 47;
    /// `decode_error`.
    pub const DECODE_ERROR: u8 = 50;
    /// `decrypt_error`.
    pub const DECRYPT_ERROR: u8 = 51;
    /// `protocol_version`.
    pub const PROTOCOL_VERSION: u8 = 70;
    /// `internal_error`.
    pub const INTERNAL_ERROR: u8 = 80;
    /// `user_canceled`.
    pub const USER_CANCELED: u8 = 90;
    /// `no_renegotiation` (RFC 5246 only).
    pub const NO_RENEGOTIATION: u8 = 100;
}

/// Types of handshake messages (RFC 8446 §4, RFC 5246 §7.4).
pub mod message {
    /// `hello_request` (RFC 5246 only).
    pub const HELLO_REQUEST: u8 = 0;
    /// `client_hello`.
    pub const CLIENT_HELLO: u8 = 1;
    /// `server_hello`.
    pub const SERVER_HELLO: u8 = 2;
    /// `new_session_ticket`.
    pub const NEW_SESSION_TICKET: u8 = 4;
    /// `encrypted_extensions`.
    pub const ENCRYPTED_EXTENSIONS: u8 = 8;
    /// `certificate`.
    pub const CERTIFICATE: u8 = 11;
    /// `server_key_exchange` (RFC 5246 only).
    pub const SERVER_KEY_EXCHANGE: u8 = 12;
    /// `certificate_request`.
    pub const CERTIFICATE_REQUEST: u8 = 13;
    /// `server_hello_done` (RFC 5246 only).
    pub const SERVER_HELLO_DONE: u8 = 14;
    /// `certificate_verify`.
    pub const CERTIFICATE_VERIFY: u8 = 15;
    /// `client_key_exchange` (RFC 5246 only).
    pub const CLIENT_KEY_EXCHANGE: u8 = 16;
    /// `finished`.
    pub const FINISHED: u8 = 20;
    /// `certificate_status` (RFC 6066).
    pub const CERTIFICATE_STATUS: u8 = 22;
    /// `key_update`.
    pub const KEY_UPDATE: u8 = 24;
}

/// Bytes of a record header.
pub const HEADER: usize = 5;
/// The most plaintext that one record may carry, in bytes (RFC 8446 §5.1).
pub const MAX_PLAINTEXT: usize = 1 << 14;
/// The most that the body of a protected TLS 1.3 record may hold, in bytes (RFC 8446 §5.2).
pub const MAX_CIPHERTEXT_13: usize = MAX_PLAINTEXT + 256;
/// The most that the body of a protected TLS 1.2 record may hold, in bytes (RFC 5246 §6.2.3).
pub const MAX_CIPHERTEXT_12: usize = MAX_PLAINTEXT + 2048;
/// The version that record headers carry in TLS 1.2 and, frozen, in TLS 1.3.
pub const VERSION_12: [u8; 2] = [3, 3];

/// A record as it stands: header and body, with the length that the body has.
///
/// # Panics
/// If the body is longer than the header's length field can say (65,535 bytes).
#[must_use]
pub fn record(content_type: u8, version: [u8; 2], body: &[u8]) -> Vec<u8> {
    let length = u16::try_from(body.len()).expect("a record body fits its length field");
    let mut bytes = header(content_type, version, length).to_vec();
    bytes.extend_from_slice(body);
    bytes
}

/// A record header alone.
#[must_use]
pub fn header(content_type: u8, version: [u8; 2], length: u16) -> [u8; HEADER] {
    let [high, low] = length.to_be_bytes();
    [content_type, version[0], version[1], high, low]
}

/// Cuts or extends the body of a whole record to `length` bytes (with zeros) and corrects its header.
///
/// # Panics
/// If `record` is shorter than a header or `length` is over 65,535.
pub fn resize(record: &mut Vec<u8>, length: usize) {
    let field = u16::try_from(length).expect("a record body fits its length field");
    record.resize(HEADER + length, 0);
    record[3..HEADER].copy_from_slice(&field.to_be_bytes());
}

/// A handshake message: type, 24-bit length, body.
///
/// # Panics
/// If the body is 2^24 bytes or longer.
#[must_use]
pub fn handshake(kind: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![kind];
    vector(&mut bytes, 3, body);
    bytes
}

/// Appends `body` behind a big-endian length of `width` bytes.
///
/// # Panics
/// If the length does not fit.
pub(crate) fn vector(out: &mut Vec<u8>, width: usize, body: &[u8]) {
    let length = (body.len() as u64).to_be_bytes();
    let (zeros, field) = length.split_at(length.len() - width);
    assert!(zeros.iter().all(|&byte| byte == 0), "{} bytes do not fit a vector", body.len());
    out.extend_from_slice(field);
    out.extend_from_slice(body);
}

/// A reader over bytes of the server; every method gives `None` where the bytes run out.
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(head)
    }

    pub(crate) fn number(&mut self, width: usize) -> Option<usize> {
        Some(self.take(width)?.iter().fold(0, |sum, &byte| sum << 8 | usize::from(byte)))
    }

    pub(crate) fn vector(&mut self, width: usize) -> Option<&'a [u8]> {
        let length = self.number(width)?;
        self.take(length)
    }
}
