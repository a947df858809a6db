//! The parts of a client certificate, for header fields to servers.

use std::fmt::Write as _;

use aws_lc_rs::digest;

use crate::facts::CertificateFacts;

/// The fields of a certificate. Texts are unescaped: writers must make them safe.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CertificateParts {
    /// The first common name of the subject; empty without one.
    pub common_name: String,
    /// The subject, such as `C=DE, O=Example, CN=anna`; values are escaped (RFC 4514 §2.4).
    pub subject: String,
    /// The issuer in the same form.
    pub issuer: String,
    /// The serial number in hexadecimal.
    pub serial: String,
    /// The DNS names in subjectAltName, separated by commas; a comma in a name is `%2C`.
    pub dns: String,
    /// The URIs in subjectAltName, in the same form.
    pub uri: String,
    /// The SHA-256 of the certificate in DER, in hexadecimal.
    pub fingerprint: String,
}

impl CertificateParts {
    /// The parts of a certificate in DER; `None` if it cannot be parsed.
    #[must_use]
    pub fn of(leaf_der: &[u8]) -> Option<Self> {
        let facts = CertificateFacts::read(leaf_der).ok()?;
        let mut fingerprint = String::with_capacity(64);
        for byte in digest::digest(&digest::SHA256, leaf_der).as_ref() {
            // Writing to a string cannot fail.
            let _ = write!(fingerprint, "{byte:02x}");
        }
        Some(Self {
            common_name: facts.description.common_name.unwrap_or_default(),
            subject: facts.subject_text,
            issuer: facts.issuer_text,
            serial: facts.serial.replace(':', ""),
            dns: list(&facts.alternative.dns),
            uri: list(&facts.alternative.uris),
            fingerprint,
        })
    }
}

fn list(names: &[String]) -> String {
    names.iter().map(|name| name.replace(',', "%2C")).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_looks_like_two() {
        for (names, shown) in [
            (&["spiffe://a/b"][..], "spiffe://a/b"),
            (&["spiffe://a/b,spiffe://a/root", "urn:c"], "spiffe://a/b%2Cspiffe://a/root,urn:c"),
            (&[], ""),
        ] {
            let mut params = rcgen::CertificateParams::default();
            for name in names {
                let name = rcgen::string::Ia5String::try_from(*name).unwrap();
                params.subject_alt_names.push(rcgen::SanType::URI(name.clone()));
                params.subject_alt_names.push(rcgen::SanType::DnsName(name));
            }
            let key = rcgen::KeyPair::generate().unwrap();
            let parts = CertificateParts::of(params.self_signed(&key).unwrap().der()).unwrap();
            assert_eq!((parts.uri.as_str(), parts.dns.as_str()), (shown, shown));
        }
    }
}
