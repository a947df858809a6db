//! Every error of rustls and webpki about certificates has words of its own, and says what to do.

use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{AlertDescription, OtherError};

use super::*;

fn webpki(error: webpki::Error) -> CertificateError {
    CertificateError::Other(OtherError(Arc::new(error)))
}

fn at(seconds: u64) -> UnixTime {
    UnixTime::since_unix_epoch(Duration::from_secs(seconds))
}

/// The time 1,790,000,000 is in September 2026.
fn certificate_errors() -> Vec<(CertificateError, &'static str)> {
    use CertificateError as C;
    use webpki::Error as W;
    let (time, day) = (at(1_800_000_000), at(1_790_000_000));
    let expected = ServerName::try_from("a.example").unwrap();
    let presented = (0..6).map(|number| format!("DnsName(\"{number}.example\")")).collect();
    vec![
        (C::BadEncoding, "damaged"),
        (C::Expired, "has expired"),
        (C::ExpiredContext { time, not_after: day }, "expired on 2026-09-21"),
        (C::NotValidYet, "clocks"),
        (C::NotValidYetContext { time, not_before: day }, "not valid before 2026-09-21"),
        (C::Revoked, "revoked"),
        (C::UnhandledCriticalExtension, "critical extension"),
        (C::UnknownIssuer, "has issued the certificate"),
        (C::UnknownRevocationStatus, "no revocation list"),
        (C::ExpiredRevocationList, "list has expired"),
        (C::ExpiredRevocationListContext { time, next_update: day }, "list expired on 2026-09-21"),
        (C::BadSignature, "not by the issuer"),
        (
            C::UnsupportedSignatureAlgorithmContext {
                signature_algorithm_id: vec![1],
                supported_algorithms: Vec::new(),
            },
            "SHA-1",
        ),
        (C::NotValidForName, "another name"),
        (
            C::NotValidForNameContext { expected: expected.clone(), presented },
            "not for a.example, only for 0.example, 1.example, 2.example, 3.example and 2 more;",
        ),
        (C::NotValidForNameContext { expected, presented: Vec::new() }, "has no subject alternative names"),
        (C::InvalidPurpose, "extendedKeyUsage"),
        (C::InvalidOcspResponse, "stapling"),
        (C::ApplicationVerificationFailure, ""),
        (webpki(W::CaUsedAsEndEntity), "add it to them"),
        (webpki(W::EndEntityUsedAsCa), "CA:TRUE is missing"),
        (webpki(W::PathLenConstraintViolated), "longer than"),
        (webpki(W::MaximumPathDepthExceeded), "longer than"),
        (webpki(W::NameConstraintViolation), "must not issue for"),
        (webpki(W::UnsupportedCertVersion), "version 1"),
        (webpki(W::UnsupportedCriticalExtension), "critical extension"),
        (webpki(W::MaximumPathBuildCallsExceeded), "too many ways"),
        (webpki(W::MaximumSignatureChecksExceeded), "too many ways"),
        (webpki(W::MaximumNameConstraintComparisonsExceeded), "too many ways"),
        (webpki(W::SignatureAlgorithmMismatch), "two different"),
        (webpki(W::InvalidSerialNumber), "serial number"),
        (webpki(W::MalformedDnsIdentifier), "name that is none"),
        (webpki(W::UnsupportedNameType), "name that is none"),
        (webpki(W::EmptyEkuExtension), "extension"),
        (webpki(W::ExtensionValueInvalid), "extension"),
        (webpki(W::MalformedExtensions), "extension"),
        (webpki(W::MalformedNameConstraint), "extension"),
        (webpki(W::InvalidNetworkMaskConstraint), "extension"),
        (webpki(W::CertDistrusted), "distrusted"),
        (webpki(W::UnsupportedRevocationReason), "cert inspect"),
    ]
}

/// No words of a program: nothing in CamelCase but what is in X.509 and TLS.
fn assert_plain(text: &str) {
    for word in [
        "Other",
        "InvalidCert",
        "UnknownIssuer",
        "EndEntity",
        "Context",
        "Error",
        "{",
        "DnsName",
        "peer cert",
    ] {
        assert!(!text.contains(word), "{word} in {text}");
    }
}

#[test]
fn every_error_about_a_certificate_has_words() {
    for (error, part) in certificate_errors() {
        for peer in [TlsPeer::Server, TlsPeer::Client] {
            let text = tls_error(&Error::InvalidCertificate(error.clone()), peer);
            assert!(text.contains(part), "{error:?}: {text}");
            assert!(text.len() > 20, "{text}");
            assert_plain(&text);
        }
    }
}

#[test]
fn every_error_about_a_list_has_words() {
    use CertRevocationListError as L;
    let id = || vec![1];
    for error in [
        L::BadSignature,
        L::UnsupportedSignatureAlgorithmContext {
            signature_algorithm_id: id(),
            supported_algorithms: Vec::new(),
        },
        L::UnsupportedSignatureAlgorithmForPublicKeyContext {
            signature_algorithm_id: id(),
            public_key_algorithm_id: id(),
        },
        L::InvalidCrlNumber,
        L::InvalidRevokedCertSerialNumber,
        L::IssuerInvalidForCrl,
        L::ParseError,
        L::UnsupportedCrlVersion,
        L::UnsupportedCriticalExtension,
        L::UnsupportedDeltaCrl,
        L::UnsupportedIndirectCrl,
        L::UnsupportedRevocationReason,
    ] {
        let text = tls_error(&Error::InvalidCertRevocationList(error), TlsPeer::Client);
        assert!(text.contains("revocation list"), "{text}");
        assert_plain(&text);
    }
}

#[test]
fn the_rest_of_a_handshake_is_told_in_words_too() {
    use PeerIncompatible as P;
    for (error, expected) in [
        (Error::AlertReceived(AlertDescription::HandshakeFailure), "the alert handshake_failure"),
        (Error::AlertReceived(AlertDescription::UnknownCA), "the alert unknown_ca"),
        (Error::NoCertificatesPresented, "the server has no certificate"),
        (Error::PeerIncompatible(P::NoCipherSuitesInCommon), "no cipher suite in common"),
        (Error::PeerIncompatible(P::ServerDoesNotSupportTls12Or13), "no version of TLS in common"),
        (Error::PeerIncompatible(P::NullCompressionRequired), "(null compression required)"),
    ] {
        let text = stream_error(&io::Error::new(io::ErrorKind::InvalidData, error));
        assert!(text.contains(expected), "{text}");
    }
    let refused = io::Error::from(io::ErrorKind::ConnectionRefused);
    assert_eq!(stream_error(&refused), refused.to_string());
}
