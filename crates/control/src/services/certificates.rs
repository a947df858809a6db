//! Certificates that expire: renewals of the local CA, and reminders. Between two due times nothing wakes.

use std::path::Path;
use std::time::{Duration, SystemTime};

use offramp_certs::client_auth::{next_update, overdue};
use offramp_certs::store::CertificateStore;
use offramp_certs::{Certificate, CertificateOrigin, Concern, Warning};
use offramp_observe::Log;
use offramp_process::{Finding, log_warnings};
use offramp_sources::certificates::Sources;
use rustls::pki_types::CertificateRevocationListDer;
use tokio::time::Instant;

use crate::data_plane::DataPlane;
use crate::service::{Service, Way};

/// The longest time between two checks of the certificates: timers do not notice that the clock was
/// set or that the machine slept.
const DAY: Duration = Duration::from_secs(24 * 3600);

/// The time from a renewal that failed, or did not help, to the next try.
const RETRY: Duration = Duration::from_secs(3600);

/// Between two looks in any case.
const LEAST: Duration = Duration::from_secs(1);

/// The times at which certificates need something.
#[derive(Debug)]
pub(crate) struct CertificateChecks {
    look_at: Instant,
    /// The time of the last look, by the clock.
    looked: SystemTime,
    /// The time of the last warning about all that have run out, or soon will.
    reminded: Instant,
    log: Log,
}

/// The certificates in use, and their sources.
#[derive(Clone, Copy)]
pub(crate) struct InUse<'a> {
    pub(crate) store: &'a CertificateStore,
    pub(crate) sources: &'a Sources,
}

impl CertificateChecks {
    /// Begins now, when loading them has warned about those that run out.
    pub(crate) fn new(log: Log) -> Self {
        let now = Instant::now();
        Self { look_at: now + DAY, looked: SystemTime::now(), reminded: now, log }
    }

    /// Other certificates are in use from now on.
    pub(crate) fn follow(&mut self, in_use: InUse<'_>) {
        self.look_at = Instant::now() + until_next_look(in_use, SystemTime::now());
    }

    /// The time of the next look.
    pub(crate) fn due(&self) -> Instant {
        self.look_at
    }

    /// Has no look due for a while: one has panicked.
    pub(crate) fn put_off(&mut self, now: Instant) {
        self.look_at = self.look_at.max(now + RETRY);
    }

    /// Logs reminders, and sets the time of the next look.
    pub(crate) fn looked(&mut self, in_use: InUse<'_>, now: Instant) {
        let time = SystemTime::now();
        let is_daily = now.duration_since(self.reminded) >= DAY - RETRY;
        if is_daily {
            self.reminded = now;
        }
        let since = if is_daily { SystemTime::UNIX_EPOCH } else { self.looked };
        log_warnings(&self.log, "certificate", &reminders(in_use.store, since, time));
        log_warnings(&self.log, "certificate", &overdue_lists(in_use.sources, since, time));
        let wait = until_next_look(in_use, time);
        // A renewal that is still due is not tried again at once.
        let wait = if are_due(in_use.store, time) { wait.min(RETRY) } else { wait };
        (self.looked, self.look_at) = (time, now + wait.max(LEAST));
    }
}

impl Service for CertificateChecks {
    type Wanted<'a> = InUse<'a>;
    /// The time until the next look.
    type Step = Duration;

    fn prepare(&self, wanted: InUse<'_>, _: Way) -> Result<Duration, Vec<Finding>> {
        Ok(until_next_look(wanted, SystemTime::now()))
    }

    fn commit(&mut self, wait: Duration, _: &DataPlane) {
        self.look_at = Instant::now() + wait;
    }
}

/// Set if a certificate should be renewed, or needs another staple.
pub(crate) fn are_due(store: &CertificateStore, now: SystemTime) -> bool {
    store.certificates().any(|certificate| is_due(certificate, now))
}

/// A line for each revocation list with a `nextUpdate` after `since`.
fn overdue_lists(sources: &Sources, since: SystemTime, now: SystemTime) -> Vec<Finding> {
    let fresh = |list: &CertificateRevocationListDer<'_>| next_update(list).is_some_and(|next| next > since);
    let warning = |(path, list): (&Path, &CertificateRevocationListDer<'_>)| {
        overdue(path, list, now).filter(|_| fresh(list))
    };
    let warnings = sources.lists().filter_map(warning);
    warnings
        .map(|warning| Finding::nowhere(format!("{warning}; a new file is used as soon as it is there")))
        .collect()
}

fn is_due(certificate: &Certificate, now: SystemTime) -> bool {
    let stale = certificate.staple_until.is_some_and(|until| until <= now);
    stale || matches!(certificate.source, CertificateOrigin::LocalCa { .. }) && certificate.renew_at() <= now
}

/// The time for which no certificate needs a renewal or a reminder.
fn until_next_look(InUse { store, sources }: InUse<'_>, now: SystemTime) -> Duration {
    let times = |certificate: &Certificate| match certificate.source {
        CertificateOrigin::LocalCa { .. } => [Some(certificate.renew_at()), None, None],
        // It has a keeper of its own.
        CertificateOrigin::Acme { .. } => [None; 3],
        _ => [Some(certificate.soon_at()), Some(certificate.not_after), certificate.staple_until],
    };
    let earliest = store
        .certificates()
        .flat_map(|certificate| times(certificate))
        .flatten()
        .chain(sources.lists().filter_map(|(_, list)| next_update(list)))
        .filter(|at| *at > now)
        .min();
    // What runs out already is looked at daily.
    let later = earliest.and_then(|at| at.duration_since(now).ok()).filter(|wait| !wait.is_zero());
    later.map_or(DAY, |wait| wait.min(DAY))
}

/// A line for each certificate from files that has run out or soon will, if that came true after `since`.
fn reminders(store: &CertificateStore, since: SystemTime, now: SystemTime) -> Vec<Finding> {
    let mut findings = Vec::new();
    for certificate in store.certificates() {
        let (CertificateOrigin::Files { cert: path, .. }, not_after) =
            (&certificate.source, certificate.not_after)
        else {
            continue;
        };
        let (concern, from) = if not_after <= now {
            (Concern::Expired { not_after }, not_after)
        } else {
            (Concern::ExpiresSoon { not_after }, certificate.soon_at())
        };
        if from > now || from <= since {
            continue;
        }
        let warning = Warning { path: path.clone(), concern };
        findings.push(Finding::nowhere(format!("{warning}; a renewed file is used as soon as it is there")));
    }
    findings
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use offramp_certs::local_ca::LocalCa;
    use offramp_certs::store::StoreEntry;
    use offramp_config::model::FilePath;
    use offramp_testkit::ca::{Ca, Key, Leaf, Validity};

    use super::*;
    use offramp_sources::certificates::{Look, OnFault};

    fn store(certificate: Certificate) -> CertificateStore {
        let entry = StoreEntry { certificate: Arc::new(certificate), default: true };
        CertificateStore::new([entry], SystemTime::now())
    }

    #[test]
    fn without_certificates_a_day_passes() {
        assert_eq!(
            until_next_look(
                InUse { store: &CertificateStore::default(), sources: &Sources::default() },
                SystemTime::now()
            ),
            DAY
        );
    }

    #[test]
    fn after_a_panic_no_look_is_due_for_a_while() {
        let mut checks = CertificateChecks::new(Log::silent());
        let (now, later) = (Instant::now(), checks.due());
        checks.put_off(now);
        assert_eq!(checks.due(), later, "a later look stays");
        checks.look_at = now;
        checks.put_off(now);
        assert_eq!(checks.due(), now + RETRY);
    }

    #[test]
    fn local_certificates_are_due_when_they_should_be_renewed() {
        let folder = tempfile::tempdir().unwrap();
        let now = SystemTime::now();
        let authority = LocalCa::open_or_create(folder.path(), now).unwrap();
        let store = store(authority.issue(&["localhost"], now).unwrap());
        let certificate = store.certificates().next().unwrap();
        let due = certificate.renew_at();
        assert!(!is_due(certificate, now) && is_due(certificate, due));
        assert_eq!(until_next_look(InUse { store: &store, sources: &Sources::default() }, now), DAY);
        assert_eq!(
            until_next_look(
                InUse { store: &store, sources: &Sources::default() },
                due - Duration::from_secs(60)
            ),
            Duration::from_secs(60)
        );
        // Past its time it is tried again in a while, not at once and not without end.
        assert_eq!(until_next_look(InUse { store: &store, sources: &Sources::default() }, due), DAY);
        assert!(reminders(&store, SystemTime::UNIX_EPOCH, due + DAY * 365).is_empty());
    }

    fn from_file(validity: Validity) -> CertificateStore {
        let folder = tempfile::tempdir().unwrap();
        let ca = Ca::new(folder.path()).unwrap();
        let leaf = Leaf { validity, ..Leaf::server(Key::P256, &["a.test"]) };
        let files = ca.issue("leaf", &leaf).unwrap();
        let now = SystemTime::now();
        store(offramp_certs::file::load(&files.chain, Some(&files.key), now).unwrap().certificate)
    }

    #[test]
    fn files_that_run_out_are_reminded_of() {
        for (validity, expected) in [(Validity::Expired, 1), (Validity::Valid, 0)] {
            let reminders = reminders(&from_file(validity), SystemTime::UNIX_EPOCH, SystemTime::now());
            assert_eq!(reminders.len(), expected, "{reminders:?}");
        }
    }

    /// A certificate of hours must not wait for the warning of the next day.
    #[test]
    fn a_file_is_reminded_of_at_once_when_its_time_comes_and_then_daily() {
        let store = from_file(Validity::Valid);
        let certificate = store.certificates().next().unwrap();
        let second = Duration::from_secs(1);
        for (at, word) in [(certificate.soon_at(), "expires on"), (certificate.not_after, "EXPIRED")] {
            let wait =
                until_next_look(InUse { store: &store, sources: &Sources::default() }, at - second * 60);
            assert_eq!(wait, second * 60);
            assert!(reminders(&store, at - second * 60, at - second).is_empty());
            let first = reminders(&store, at - second, at);
            assert!(first.len() == 1 && first[0].text.contains(word), "{first:?}");
            assert!(reminders(&store, at, at + second).is_empty(), "it was told");
            assert_eq!(reminders(&store, SystemTime::UNIX_EPOCH, at + second).len(), 1, "daily");
        }
    }

    /// What ends in a moment is looked at then, and not an hour later.
    #[test]
    fn a_staple_is_looked_at_when_it_runs_out() {
        let files = from_file(Validity::Valid);
        let now = SystemTime::now();
        let mut certificate = Certificate::clone(files.certificates().next().unwrap());
        let end = now + Duration::from_secs(90);
        certificate.staple_until = Some(end);
        assert!(!is_due(&certificate, now) && is_due(&certificate, end));
        let store = store(certificate);
        assert_eq!(
            until_next_look(InUse { store: &store, sources: &Sources::default() }, now),
            Duration::from_secs(90)
        );
        assert_eq!(until_next_look(InUse { store: &store, sources: &Sources::default() }, end), DAY);
    }

    #[test]
    fn revocation_lists_that_run_out_are_warned_of_then_and_daily() {
        let folder = tempfile::tempdir().unwrap();
        let ca = Ca::new(folder.path()).unwrap();
        let path = ca.revocation_list("list", 2040).unwrap();
        // The beginning of 2040.
        let end = SystemTime::UNIX_EPOCH + Duration::from_secs(2_208_988_800);
        let before = Sources::default();
        let mut look = Look::new(&before, end - DAY, OnFault::Refuse);
        let (_, warnings) = look.revoked(&FilePath::new(path));
        assert_eq!(warnings, []);
        let (sources, _) = look.finish();
        let minute = Duration::from_secs(60);
        assert_eq!(
            until_next_look(InUse { store: &CertificateStore::default(), sources: &sources }, end - minute),
            minute
        );
        assert_eq!(
            until_next_look(InUse { store: &CertificateStore::default(), sources: &sources }, end),
            DAY
        );
        let told = |since, now| overdue_lists(&sources, since, now).len();
        assert_eq!(told(end - minute, end - Duration::from_secs(1)), 0);
        assert_eq!(told(end - minute, end), 1, "as soon as it has run out");
        assert_eq!(told(end, end + minute), 0, "and not with each look");
        assert_eq!(told(SystemTime::UNIX_EPOCH, end + DAY), 1, "but daily");
    }
}
