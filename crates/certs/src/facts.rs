//! The facts of a certificate that this crate needs, parsed once from DER into owned values.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::SystemTime;

use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::{GeneralName, ParsedExtension};

use crate::clock;
use crate::describe::Description;
use crate::x509;

/// The facts of one certificate.
#[derive(Clone, Debug)]
pub(crate) struct CertificateFacts {
    /// Subject and issuer in DER.
    pub(crate) subject: Vec<u8>,
    pub(crate) issuer: Vec<u8>,
    /// Subject and issuer as text for messages.
    pub(crate) subject_text: String,
    pub(crate) issuer_text: String,
    pub(crate) public_key: Vec<u8>,
    /// The key identifiers of the certificate and of its issuer, if present.
    pub(crate) key_id: Option<Vec<u8>>,
    pub(crate) issuer_key_id: Option<Vec<u8>>,
    pub(crate) not_before: SystemTime,
    pub(crate) not_after: SystemTime,
    pub(crate) is_ca: bool,
    /// The serial number, as the content of its INTEGER.
    pub(crate) serial_der: Vec<u8>,
    /// The serial number in hexadecimal, in OpenSSL's form.
    pub(crate) serial: String,
    pub(crate) alternative: AlternativeNames,
    pub(crate) description: Description,
}

/// The subjectAltName extension (RFC 5280 §4.2.1.6), as far as it names servers and clients.
#[derive(Clone, Debug, Default)]
pub(crate) struct AlternativeNames {
    pub(crate) present: bool,
    pub(crate) dns: Vec<String>,
    pub(crate) uris: Vec<String>,
    pub(crate) addresses: Vec<IpAddr>,
}

impl CertificateFacts {
    /// Parses one certificate; the error is the parser's reason.
    pub(crate) fn read(der: &[u8]) -> Result<Self, String> {
        let certificate = x509::parse(der)?;
        let (mut key_id, mut issuer_key_id) = (None, None);
        for extension in certificate.extensions() {
            match extension.parsed_extension() {
                ParsedExtension::SubjectKeyIdentifier(id) => key_id = Some(id.0.to_vec()),
                ParsedExtension::AuthorityKeyIdentifier(id) => {
                    issuer_key_id = id.key_identifier.as_ref().map(|id| id.0.to_vec());
                }
                _ => {}
            }
        }
        Ok(CertificateFacts {
            subject: certificate.subject().as_raw().to_vec(),
            issuer: certificate.issuer().as_raw().to_vec(),
            subject_text: x509::text_of(certificate.subject()),
            issuer_text: x509::text_of(certificate.issuer()),
            public_key: certificate.public_key().raw.to_vec(),
            key_id,
            issuer_key_id,
            not_before: clock::from_asn1(certificate.validity().not_before),
            not_after: clock::from_asn1(certificate.validity().not_after),
            is_ca: certificate.is_ca(),
            serial_der: certificate.raw_serial().to_vec(),
            serial: certificate.raw_serial_as_string(),
            alternative: AlternativeNames::read(&certificate)?,
            description: Description::read(&certificate),
        })
    }

    /// Returns `true` if the subject is not empty.
    pub(crate) fn has_subject(&self) -> bool {
        // An empty SEQUENCE has two bytes.
        self.subject.len() > 2
    }

    /// Returns `true` if subject and issuer are equal.
    pub(crate) fn self_issued(&self) -> bool {
        self.subject == self.issuer
    }

    /// Returns `true` if `issuer` may have signed this: the names match, and so do the key identifiers if
    /// both are present. The signature is not checked.
    pub(crate) fn names_as_issuer(&self, issuer: &CertificateFacts) -> bool {
        self.issuer == issuer.subject
            && match (&self.issuer_key_id, &issuer.key_id) {
                (Some(wanted), Some(there)) => wanted == there,
                _ => true,
            }
    }
}

impl AlternativeNames {
    pub(crate) fn read(certificate: &X509Certificate<'_>) -> Result<Self, String> {
        let extension = certificate
            .subject_alternative_name()
            .map_err(|error| format!("its subjectAltName is broken: {error}"))?;
        let Some(extension) = extension else { return Ok(Self::default()) };
        let mut names = AlternativeNames { present: true, ..Self::default() };
        for name in &extension.value.general_names {
            match name {
                GeneralName::DNSName(name) => names.dns.push((*name).to_owned()),
                GeneralName::URI(uri) => names.uris.push((*uri).to_owned()),
                GeneralName::IPAddress(octets) => names.addresses.extend(address(octets)),
                _ => {}
            }
        }
        Ok(names)
    }
}

fn address(octets: &[u8]) -> Option<IpAddr> {
    if let Ok(octets) = <[u8; 4]>::try_from(octets) {
        return Some(Ipv4Addr::from(octets).into());
    }
    <[u8; 16]>::try_from(octets).ok().map(|octets| Ipv6Addr::from(octets).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_value_of_a_name_looks_like_another_attribute() {
        for (value, shown) in [
            ("anna", "anna"),
            ("Müller & Söhne (Köln)", "Müller & Söhne (Köln)"),
            ("al, O=root", r"al\, O=root"),
            ("al + O=root", r"al \+ O=root"),
            (r"al\, O=root", r"al\\\, O=root"),
            ("a;b<c>\"d\"", r#"a\;b\<c\>\"d\""#),
            ("#05", r"\#05"),
            ("a#5", "a#5"),
            (" al  ", r"\ al \ "),
            (" ", r"\ "),
            ("a\nb", r"a\nb"),
            (r"a\nb", r"a\\nb"),
        ] {
            let mut params = rcgen::CertificateParams::default();
            params.distinguished_name = rcgen::DistinguishedName::new();
            params.distinguished_name.push(rcgen::DnType::OrganizationName, "E");
            params.distinguished_name.push(rcgen::DnType::CommonName, value);
            let key = rcgen::KeyPair::generate().unwrap();
            let facts = CertificateFacts::read(params.self_signed(&key).unwrap().der()).unwrap();
            let wanted = format!("O=E, CN={shown}");
            assert_eq!((facts.subject_text, facts.issuer_text), (wanted.clone(), wanted));
            assert_eq!(facts.description.common_name.as_deref(), Some(value));
        }
        let mut params = rcgen::CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        let key = rcgen::KeyPair::generate().unwrap();
        assert_eq!(
            CertificateFacts::read(params.self_signed(&key).unwrap().der()).unwrap().subject_text,
            "no subject"
        );
    }
}
