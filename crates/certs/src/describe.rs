//! Descriptions of certificates for the PROXY protocol (proxy-protocol.txt §2.2.6).
//!
//! `PP2_SUBTYPE_SSL_SIG_ALG` and `PP2_SUBTYPE_SSL_KEY_ALG` describe the certificate that the *frontend*
//! presented, so they come from the server's certificate; `PP2_SUBTYPE_SSL_CN` is the CN of the *client's*.
//! The values are those of HAProxy: OpenSSL's short name of the signature algorithm (`RSA-SHA256`,
//! `ecdsa-with-SHA256`) and the kind and bits of the key (`RSA2048`, `EC256`).

use std::borrow::Cow;

use x509_parser::certificate::X509Certificate;
use x509_parser::oid_registry::{
    OID_EC_P256, OID_KEY_TYPE_EC_PUBLIC_KEY, OID_NIST_EC_P384, OID_NIST_EC_P521, OID_PKCS1_RSASSAPSS,
    OID_PKCS1_SHA1WITHRSA, OID_PKCS1_SHA256WITHRSA, OID_PKCS1_SHA384WITHRSA, OID_PKCS1_SHA512WITHRSA,
    OID_SIG_ECDSA_WITH_SHA256, OID_SIG_ECDSA_WITH_SHA384, OID_SIG_ECDSA_WITH_SHA512, OID_SIG_ED25519, Oid,
};
use x509_parser::public_key::PublicKey;
use x509_parser::x509::SubjectPublicKeyInfo;

use crate::x509;

/// A certificate in the terms of the PROXY protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// The first Common Name (OID 2.5.4.3) of the subject, for `PP2_SUBTYPE_SSL_CN`. `None` without one, or
    /// if its encoding cannot be converted to UTF-8.
    pub common_name: Option<String>,
    /// The signature algorithm of the certificate, such as `RSA-SHA256`, `ecdsa-with-SHA384` or `ED25519`; a
    /// dotted object identifier if unknown. US-ASCII.
    pub signature_algorithm: Cow<'static, str>,
    /// The kind and size of the key, such as `RSA2048`, `EC256` or `ED25519`; a dotted object identifier if
    /// unknown. US-ASCII.
    pub key_algorithm: Cow<'static, str>,
}

impl Description {
    /// Describes a certificate in DER; `None` if it cannot be parsed.
    pub fn of(der: &[u8]) -> Option<Self> {
        x509::parse(der).ok().map(|certificate| Self::read(&certificate))
    }

    pub(crate) fn read(certificate: &X509Certificate<'_>) -> Self {
        Description {
            common_name: common_name(certificate),
            signature_algorithm: signature_algorithm(&certificate.signature_algorithm.algorithm),
            key_algorithm: key_algorithm(certificate.public_key()),
        }
    }
}

/// The first CN of the subject, which OpenSSL and HAProxy report too.
pub(crate) fn common_name(certificate: &X509Certificate<'_>) -> Option<String> {
    certificate.subject().iter_common_name().next()?.as_str().ok().map(str::to_owned)
}

fn signature_algorithm(oid: &Oid<'_>) -> Cow<'static, str> {
    let known: [(&Oid<'static>, &'static str); 9] = [
        (&OID_SIG_ECDSA_WITH_SHA256, "ecdsa-with-SHA256"),
        (&OID_SIG_ECDSA_WITH_SHA384, "ecdsa-with-SHA384"),
        (&OID_SIG_ECDSA_WITH_SHA512, "ecdsa-with-SHA512"),
        (&OID_PKCS1_SHA256WITHRSA, "RSA-SHA256"),
        (&OID_PKCS1_SHA384WITHRSA, "RSA-SHA384"),
        (&OID_PKCS1_SHA512WITHRSA, "RSA-SHA512"),
        (&OID_PKCS1_SHA1WITHRSA, "RSA-SHA1"),
        (&OID_PKCS1_RSASSAPSS, "RSASSA-PSS"),
        (&OID_SIG_ED25519, "ED25519"),
    ];
    match known.iter().find(|(candidate, _)| *candidate == oid) {
        Some((_, name)) => Cow::Borrowed(name),
        None => Cow::Owned(x509::dotted(oid)),
    }
}

fn key_algorithm(key: &SubjectPublicKeyInfo<'_>) -> Cow<'static, str> {
    let oid = &key.algorithm.algorithm;
    if *oid == OID_SIG_ED25519 {
        return Cow::Borrowed("ED25519");
    }
    if *oid == OID_KEY_TYPE_EC_PUBLIC_KEY {
        let curve = key.algorithm.parameters.as_ref().and_then(|any| any.as_oid().ok());
        if let Some(name) = curve.as_ref().and_then(curve_name) {
            return Cow::Borrowed(name);
        }
    }
    match key.parsed() {
        Ok(PublicKey::RSA(rsa)) => Cow::Owned(format!("RSA{}", rsa_bits(rsa.modulus))),
        _ => Cow::Owned(x509::dotted(oid)),
    }
}

fn curve_name(curve: &Oid<'_>) -> Option<&'static str> {
    [(&OID_EC_P256, "EC256"), (&OID_NIST_EC_P384, "EC384"), (&OID_NIST_EC_P521, "EC521")]
        .into_iter()
        .find_map(|(known, name)| (known == curve).then_some(name))
}

/// The bits of an RSA modulus in a DER integer, without leading zeros.
fn rsa_bits(modulus: &[u8]) -> usize {
    let start = modulus.iter().position(|byte| *byte != 0).unwrap_or(modulus.len());
    match modulus.get(start) {
        Some(first) => (modulus.len() - start) * 8 - first.leading_zeros() as usize,
        None => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_of_a_modulus() {
        assert_eq!(rsa_bits(&[]), 0);
        assert_eq!(rsa_bits(&[0, 0]), 0);
        assert_eq!(rsa_bits(&[0, 0x80, 0]), 16);
        assert_eq!(rsa_bits(&[0x01, 0xff]), 9);
    }

    #[test]
    fn what_is_no_certificate_has_no_description() {
        assert_eq!(Description::of(b""), None);
        assert_eq!(Description::of(&[0x30, 0x03, 0x02, 0x01, 0x00]), None);
    }
}
