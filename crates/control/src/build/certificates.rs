//! The certificates of a configuration, loaded, minted or obtained, arranged for lookup; and the authorities of clients.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use offramp_certs::acme::{Demanded, Storage};
use offramp_certs::local_ca::{LocalCa, MAX_NAMES};
use offramp_certs::store::{CertificateStore, StoreEntry};
use offramp_certs::{Certificate, DnsPattern, Warning, directory};
use offramp_config::model::{
    self, AcmeCertificate, CertificateSource, Challenge, DefaultRole, HostPattern, ImpliedCertificates,
};
use offramp_config::{At, Config};
use offramp_process::{Error, Finding, state_dir};
use offramp_sources::access::AccessFiles;
use offramp_sources::certificates::{Found, Look, OnFault, Pair, Sources};
use tokio::sync::oneshot;

use super::{Findings, coverage, trust};
use crate::acme::{Rule, Want};

/// The content of the sources of certificates.
pub(crate) struct Material {
    /// The certificates of all sources.
    pub(crate) store: Arc<CertificateStore>,
    /// The sources as they were read.
    pub(crate) sources: Sources,
    /// The certificates that authorities are to issue, issued already or not.
    pub(crate) wants: Vec<Want>,
    /// Faults that a running process goes on without, to be logged now.
    pub(crate) faults: Vec<Finding>,
    /// Sources that cannot be used, without a substitute.
    pub(crate) errors: Vec<Finding>,
    /// Warnings for the operator.
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
        let mut report = Findings::default();
        let mut look = Look::new(before, now, on_fault);
        let (store, wants) = load(config, &mut look, mint, &mut report);
        trust::read(config, &mut look, &mut report);
        let (mut sources, faults) = look.finish();
        sources.access = match on_fault {
            OnFault::Refuse => AccessFiles::read(config, &before.access, &mut report.errors),
            OnFault::KeepOld => before.access.clone(),
        };
        Self {
            store: Arc::new(store),
            sources,
            wants,
            faults,
            errors: report.errors,
            warnings: report.warnings,
        }
    }

    /// Like [`Self::read`], on a thread of its own: the loop goes on serving the metrics meanwhile, and obeys an order to
    /// stop, however slow the disk is. Dropped, it changes nothing.
    ///
    /// # Errors
    /// The thread cannot be started, or has panicked.
    pub(crate) async fn read_on_thread(
        config: Arc<Config>,
        before: Sources,
        now: SystemTime,
        on_fault: OnFault,
        mint: bool,
    ) -> Result<Self, Error> {
        let (done, outcome) = oneshot::channel();
        let work = move || {
            // The change may have been given up.
            let _ = done.send(Self::read(&config, &before, now, on_fault, mint));
        };
        let thread = std::thread::Builder::new().name("offramp-certs".into()).spawn(work);
        thread.map_err(|error| Error::one(format!("cannot start a thread: {error}")))?;
        outcome.await.map_err(|_| Error::one("reading the certificates ended by a fault of Offramp's own"))
    }

    /// Itself, unless something cannot be used.
    ///
    /// # Errors
    /// Everything that cannot be used.
    pub(crate) fn none_or_refused(self) -> Result<Self, Error> {
        if self.errors.is_empty() { Ok(self) } else { Err(self.errors.into()) }
    }
}

/// The meaning of one `[[certificate]]`.
enum Part<'c> {
    /// So many of the pairs that are read, the next ones; those of a folder may fail one by one.
    Pairs { count: usize, folder: Option<&'c Path> },
    /// From the local CA, for these names.
    Local(&'c [model::CertificateName]),
    /// Issued by an authority.
    Acme(&'c AcmeCertificate),
}

/// Loads every certificate of `config`. Those that cannot be used are reported and left out.
fn load(
    config: &Config,
    look: &mut Look<'_>,
    mint: bool,
    report: &mut Findings,
) -> (CertificateStore, Vec<Want>) {
    let now = look.now();
    let mut parts = Vec::with_capacity(config.certificates.len());
    let mut pairs = Vec::new();
    for item in &config.certificates {
        let part = match &item.source {
            CertificateSource::Files { cert, key, ocsp } => {
                let path = |file: &model::FilePath| file.path.clone();
                let (key, ocsp) = (key.as_ref().map(path), ocsp.as_ref().map(path));
                pairs.push((Pair { cert: path(cert), key, ocsp }, item.at.clone()));
                Part::Pairs { count: 1, folder: None }
            }
            CertificateSource::Directory { path } => {
                let found = in_directory(path, look, report);
                let count = found.len();
                pairs.extend(found.into_iter().map(|pair| (pair, item.at.clone())));
                Part::Pairs { count, folder: Some(&path.path) }
            }
            CertificateSource::Local { names } => Part::Local(names),
            CertificateSource::Acme(acme) => Part::Acme(acme),
        };
        parts.push((item, part));
    }
    let mut found = look.pairs(pairs).into_iter();
    let default = config.default_certificate();
    let mut obtained = Obtained::new(config, mint);
    let (mut entries, mut demanded) = (Vec::new(), false);
    for (item, part) in parts {
        let is_default =
            item.default == DefaultRole::Always || default.is_some_and(|d| std::ptr::eq(d, item));
        let (loaded, default) = match part {
            Part::Pairs { count, folder } => {
                // Of a folder the first one is: the others are for their own names.
                (take(found.by_ref().take(count), item, folder, look, report), is_default)
            }
            Part::Local(names) => {
                let names = names.iter().map(ToString::to_string).collect();
                (obtained.local(&item.at, names, look, report).into_iter().collect(), is_default)
            }
            Part::Acme(AcmeCertificate { on_demand: Some(_), .. }) if demanded => continue,
            Part::Acme(AcmeCertificate { on_demand: Some(_), .. }) => {
                demanded = true;
                (obtained.on_demand(look, report).into_iter().collect(), false)
            }
            Part::Acme(acme) => {
                (obtained.load(acme, &item.at, look, report).into_iter().collect(), is_default)
            }
        };
        let loaded: Vec<Arc<Certificate>> = loaded;
        let entry = |(index, certificate)| StoreEntry { certificate, default: default && index == 0 };
        entries.extend(loaded.into_iter().enumerate().map(entry));
    }
    if config.tls.certificates == ImpliedCertificates::Acme {
        obtained.fill(&mut entries, look, report);
    }
    (CertificateStore::new(entries, now), obtained.wants)
}

/// The pairs in a folder, by their names.
fn in_directory(path: &model::FilePath, look: &mut Look<'_>, report: &mut Findings) -> Vec<Pair> {
    look.directory(&path.path);
    let mut pairs = match directory::pairs(&path.path) {
        Ok(listing) => {
            if !look.keeps_old() {
                report.warn_all(&path.at, &listing.warnings);
            }
            listing.pairs.into_iter().map(|(cert, key)| Pair::new(cert, key)).collect()
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

/// A file of a pair in use may be about to be written: where one of its files is there it is looked at
/// under the name that it has. A pair of which nothing is left was taken away; a whole folder was not.
fn keep_known(folder: &Path, pairs: &mut Vec<Pair>, look: &Look<'_>) {
    let gone = pairs.is_empty() && !folder.is_dir();
    // By their certificates: there may be fifty thousand.
    let mut listed: BTreeMap<PathBuf, Pair> =
        std::mem::take(pairs).into_iter().map(|pair| (pair.cert.clone(), pair)).collect();
    for known in look.known_in(folder).filter(|known| known.key.is_some() || gone) {
        if listed.get(&known.cert) == Some(known) {
            continue;
        }
        let half = known.cert.exists() || known.key.as_deref().is_some_and(Path::exists);
        if half || gone {
            listed.insert(known.cert.clone(), known.clone());
        }
    }
    pairs.extend(listed.into_values());
}

/// The findings about one `[[certificate]]`.
fn take(
    found: impl Iterator<Item = (Found<Certificate>, Vec<Warning>)>,
    item: &model::CertificateConfig,
    folder: Option<&Path>,
    look: &Look<'_>,
    report: &mut Findings,
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
    fn open(&mut self, config: &Config, at: &At, look: &Look<'_>, mint: bool, report: &mut Findings) {
        if !matches!(self, Self::Unopened) {
            return;
        }
        *self = Self::Unusable;
        if mint {
            match state_dir::prepare(&config.process.state_dir) {
                Ok(warnings) => report.warnings.extend(warnings),
                Err(error) => return report.error(at, error.to_string()),
            }
        } else if !config.process.state_dir.join("ca/ca.pem").exists()
            && !config.process.state_dir.join("ca/ca.key").exists()
        {
            // It would be minted.
            return;
        }
        match LocalCa::open_or_create(&config.process.state_dir, look.now()) {
            Ok(authority) => {
                report.warn_all(at, authority.warnings());
                *self = Self::Open(Box::new(authority));
            }
            // What it has issued is known, if it was in use.
            Err(error) if !mint && look.keeps_old() => report.warn(at, error.to_string()),
            Err(error) => report.error(at, error.to_string()),
        }
    }

    /// What it has issued before, or else what was in use. Other names than those may be left to it, as an authority may have
    /// issued for some meanwhile: only for these it issues.
    fn known(
        &self,
        at: &At,
        names: Vec<String>,
        look: &mut Look<'_>,
        report: &mut Findings,
    ) -> Option<Arc<Certificate>> {
        let issued = self.issued(&names, look.now());
        let missing = || format!("the local CA has no certificate for {}", names.join(", "));
        match look.local(names.clone(), issued.ok_or_else(missing)) {
            Found::Value(certificate) => Some(certificate),
            Found::Nothing(_) => self.issue(at, names, look, report),
        }
    }

    /// What it has issued before.
    fn issued(&self, names: &[String], now: SystemTime) -> Option<Certificate> {
        let Self::Open(authority) = self else { return None };
        authority.issued(names, now)
    }

    fn issue(
        &self,
        at: &At,
        names: Vec<String>,
        look: &mut Look<'_>,
        report: &mut Findings,
    ) -> Option<Arc<Certificate>> {
        let issued = match self {
            Self::Open(authority) => authority.issue(&names, look.now()).map_err(|error| error.to_string()),
            _ if look.keeps_old() => Err("the local CA cannot be used".to_owned()),
            _ => return None,
        };
        match look.local(names, issued) {
            Found::Value(certificate) => Some(certificate),
            Found::Nothing(fault) => {
                report.error(at, fault);
                None
            }
        }
    }
}

/// What authorities have issued, as it lies in the state directory, and what stands in for what they have not.
struct Obtained<'c> {
    config: &'c Config,
    mint: bool,
    authority: Authority,
    storage: Storage,
    wants: Vec<Want>,
    /// Everything that is kept and valid; read once, when it is needed.
    kept: Option<Vec<Certificate>>,
}

impl<'c> Obtained<'c> {
    fn new(config: &'c Config, mint: bool) -> Self {
        let (authority, storage) = (Authority::Unopened, Storage::new(&config.process.state_dir));
        Self { config, mint, authority, storage, wants: Vec::new(), kept: None }
    }

    /// Certificates of the local CA, each for as many of the names as one may have; where nothing may be written those
    /// that it has issued before.
    fn local(
        &mut self,
        at: &At,
        mut names: Vec<String>,
        look: &mut Look<'_>,
        report: &mut Findings,
    ) -> Vec<Arc<Certificate>> {
        self.authority.open(self.config, at, look, self.mint, report);
        let mut seen = BTreeSet::new();
        names.retain(|name| seen.insert(name.to_ascii_lowercase()));
        let mut issued = Vec::new();
        for names in names.chunks(MAX_NAMES) {
            let names = names.to_vec();
            issued.extend(match self.mint {
                true => self.authority.issue(at, names, look, report),
                false if look.keeps_old() => self.authority.known(at, names, look, report),
                false => self.authority.issued(&names, look.now()).map(Arc::new),
            });
        }
        issued
    }

    /// The certificate, or what stands in for it until it is obtained: for each name one of a former set, or of the
    /// local CA.
    fn load(
        &mut self,
        acme: &AcmeCertificate,
        at: &At,
        look: &mut Look<'_>,
        report: &mut Findings,
    ) -> Vec<Arc<Certificate>> {
        let want = match Want::of(acme, self.config) {
            Ok(want) => want,
            Err(error) => {
                report.error(at, error.to_string());
                return Vec::new();
            }
        };
        let found = self.storage.certificate(&want.subject, look.now());
        let names = want.subject.names().to_vec();
        if !self.wants.contains(&want) {
            self.wants.push(want);
        }
        if let Some(certificate) = found {
            return vec![look.obtained(certificate)];
        }
        if !self.mint {
            let known = look.known_obtained(|one| names.iter().all(|name| one.names.contains(name)));
            if !known.is_empty() {
                return known;
            }
        }
        let kept = self.kept.get_or_insert_with(|| self.storage.certificates(look.now()));
        let has_one = |certificate: &&Certificate| names.iter().any(|name| certificate.names.contains(name));
        let former: Vec<Certificate> = kept.iter().filter(has_one).cloned().collect();
        let mut instead: Vec<_> = former.into_iter().map(|certificate| look.obtained(certificate)).collect();
        let is_missing = |name: &&DnsPattern| instead.iter().all(|one| !one.names.contains(name));
        let missing: Vec<String> = names.iter().filter(is_missing).map(ToString::to_string).collect();
        if !missing.is_empty() {
            instead.extend(self.local(at, missing, look, report));
        }
        instead
    }

    /// The certificates that were ordered because clients asked for them, and that the configuration still allows.
    fn on_demand(&mut self, look: &mut Look<'_>, report: &mut Findings) -> Vec<Arc<Certificate>> {
        let rules = Rule::all(self.config);
        let mut loaded = Vec::new();
        for Demanded { name, .. } in self.storage.all_demanded() {
            let Some((rule, asks)) = Rule::find(&rules, &name) else { continue };
            let mark = look.mark(&name);
            let want = match rule.want(&name, asks, self.config, mark.clone()) {
                Ok(want) => want,
                Err(error) => {
                    report.warn(&At::NOWHERE, error.to_string());
                    continue;
                }
            };
            // One that is under way has none yet. One that has ended is left to its keeper.
            let found = self.storage.certificate(&want.subject, look.now());
            let Some(mut certificate) = found else { continue };
            self.wants.push(want);
            // One that is not valid yet is: the clock may be wrong, and another order would change nothing.
            if look.now() < certificate.not_after {
                certificate.used = Some(mark);
                loaded.push(look.obtained(certificate));
            }
        }
        if !self.mint {
            let is_lost = |one: &Certificate| {
                let name = one.names.first().map(ToString::to_string).unwrap_or_default();
                let is_there = loaded.iter().any(|loaded| loaded.names == one.names);
                one.used.is_some() && !is_there && Rule::find(&rules, &name).is_some()
            };
            let lost = look.known_obtained(is_lost);
            loaded.extend(lost);
        }
        loaded
    }

    /// Adds a certificate for each host of the routes that has none: from the authorities where they may issue it,
    /// else from the local CA; where there is no host at all, one for `localhost`.
    fn fill(&mut self, entries: &mut Vec<StoreEntry>, look: &mut Look<'_>, report: &mut Findings) {
        // Clients without a server name get the first one, as with any other certificate.
        let unsaid = self.config.certificates.is_empty();
        for acme in implied(self.config, entries) {
            let loaded = self.load(&acme, &At::NOWHERE, look, report);
            let default = unsaid && entries.is_empty();
            entries.extend(loaded.into_iter().map(|certificate| StoreEntry { certificate, default }));
        }
        let stands_in = self.mint || look.keeps_old();
        if !stands_in || !self.config.listeners.iter().any(|listener| listener.tls) {
            // Without stand-ins, what has none says nothing.
            return;
        }
        let mut names: Vec<String> =
            uncovered(self.config, entries).iter().map(ToString::to_string).collect();
        if !names.is_empty() && !look.keeps_old() {
            let names = names.join(", ");
            let text =
                format!("no authority may be asked for {names}: clients get a certificate of the local CA");
            report.warn(&At::NOWHERE, text);
        }
        if names.is_empty() && entries.is_empty() {
            names.push("localhost".into());
        }
        if !names.is_empty() {
            for certificate in self.local(&At::NOWHERE, names, look, report) {
                let default = unsaid && entries.is_empty();
                entries.push(StoreEntry { certificate, default });
            }
        }
    }
}

/// A certificate for each host of the routes that no certificate covers and an authority may issue for.
fn implied(config: &Config, entries: &[StoreEntry]) -> Vec<AcmeCertificate> {
    let asked: Vec<_> = config.tls.acme.iter().filter_map(|name| config.authority(name)).collect();
    let may = |host: &HostPattern| {
        let private = asked.iter().all(|authority| authority.ca.is_some());
        let by_dns = asked.iter().all(|authority| authority.challenge == Challenge::Dns01);
        let wildcard = matches!(host, HostPattern::Wildcard(_));
        (private || model::not_issuable(host).is_none()) && (by_dns || !wildcard)
    };
    let certificate = |host| AcmeCertificate {
        authorities: config.tls.acme.clone(),
        names: vec![host],
        key_type: model::AcmeKeyType::P256,
        reuse_key: false,
        on_demand: None,
    };
    uncovered(config, entries).into_iter().filter(may).map(certificate).collect()
}

/// The hosts of routes that end TLS here and that no certificate covers, each once.
fn uncovered(config: &Config, entries: &[StoreEntry]) -> Vec<HostPattern> {
    let names = entries.iter().flat_map(|entry| &entry.certificate.names).map(ToString::to_string);
    let covered: BTreeSet<String> = names.collect();
    let routes = config.routes.iter().filter(|route| coverage::is_terminated(config, route));
    let mut hosts: Vec<HostPattern> = Vec::new();
    for host in routes.flat_map(|route| &route.hosts) {
        if !coverage::covers(&covered, host) && !hosts.contains(host) {
            hosts.push(host.clone());
        }
    }
    hosts
}

#[cfg(test)]
mod tests;
