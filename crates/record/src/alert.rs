//! Alerts (RFC 8446 §6, RFC 5246 §7.2) as they are sent, received and named in logs.

use core::fmt;

/// A TLS alert description, by its code point.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Alert(pub u8);

impl Alert {
    /// Orderly end of one direction.
    pub const CLOSE_NOTIFY: Self = Self(0);
    /// A record or message that is not permitted in this state.
    pub const UNEXPECTED_MESSAGE: Self = Self(10);
    /// A record did not authenticate.
    pub const BAD_RECORD_MAC: Self = Self(20);
    /// A record is longer than its version permits.
    pub const RECORD_OVERFLOW: Self = Self(22);
    /// No acceptable set of security parameters.
    pub const HANDSHAKE_FAILURE: Self = Self(40);
    /// The certificate is corrupt.
    pub const BAD_CERTIFICATE: Self = Self(42);
    /// The certificate is not valid at this time.
    pub const CERTIFICATE_EXPIRED: Self = Self(45);
    /// Something else is wrong with the certificate.
    pub const CERTIFICATE_UNKNOWN: Self = Self(46);
    /// The issuer of the certificate is not trusted.
    pub const UNKNOWN_CA: Self = Self(48);
    /// The peer's certificate or server name is valid but not admitted.
    pub const ACCESS_DENIED: Self = Self(49);
    /// A field has a value that is not permitted.
    pub const ILLEGAL_PARAMETER: Self = Self(47);
    /// A message could not be parsed.
    pub const DECODE_ERROR: Self = Self(50);
    /// The protocol version is not supported.
    pub const PROTOCOL_VERSION: Self = Self(70);
    /// The peer requires stronger ciphers.
    pub const INSUFFICIENT_SECURITY: Self = Self(71);
    /// An error on our side, unrelated to the peer.
    pub const INTERNAL_ERROR: Self = Self(80);
    /// The user canceled the handshake; a warning, and ignored.
    pub const USER_CANCELED: Self = Self(90);
    /// A TLS 1.2 renegotiation is declined.
    pub const NO_RENEGOTIATION: Self = Self(100);

    /// A required extension is missing, such as the server name.
    pub const MISSING_EXTENSION: Self = Self(109);
    /// No certificate or listener for the server name.
    pub const UNRECOGNIZED_NAME: Self = Self(112);
    /// A client certificate is required and was not sent.
    pub const CERTIFICATE_REQUIRED: Self = Self(116);
    /// None of the offered application protocols is supported.
    pub const NO_APPLICATION_PROTOCOL: Self = Self(120);

    /// Name in the IANA registry, or `unknown`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self.0 {
            0 => "close_notify",
            10 => "unexpected_message",
            20 => "bad_record_mac",
            21 => "decryption_failed",
            22 => "record_overflow",
            30 => "decompression_failure",
            40 => "handshake_failure",
            41 => "no_certificate",
            42 => "bad_certificate",
            43 => "unsupported_certificate",
            44 => "certificate_revoked",
            45 => "certificate_expired",
            46 => "certificate_unknown",
            47 => "illegal_parameter",
            48 => "unknown_ca",
            49 => "access_denied",
            50 => "decode_error",
            51 => "decrypt_error",
            60 => "export_restriction",
            70 => "protocol_version",
            71 => "insufficient_security",
            80 => "internal_error",
            86 => "inappropriate_fallback",
            90 => "user_canceled",
            100 => "no_renegotiation",
            109 => "missing_extension",
            110 => "unsupported_extension",
            111 => "certificate_unobtainable",
            112 => "unrecognized_name",
            113 => "bad_certificate_status_response",
            114 => "bad_certificate_hash_value",
            115 => "unknown_psk_identity",
            116 => "certificate_required",
            120 => "no_application_protocol",
            121 => "ech_required",
            _ => "unknown",
        }
    }

    /// Level for sending this description: `warning` (1) if it does not end the connection, else `fatal` (2).
    #[must_use]
    pub const fn level(self) -> u8 {
        match self {
            Self::CLOSE_NOTIFY | Self::USER_CANCELED | Self::NO_RENEGOTIATION => 1,
            _ => 2,
        }
    }

    /// The alert as an unprotected record, for a rejection before there are keys. Its version is that of TLS
    /// 1.2, which every client accepts (RFC 8446 §5.1).
    #[must_use]
    pub const fn plaintext_record(self) -> [u8; 7] {
        [21, 3, 3, 0, 2, self.level(), self.0]
    }
}

impl fmt::Debug for Alert {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({})", self.name(), self.0)
    }
}

impl fmt::Display for Alert {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plaintext_record_of_a_rejection() {
        assert_eq!(Alert::UNRECOGNIZED_NAME.plaintext_record(), [21, 3, 3, 0, 2, 2, 112]);
        assert_eq!(Alert::UNRECOGNIZED_NAME.name(), "unrecognized_name");
    }
}
