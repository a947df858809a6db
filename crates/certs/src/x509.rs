//! Certificates, keys and revocation lists parsed from DER (RFC 5280), and their names as text that is safe to show.
//!
//! Chains are not verified here: that is rustls' task. Malformed input is refused.

use std::time::SystemTime;

use x509_parser::certificate::X509Certificate;
use x509_parser::oid_registry::Oid;
use x509_parser::prelude::FromDer;
use x509_parser::revocation_list::CertificateRevocationList;
use x509_parser::x509::{RelativeDistinguishedName, SubjectPublicKeyInfo, X509Name};

use crate::clock;

/// The bits of the key in a SubjectPublicKeyInfo in DER.
pub(crate) fn key_bits(public_key: &[u8]) -> Option<&[u8]> {
    let (_, info) = SubjectPublicKeyInfo::from_der(public_key).ok()?;
    // Borrowed from the input, which outlives the parsed structure.
    let length = info.subject_public_key.data.len();
    public_key.get(public_key.len().checked_sub(length)?..)
}

/// Parses a whole certificate: trailing bytes are an error.
pub(crate) fn parse(der: &[u8]) -> Result<X509Certificate<'_>, String> {
    match X509Certificate::from_der(der) {
        Ok(([], certificate)) => Ok(certificate),
        Ok(_) => Err("bytes follow the certificate".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// The issuer of a revocation list in DER, and the time of its next update.
pub(crate) fn revocation_list(der: &[u8]) -> Result<(String, Option<SystemTime>), String> {
    match CertificateRevocationList::from_der(der) {
        // The default of `openssl ca`. RFC 5280 §5.1.2.1 requires the version.
        Ok(([], list)) if list.version().is_none() => {
            Err("it is of version 1; make it with `crl_extensions` in the configuration of openssl"
                .to_owned())
        }
        Ok(([], list)) => Ok((text_of(list.issuer()), list.next_update().map(clock::from_asn1))),
        Ok(_) => Err("bytes follow the list".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// The issuer's name of a revocation list in DER, itself in DER.
pub(crate) fn list_issuer(der: &[u8]) -> Option<Vec<u8>> {
    let (_, list) = CertificateRevocationList::from_der(der).ok()?;
    Some(list.issuer().as_raw().to_vec())
}

/// Returns `true` if the key of the certificate `issuer` signed the certificate `leaf` (both in DER).
pub(crate) fn signed_by(leaf: &[u8], issuer: &[u8]) -> bool {
    match (parse(leaf), parse(issuer)) {
        (Ok(leaf), Ok(issuer)) => leaf.verify_signature(Some(issuer.public_key())).is_ok(),
        _ => false,
    }
}

/// The dotted form of an object identifier without a known name.
pub(crate) fn dotted(oid: &Oid<'_>) -> String {
    oid.to_id_string()
}

/// A name such as `O=Example, CN=anna`. Values are escaped (RFC 4514 §2.4), so that none can pass for another
/// attribute.
pub(crate) fn text_of(name: &X509Name<'_>) -> String {
    let mut text = String::new();
    for attributes in name.iter() {
        for (at, attribute) in attributes.iter().enumerate() {
            if !text.is_empty() {
                text.push_str(if at == 0 { ", " } else { " + " });
            }
            // The parser knows the names of attributes and the encodings of text.
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

/// Makes a text of a certificate safe to print: its author must not control the reader's terminal, nor add
/// lines.
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

/// Controls, and characters that change the direction of text.
fn is_unprintable(char: char) -> bool {
    char.is_control()
        || matches!(char, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_cannot_control_a_terminal() {
        assert_eq!(printable("CN=Müller & Söhne, O=例"), "CN=Müller & Söhne, O=例");
        let hostile = "a\u{1b}[2J\nnothing is wrong with it\u{9b}0m\u{202e}";
        assert_eq!(printable(hostile), "a\\u{1b}[2J\\nnothing is wrong with it\\u{9b}0m\\u{202e}");
    }
}
