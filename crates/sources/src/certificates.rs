//! What was read from the sources of certificates: pairs of certificate and key, and the authorities and revocation
//! lists by which clients and servers are checked.
//!
//! A file is read again only where it may have changed, so that a look at fifty thousand of them costs little. For a
//! start, a reload or a check every fault counts; for a change of certificates in the running process what was read
//! from a source before stays in use where the source cannot be used any more ([`OnFault`]).

use std::collections::HashMap;
use std::hash::Hash;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::SystemTime;

use offramp_certs::acme::UseMark;
use offramp_certs::anchors::Anchors;
use offramp_certs::client_auth::{load_revocation_lists, load_roots};
use offramp_certs::file::{self, Loaded};
use offramp_certs::{Certificate, CertificateOrigin, Concern, Stamp, Warning, staple};
use offramp_config::At;
use offramp_config::model::FilePath;
use offramp_process::{Finding, Findings};
use rustls::RootCertStore;
use rustls::pki_types::CertificateRevocationListDer;

use crate::access::AccessFiles;

pub mod watcher;

/// The handling of a source that cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnFault {
    /// Nothing is changed at all: a start, a reload, a check.
    Refuse,
    /// Its content from before stays in use.
    KeepOld,
}

/// The outcome of a look at the sources of certificates while they are in use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refreshed {
    /// The sources hold what is in use, or nothing else of them can be used.
    Unchanged,
    /// New handshakes use what was found.
    Changed {
        /// The number of certificates that were not in use before.
        new_certificates: usize,
    },
    /// Nothing was changed; the log has the reason.
    Refused,
}

/// The files of one certificate.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Pair {
    /// The certificate and its chain.
    pub cert: PathBuf,
    /// `None`: the key is in the same file.
    pub key: Option<PathBuf>,
    /// The OCSP response; `None`: one that lies beside the certificate.
    pub ocsp: Option<PathBuf>,
}

impl Pair {
    /// A pair, with its OCSP response, if there is one, beside it.
    pub fn new(cert: PathBuf, key: Option<PathBuf>) -> Self {
        Self { cert, key, ocsp: None }
    }

    /// Every file that may say something of it, the places of OCSP responses among them.
    fn files(&self) -> Vec<PathBuf> {
        let given = [Some(&self.cert), self.key.as_ref(), self.ocsp.as_ref()];
        let beside = self.ocsp.is_none().then(|| staple::places(&self.cert)).into_iter().flatten();
        given.into_iter().flatten().cloned().chain(beside).collect()
    }

    fn load(&self, now: SystemTime) -> Result<Loaded, offramp_certs::Error> {
        match &self.ocsp {
            None => file::load(&self.cert, self.key.as_deref(), now),
            ocsp => file::load_stapled(&self.cert, self.key.as_deref(), ocsp.as_deref(), now),
        }
    }
}

/// Everything that was read.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    pairs: HashMap<Pair, Slot<Certificate>>,
    /// Certificates that Offramp shows to servers.
    shown: HashMap<Pair, Slot<Certificate>>,
    /// The authorities of clients and of servers, by their files.
    authorities: HashMap<PathBuf, Slot<Anchors>>,
    /// The authorities of this system, if servers are checked by them. A start and a reload read them.
    system: Option<Arc<Anchors>>,
    revoked: HashMap<PathBuf, Slot<RevocationLists>>,
    /// Certificates of the local CA by their names.
    local: HashMap<Vec<String>, Arc<Certificate>>,
    /// Certificates that authorities have issued, by their files.
    obtained: HashMap<PathBuf, Arc<Certificate>>,
    /// The marks that clients get a certificate on demand, by its name.
    marks: HashMap<String, UseMark>,
    /// Folders of which every pair is read.
    directories: Vec<PathBuf>,
    /// The access rules of files. A start and a reload read them.
    pub access: AccessFiles,
    /// The reason why the last change was refused, kept so that it is reported once.
    pub refused: Option<String>,
}

/// The lists of one file.
pub type RevocationLists = Vec<CertificateRevocationListDer<'static>>;

/// The content of one source.
#[derive(Debug)]
struct Slot<T> {
    /// `None`: it could never be read.
    value: Option<Arc<T>>,
    /// The versions of its files that this is of; `None` where the next look must read them in any case.
    stamps: Option<Vec<Option<Stamp>>>,
    warnings: Vec<Warning>,
    fault: Option<Fault>,
}

/// The reason why a source cannot be used.
#[derive(Clone, Debug)]
struct Fault {
    text: String,
    /// In how many looks in a row it was found.
    looks: u32,
}

impl<T> Clone for Slot<T> {
    fn clone(&self) -> Self {
        let (stamps, warnings) = (self.stamps.clone(), self.warnings.clone());
        Self { value: self.value.clone(), stamps, warnings, fault: self.fault.clone() }
    }
}

/// The time of the next look at sources with faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Again {
    /// There are none.
    Never,
    /// Their faults are known, and were reported.
    Later,
    /// One is new: perhaps the other file of a pair is about to be written. It is reported if it is still there then.
    Soon,
}

impl Sources {
    /// The authorities of this file, if it could be read.
    pub fn authorities(&self, ca: &Path) -> Option<&Arc<Anchors>> {
        self.authorities.get(ca)?.value.as_ref()
    }

    /// The authorities of this system, if they were asked for and there are any.
    pub fn system(&self) -> Option<&Arc<Anchors>> {
        self.system.as_ref()
    }

    /// A certificate that is shown to servers, if it could be read.
    pub fn shown(&self, pair: &Pair) -> Option<&Arc<Certificate>> {
        self.shown.get(pair)?.value.as_ref()
    }

    /// The revocation lists of this file, if it could be read.
    pub fn revoked(&self, crl: &Path) -> Option<&RevocationLists> {
        self.revoked.get(crl)?.value.as_deref()
    }

    /// The revocation lists of every file that could be read.
    pub fn lists(&self) -> impl Iterator<Item = (&Path, &CertificateRevocationListDer<'static>)> {
        self.revoked.iter().flat_map(|(path, slot)| {
            slot.value.iter().flat_map(move |lists| lists.iter().map(move |list| (path.as_path(), list)))
        })
    }

    /// Every file that was read.
    pub fn files(&self) -> impl Iterator<Item = PathBuf> {
        let pairs = self.pairs.keys().chain(self.shown.keys()).flat_map(Pair::files);
        let bundles = self.authorities.keys().chain(self.revoked.keys());
        pairs.chain(bundles.cloned())
    }

    /// Every folder of which each pair is read.
    pub fn directories(&self) -> &[PathBuf] {
        &self.directories
    }

    /// The time of the next look because of faults.
    pub fn again(&self) -> Again {
        let pairs = self.pairs.values().chain(self.shown.values()).map(|slot| slot.fault.as_ref());
        let authorities = self.authorities.values().map(|slot| slot.fault.as_ref());
        let revoked = self.revoked.values().map(|slot| slot.fault.as_ref());
        let faults = pairs.chain(authorities).chain(revoked).flatten();
        let again = faults.map(|fault| if fault.looks < TELL_AT { Again::Soon } else { Again::Later });
        again.max().unwrap_or(Again::Never)
    }

    /// True if the certificates of clients and servers are checked against the same authorities and revocation lists,
    /// and servers are shown the same certificates.
    pub fn same_trust(&self, other: &Self) -> bool {
        same_values(&self.authorities, &other.authorities)
            && same_values(&self.revoked, &other.revoked)
            && same_values(&self.shown, &other.shown)
    }
}

fn same_values<K: Eq + Hash, T>(one: &HashMap<K, Slot<T>>, other: &HashMap<K, Slot<T>>) -> bool {
    let value = |slot: &Slot<T>| slot.value.as_ref().map(Arc::as_ptr);
    let same = |(key, slot): (&K, &Slot<T>)| Some(value(slot)) == other.get(key).map(value);
    one.len() == other.len() && one.iter().all(same)
}

/// Looks in a row that find a fault in a running process before it is reported.
const TELL_AT: u32 = 2;

/// A look at the sources: what was read before, and what is now.
pub struct Look<'a> {
    before: &'a Sources,
    now: SystemTime,
    on_fault: OnFault,
    after: Sources,
    /// Faults of sources that a running process goes on without, to be reported now.
    faults: Vec<Finding>,
}

/// The outcome of a look at a source.
pub enum Found<T> {
    /// This is to be used.
    Value(Arc<T>),
    /// It cannot be used, and there is nothing to use in its place.
    Nothing(String),
}

impl<T> Found<T> {
    /// Reports the warnings of a file, and its fault if it cannot be used.
    pub fn report(self, at: &At, warnings: &[Warning], report: &mut Findings) {
        report.warn_all(at, warnings);
        if let Self::Nothing(fault) = self {
            report.error_once(at, fault);
        }
    }
}

impl<'a> Look<'a> {
    /// A look beside what was read before. Nothing of that is changed.
    pub fn new(before: &'a Sources, now: SystemTime, on_fault: OnFault) -> Self {
        Self { before, now, on_fault, after: Sources::default(), faults: Vec::new() }
    }

    /// The time by which certificates are judged.
    pub fn now(&self) -> SystemTime {
        self.now
    }

    /// True if a source that fails keeps its content.
    pub fn keeps_old(&self) -> bool {
        self.on_fault == OnFault::KeepOld
    }

    /// Reads certificates, many at a time. The answers are in the order of `pairs`, with what is to be reported of each.
    pub fn pairs(&mut self, pairs: Vec<(Pair, At)>) -> Vec<(Found<Certificate>, Vec<Warning>)> {
        let before = &self.before.pairs;
        let slots = in_parallel(&pairs, |(pair, _)| self.pair(pair, before.get(pair)));
        let mut found = Vec::with_capacity(pairs.len());
        for ((pair, at), (slot, fresh)) in pairs.into_iter().zip(slots) {
            found.push(self.keep(slot, fresh, &at, |after, slot| {
                after.pairs.insert(pair, slot);
            }));
        }
        found
    }

    /// Reads a certificate that is shown to servers.
    pub fn shown(&mut self, pair: &Pair, at: &At) -> (Found<Certificate>, Vec<Warning>) {
        if let Some(value) = self.after.shown.get(pair).and_then(|slot| slot.value.as_ref()) {
            return (Found::Value(Arc::clone(value)), Vec::new());
        }
        let (slot, fresh) = self.pair(pair, self.before.shown.get(pair));
        self.keep(slot, fresh, at, |after, slot| {
            after.shown.insert(pair.clone(), slot);
        })
    }

    /// Reads the authorities of this system, once; a change of certificates keeps those that were read before.
    ///
    /// # Errors
    /// That there are none.
    pub fn system(&mut self) -> Result<(), String> {
        if self.after.system.is_some() {
            return Ok(());
        }
        let kept = self.before.system.as_ref().filter(|_| self.keeps_old()).map(Arc::clone);
        self.after.system = Some(match kept {
            Some(kept) => kept,
            None => system_authorities().map(Arc::new)?,
        });
        Ok(())
    }

    /// Reads the authorities of a file.
    pub fn authorities(&mut self, ca: &FilePath) -> (Found<Anchors>, Vec<Warning>) {
        let read = |path: &Path, now| load_roots(path, now).map(|loaded| (loaded.anchors, loaded.warnings));
        self.bundle(ca, read, |sources| &mut sources.authorities, &self.before.authorities)
    }

    /// Reads the revocation lists of a file.
    pub fn revoked(&mut self, crl: &FilePath) -> (Found<RevocationLists>, Vec<Warning>) {
        let read =
            |path: &Path, now| load_revocation_lists(path, now).map(|loaded| (loaded.lists, loaded.warnings));
        self.bundle(crl, read, |sources| &mut sources.revoked, &self.before.revoked)
    }

    /// Reads a file of which all that was read is one value, once for all who name it. `held` is its kind among what was
    /// read, `before` that of the look before.
    fn bundle<T: PartialEq>(
        &mut self,
        file: &FilePath,
        read: impl FnOnce(&Path, SystemTime) -> Result<(T, Vec<Warning>), offramp_certs::Error>,
        held: impl FnOnce(&mut Sources) -> &mut HashMap<PathBuf, Slot<T>> + Copy,
        before: &HashMap<PathBuf, Slot<T>>,
    ) -> (Found<T>, Vec<Warning>) {
        let path = &file.path;
        if let Some(value) = held(&mut self.after).get(path).and_then(|slot| slot.value.as_ref()) {
            return (Found::Value(Arc::clone(value)), Vec::new());
        }
        let read = || read(path, self.now).map_err(|error| error.to_string());
        let (slot, fresh) = self.slot(before.get(path), std::slice::from_ref(path), read, T::eq, |_, _| None);
        self.keep(slot, fresh, &file.at, |after, slot| {
            held(after).insert(path.clone(), slot);
        })
    }

    /// Keeps a certificate of the local CA, as it was before where nothing has changed.
    pub fn local(&mut self, names: Vec<String>, issued: Result<Certificate, String>) -> Found<Certificate> {
        let before = self.before.local.get(&names);
        let found = match (issued, before) {
            (Ok(issued), Some(before)) if same_certificate(before, &issued) => {
                Found::Value(Arc::clone(before))
            }
            (Ok(issued), _) => Found::Value(Arc::new(issued)),
            (Err(fault), Some(before)) if self.keeps_old() => {
                self.faults.push(Finding::nowhere(fault));
                Found::Value(Arc::clone(before))
            }
            (Err(fault), _) => Found::Nothing(fault),
        };
        if let Found::Value(certificate) = &found {
            self.after.local.insert(names, Arc::clone(certificate));
        }
        found
    }

    /// The mark that clients get the certificate on demand for `name`: the same as long as there is one.
    pub fn mark(&mut self, name: &str) -> UseMark {
        let mark = self.before.marks.get(name).cloned().unwrap_or_default();
        self.after.marks.insert(name.to_owned(), mark.clone());
        mark
    }

    /// Keeps a certificate that an authority has issued, as it was before where nothing has changed.
    pub fn obtained(&mut self, certificate: Certificate) -> Arc<Certificate> {
        let CertificateOrigin::Acme { path } = certificate.source.clone() else {
            return Arc::new(certificate);
        };
        // The mark counts: one that is on demand from now on would else never be found in use, and not be renewed.
        let same = |before: &&Arc<Certificate>| {
            same_certificate(before, &certificate) && before.used == certificate.used
        };
        let before = self.before.obtained.get(&path).filter(same);
        let certificate = before.cloned().unwrap_or_else(|| Arc::new(certificate));
        self.after.obtained.insert(path, Arc::clone(&certificate));
        certificate
    }

    /// Those that authorities have issued and that were in use before, where what was read before stays in use.
    pub fn known_obtained(&mut self, is_meant: impl Fn(&Certificate) -> bool) -> Vec<Arc<Certificate>> {
        if !self.keeps_old() {
            return Vec::new();
        }
        let known = self.before.obtained.iter().filter(|(_, one)| is_meant(one));
        let known: Vec<_> = known.map(|(path, one)| (path.clone(), Arc::clone(one))).collect();
        self.after.obtained.extend(known.iter().cloned());
        known.into_iter().map(|(_, one)| one).collect()
    }

    /// Notes a folder of which every pair is read.
    pub fn directory(&mut self, path: &Path) {
        self.after.directories.push(path.to_owned());
    }

    /// The pairs that were in use before and lie in `directory`.
    pub fn known_in<'b>(&'b self, directory: &'b Path) -> impl Iterator<Item = &'b Pair> {
        self.before.pairs.keys().filter(move |pair| pair.cert.starts_with(directory))
    }

    /// Everything that was read, and the faults to report.
    pub fn finish(self) -> (Sources, Vec<Finding>) {
        (self.after, self.faults)
    }

    fn pair(&self, pair: &Pair, before: Option<&Slot<Certificate>>) -> (Slot<Certificate>, bool) {
        let now = self.now;
        let old = before.and_then(|slot| slot.value.as_deref());
        let read = || match pair.load(now) {
            Ok(loaded) => match self.lost_staple(old, &loaded) {
                Some(text) => Err(text),
                None => Ok((loaded.certificate, loaded.warnings)),
            },
            Err(error) => Err(error.to_string()),
        };
        if old.is_some_and(|old| old.staple_until.is_some_and(|until| until <= now)) {
            // What is stapled has run out, whatever the files say.
            let before = before.map(|slot| Slot { stamps: None, ..slot.clone() });
            return self.slot(before.as_ref(), &pair.files(), read, same_certificate, |_, _| None);
        }
        let worse = |old: &Certificate, new: &Certificate| {
            let refused = old.is_valid(now) && !new.is_valid(now);
            refused.then(|| {
                Warning::of_validity(&pair.cert, new, now).map_or_else(String::new, |w| w.to_string())
            })
        };
        self.slot(before, &pair.files(), read, same_certificate, worse)
    }

    /// The reason why the OCSP response that is stapled to a certificate should stay: the file of the new one is broken,
    /// perhaps half-written. A response that has run out goes, and a new certificate does not wait for its response.
    fn lost_staple(&self, old: Option<&Certificate>, new: &Loaded) -> Option<String> {
        let old = old.filter(|old| self.keeps_old() && old.certified_key.ocsp.is_some())?;
        let current = old.staple_until.is_none_or(|until| until > self.now);
        let same = old.certified_key.cert == new.certificate.certified_key.cert;
        let unusable = |warning: &&Warning| matches!(warning.concern, Concern::UnusableStaple { .. });
        let warning = new.warnings.iter().find(unusable).filter(|_| current && same)?;
        Some(warning.to_string())
    }

    /// The content of a source from now on, and true if it was read anew. `worse` says why a new value must
    /// not take the place of the old one.
    fn slot<T>(
        &self,
        before: Option<&Slot<T>>,
        files: &[PathBuf],
        read: impl FnOnce() -> Result<(T, Vec<Warning>), String>,
        same: impl Fn(&T, &T) -> bool,
        worse: impl Fn(&T, &T) -> Option<String>,
    ) -> (Slot<T>, bool) {
        let stamps: Vec<_> = files.iter().map(|path| Stamp::of(path)).collect();
        if let Some(before) = before
            && before.fault.is_none()
            && before.stamps.as_ref() == Some(&stamps)
        {
            return (before.clone(), false);
        }
        let settled = stamps.iter().flatten().all(|stamp| stamp.is_settled(self.now));
        let stamps = settled.then_some(stamps);
        let old = before.and_then(|slot| slot.value.as_ref());
        let (value, warnings) = match (read(), old) {
            (Ok((new, warnings)), Some(old)) if same(old, &new) => (Arc::clone(old), warnings),
            (Ok((new, warnings)), Some(old)) if self.keeps_old() => match worse(old, &new) {
                Some(text) => return (self.faulty(before, text), true),
                None => (Arc::new(new), warnings),
            },
            (Ok((new, warnings)), _) => (Arc::new(new), warnings),
            (Err(text), _) => return (self.faulty(before, text), true),
        };
        let changed = old.is_none_or(|old| !Arc::ptr_eq(old, &value));
        (Slot { value: Some(value), stamps, warnings, fault: None }, changed)
    }

    fn faulty<T>(&self, before: Option<&Slot<T>>, text: String) -> Slot<T> {
        let looks = match before.and_then(|slot| slot.fault.as_ref()) {
            // One that was reported and is another now is reported anew.
            Some(known) if known.text != text && known.looks >= TELL_AT => 1,
            // One that changes with each look, as of a file that grows, is reported like any other.
            Some(known) => known.looks.saturating_add(1),
            None => 1,
        };
        let value = before.and_then(|slot| slot.value.clone()).filter(|_| self.keeps_old());
        Slot { value, stamps: None, warnings: Vec::new(), fault: Some(Fault { text, looks }) }
    }

    /// Keeps what is known of a source, and says what to use of it.
    fn keep<T>(
        &mut self,
        slot: Slot<T>,
        fresh: bool,
        at: &At,
        insert: impl FnOnce(&mut Sources, Slot<T>),
    ) -> (Found<T>, Vec<Warning>) {
        // A reload tells again what is worth a warning; a look of the process's own only what is new.
        let warnings = if fresh || !self.keeps_old() { slot.warnings.clone() } else { Vec::new() };
        if let Some(fault) = &slot.fault
            && self.keeps_old()
            && fault.looks == TELL_AT
        {
            self.faults.push(Finding::new(at, fault.text.clone()));
        }
        let found = match (&slot.value, &slot.fault) {
            (Some(value), _) => Found::Value(Arc::clone(value)),
            (None, fault) => {
                Found::Nothing(fault.as_ref().map_or_else(String::new, |fault| fault.text.clone()))
            }
        };
        insert(&mut self.after, slot);
        (found, warnings)
    }
}

/// The authorities of this system. An unreadable one matters only where it is needed.
fn system_authorities() -> Result<Anchors, String> {
    let loaded = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(loaded.certs);
    if roots.is_empty() {
        let why = loaded.errors.first().map(|error| format!(" ({error})")).unwrap_or_default();
        let text = "tls: this system has no certificate authorities";
        let help = "install the package ca-certificates, or name a file with `verify`";
        return Err(format!("{text}{why}; {help}"));
    }
    Ok(roots.into())
}

/// True if clients would see no difference. The key belongs to the leaf, so that it is the same too.
fn same_certificate(one: &Certificate, other: &Certificate) -> bool {
    one.certified_key.cert == other.certified_key.cert && one.certified_key.ocsp == other.certified_key.ocsp
}

/// Does `work` for every item, on every core where there are many.
fn in_parallel<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let threads = thread::available_parallelism().map_or(1, usize::from).min(MOST_THREADS);
    if items.len() < WORTH_A_THREAD * 2 || threads == 1 {
        return items.iter().map(work).collect();
    }
    let share = items.len().div_ceil(threads).max(WORTH_A_THREAD);
    let work = &work;
    thread::scope(|scope| {
        let parts: Vec<_> = items
            .chunks(share)
            .map(|part| scope.spawn(move || part.iter().map(work).collect::<Vec<R>>()))
            .collect();
        let mut all = Vec::with_capacity(items.len());
        for part in parts {
            match part.join() {
                Ok(part) => all.extend(part),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        all
    })
}

/// Certificates for which it pays to begin a thread: a few milliseconds of work.
const WORTH_A_THREAD: usize = 32;

/// Files are read on at most so many threads.
const MOST_THREADS: usize = 16;

#[cfg(test)]
mod tests;
