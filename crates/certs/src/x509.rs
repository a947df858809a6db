//! What this crate needs to know of a certificate, read once from its DER into owned values.
//!
//! Nothing is verified here: who trusts whom is rustls' business. What cannot be parsed is refused.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::SystemTime;

use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::oid_registry::Oid;
use x509_parser::prelude::FromDer;
use x509_parser::revocation_list::CertificateRevocationList;
use x509_parser::x509::{RelativeDistinguishedName, SubjectPublicKeyInfo, X509Name};

use crate::clock;
use crate::describe::Description;

/// The facts of one certificate.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    /// The subject and the issuer, as DER.
    pub(crate) subject: Vec<u8>,
    pub(crate) issuer: Vec<u8>,
    /// The same for messages.
    pub(crate) subject_text: String,
    pub(crate) issuer_text: String,
    /// SubjectPublicKeyInfo, as DER.
    pub(crate) public_key: Vec<u8>,
    /// The identifiers of the certificate's key and of its issuer's, where it tells.
    pub(crate) key_id: Option<Vec<u8>>,
    pub(crate) issuer_key_id: Option<Vec<u8>>,
    pub(crate) not_before: SystemTime,
    pub(crate) not_after: SystemTime,
    pub(crate) is_ca: bool,
    /// The serial number, as the content of its INTEGER.
    pub(crate) serial_der: Vec<u8>,
    /// The serial number in hexadecimal, as OpenSSL shows it.
    pub(crate) serial: String,
    pub(crate) alternative: AlternativeNames,
    pub(crate) description: Description,
}

/// The subjectAltName extension (RFC 5280 §4.2.1.6), as far as servers and clients are named by it.
#[derive(Clone, Debug, Default)]
pub(crate) struct AlternativeNames {
    pub(crate) present: bool,
    pub(crate) dns: Vec<String>,
    pub(crate) uris: Vec<String>,
    pub(crate) addresses: Vec<IpAddr>,
}

impl Facts {
    /// Reads one certificate; the error is the parser's reason.
    pub(crate) fn read(der: &[u8]) -> Result<Self, String> {
        let certificate = parse(der)?;
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
        Ok(Facts {
            subject: certificate.subject().as_raw().to_vec(),
            issuer: certificate.issuer().as_raw().to_vec(),
            subject_text: text_of(certificate.subject()),
            issuer_text: text_of(certificate.issuer()),
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

    /// Whether there is a subject at all.
    pub(crate) fn has_subject(&self) -> bool {
        // An empty SEQUENCE is two bytes.
        self.subject.len() > 2
    }

    /// Whether subject and issuer are the same.
    pub(crate) fn self_issued(&self) -> bool {
        self.subject == self.issuer
    }

    /// Whether `issuer` may have signed this: the names fit, and so do the key identifiers where both
    /// are told. No signature is computed.
    pub(crate) fn names_as_issuer(&self, issuer: &Facts) -> bool {
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

/// The key in a SubjectPublicKeyInfo in DER: the bits, without what says how many they are.
pub(crate) fn key_bits(public_key: &[u8]) -> Option<&[u8]> {
    let (_, info) = SubjectPublicKeyInfo::from_der(public_key).ok()?;
    // Borrowed from the same bytes, which outlive what was parsed of them.
    let length = info.subject_public_key.data.len();
    public_key.get(public_key.len().checked_sub(length)?..)
}

/// Parses a whole certificate: bytes after it are an error.
pub(crate) fn parse(der: &[u8]) -> Result<X509Certificate<'_>, String> {
    match X509Certificate::from_der(der) {
        Ok(([], certificate)) => Ok(certificate),
        Ok(_) => Err("bytes follow the certificate".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// The issuer of a revocation list in DER, and when the next one is due.
pub(crate) fn revocation_list(der: &[u8]) -> Result<(String, Option<SystemTime>), String> {
    match CertificateRevocationList::from_der(der) {
        // As `openssl ca` makes them by default. RFC 5280 §5.1.2.1 wants the version to be said.
        Ok(([], list)) if list.version().is_none() => {
            Err("it is of version 1; make it with `crl_extensions` in the configuration of openssl"
                .to_owned())
        }
        Ok(([], list)) => Ok((text_of(list.issuer()), list.next_update().map(clock::from_asn1))),
        Ok(_) => Err("bytes follow the list".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// The name of the issuer of a revocation list in DER, as DER.
pub(crate) fn list_issuer(der: &[u8]) -> Option<Vec<u8>> {
    let (_, list) = CertificateRevocationList::from_der(der).ok()?;
    Some(list.issuer().as_raw().to_vec())
}

/// Whether the key of the certificate `issuer` signed the certificate `leaf` (both DER).
pub(crate) fn signed_by(leaf: &[u8], issuer: &[u8]) -> bool {
    match (parse(leaf), parse(issuer)) {
        (Ok(leaf), Ok(issuer)) => leaf.verify_signature(Some(issuer.public_key())).is_ok(),
        _ => false,
    }
}

/// The dotted form of an object identifier that has no name here.
pub(crate) fn dotted(oid: &Oid<'_>) -> String {
    oid.to_id_string()
}

/// A name such as `O=Example, CN=anna`. Values are escaped (RFC 4514 §2.4), so that none of them can look like another
/// attribute.
fn text_of(name: &X509Name<'_>) -> String {
    let mut text = String::new();
    for attributes in name.iter() {
        for (at, attribute) in attributes.iter().enumerate() {
            if !text.is_empty() {
                text.push_str(if at == 0 { ", " } else { " + " });
            }
            // The parser knows the names of attributes, and how each kind of text is encoded.
            let one = vec![RelativeDistinguishedName::new(vec![attribute.clone()])];
            let one = X509Name::new(one, &[]).to_string();
            match one.split_once('=') {
                Some((kind, value)) => {
                    text.push_str(kind);
                    text.push('=');
                    escape(value, &mut text);
                }
                None => text.push_str(&one),
            }
        }
    }
    if text.is_empty() { "no subject".to_owned() } else { printable(&text) }
}

fn escape(value: &str, out: &mut String) {
    let last = value.chars().count().saturating_sub(1);
    for (at, char) in value.chars().enumerate() {
        let is_special = match char {
            ',' | '+' | '"' | '\\' | '<' | '>' | ';' => true,
            '#' => at == 0,
            ' ' => at == 0 || at == last,
            _ => false,
        };
        if is_special {
            out.push('\\');
        }
        out.push(char);
    }
}

/// A text of a certificate as it may be shown: whoever made the certificate must not command the terminal of whoever
/// looks at it, nor write lines of its own.
pub(crate) fn printable(text: &str) -> String {
    if !text.chars().any(is_unprintable) {
        return text.to_owned();
    }
    let mut out = String::with_capacity(text.len() + 8);
    for char in text.chars() {
        if is_unprintable(char) { out.extend(char.escape_default()) } else { out.push(char) }
    }
    out
}

/// Controls, and what changes the direction of the text around it.
fn is_unprintable(char: char) -> bool {
    char.is_control()
        || matches!(char, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
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
    fn texts_command_no_terminal() {
        assert_eq!(printable("CN=Müller & Söhne, O=例"), "CN=Müller & Söhne, O=例");
        let hostile = "a\u{1b}[2J\nnothing is wrong with it\u{9b}0m\u{202e}";
        assert_eq!(printable(hostile), "a\\u{1b}[2J\\nnothing is wrong with it\\u{9b}0m\\u{202e}");
    }

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
            let facts = Facts::read(params.self_signed(&key).unwrap().der()).unwrap();
            let wanted = format!("O=E, CN={shown}");
            assert_eq!((facts.subject_text, facts.issuer_text), (wanted.clone(), wanted));
            assert_eq!(facts.description.common_name.as_deref(), Some(value));
        }
        let mut params = rcgen::CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        let key = rcgen::KeyPair::generate().unwrap();
        assert_eq!(Facts::read(params.self_signed(&key).unwrap().der()).unwrap().subject_text, "no subject");
    }
}
