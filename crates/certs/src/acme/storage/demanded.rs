//! What is kept of certificates that were ordered because clients asked for their names.

use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use super::{Storage, Subject, load, read};
use crate::certificate::Certificate;
use crate::error::Error;

/// A certificate that was ordered because a client asked for its name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Demanded {
    /// The name.
    pub name: String,
    /// When a client got it last, in seconds of Unix time; with a delay of up to an hour or so.
    pub used: u64,
}

impl Demanded {
    /// When a client got it last. A number that is no time counts as never.
    pub fn used_at(&self) -> SystemTime {
        UNIX_EPOCH.checked_add(Duration::from_secs(self.used)).unwrap_or(UNIX_EPOCH)
    }
}

/// Where a certificate on demand is kept, whether the configuration still has a use for it or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept(PathBuf);

impl Storage {
    /// Notes that the certificate of this set was ordered on demand, and when a client got it last.
    ///
    /// # Errors
    /// [`Error::Io`] where it cannot be written.
    pub fn keep_demanded(&self, subject: &Subject, demanded: &Demanded) -> Result<(), Error> {
        self.keep_json(subject, ON_DEMAND, demanded)
    }

    /// What is noted of this set's certificate, if it was ordered on demand.
    pub fn demanded(&self, subject: &Subject) -> Option<Demanded> {
        self.json(subject, ON_DEMAND)
    }

    /// Every certificate that was ordered on demand, by name.
    pub fn all_demanded(&self) -> Vec<Demanded> {
        let mut all: Vec<Demanded> = self.each_demanded().into_iter().map(|(_, demanded)| demanded).collect();
        all.sort_by(|one, other| one.name.cmp(&other.name));
        all
    }

    /// The same with where each is kept, in no order.
    pub fn each_demanded(&self) -> Vec<(Kept, Demanded)> {
        let directories = std::fs::read_dir(self.root.join("certificates"));
        let parsed = |path: PathBuf| {
            let text = read(&path.join(ON_DEMAND)).ok()??;
            Some((Kept(path), serde_json::from_str(&text).ok()?))
        };
        directories.into_iter().flatten().flatten().filter_map(|entry| parsed(entry.path())).collect()
    }

    /// Whether what is kept there is for this set.
    pub fn is_of(&self, kept: &Kept, subject: &Subject) -> bool {
        kept.0 == self.directory(subject)
    }

    /// The certificate that is kept there, whatever it is for, expired or not; `None` where there is none.
    ///
    /// # Errors
    /// There is one that cannot be read.
    pub fn certificate_in(&self, kept: &Kept, now: SystemTime) -> Result<Option<Certificate>, Error> {
        let path = kept.0.join("certificate.pem");
        match path.try_exists() {
            Ok(false) => Ok(None),
            _ => load(&path, now).map(Some),
        }
    }

    /// Removes everything that is kept there.
    pub fn remove_kept(&self, kept: &Kept) {
        // What stays is looked at again, and removed then.
        let _ = std::fs::remove_dir_all(&kept.0);
    }
}

pub(super) const ON_DEMAND: &str = "on_demand.json";
