//! Certificates for tests: a CA, leaves of every key type, client certificates; written as PEM files.
//!
//! Each is minted when asked for, so that no test depends on a file that expires. Nothing is checked:
//! a leaf may be expired or not yet valid, if that is what the test wants.

use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rcgen::{
    BasicConstraints, Certificate, CertificateParams, CertificateRevocationListParams, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256,
    PKCS_ECDSA_P384_SHA384, PKCS_ED25519, PKCS_RSA_SHA256, RsaKeySize, SanType, date_time_ymd,
};

use crate::Error;

/// The kind of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// ECDSA on P-256.
    P256,
    /// ECDSA on P-384.
    P384,
    /// RSA with 2048 bits.
    Rsa2048,
    /// Ed25519.
    Ed25519,
}

impl Key {
    /// Every kind.
    pub const ALL: [Self; 4] = [Self::P256, Self::P384, Self::Rsa2048, Self::Ed25519];

    fn generate(self) -> Result<KeyPair, rcgen::Error> {
        match self {
            Self::P256 => KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256),
            Self::P384 => KeyPair::generate_for(&PKCS_ECDSA_P384_SHA384),
            Self::Rsa2048 => KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048),
            Self::Ed25519 => ed25519(),
        }
    }
}

/// An Ed25519 key in the first version of PKCS#8 (RFC 5208, RFC 8410 §7). The one that is generated
/// comes in the second version with the public key inside (RFC 5958), which OpenSSL 3.0 cannot read.
fn ed25519() -> Result<KeyPair, rcgen::Error> {
    let generated = KeyPair::generate_for(&PKCS_ED25519)?.serialize_der();
    let seed = generated.get(ED25519_PREFIX.len()..ED25519_PREFIX.len() + 32).unwrap_or_default();
    KeyPair::try_from([&ED25519_PREFIX[..], seed].concat())
}

/// What stands before the 32 bytes of the seed; as long as its counterpart in the second version.
const ED25519_PREFIX: [u8; 16] = [0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20];

/// A name in a subject alternative name extension.
#[derive(Clone, Debug)]
pub enum Name {
    /// A DNS name, wildcards included.
    Dns(String),
    /// A URI, as SPIFFE has them.
    Uri(String),
    /// An IP address.
    Ip(IpAddr),
}

/// When a certificate is valid, in the eyes of anyone in this century.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Validity {
    /// From 1975 on.
    #[default]
    Valid,
    /// Until the year 2020.
    Expired,
    /// From the year 2200 on.
    NotYet,
    /// Until this second.
    Until(SystemTime),
}

/// What a leaf says.
#[derive(Clone, Debug)]
pub struct Leaf {
    /// Its key.
    pub key: Key,
    /// The subject's common name; absent: an empty subject.
    pub common_name: Option<String>,
    /// The subject alternative names.
    pub names: Vec<Name>,
    /// When it is valid.
    pub validity: Validity,
    /// For clients (`clientAuth`) instead of servers.
    pub client: bool,
}

impl Leaf {
    /// A valid server certificate for these DNS names, the first of which is the common name too.
    #[must_use]
    pub fn server(key: Key, names: &[&str]) -> Self {
        Self {
            key,
            common_name: names.first().map(ToString::to_string),
            names: names.iter().map(|name| Name::Dns(name.to_string())).collect(),
            validity: Validity::Valid,
            client: false,
        }
    }

    /// A valid P-256 client certificate with this common name.
    #[must_use]
    pub fn client(common_name: &str, names: &[Name]) -> Self {
        Self {
            key: Key::P256,
            common_name: Some(common_name.into()),
            names: names.to_vec(),
            validity: Validity::Valid,
            client: true,
        }
    }
}

/// A certificate and its key, as files.
#[derive(Clone, Debug)]
pub struct Files {
    /// The certificate alone, PEM.
    pub cert: PathBuf,
    /// The certificate and behind it the one of the CA, PEM.
    pub chain: PathBuf,
    /// The private key, PKCS#8 in PEM.
    pub key: PathBuf,
}

/// A certificate authority that writes into one directory.
pub struct Ca {
    directory: PathBuf,
    certificate: Certificate,
    issuer: Issuer<'static, KeyPair>,
}

impl Ca {
    /// A new CA with a P-256 key; its certificate is `ca.pem` in `directory`.
    ///
    /// # Errors
    /// [`Error::Setup`] for what the minting says, [`Error::Io`] for what the directory says.
    pub fn new(directory: &Path) -> Result<Self, Error> {
        Self::named(directory, "Offramp test CA")
    }

    /// The same with another name.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn named(directory: &Path, name: &str) -> Result<Self, Error> {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params.distinguished_name.push(DnType::CommonName, name);
        let key = Key::P256.generate().map_err(Error::setup)?;
        let certificate = params.self_signed(&key).map_err(Error::setup)?;
        fs::write(directory.join("ca.pem"), certificate.pem())?;
        Ok(Self { directory: directory.to_path_buf(), certificate, issuer: Issuer::new(params, key) })
    }

    /// The file with the CA's certificate, PEM.
    #[must_use]
    pub fn certificate(&self) -> PathBuf {
        self.directory.join("ca.pem")
    }

    /// Mints a leaf and writes `NAME.pem`, `NAME.chain.pem` and `NAME.key`.
    ///
    /// # Errors
    /// As [`Self::new`]; also for a name that its kind does not allow.
    pub fn issue(&self, name: &str, leaf: &Leaf) -> Result<Files, Error> {
        let key = leaf.key.generate().map_err(Error::setup)?;
        let certificate = leaf_params(leaf)?.signed_by(&key, &self.issuer).map_err(Error::setup)?;
        let at = |extension| self.directory.join(format!("{name}.{extension}"));
        let files = Files { cert: at("pem"), chain: at("chain.pem"), key: at("key") };
        fs::write(&files.cert, certificate.pem())?;
        fs::write(&files.chain, certificate.pem() + &self.certificate.pem())?;
        fs::write(&files.key, key.serialize_pem())?;
        Ok(files)
    }

    /// Writes a revocation list with nobody in it to `NAME.crl`. Its successor is due at the beginning of this year.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn revocation_list(&self, name: &str, next_update: i32) -> Result<PathBuf, Error> {
        let params = CertificateRevocationListParams {
            this_update: date_time_ymd(next_update - 1, 1, 1),
            next_update: date_time_ymd(next_update, 1, 1),
            crl_number: 1.into(),
            issuing_distribution_point: None,
            revoked_certs: Vec::new(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        let list = params.signed_by(&self.issuer).map_err(Error::setup)?;
        let path = self.directory.join(format!("{name}.crl"));
        fs::write(&path, list.pem().map_err(Error::setup)?)?;
        Ok(path)
    }
}

fn leaf_params(leaf: &Leaf) -> Result<CertificateParams, Error> {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    if let Some(name) = &leaf.common_name {
        params.distinguished_name.push(DnType::CommonName, name.as_str());
    }
    for name in &leaf.names {
        params.subject_alt_names.push(match name {
            Name::Dns(name) => SanType::DnsName(name.as_str().try_into().map_err(Error::setup)?),
            Name::Uri(name) => SanType::URI(name.as_str().try_into().map_err(Error::setup)?),
            Name::Ip(address) => SanType::IpAddress(*address),
        });
    }
    match leaf.validity {
        Validity::Valid => {}
        Validity::Expired => params.not_after = date_time_ymd(2020, 1, 1),
        Validity::NotYet => params.not_before = date_time_ymd(2200, 1, 1),
        Validity::Until(end) => params.not_after = end.into(),
    }
    let usage =
        if leaf.client { ExtendedKeyUsagePurpose::ClientAuth } else { ExtendedKeyUsagePurpose::ServerAuth };
    params.extended_key_usages = vec![usage];
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.use_authority_key_identifier_extension = true;
    Ok(params)
}
