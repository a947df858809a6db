//! The local CA: a certificate authority of one installation, for `localhost` and private networks.
//!
//! ```text
//! <state_dir>/ca/            0700
//!     ca.pem                 0644   the CA's certificate, to be trusted by clients
//!     ca.key                 0600   its key (ECDSA P-256)
//!     issued/<name>.pem      0600   certificates signed by it, each with its key
//!     .lock                  0600   held while something is minted
//! ```
//!
//! The CA is minted once and then only read. A missing or damaged file of it is an error: a new CA would
//! silently break every client that trusts the old one. Issued certificates are merely a cache, minted anew
//! whenever they do not match.

mod trust;

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, SanType,
};
use rustls_pki_types::CertificateDer;
use zeroize::Zeroizing;

pub use trust::trust_instructions;

use crate::certificate::{Certificate, CertificateOrigin};
use crate::disk;
use crate::error::{CaFault, Error, NameFault};
use crate::facts::CertificateFacts;
use crate::file;
use crate::name::DnsPattern;
use crate::pem::{PemFile, PemItem};
use crate::warning::{Concern, Warning};
use crate::x509;

/// The lifetime of the CA: that of an unattended machine.
pub const CA_LIFE: Duration = Duration::from_secs(10 * 365 * DAY);

/// The lifetime of issued certificates, well below the limits of browsers, 398 and 825 days.
pub const LEAF_LIFE: Duration = Duration::from_secs(90 * DAY);

/// The maximum number of names per certificate.
pub const MAX_NAMES: usize = 100;

const DAY: u64 = 24 * 60 * 60;

/// The time by which validity periods are backdated, for clients with slow clocks.
const BACKDATED: Duration = Duration::from_secs(60 * 60);

/// The maximum length of a Common Name (RFC 5280 appendix A, `ub-common-name`).
const MAX_COMMON_NAME: usize = 64;

/// An open local CA.
#[derive(Debug)]
pub struct LocalCa {
    dir: PathBuf,
    certificate: CertificateDer<'static>,
    not_after: SystemTime,
    issuer: Issuer<'static, KeyPair>,
    warnings: Vec<Warning>,
}

impl LocalCa {
    /// Opens the CA under `state_dir`, or mints it if there is none. Two processes that do so at once get the
    /// same CA.
    ///
    /// # Errors
    /// [`Error::LocalCa`] if the CA exists but is incomplete, damaged or expired at `now`, with the remedy;
    /// [`Error::Io`] if its directory cannot be created or written.
    pub fn open_or_create(state_dir: &Path, now: SystemTime) -> Result<Self, Error> {
        let dir = state_dir.join("ca");
        let (pem, key) = (dir.join("ca.pem"), dir.join("ca.key"));
        // Takes the lock only if necessary, so that a state directory may be read-only.
        if !(disk::exists(&pem)? && disk::exists(&key)?) {
            disk::create_private_dir(&dir)?;
            let _lock = disk::MintLock::take(&dir)?;
            match (disk::exists(&pem)?, disk::exists(&key)?) {
                (true, true) => {}
                (false, false) => mint(&dir, now)?,
                (true, false) => return Err(fault(&dir, CaFault::Half { present: pem, missing: key })),
                (false, true) => return Err(fault(&dir, CaFault::Half { present: key, missing: pem })),
            }
        }
        Self::open(dir, now)
    }

    /// The path of the CA's certificate, which clients must trust.
    pub fn certificate_path(&self) -> PathBuf {
        self.dir.join("ca.pem")
    }

    /// The CA's certificate in DER.
    pub fn certificate(&self) -> &CertificateDer<'static> {
        &self.certificate
    }

    /// The end of the CA's validity period.
    pub fn not_after(&self) -> SystemTime {
        self.not_after
    }

    /// Warnings about the CA's files.
    pub fn warnings(&self) -> &[Warning] {
        &self.warnings
    }

    /// A certificate for `names`: DNS names, wildcards of one label, and IP addresses; at most [`MAX_NAMES`].
    /// The stored one is reused until [`Certificate::renew_at`]; then, or if it does not match, a new one is
    /// minted and stored.
    ///
    /// # Errors
    /// [`Error::Name`] for an invalid name or too many of them, [`Error::LocalCa`] if the CA has expired at
    /// `now`, [`Error::Io`] if the result cannot be written.
    pub fn issue<S: AsRef<str>>(&self, names: &[S], now: SystemTime) -> Result<Certificate, Error> {
        let subject = IssueSubject::read(names)?;
        let path = self.dir.join("issued").join(subject.file_name());
        if let Some(certificate) = self.reusable(&path, &subject, now) {
            return Ok(certificate);
        }
        if self.not_after <= now {
            return Err(fault(&self.dir, CaFault::Expired { not_after: self.not_after }));
        }
        disk::create_private_dir(&self.dir.join("issued"))?;
        let _lock = disk::MintLock::take(&self.dir)?;
        if let Some(certificate) = self.reusable(&path, &subject, now) {
            return Ok(certificate);
        }
        let pem = self.sign(&subject, now).map_err(|error| mint_fault(&self.dir, &error))?;
        disk::write(&path, pem.as_bytes(), 0o600)?;
        let mut certificate = file::load(&path, None, now)?.certificate;
        certificate.source = CertificateOrigin::LocalCa { path };
        Ok(certificate)
    }

    /// The stored certificate for `names`, if it is usable. Writes nothing.
    #[must_use]
    pub fn issued<S: AsRef<str>>(&self, names: &[S], now: SystemTime) -> Option<Certificate> {
        let subject = IssueSubject::read(names).ok()?;
        self.reusable(&self.dir.join("issued").join(subject.file_name()), &subject, now)
    }

    fn open(dir: PathBuf, now: SystemTime) -> Result<Self, Error> {
        let damaged = |error| fault(&dir, CaFault::Damaged(Box::new(error)));
        let (pem, key) = (dir.join("ca.pem"), dir.join("ca.key"));
        let loaded = file::load(&pem, Some(&key), now).map_err(damaged)?;
        let certificate = loaded.certificate.certified_key.cert[0].clone();
        let facts = CertificateFacts::read(&certificate).map_err(|why| mint_fault(&dir, &why))?;
        if !facts.is_ca {
            return Err(fault(&dir, CaFault::NotACa));
        }
        if facts.not_after <= now {
            return Err(fault(&dir, CaFault::Expired { not_after: facts.not_after }));
        }
        let key = read_key(&dir, &[key, pem])?;
        let issuer = Issuer::from_ca_cert_der(&certificate, key).map_err(|error| mint_fault(&dir, &error))?;
        // A CA has no host names and is its own issuer: both are normal here.
        let mut warnings = loaded.warnings;
        warnings.retain(|warning| {
            !matches!(
                warning.concern,
                Concern::SelfSigned
                    | Concern::NoIssuer { .. }
                    | Concern::NoNames
                    | Concern::CommonNameOnly { .. }
            )
        });
        Ok(LocalCa { dir, certificate, not_after: facts.not_after, issuer, warnings })
    }

    /// The stored certificate, if it has these names, is from this CA, and has more than a third of its
    /// lifetime left. Any fault is corrected by minting anew.
    fn reusable(&self, path: &Path, subject: &IssueSubject, now: SystemTime) -> Option<Certificate> {
        let mut certificate = file::load(path, None, now).ok()?.certificate;
        let fits = subject.is_of(&certificate)
            && certificate.not_before <= now
            && now < certificate.renew_at()
            && x509::signed_by(&certificate.certified_key.cert[0], &self.certificate);
        certificate.source = CertificateOrigin::LocalCa { path: path.to_owned() };
        fits.then_some(certificate)
    }

    /// Mints a key and a certificate for it, both in PEM.
    fn sign(&self, subject: &IssueSubject, now: SystemTime) -> Result<Zeroizing<String>, rcgen::Error> {
        let mut params = params(subject.common_name(), now, (now + LEAF_LIFE).min(self.not_after));
        params.subject_alt_names = subject.alternative_names()?;
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?;
        let key = Zeroizing::new(key.serialize_pem());
        Ok(Zeroizing::new(certificate.pem() + &key))
    }
}

/// Mints the CA into `dir`. The lock must be held.
fn mint(dir: &Path, now: SystemTime) -> Result<(), Error> {
    let failed = |error: rcgen::Error| mint_fault(dir, &error);
    let mut params = params(&format!("Offramp Local CA {}", host_name()), now, now + CA_LIFE);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let key = KeyPair::generate().map_err(failed)?;
    let certificate = params.self_signed(&key).map_err(failed)?;
    let key = Zeroizing::new(key.serialize_pem());
    disk::write(&dir.join("ca.key"), key.as_bytes(), 0o600)?;
    disk::write(&dir.join("ca.pem"), certificate.pem().as_bytes(), 0o644)
}

fn params(common_name: &str, now: SystemTime, not_after: SystemTime) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    let common_name: String = common_name.chars().take(MAX_COMMON_NAME).collect();
    params.distinguished_name.push(DnType::CommonName, common_name);
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    let since = |time: SystemTime| time.duration_since(UNIX_EPOCH).unwrap_or_default();
    params.not_before = epoch + since(now).saturating_sub(BACKDATED);
    params.not_after = epoch + since(not_after);
    params
}

/// The host name, which tells local CAs apart in a list of authorities.
fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Reads the CA's key for rcgen; [`file::load`] has checked that it is the only one in these files.
fn read_key(dir: &Path, files: &[PathBuf]) -> Result<KeyPair, Error> {
    let damaged = |error| fault(dir, CaFault::Damaged(Box::new(error)));
    for path in files {
        for block in PemFile::read(path).map_err(damaged)?.blocks {
            if let PemItem::Key(key) = block.item {
                return KeyPair::try_from(&*key).map_err(|error| mint_fault(dir, &error));
            }
        }
    }
    Err(fault(dir, CaFault::Mint("its key has vanished".to_owned())))
}

fn fault(dir: &Path, fault: CaFault) -> Error {
    Error::LocalCa { dir: dir.to_owned(), fault }
}

fn mint_fault(dir: &Path, why: &dyn std::fmt::Display) -> Error {
    fault(dir, CaFault::Mint(why.to_string()))
}

/// The names of a certificate to issue, each once.
struct IssueSubject {
    /// The first name given, which names the file.
    first: String,
    dns: Vec<DnsPattern>,
    addresses: Vec<std::net::IpAddr>,
}

impl IssueSubject {
    fn read<S: AsRef<str>>(names: &[S]) -> Result<Self, Error> {
        if names.len() > MAX_NAMES {
            return Err(Error::name(names[MAX_NAMES].as_ref(), NameFault::TooMany));
        }
        let Some(first) = names.first() else { return Err(Error::name("", NameFault::Empty)) };
        let mut subject = IssueSubject {
            first: first.as_ref().to_ascii_lowercase(),
            dns: Vec::new(),
            addresses: Vec::new(),
        };
        for text in names.iter().map(AsRef::as_ref) {
            if let Ok(address) = text.parse() {
                subject.addresses.push(address);
            } else {
                subject.dns.push(DnsPattern::parse(text).map_err(|fault| Error::name(text, fault))?);
            }
        }
        subject.dns.sort();
        subject.dns.dedup();
        subject.addresses.sort();
        subject.addresses.dedup();
        Ok(subject)
    }

    /// The Common Name, for people only: clients look at subjectAltName. Too long a name is left out rather
    /// than cut, which would make another name of it.
    fn common_name(&self) -> &str {
        if self.first.len() <= MAX_COMMON_NAME { &self.first } else { "Offramp" }
    }

    fn alternative_names(&self) -> Result<Vec<SanType>, rcgen::Error> {
        let dns = self.dns.iter().map(|name| Ok(SanType::DnsName(name.to_string().try_into()?)));
        let addresses = self.addresses.iter().map(|address| Ok(SanType::IpAddress(*address)));
        dns.chain(addresses).collect()
    }

    fn is_of(&self, certificate: &Certificate) -> bool {
        let (mut dns, mut addresses) = (certificate.names.clone(), certificate.addresses.clone());
        dns.sort();
        addresses.sort();
        dns == self.dns && addresses == self.addresses
    }

    /// A readable file name that differs between sets of names. The hash serves only that: the content of the
    /// file is compared before use.
    fn file_name(&self) -> String {
        // Only letters, digits, and the punctuation of names and addresses occur.
        let readable: String = self.first.replace('*', "_").replace(':', "-").chars().take(100).collect();
        let mut hash = 0xcbf2_9ce4_8422_2325_u64; // FNV-1a
        let dns = self.dns.iter().map(ToString::to_string);
        for name in dns.chain(self.addresses.iter().map(ToString::to_string)) {
            for byte in name.bytes().chain([b'\n']) {
                hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
            }
        }
        format!("{readable}-{hash:016x}.pem")
    }
}
