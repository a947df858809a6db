//! The certificates that every contestant serves: one P-256 and one RSA-2048, self-signed, for `localhost`.

use std::path::{Path, PathBuf};

use rcgen::{CertificateParams, KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_RSA_SHA256, RsaKeySize};
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result, write_file};

/// The kinds of key that are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum KeyKind {
    /// ECDSA on P-256.
    P256,
    /// RSA with 2048 bits.
    Rsa2048,
}

impl KeyKind {
    fn stem(self) -> &'static str {
        match self {
            Self::P256 => "p256",
            Self::Rsa2048 => "rsa2048",
        }
    }
}

/// One certificate with its key, as files.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    /// The certificate alone, PEM.
    pub(crate) cert: PathBuf,
    /// The key alone, PKCS#8 PEM.
    pub(crate) key: PathBuf,
    /// Key and certificate in one file, as HAProxy and hitch want them.
    pub(crate) both: PathBuf,
}

/// The identity of a kind in `dir`; made on first use.
///
/// # Errors
/// When a key cannot be made or a file not be written.
pub(crate) fn identity(dir: &Path, kind: KeyKind) -> Result<Identity> {
    let file = |end: &str| dir.join(format!("{}{end}", kind.stem()));
    let identity = Identity { cert: file(".crt"), key: file(".key"), both: file(".pem") };
    if !identity.both.exists() {
        let (cert, key) = generate(kind).map_err(|e| Error::Measure(format!("making a certificate: {e}")))?;
        write_file(&identity.cert, &cert)?;
        write_file(&identity.key, &key)?;
        write_file(&identity.both, format!("{key}{cert}"))?;
    }
    Ok(identity)
}

fn generate(kind: KeyKind) -> Result<(String, String), rcgen::Error> {
    let key = match kind {
        KeyKind::P256 => KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?,
        KeyKind::Rsa2048 => KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048)?,
    };
    let cert = CertificateParams::new(vec!["localhost".to_owned()])?.self_signed(&key)?;
    Ok((cert.pem(), key.serialize_pem()))
}
