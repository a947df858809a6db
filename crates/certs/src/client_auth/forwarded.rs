//! Client certificates in header fields for HTTP servers: `Client-Cert` and `Client-Cert-Chain` (RFC 9440),
//! and Envoy's `X-Forwarded-Client-Cert`.

use std::fmt::Write as _;

use aws_lc_rs::digest;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

use crate::facts::CertificateFacts;

/// The value of `Client-Cert`: the leaf as a byte sequence (RFC 9440 §2.2, RFC 8941 §3.3.5).
#[must_use]
pub fn client_cert(leaf_der: &[u8]) -> String {
    format!(":{}:", BASE64_STANDARD.encode(leaf_der))
}

/// The value of `Client-Cert-Chain`: the certificates after the leaf, in the order of the handshake (RFC 9440
/// §2.3). `None` without any.
#[must_use]
pub fn client_cert_chain<T: AsRef<[u8]>>(chain: &[T]) -> Option<String> {
    let items: Vec<String> = chain.iter().map(|der| client_cert(der.as_ref())).collect();
    (!items.is_empty()).then(|| items.join(", "))
}

/// The value of `X-Forwarded-Client-Cert`, one element: the hash of the certificate, the certificate in
/// percent-encoded PEM, its subject, and the URIs and DNS names in its subjectAltName. `None` if it cannot be
/// parsed.
#[must_use]
pub fn x_forwarded_client_cert(leaf_der: &[u8]) -> Option<String> {
    let facts = CertificateFacts::read(leaf_der).ok()?;
    let mut text = String::from("Hash=");
    for byte in digest::digest(&digest::SHA256, leaf_der).as_ref() {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text.push_str(";Cert=\"");
    percent_encode(&pem(leaf_der), &mut text);
    text.push_str("\";Subject=");
    quote(if facts.has_subject() { &facts.subject_text } else { "" }, &mut text);
    for (key, values) in [("URI", &facts.alternative.uris), ("DNS", &facts.alternative.dns)] {
        for value in values {
            let _ = write!(text, ";{key}=");
            // Values with delimiters are quoted.
            if value.contains([',', ';', '=', '"', ' ']) {
                quote(value, &mut text);
            } else {
                text.extend(value.chars().map(printable));
            }
        }
    }
    Some(text)
}

fn pem(der: &[u8]) -> String {
    let text = BASE64_STANDARD.encode(der);
    let mut pem = String::with_capacity(text.len() + text.len() / 64 + 60);
    pem.push_str("-----BEGIN CERTIFICATE-----\n");
    let mut rest = text.as_str();
    while !rest.is_empty() {
        // Base64 is ASCII, so every index is a character boundary.
        let (line, after) = rest.split_at(rest.len().min(64));
        pem.push_str(line);
        pem.push('\n');
        rest = after;
    }
    pem.push_str("-----END CERTIFICATE-----\n");
    pem
}

/// Percent-encodes everything but the unreserved characters (RFC 3986 §2.3).
fn percent_encode(text: &str, out: &mut String) {
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
    }
}

/// Appends a quoted string, with quotes in it escaped.
fn quote(text: &str, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        if matches!(c, '"' | '\\') {
            out.push('\\');
        }
        out.push(printable(c));
    }
    out.push('"');
}

/// Replaces characters that fields may not hold: controls, and those that applications interpret differently.
fn printable(c: char) -> char {
    if c.is_ascii_graphic() || c == ' ' { c } else { '?' }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn byte_sequences_are_between_colons() {
        assert_eq!(client_cert(b"foobar"), ":Zm9vYmFy:");
        assert_eq!(client_cert_chain(&[b"foo", b"bar"]).as_deref(), Some(":Zm9v:, :YmFy:"));
        assert_eq!(client_cert_chain::<&[u8]>(&[]), None);
    }

    #[test]
    fn quotes_and_what_is_not_printable_do_no_harm() {
        let mut out = String::new();
        quote("a\"b\\c\r\né", &mut out);
        assert_eq!(out, "\"a\\\"b\\\\c???\"");
        let mut out = String::new();
        percent_encode("-A b+/=\n", &mut out);
        assert_eq!(out, "-A%20b%2B%2F%3D%0A");
    }

    #[test]
    fn pem_has_lines_of_64() {
        let text = pem(&[0; 100]);
        assert!(text.lines().all(|line| line.len() <= 64));
        assert_eq!(text.lines().count(), 5);
    }
}
