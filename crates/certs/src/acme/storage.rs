//! Storage of ACME state: accounts, certificates, pending orders.
//!
//! ```text
//! <state_dir>/acme/                     0700
//!     accounts/<name>-<hash>.json       0600   the account's key and URL
//!     certificates/<name>-<hash>/       0700   one per set of names and kind of key
//!         certificate.pem               0600   the chain and its key in one file, so that they always match
//!         issuer                        0600   the directory URL of the issuing authority
//!         order.json                    0600   the pending order with its key
//!         records.json                  0600   the DNS records set for it and not yet removed
//!         failures.json                 0600   failed orders since the last certificate
//!         on_demand.json                0600   for a certificate on demand: its name and last use
//!     validations.json                  0600   the names with failed validations in the last hour
//!     .lock                             0600   held by the process that orders
//! ```
//!
//! Every file is written atomically. The hashes only keep paths apart: the content of a file is compared
//! before use.

mod demanded;

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::request::KeyType;
use super::schedule::Failures;
use super::validations::Validations;
use crate::certificate::{Certificate, CertificateOrigin};
use crate::disk;
use crate::error::{ContentFault, Error, NameFault};
use crate::file;
use crate::name::DnsPattern;

pub use demanded::{Demanded, StoredPath};

/// The directory `acme` in a state directory.
#[derive(Clone, Debug)]
pub struct Storage {
    root: PathBuf,
}

/// The exclusive right to order; released on drop and when the process dies.
#[derive(Debug)]
pub struct Lock {
    _lock: disk::MintLock,
}

/// The subject of a certificate: a set of names, and a kind of key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Subject {
    /// The names in the order given; the first is part of the directory's name.
    names: Vec<DnsPattern>,
    key: KeyType,
}

/// A pending order, so that it can be resumed.
#[derive(Clone, Serialize, Deserialize)]
pub struct PendingOrder {
    /// The directory URL of the authority.
    pub directory: String,
    /// The URL of the account.
    pub account: String,
    /// The certificate profile that was requested.
    pub profile: Option<String>,
    /// The URL of the order.
    pub url: String,
    /// The key for the certificate in PEM.
    pub key: String,
    /// The number of times that the order was resumed.
    #[serde(default)]
    pub resumed: u32,
}

/// DNS records set for a certificate that is no longer configured, perhaps not removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Abandoned {
    file: PathBuf,
    /// For each record the name that it validates, and its value.
    pub records: Vec<(String, String)>,
    /// The directory URL of the authority of the order, if known.
    pub directory: Option<String>,
}

impl std::fmt::Debug for PendingOrder {
    /// Omits the key, which is a secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PendingOrder").field("url", &self.url).finish_non_exhaustive()
    }
}

impl Drop for PendingOrder {
    fn drop(&mut self) {
        zeroize::Zeroize::zeroize(&mut self.key);
    }
}

impl Subject {
    /// A set of names without duplicates.
    ///
    /// # Errors
    /// [`Error::Name`] for an invalid name, or an empty set.
    pub fn new<S: AsRef<str>>(names: &[S], key: KeyType) -> Result<Self, Error> {
        let mut set: Vec<DnsPattern> = Vec::with_capacity(names.len());
        for text in names.iter().map(AsRef::as_ref) {
            let name = DnsPattern::parse(text).map_err(|fault| Error::name(text, fault))?;
            if !set.contains(&name) {
                set.push(name);
            }
        }
        if set.is_empty() {
            return Err(Error::name("", NameFault::Empty));
        }
        Ok(Subject { names: set, key })
    }

    /// The names in the order given.
    pub fn names(&self) -> &[DnsPattern] {
        &self.names
    }

    /// The kind of the key.
    pub fn key(&self) -> KeyType {
        self.key
    }

    fn directory_name(&self) -> String {
        let mut sorted: Vec<String> = self.names.iter().map(ToString::to_string).collect();
        sorted.sort();
        let readable: String = self.names[0].to_string().replace('*', "_").chars().take(100).collect();
        format!("{readable}-{:016x}", hash(sorted.iter().map(String::as_str).chain([self.key.as_str()])))
    }

    /// Returns `true` if the certificate has all of the names.
    fn is_covered_by(&self, certificate: &Certificate) -> bool {
        self.names.iter().all(|name| certificate.names.contains(name))
    }
}

impl Storage {
    /// The storage of a state directory; does not touch the file system.
    pub fn new(state_dir: &Path) -> Self {
        Storage { root: state_dir.join("acme") }
    }

    /// Creates the directories.
    ///
    /// # Errors
    /// [`Error::Io`]: a directory cannot be created.
    pub fn prepare(&self) -> Result<(), Error> {
        disk::create_private_dir(&self.root)?;
        disk::create_private_dir(&self.root.join("accounts"))?;
        disk::create_private_dir(&self.root.join("certificates"))
    }

    /// Takes the right to order; `None` if another process has it.
    ///
    /// # Errors
    /// [`Error::Io`]: the lock fails for another reason.
    pub fn try_lock(&self) -> Result<Option<Lock>, Error> {
        Ok(disk::MintLock::try_take(&self.root)?.map(|lock| Lock { _lock: lock }))
    }

    /// The path of the storage.
    pub fn path(&self) -> &Path {
        &self.root
    }

    /// Reads the account identified by `parts`: its name, then everything that makes it a different account.
    ///
    /// # Errors
    /// [`Error::Io`]: the file exists but cannot be read.
    pub fn account(&self, parts: &[&str]) -> Result<Option<Zeroizing<String>>, Error> {
        read(&self.account_path(parts))
    }

    /// Writes an account.
    ///
    /// # Errors
    /// [`Error::Io`]: the file cannot be written.
    pub fn keep_account(&self, parts: &[&str], text: &str) -> Result<(), Error> {
        self.prepare()?;
        disk::write(&self.account_path(parts), text.as_bytes(), 0o600)
    }

    fn account_path(&self, parts: &[&str]) -> PathBuf {
        let name = format!("{}-{:016x}.json", parts.first().unwrap_or(&""), hash(parts.iter().copied()));
        self.root.join("accounts").join(name)
    }

    fn directory(&self, subject: &Subject) -> PathBuf {
        self.root.join("certificates").join(subject.directory_name())
    }

    /// The certificate of this set, expired or not; `None` if there is no usable one.
    pub fn certificate(&self, subject: &Subject, now: SystemTime) -> Option<Certificate> {
        let path = self.directory(subject).join("certificate.pem");
        load(&path, now).ok().filter(|certificate| subject.is_covered_by(certificate))
    }

    /// Every stored certificate that is valid, for any set.
    pub fn certificates(&self, now: SystemTime) -> Vec<Certificate> {
        let directories = std::fs::read_dir(self.root.join("certificates"));
        let paths =
            directories.into_iter().flatten().flatten().map(|entry| entry.path().join("certificate.pem"));
        let valid = |certificate: &Certificate| certificate.is_valid(now);
        paths.filter_map(|path| load(&path, now).ok()).filter(valid).collect()
    }

    /// The directory URL of the authority that issued this set's certificate.
    pub fn issuer(&self, subject: &Subject) -> Option<String> {
        std::fs::read_to_string(self.directory(subject).join("issuer")).ok()
    }

    /// The time at which this set's certificate was stored, by the clock of that time.
    pub fn obtained(&self, subject: &Subject) -> Option<SystemTime> {
        let path = self.directory(subject).join("certificate.pem");
        std::fs::metadata(path).and_then(|found| found.modified()).ok()
    }

    /// The key of this set's certificate in PEM.
    pub fn key(&self, subject: &Subject) -> Option<Zeroizing<String>> {
        let text = read(&self.directory(subject).join("certificate.pem")).ok()??;
        let begin = text.find(KEY)?;
        Some(Zeroizing::new(text[begin..].to_owned()))
    }

    /// The path of this set's certificate and key, even if there is none.
    pub fn file(&self, subject: &Subject) -> PathBuf {
        self.directory(subject).join("certificate.pem")
    }

    /// Writes this set's chain to `cert` and its key to `key`, or both to `cert`. The key is written first,
    /// so that a watcher of the chain finds the matching key.
    ///
    /// # Errors
    /// [`Error::Io`]: there is no certificate, or a file cannot be written.
    pub fn export(&self, subject: &Subject, cert: &Path, key: Option<&Path>) -> Result<(), Error> {
        let path = self.file(subject);
        let text = std::fs::read_to_string(&path).map_err(|error| Error::io("read", &path, error))?;
        let text = Zeroizing::new(text);
        let Some(key) = key else { return disk::write(cert, text.as_bytes(), 0o600) };
        let (chain, secret) = text.split_at(text.find(KEY).unwrap_or(text.len()));
        disk::write(key, secret.as_bytes(), 0o600)?;
        disk::write(cert, chain.as_bytes(), 0o644)
    }

    /// Checks a chain and its key as a client would, and replaces the stored ones.
    ///
    /// # Errors
    /// Those of [`file::load`], above all for a key that does not match; [`Error::Content`] for a missing
    /// name or an expired certificate; [`Error::Io`] if it cannot be written. The old certificate stays.
    pub fn keep_certificate(
        &self,
        subject: &Subject,
        chain: &str,
        key: &str,
        issuer: &str,
        now: SystemTime,
    ) -> Result<Certificate, Error> {
        let directory = self.directory(subject);
        self.prepare()?;
        disk::create_private_dir(&directory)?;
        let (candidate, path) = (directory.join("candidate.pem"), directory.join("certificate.pem"));
        let text = Zeroizing::new(format!("{}\n{key}", chain.trim_end()));
        disk::write(&candidate, text.as_bytes(), 0o600)?;
        let checked = load(&candidate, now).and_then(|certificate| {
            let missing = subject.names.iter().find(|name| !certificate.names.contains(name));
            match missing {
                Some(name) => Err(Error::content(&candidate, None, ContentFault::NotFor(name.to_string()))),
                None if certificate.not_after <= now => {
                    Err(Error::content(&candidate, None, ContentFault::Expired(certificate.not_after)))
                }
                None => Ok(certificate),
            }
        });
        let kept = checked.and_then(|certificate| {
            disk::write(&directory.join("issuer"), issuer.as_bytes(), 0o600)?;
            disk::replace(&candidate, &path).map_err(|error| Error::io("write", &path, error))?;
            Ok(certificate)
        });
        match kept {
            Ok(mut certificate) => {
                certificate.source = CertificateOrigin::Acme { path };
                Ok(certificate)
            }
            Err(error) => {
                let _ = std::fs::remove_file(&candidate);
                Err(error)
            }
        }
    }

    /// The pending order of this set.
    pub fn order(&self, subject: &Subject) -> Option<PendingOrder> {
        self.json(subject, ORDER)
    }

    /// Writes a pending order.
    ///
    /// # Errors
    /// [`Error::Io`]: the file cannot be written.
    pub fn keep_order(&self, subject: &Subject, order: &PendingOrder) -> Result<(), Error> {
        self.keep_json(subject, ORDER, order)
    }

    /// Removes the order, which has ended.
    pub fn forget_order(&self, subject: &Subject) {
        self.forget(subject, ORDER);
    }

    /// DNS records that may be set: for each the name that it validates, and its value.
    pub fn records(&self, subject: &Subject) -> Vec<(String, String)> {
        self.json(subject, RECORDS).unwrap_or_default()
    }

    /// Writes the DNS records that are about to be set.
    ///
    /// # Errors
    /// [`Error::Io`]: the file cannot be written.
    pub fn keep_records(&self, subject: &Subject, records: &[(String, String)]) -> Result<(), Error> {
        self.keep_json(subject, RECORDS, &records)
    }

    /// Removes the record of DNS records, which were removed.
    pub fn forget_records(&self, subject: &Subject) {
        self.forget(subject, RECORDS);
    }

    /// DNS records of all sets except `wanted`. Sets ordered on demand are left out: they may be wanted
    /// again.
    pub fn abandoned(&self, wanted: &[Subject]) -> Vec<Abandoned> {
        let wanted: Vec<PathBuf> = wanted.iter().map(|subject| self.directory(subject)).collect();
        let directories = std::fs::read_dir(self.root.join("certificates"));
        let paths = directories.into_iter().flatten().flatten().map(|entry| entry.path());
        let others = paths.filter(|path| !wanted.contains(path) && !path.join(demanded::ON_DEMAND).exists());
        let mut all: Vec<Abandoned> = others
            .filter_map(|path| {
                let file = path.join(RECORDS);
                let records = serde_json::from_str(&read(&file).ok()??).ok()?;
                let order = read(&path.join(ORDER)).ok().flatten();
                let order = order.and_then(|text| serde_json::from_str::<PendingOrder>(&text).ok());
                Some(Abandoned { file, records, directory: order.map(|order| order.directory.clone()) })
            })
            .collect();
        all.sort_by(|one, other| one.file.cmp(&other.file));
        all
    }

    /// Removes the record of these DNS records, which were removed.
    pub fn forget_abandoned(&self, abandoned: &Abandoned) {
        let _ = std::fs::remove_file(&abandoned.file);
    }

    /// Failed orders since the last certificate.
    pub fn failures(&self, subject: &Subject) -> Failures {
        self.json(subject, FAILURES).unwrap_or_default()
    }

    /// Writes the failed orders.
    ///
    /// # Errors
    /// [`Error::Io`]: the file cannot be written.
    pub fn keep_failures(&self, subject: &Subject, failures: &Failures) -> Result<(), Error> {
        self.keep_json(subject, FAILURES, failures)
    }

    /// Removes the failed orders after a success.
    pub fn forget_failures(&self, subject: &Subject) {
        self.forget(subject, FAILURES);
    }

    /// Failed validations by name.
    pub fn validations(&self) -> Validations {
        let text = read(&self.root.join(VALIDATIONS)).ok().flatten();
        text.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default()
    }

    /// Writes the failed validations.
    ///
    /// # Errors
    /// [`Error::Io`]: the file cannot be written.
    pub fn keep_validations(&self, validations: &Validations) -> Result<(), Error> {
        let path = self.root.join(VALIDATIONS);
        let text =
            serde_json::to_vec(validations).map_err(|error| Error::io("write", &path, error.into()))?;
        self.prepare()?;
        disk::write(&path, &text, 0o600)
    }

    /// Removes everything about this set: certificate, key, order and failures.
    pub fn remove(&self, subject: &Subject) {
        // Leftovers are found and removed the next time.
        let _ = std::fs::remove_dir_all(self.directory(subject));
    }

    /// Reads a JSON file. An unreadable one counts as absent: it only serves to resume.
    fn json<T: DeserializeOwned>(&self, subject: &Subject, name: &str) -> Option<T> {
        let text = read(&self.directory(subject).join(name)).ok()??;
        serde_json::from_str(&text).ok()
    }

    fn keep_json<T: Serialize>(&self, subject: &Subject, name: &str, value: &T) -> Result<(), Error> {
        let directory = self.directory(subject);
        self.prepare()?;
        disk::create_private_dir(&directory)?;
        let path = directory.join(name);
        let text = serde_json::to_vec(value).map_err(|error| Error::io("write", &path, error.into()))?;
        disk::write(&path, &Zeroizing::new(text), 0o600)
    }

    fn forget(&self, subject: &Subject, name: &str) {
        // A leftover is found the next time, and recognised as ended.
        let _ = std::fs::remove_file(self.directory(subject).join(name));
    }
}

/// The first line of the keys that this program writes.
const KEY: &str = "-----BEGIN PRIVATE KEY-----";
const ORDER: &str = "order.json";
const RECORDS: &str = "records.json";
const FAILURES: &str = "failures.json";
const VALIDATIONS: &str = "validations.json";

fn load(path: &Path, now: SystemTime) -> Result<Certificate, Error> {
    let mut certificate = file::load(path, None, now)?.certificate;
    certificate.source = CertificateOrigin::Acme { path: path.to_owned() };
    Ok(certificate)
}

fn read(path: &Path) -> Result<Option<Zeroizing<String>>, Error> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(Zeroizing::new(text))),
        Err(error)
            if matches!(error.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory) =>
        {
            Ok(None)
        }
        Err(error) => Err(Error::io("read", path, error)),
    }
}

/// FNV-1a over the parts.
fn hash<'a>(parts: impl Iterator<Item = &'a str>) -> u64 {
    let bytes = parts.flat_map(|part| part.bytes().chain([b'\n']));
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests;
