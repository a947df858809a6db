//! Explanations of rustls' and webpki's errors about certificates, with remedies.
//!
//! Their own texts are for programmers: `invalid peer certificate: Other(OtherError(CaUsedAsEndEntity))`.

use std::fmt::Write as _;
use std::io;
use std::time::{Duration, SystemTime};

use rustls::pki_types::UnixTime;
use rustls::{CertRevocationListError, CertificateError, Error, PeerIncompatible};

use crate::clock;

/// The peer with the rejected certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsPeer {
    /// A server that Offramp connects to.
    Server,
    /// A client of Offramp's listeners.
    Client,
}

/// Explains the error of a handshake.
#[must_use]
pub fn tls_error(error: &Error, peer: TlsPeer) -> String {
    match error {
        Error::InvalidCertificate(why) => certificate_error(why, peer),
        Error::InvalidCertRevocationList(why) => list_error(why),
        Error::NoCertificatesPresented => match peer {
            TlsPeer::Server => "the server has no certificate".to_owned(),
            TlsPeer::Client => "the client has shown no certificate".to_owned(),
        },
        Error::AlertReceived(alert) => format!("the peer has ended it with the alert {}", snake_case(alert)),
        Error::PeerIncompatible(why) => incompatible(why),
        other => other.to_string(),
    }
}

/// Explains the error of a TLS stream to a server, or of its connection.
#[must_use]
pub fn stream_error(error: &io::Error) -> String {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>());
    inner.map_or_else(|| error.to_string(), |inner| tls_error(inner, TlsPeer::Server))
}

/// Explains the rejection of a certificate.
#[must_use]
pub fn certificate_error(error: &CertificateError, peer: TlsPeer) -> String {
    use CertificateError as C;
    match error {
        C::BadEncoding => "the certificate is damaged; have it issued again".to_owned(),
        C::Expired => "the certificate has expired; renew it".to_owned(),
        C::ExpiredContext { not_after, .. } => {
            format!("the certificate expired on {}; renew it", day(*not_after))
        }
        C::NotValidYet => "the certificate is not valid yet; check the clocks of both machines".to_owned(),
        C::NotValidYetContext { not_before, .. } => {
            let begin = day(*not_before);
            format!("the certificate is not valid before {begin}; check the clocks of both machines")
        }
        C::Revoked => "the certificate is revoked; have another one issued".to_owned(),
        C::UnhandledCriticalExtension => UNKNOWN_EXTENSION.to_owned(),
        C::UnknownIssuer => unknown_issuer(peer).to_owned(),
        C::UnknownRevocationStatus => {
            "no revocation list tells of the certificate; add that of its issuer".to_owned()
        }
        C::ExpiredRevocationList => "the revocation list has expired; fetch a new one".to_owned(),
        C::ExpiredRevocationListContext { next_update, .. } => {
            format!("the revocation list expired on {}; fetch a new one", day(*next_update))
        }
        C::BadSignature => {
            "the signature of the certificate is not by the issuer that it names; the trusted authority may \
                            be an older one of the same name"
                .to_owned()
        }
        #[allow(deprecated)]
        C::UnsupportedSignatureAlgorithm
        | C::UnsupportedSignatureAlgorithmContext { .. }
        | C::UnsupportedSignatureAlgorithmForPublicKeyContext { .. } => OLD_SIGNATURE.to_owned(),
        C::NotValidForName => "the certificate is for another name; set the name that it has".to_owned(),
        C::NotValidForNameContext { expected, presented } => wrong_name(&expected.to_str(), presented),
        C::InvalidPurpose | C::InvalidPurposeContext { .. } => {
            let whose = match peer {
                TlsPeer::Server => "servers (serverAuth",
                TlsPeer::Client => "clients (clientAuth",
            };
            format!("the certificate is not for {whose} in extendedKeyUsage); have it issued for them")
        }
        C::InvalidOcspResponse => {
            "the OCSP response of the server is not valid; mend its stapling".to_owned()
        }
        C::ApplicationVerificationFailure => match peer {
            TlsPeer::Server => {
                "the key of the certificate is none of the pinned ones; if the server has a new key, \
                                change the pin"
                    .to_owned()
            }
            TlsPeer::Client => "the certificate has no SPIFFE ID, which `trust_domains` ask for".to_owned(),
        },
        C::Other(other) => match other.0.downcast_ref::<webpki::Error>() {
            Some(error) => webpki_error(error).to_owned(),
            None => format!("the certificate cannot be verified ({other})"),
        },
        other => format!("the certificate cannot be verified ({other:?})"),
    }
}

/// Explains a certificate of an issuer that is not trusted.
fn unknown_issuer(peer: TlsPeer) -> &'static str {
    match peer {
        TlsPeer::Server => {
            "none of the trusted authorities has issued the certificate; add the certificate of its \
                                issuer, or a self-signed one itself, to those that are trusted"
        }
        TlsPeer::Client => {
            "none of the authorities in `ca` has issued the certificate; add that of its issuer, or \
                                have the client send its intermediate certificates"
        }
    }
}

/// Explains errors of webpki without an equivalent in rustls.
fn webpki_error(error: &webpki::Error) -> &'static str {
    use webpki::Error as W;
    match error {
        W::CaUsedAsEndEntity => {
            "the certificate is that of an authority (CA:TRUE), and is not itself among those that are trusted; add it to \
             them, or have one without CA:TRUE issued"
        }
        W::EndEntityUsedAsCa => {
            "a certificate in the chain is not that of an authority (CA:TRUE is missing), and has issued another all the \
             same; have the chain issued again"
        }
        W::CertDistrusted => {
            "the issuer of the certificate is distrusted; have it issued by another authority"
        }
        W::PathLenConstraintViolated | W::MaximumPathDepthExceeded => {
            "the chain is longer than its authorities allow; leave out intermediate certificates"
        }
        W::NameConstraintViolation => {
            "the certificate has a name that its authority must not issue for; have it issued for allowed names"
        }
        W::UnsupportedCertVersion => {
            "the certificate is of X.509 version 1; have one of version 3 issued (with openssl: by `req -x509`, or `x509 \
             -req` with `-extfile`)"
        }
        W::UnsupportedCriticalExtension => UNKNOWN_EXTENSION,
        W::MaximumPathBuildCallsExceeded
        | W::MaximumSignatureChecksExceeded
        | W::MaximumNameConstraintComparisonsExceeded => {
            "there are too many ways from the certificate to an authority; leave out certificates that are not needed"
        }
        W::SignatureAlgorithmMismatch => {
            "the certificate names two different signature algorithms; have it issued again"
        }
        W::InvalidSerialNumber => "the serial number of the certificate is not valid; have it issued again",
        W::MalformedDnsIdentifier | W::UnsupportedNameType => {
            "the certificate has a name that is none; have it issued again with correct names"
        }
        W::EmptyEkuExtension
        | W::ExtensionValueInvalid
        | W::MalformedExtensions
        | W::MalformedNameConstraint
        | W::InvalidNetworkMaskConstraint => {
            "an extension of the certificate, or of its issuer's, is not valid; have it issued again"
        }
        _ => {
            "the certificate cannot be verified; look at it with `offramp cert inspect` or `openssl x509 -text`"
        }
    }
}

fn list_error(error: &CertRevocationListError) -> String {
    use CertRevocationListError as L;
    match error {
        L::BadSignature => "the signature of the revocation list is not by the issuer that it names; fetch it again",
        L::IssuerInvalidForCrl => {
            "the issuer of the revocation list must not sign such lists (cRLSign in keyUsage is missing); use one that may"
        }
        L::UnsupportedSignatureAlgorithmContext { .. }
        | L::UnsupportedSignatureAlgorithmForPublicKeyContext { .. } => {
            "the revocation list is signed with an algorithm that is not supported, such as SHA-1; have it signed with \
             SHA-256"
        }
        L::UnsupportedCrlVersion => "the revocation list is of version 1; make one of version 2",
        L::UnsupportedDeltaCrl | L::UnsupportedIndirectCrl => {
            "the revocation list is a delta or an indirect one; use a complete one of the issuer itself"
        }
        _ => "the revocation list cannot be used; see what `openssl crl -text` says of it",
    }
    .to_owned()
}

/// Explains a lack of common parameters.
fn incompatible(why: &PeerIncompatible) -> String {
    use PeerIncompatible as P;
    match why {
        P::NoCipherSuitesInCommon => "no cipher suite in common".to_owned(),
        P::NoKxGroupsInCommon => "no key-exchange group in common".to_owned(),
        P::NoSignatureSchemesInCommon | P::NoCertificateRequestSignatureSchemesInCommon => {
            "no signature scheme in common that the certificate's key can make".to_owned()
        }
        P::Tls12NotOffered
        | P::Tls12NotOfferedOrEnabled
        | P::SupportedVersionsExtensionRequired
        | P::ServerDoesNotSupportTls12Or13
        | P::ServerTlsVersionIsDisabledByOurConfig => "no version of TLS in common".to_owned(),
        other => format!("the peer's TLS cannot be used ({})", snake_case(other).replace('_', " ")),
    }
}

fn wrong_name(expected: &str, presented: &[String]) -> String {
    let mut text = format!("the certificate is not for {expected}, ");
    // rustls shows names as `DnsName("a.example")`.
    let names = presented.iter().map(|name| name.split('"').nth(1).unwrap_or(name));
    let (shown, more) = (names.clone().take(MOST_NAMES), presented.len().saturating_sub(MOST_NAMES));
    // Writing to a string cannot fail.
    let _ = match presented {
        [] => write!(text, "and has no subject alternative names"),
        _ => write!(text, "only for {}", crate::x509::printable(&shown.collect::<Vec<_>>().join(", "))),
    };
    if more > 0 {
        let _ = write!(text, " and {more} more");
    }
    text.push_str("; set one of its names, or have it issued for this one");
    text
}

/// Converts `CertificateUnknown` to `certificate_unknown`, the form of the RFCs.
fn snake_case(name: &impl std::fmt::Debug) -> String {
    let name = format!("{name:?}");
    let mut text = String::with_capacity(name.len() + 4);
    let mut before_is_lower = false;
    for char in name.chars() {
        if char.is_uppercase() && before_is_lower {
            text.push('_');
        }
        before_is_lower = char.is_lowercase();
        text.extend(char.to_lowercase());
    }
    text
}

fn day(time: UnixTime) -> String {
    clock::date(SystemTime::UNIX_EPOCH + Duration::from_secs(time.as_secs()))
}

const UNKNOWN_EXTENSION: &str =
    "the certificate has a critical extension that Offramp does not know; have it issued without";
const OLD_SIGNATURE: &str = "the certificate is signed with an algorithm that is not supported, such as SHA-1; have it signed with SHA-256";
/// The maximum number of names shown for a certificate of other names.
const MOST_NAMES: usize = 4;

#[cfg(test)]
mod tests;
