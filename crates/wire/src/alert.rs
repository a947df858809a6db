//! A plaintext alert record, for refusals before there are keys (RFC 8446 §6, RFC 5246 §7.2).
//!
//! It refuses to encrypt: once a handshake has begun, rustls and the record layer send the alerts.

/// How grave an alert is (RFC 8446 §6).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum AlertLevel {
    /// The connection may go on.
    Warning = 1,
    /// The connection ends.
    Fatal = 2,
}

/// What an alert says (RFC 8446 §6 and the IANA registry "TLS Alerts"). Those that only historic versions
/// send are left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
#[allow(missing_docs, reason = "the names are those of the registry")]
pub enum AlertDescription {
    CloseNotify = 0,
    UnexpectedMessage = 10,
    BadRecordMac = 20,
    RecordOverflow = 22,
    HandshakeFailure = 40,
    BadCertificate = 42,
    UnsupportedCertificate = 43,
    CertificateRevoked = 44,
    CertificateExpired = 45,
    CertificateUnknown = 46,
    IllegalParameter = 47,
    UnknownCa = 48,
    AccessDenied = 49,
    DecodeError = 50,
    DecryptError = 51,
    ProtocolVersion = 70,
    InsufficientSecurity = 71,
    InternalError = 80,
    InappropriateFallback = 86,
    UserCanceled = 90,
    MissingExtension = 109,
    UnsupportedExtension = 110,
    UnrecognizedName = 112,
    BadCertificateStatusResponse = 113,
    UnknownPskIdentity = 115,
    CertificateRequired = 116,
    NoApplicationProtocol = 120,
}

impl AlertDescription {
    /// The name in the registry, as in `handshake_failure`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::CloseNotify => "close_notify",
            Self::UnexpectedMessage => "unexpected_message",
            Self::BadRecordMac => "bad_record_mac",
            Self::RecordOverflow => "record_overflow",
            Self::HandshakeFailure => "handshake_failure",
            Self::BadCertificate => "bad_certificate",
            Self::UnsupportedCertificate => "unsupported_certificate",
            Self::CertificateRevoked => "certificate_revoked",
            Self::CertificateExpired => "certificate_expired",
            Self::CertificateUnknown => "certificate_unknown",
            Self::IllegalParameter => "illegal_parameter",
            Self::UnknownCa => "unknown_ca",
            Self::AccessDenied => "access_denied",
            Self::DecodeError => "decode_error",
            Self::DecryptError => "decrypt_error",
            Self::ProtocolVersion => "protocol_version",
            Self::InsufficientSecurity => "insufficient_security",
            Self::InternalError => "internal_error",
            Self::InappropriateFallback => "inappropriate_fallback",
            Self::UserCanceled => "user_canceled",
            Self::MissingExtension => "missing_extension",
            Self::UnsupportedExtension => "unsupported_extension",
            Self::UnrecognizedName => "unrecognized_name",
            Self::BadCertificateStatusResponse => "bad_certificate_status_response",
            Self::UnknownPskIdentity => "unknown_psk_identity",
            Self::CertificateRequired => "certificate_required",
            Self::NoApplicationProtocol => "no_application_protocol",
        }
    }
}

/// The length of a plaintext alert record, in bytes.
pub const ALERT_RECORD: usize = 7;

/// The alert as a plaintext record, ready to be sent. Its record version is that of TLS 1.2, which every
/// client takes (RFC 8446 §5.1).
#[must_use]
pub fn encode(level: AlertLevel, description: AlertDescription) -> [u8; ALERT_RECORD] {
    [0x15, 0x03, 0x03, 0x00, 0x02, level as u8, description as u8]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fatal_unrecognized_name() {
        let record = encode(AlertLevel::Fatal, AlertDescription::UnrecognizedName);
        assert_eq!(record, [21, 3, 3, 0, 2, 2, 112]);
        assert_eq!(AlertDescription::UnrecognizedName.name(), "unrecognized_name");
    }
}
