//! Keys, and certificate signing requests for them.

use rcgen::{CertificateParams, DistinguishedName, KeyPair, RsaKeySize};
use zeroize::Zeroizing;

/// The kind of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KeyType {
    /// ECDSA on the curve P-256.
    P256,
    /// ECDSA on the curve P-384.
    P384,
    /// RSA with a modulus of 2048 bits.
    Rsa2048,
    /// RSA with a modulus of 4096 bits.
    Rsa4096,
}

impl KeyType {
    /// The name of the kind, in configurations and file names.
    pub fn as_str(self) -> &'static str {
        match self {
            KeyType::P256 => "p256",
            KeyType::P384 => "p384",
            KeyType::Rsa2048 => "rsa2048",
            KeyType::Rsa4096 => "rsa4096",
        }
    }
}

/// Generates a key in PEM. RSA may take a second.
///
/// # Errors
/// The reason for which there is no randomness.
pub fn new_key(kind: KeyType) -> Result<Zeroizing<String>, String> {
    let key = match kind {
        KeyType::P256 => KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256),
        KeyType::P384 => KeyPair::generate_for(&rcgen::PKCS_ECDSA_P384_SHA384),
        KeyType::Rsa2048 => KeyPair::generate_rsa_for(&rcgen::PKCS_RSA_SHA256, RsaKeySize::_2048),
        KeyType::Rsa4096 => KeyPair::generate_rsa_for(&rcgen::PKCS_RSA_SHA256, RsaKeySize::_4096),
    };
    let key = key.map_err(|error| format!("cannot create a key: {error}"))?;
    Ok(Zeroizing::new(key.serialize_pem()))
}

/// The signing request in DER for a certificate with these names and this key.
///
/// # Errors
/// The reason for which the key or a name is unusable.
pub fn signing_request<S: AsRef<str>>(names: &[S], key: &str) -> Result<Vec<u8>, String> {
    let failed = |error: rcgen::Error| format!("cannot create a signing request: {error}");
    let key = KeyPair::from_pem(key).map_err(failed)?;
    let names: Vec<String> = names.iter().map(|name| name.as_ref().to_owned()).collect();
    let mut params = CertificateParams::new(names).map_err(failed)?;
    params.distinguished_name = DistinguishedName::new();
    Ok(params.serialize_request(&key).map_err(failed)?.der().to_vec())
}

#[cfg(test)]
mod tests {
    use x509_parser::certification_request::X509CertificationRequest;
    use x509_parser::prelude::FromDer;

    use super::*;

    #[test]
    fn requests_are_signed_by_their_keys() {
        for kind in [KeyType::P256, KeyType::P384, KeyType::Rsa2048] {
            let key = new_key(kind).unwrap();
            let der = signing_request(&["a.example.org", "*.example.org"], &key).unwrap();
            let (_, request) = X509CertificationRequest::from_der(&der).unwrap();
            request.verify_signature().unwrap();
        }
        assert!(signing_request(&["a"], "no key").is_err());
    }
}
