//! The certificates that every contestant serves: one P-256 and one RSA-2048, self-signed, for `localhost`; and an
//! authority with one client.

use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    PKCS_ECDSA_P256_SHA256, PKCS_RSA_SHA256, RsaKeySize,
};
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result, write_file};
use crate::protocol::Credentials;

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

impl Identity {
    /// What a server of the harness's own shows.
    pub(crate) fn credentials(&self) -> Credentials {
        Credentials { cert: self.cert.clone(), key: self.key.clone() }
    }
}

/// Who is let in where clients must show a certificate.
#[derive(Clone, Debug)]
pub(crate) struct Clients {
    /// The certificate of their authority.
    pub(crate) authority: PathBuf,
    /// One of them, with a P-256 key.
    pub(crate) client: Credentials,
}

/// The clients, in `dir`; made on first use.
///
/// # Errors
/// As [`identity`].
pub(crate) fn clients(dir: &Path) -> Result<Clients> {
    let file = |name: &str| dir.join(name);
    let client = Credentials { cert: file("client.crt"), key: file("client.key") };
    let clients = Clients { authority: file("clients.crt"), client };
    if !clients.client.key.exists() {
        let failed = |e| Error::Measure(format!("making a certificate: {e}"));
        let (authority, cert, key) = generate_client().map_err(failed)?;
        write_file(&clients.authority, authority)?;
        write_file(&clients.client.cert, cert)?;
        write_file(&clients.client.key, key)?;
    }
    Ok(clients)
}

fn generate_client() -> Result<(String, String, String), rcgen::Error> {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "clients of the benchmark");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
    let authority = params.self_signed(&key)?.pem();
    let issuer = Issuer::new(params, key);
    let mut leaf = CertificateParams::default();
    leaf.distinguished_name.push(DnType::CommonName, "client");
    leaf.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
    Ok((authority, leaf.signed_by(&key, &issuer)?.pem(), key.serialize_pem()))
}

fn generate(kind: KeyKind) -> Result<(String, String), rcgen::Error> {
    let key = match kind {
        KeyKind::P256 => KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?,
        KeyKind::Rsa2048 => KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048)?,
    };
    let cert = CertificateParams::new(vec!["localhost".to_owned()])?.self_signed(&key)?;
    Ok((cert.pem(), key.serialize_pem()))
}
