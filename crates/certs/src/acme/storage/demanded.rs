//! Storage of certificates on demand.

use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use super::{Storage, Subject, load, read};
use crate::certificate::Certificate;
use crate::error::Error;

/// The record of a certificate on demand.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Demanded {
    /// The DNS name of the certificate.
    pub name: String,
    /// The last use by a client in seconds of Unix time; may lag by an hour.
    pub used: u64,
}

impl Demanded {
    /// The last use by a client. Numbers that are not times count as never.
    pub fn used_at(&self) -> SystemTime {
        UNIX_EPOCH.checked_add(Duration::from_secs(self.used)).unwrap_or(UNIX_EPOCH)
    }
}

/// The place of a certificate on demand in the storage, configured or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredPath(PathBuf);

impl Storage {
    /// Records that this set's certificate was ordered on demand, and its last use.
    ///
    /// # Errors
    /// [`Error::Io`]: the file cannot be written.
    pub fn keep_demanded(&self, subject: &Subject, demanded: &Demanded) -> Result<(), Error> {
        self.keep_json(subject, ON_DEMAND, demanded)
    }

    /// The record of this set's certificate, if it was ordered on demand.
    pub fn demanded(&self, subject: &Subject) -> Option<Demanded> {
        self.json(subject, ON_DEMAND)
    }

    /// Every certificate on demand, by name.
    pub fn all_demanded(&self) -> Vec<Demanded> {
        let mut all: Vec<Demanded> = self.each_demanded().into_iter().map(|(_, demanded)| demanded).collect();
        all.sort_by(|one, other| one.name.cmp(&other.name));
        all
    }

    /// Every certificate on demand with its place, in arbitrary order.
    pub fn each_demanded(&self) -> Vec<(StoredPath, Demanded)> {
        let directories = std::fs::read_dir(self.root.join("certificates"));
        let parsed = |path: PathBuf| {
            let text = read(&path.join(ON_DEMAND)).ok()??;
            Some((StoredPath(path), serde_json::from_str(&text).ok()?))
        };
        directories.into_iter().flatten().flatten().filter_map(|entry| parsed(entry.path())).collect()
    }

    /// Returns `true` if the place is that of this set.
    pub fn is_of(&self, kept: &StoredPath, subject: &Subject) -> bool {
        kept.0 == self.directory(subject)
    }

    /// The certificate at this place, expired or not; `None` without one.
    ///
    /// # Errors
    /// The certificate exists but cannot be read.
    pub fn certificate_in(&self, kept: &StoredPath, now: SystemTime) -> Result<Option<Certificate>, Error> {
        let path = kept.0.join("certificate.pem");
        match path.try_exists() {
            Ok(false) => Ok(None),
            _ => load(&path, now).map(Some),
        }
    }

    /// Removes everything at this place.
    pub fn remove_kept(&self, kept: &StoredPath) {
        // Leftovers are found and removed the next time.
        let _ = std::fs::remove_dir_all(&kept.0);
    }
}

pub(super) const ON_DEMAND: &str = "on_demand.json";
