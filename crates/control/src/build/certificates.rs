//! The certificates of a configuration, loaded or minted, arranged for lookup; and the authorities of clients.

use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use offramp_certs::local_ca::LocalCa;
use offramp_certs::store::{Entry, Store};
use offramp_certs::{Certificate, Warning, directory};
use offramp_config::model::{self, CertificateSource, DefaultRole};
use offramp_config::{At, Config};

use super::Report;
use crate::certificates::{Found, Look, OnFault, Pair, Sources};
use crate::error::{Error, Finding};
use crate::state;

/// What the sources of certificates hold.
pub(crate) struct Material {
    /// The certificates.
    pub(crate) store: Arc<Store>,
    /// What was read.
    pub(crate) sources: Sources,
    /// What a running process goes on without, to be told now.
    pub(crate) faults: Vec<Finding>,
    /// What cannot be used, and has nothing in its place.
    pub(crate) errors: Vec<Finding>,
    /// What an operator should know.
    pub(crate) warnings: Vec<Finding>,
}

impl Material {
    /// Reads every certificate of `config`, and the authorities of its routes. `before` is what was read the last
    /// time; with `mint` the local CA may be made, and may issue.
    pub(crate) fn read(
        config: &Config,
        before: &Sources,
        now: SystemTime,
        on_fault: OnFault,
        mint: bool,
    ) -> Self {
        let mut report = Report::default();
        let mut look = Look::new(before, now, on_fault);
        let store = Arc::new(load(config, &mut look, mint, &mut report));
        for auth in config.routes.iter().filter_map(|route| route.client_auth.as_ref()) {
            let (found, warnings) = look.authorities(&auth.ca);
            report.warn_all(&auth.ca.at, &warnings);
            if let Found::Nothing(fault) = found {
                report.error_once(&auth.ca.at, fault);
            }
        }
        let (sources, faults) = look.finish();
        Self { store, sources, faults, errors: report.errors, warnings: report.warnings }
    }

    /// Itself, unless something cannot be used.
    ///
    /// # Errors
    /// Everything that cannot be used.
    pub(crate) fn none_or_refused(self) -> Result<Self, Error> {
        if self.errors.is_empty() { Ok(self) } else { Err(self.errors.into()) }
    }
}

impl Report {
    fn warn_all(&mut self, at: &At, warnings: &[Warning]) {
        for warning in warnings {
            self.warn(at, warning.to_string());
        }
    }

    /// The fault of a file that several routes name is one.
    fn error_once(&mut self, at: &At, text: String) {
        if !self.errors.iter().any(|known| known.text == text) {
            self.error(at, text);
        }
    }
}

/// What one `[[certificate]]` stands for.
enum Part<'c> {
    /// So many of the pairs that are read, the next ones; those of a folder may fail one by one.
    Pairs { count: usize, folder: Option<&'c Path> },
    /// From the local CA, for these names.
    Local(&'c [model::CertificateName]),
}

/// Loads every certificate of `config`. Those that cannot be used are reported and left out.
fn load(config: &Config, look: &mut Look<'_>, mint: bool, report: &mut Report) -> Store {
    let now = look.now();
    let mut parts = Vec::with_capacity(config.certificates.len());
    let mut pairs = Vec::new();
    for item in &config.certificates {
        let part = match &item.source {
            CertificateSource::Files { cert, key } => {
                let key = key.as_ref().map(|key| key.path.clone());
                pairs.push((Pair { cert: cert.path.clone(), key }, item.at.clone()));
                Part::Pairs { count: 1, folder: None }
            }
            CertificateSource::Directory { path } => {
                let found = in_directory(path, look, report);
                let count = found.len();
                pairs.extend(found.into_iter().map(|pair| (pair, item.at.clone())));
                Part::Pairs { count, folder: Some(&path.path) }
            }
            CertificateSource::Local { names } => Part::Local(names),
        };
        parts.push((item, part));
    }
    let mut found = look.pairs(pairs).into_iter();
    let default = config.default_certificate();
    let mut authority = Authority::Unopened;
    let mut entries = Vec::new();
    for (item, part) in parts {
        let is_default =
            item.default == DefaultRole::Always || default.is_some_and(|d| std::ptr::eq(d, item));
        match part {
            Part::Pairs { count, folder } => {
                let loaded = take(found.by_ref().take(count), item, folder, look, report);
                // Of a folder the first one is: the others are for their own names.
                entries.extend(
                    loaded
                        .into_iter()
                        .enumerate()
                        .map(|(index, certificate)| Entry { certificate, default: is_default && index == 0 }),
                );
            }
            Part::Local(names) => {
                authority.open(config, item, now, mint, report);
                let issued = if mint { authority.issue(item, names, look, report) } else { None };
                entries.extend(issued.map(|certificate| Entry { certificate, default: is_default }));
            }
        }
    }
    Store::new(entries, now)
}

/// The pairs in a folder, by their names.
fn in_directory(path: &model::FilePath, look: &mut Look<'_>, report: &mut Report) -> Vec<Pair> {
    look.directory(&path.path);
    let mut pairs = match directory::pairs(&path.path) {
        Ok(listing) => {
            if !look.keeps_old() {
                report.warn_all(&path.at, &listing.warnings);
            }
            listing.pairs.into_iter().map(|(cert, key)| Pair { cert, key }).collect()
        }
        Err(error) if look.keeps_old() => {
            report.warn(&path.at, error.to_string());
            Vec::new()
        }
        Err(error) => {
            report.error(&path.at, error.to_string());
            return Vec::new();
        }
    };
    if look.keeps_old() {
        keep_known(&path.path, &mut pairs, look);
    }
    pairs
}

/// Somebody may be about to write a file of a pair that is in use: where one of its files is there it is looked at
/// under the name that it has. A pair of which nothing is left was taken away; a whole folder was not.
fn keep_known(folder: &Path, pairs: &mut Vec<Pair>, look: &Look<'_>) {
    let gone = pairs.is_empty() && !folder.is_dir();
    for known in look.known_in(folder).filter(|known| known.key.is_some() || gone) {
        if pairs.contains(known) {
            continue;
        }
        let half = known.cert.exists() || known.key.as_deref().is_some_and(Path::exists);
        if half || gone {
            pairs.retain(|pair| pair.cert != known.cert);
            pairs.push(known.clone());
        }
    }
    pairs.sort_by(|one, other| one.cert.cmp(&other.cert));
}

/// What was found of one `[[certificate]]`.
fn take(
    found: impl Iterator<Item = (Found<Certificate>, Vec<Warning>)>,
    item: &model::Certificate,
    folder: Option<&Path>,
    look: &Look<'_>,
    report: &mut Report,
) -> Vec<Arc<Certificate>> {
    let mut loaded = Vec::new();
    let mut left_out: Vec<String> = Vec::new();
    for (found, warnings) in found {
        report.warn_all(&item.at, &warnings);
        match found {
            Found::Value(certificate) => loaded.push(certificate),
            Found::Nothing(fault) if folder.is_some() => left_out.push(fault),
            Found::Nothing(fault) => report.error(&item.at, fault),
        }
    }
    // One that is broken must not keep the others from being served. What a running process finds it tells once.
    if !look.keeps_old() {
        for fault in left_out {
            report.warn(&item.at, format!("left out: {fault}"));
        }
    }
    loaded
}

/// The local CA: opened, or minted, when the first certificate asks for it.
enum Authority {
    Unopened,
    Open(Box<LocalCa>),
    /// It cannot be used, as was reported.
    Unusable,
}

impl Authority {
    fn open(
        &mut self,
        config: &Config,
        item: &model::Certificate,
        now: SystemTime,
        mint: bool,
        report: &mut Report,
    ) {
        if !matches!(self, Self::Unopened) {
            return;
        }
        *self = Self::Unusable;
        if mint {
            match state::prepare(&config.state_dir) {
                Ok(warnings) => report.warnings.extend(warnings),
                Err(error) => return report.error(&item.at, error.to_string()),
            }
        } else if !config.state_dir.join("ca/ca.pem").exists() && !config.state_dir.join("ca/ca.key").exists()
        {
            // It would be minted.
            return;
        }
        match LocalCa::open_or_create(&config.state_dir, now) {
            Ok(authority) => {
                report.warn_all(&item.at, authority.warnings());
                *self = Self::Open(Box::new(authority));
            }
            Err(error) => report.error(&item.at, error.to_string()),
        }
    }

    fn issue(
        &self,
        item: &model::Certificate,
        names: &[model::CertificateName],
        look: &mut Look<'_>,
        report: &mut Report,
    ) -> Option<Arc<Certificate>> {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        let issued = match self {
            Self::Open(authority) => authority.issue(&names, look.now()).map_err(|error| error.to_string()),
            _ if look.keeps_old() => Err("the local CA cannot be used".to_owned()),
            _ => return None,
        };
        match look.local(names, issued) {
            Found::Value(certificate) => Some(certificate),
            Found::Nothing(fault) => {
                report.error(&item.at, fault);
                None
            }
        }
    }
}
