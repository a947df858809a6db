//! The certificate that answers the challenge tls-alpn-01 (RFC 8737 §3).

use std::sync::Arc;

use rcgen::{CertificateParams, CustomExtension, DistinguishedName, KeyPair};
use rustls::crypto::aws_lc_rs::sign::any_supported_type;
use rustls::sign::CertifiedKey;
use rustls_pki_types::PrivateKeyDer;

/// The only ALPN protocol that the authority offers.
pub const PROTOCOL: &[u8] = b"acme-tls/1";

/// A self-signed certificate for `name` with the digest of the key authorization.
///
/// # Errors
/// The reason for which the name cannot be in a certificate.
pub fn certificate(name: &str, digest: &[u8]) -> Result<Arc<CertifiedKey>, String> {
    let failed = |error: rcgen::Error| format!("no certificate for {name}: {error}");
    let mut params = CertificateParams::new(vec![name.to_owned()]).map_err(failed)?;
    params.distinguished_name = DistinguishedName::new();
    params.custom_extensions = vec![CustomExtension::new_acme_identifier(digest)];
    let key = KeyPair::generate().map_err(failed)?;
    let certificate = params.self_signed(&key).map_err(failed)?;
    let der = PrivateKeyDer::try_from(key.serialize_der()).map_err(ToString::to_string)?;
    let signing = any_supported_type(&der).map_err(|error| error.to_string())?;
    Ok(Arc::new(CertifiedKey::new(vec![certificate.der().clone()], signing)))
}

#[cfg(test)]
mod tests {
    use x509_parser::prelude::{FromDer, X509Certificate};

    use super::*;

    #[test]
    fn the_digest_is_in_a_critical_extension_and_the_name_in_the_other() {
        let made = certificate("a.example.org", &[7; 32]).unwrap();
        let (_, parsed) = X509Certificate::from_der(&made.cert[0]).unwrap();
        // The extension id-pe-acmeIdentifier.
        let found =
            parsed.extensions().iter().find(|one| one.oid.to_id_string() == "1.3.6.1.5.5.7.1.31").unwrap();
        assert!(found.critical);
        assert_eq!(found.value, [&[4, 32][..], &[7; 32]].concat());
        let names = parsed.subject_alternative_name().unwrap().unwrap();
        assert_eq!(names.value.general_names.len(), 1);
        assert!(certificate("ä", &[7; 32]).is_err());
    }
}
