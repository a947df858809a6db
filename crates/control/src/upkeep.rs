//! Periodic work: new ticket keys, certificates of the local CA, warnings of certificates that expire.
//! Between two due times nothing wakes.

use std::path::Path;
use std::time::{Duration, SystemTime};

use offramp_certs::client_auth::{next_update, overdue};
use offramp_certs::store::Store;
use offramp_certs::{Certificate, Concern, Source, Warning};
use rustls::pki_types::CertificateRevocationListDer;
use tokio::time::Instant;

use crate::certificates::Sources;
use crate::error::Finding;
use crate::running::{Running, tell};

/// The longest time between two checks of the certificates: timers do not notice that the clock was
/// set or that the machine slept.
const DAY: Duration = Duration::from_secs(24 * 3600);

/// The time from a renewal that failed, or did not help, to the next try.
const RETRY: Duration = Duration::from_secs(3600);

/// Between two looks in any case.
const LEAST: Duration = Duration::from_secs(1);

/// The due times of periodic work.
#[derive(Debug)]
pub(crate) struct Calendar {
    /// The next ticket key; `None` where there are no tickets.
    rotate_at: Option<Instant>,
    look_at: Instant,
    /// When the last look was, by the clock.
    looked: SystemTime,
    /// When expiring certificates were last warned about.
    told_at: Instant,
}

impl Calendar {
    /// Begins now. `rotation` is how often ticket keys change, if there are any.
    pub(crate) fn new(rotation: Option<Duration>, store: &Store, sources: &Sources) -> Self {
        let (now, looked) = (Instant::now(), SystemTime::now());
        // Loading them has warned about those that run out.
        let look_at = now + until_next_look(store, sources, looked);
        Self { rotate_at: rotation.map(|rotation| now + rotation), look_at, looked, told_at: now }
    }

    /// Other tickets from now on.
    pub(crate) fn set_rotation(&mut self, rotation: Option<Duration>) {
        self.rotate_at = rotation.map(|rotation| Instant::now() + rotation);
    }

    /// How long it is until the next ticket key.
    pub(crate) fn until_rotation(&self) -> Option<Duration> {
        self.rotate_at.map(|at| at.saturating_duration_since(Instant::now()))
    }

    /// The ticket keys came from another process: the next one is due as it was there, unless it is due before.
    pub(crate) fn rotate_within(&mut self, left: Duration) {
        self.rotate_at = self.rotate_at.map(|at| at.min(Instant::now() + left));
    }

    /// Other certificates from now on.
    pub(crate) fn set_certificates(&mut self, store: &Store, sources: &Sources) {
        self.look_at = Instant::now() + until_next_look(store, sources, SystemTime::now());
    }

    /// When to call [`Running::keep_up`].
    pub(crate) fn next(&self) -> Instant {
        self.rotate_at.map_or(self.look_at, |rotate_at| rotate_at.min(self.look_at))
    }
}

impl Running {
    /// Does what is due.
    pub(crate) async fn keep_up(&mut self) {
        let now = Instant::now();
        if self.calendar.rotate_at.is_some_and(|at| at <= now) {
            match self.ground.tickets.rotate() {
                Ok(()) => self.log.debug("session tickets get a new key", &[]),
                Err(error) => self.log.error(
                    "cannot create a new ticket key; the old one stays in use",
                    &[("reason", (&error).into())],
                ),
            }
            self.calendar.set_rotation(Some(self.config.tls.ticket_rotation));
        }
        if self.calendar.look_at <= now {
            self.look_at_certificates(now).await;
        }
    }

    async fn look_at_certificates(&mut self, now: Instant) {
        let time = SystemTime::now();
        if self.ground.store.certificates().any(|certificate| is_due(certificate, time)) {
            // It says in the log what came of it.
            self.change_certificates().await;
        }
        let is_daily = now.duration_since(self.calendar.told_at) >= DAY - RETRY;
        if is_daily {
            self.calendar.told_at = now;
        }
        let since = if is_daily { SystemTime::UNIX_EPOCH } else { self.calendar.looked };
        tell(&self.log, "certificate", &reminders(&self.ground.store, since, time));
        tell(&self.log, "certificate", &overdue_lists(&self.ground.sources, since, time));
        let wait = until_next_look(&self.ground.store, &self.ground.sources, time);
        // What is still due is not tried again at once.
        let failed = self.ground.store.certificates().any(|certificate| is_due(certificate, time));
        let wait = if failed { wait.min(RETRY) } else { wait };
        (self.calendar.looked, self.calendar.look_at) = (time, now + wait.max(LEAST));
    }
}

/// A line for each revocation list whose successor was due after `since`.
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
    stale || matches!(certificate.source, Source::LocalCa { .. }) && certificate.renew_at() <= now
}

/// How long no certificate needs anything: no renewal, and no reminder.
fn until_next_look(store: &Store, sources: &Sources, now: SystemTime) -> Duration {
    let times = |certificate: &Certificate| match certificate.source {
        Source::LocalCa { .. } => [Some(certificate.renew_at()), None, None],
        // It has a keeper of its own.
        Source::Acme { .. } => [None; 3],
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
fn reminders(store: &Store, since: SystemTime, now: SystemTime) -> Vec<Finding> {
    let mut findings = Vec::new();
    for certificate in store.certificates() {
        let (Source::Files { cert: path, .. }, not_after) = (&certificate.source, certificate.not_after)
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
    use offramp_certs::store::Entry;
    use offramp_config::model::FilePath;
    use offramp_testkit::ca::{Ca, Key, Leaf, Validity};

    use super::*;
    use crate::certificates::{Look, OnFault};

    fn store(certificate: Certificate) -> Store {
        let entry = Entry { certificate: Arc::new(certificate), default: true };
        Store::new([entry], SystemTime::now())
    }

    #[test]
    fn without_certificates_a_day_passes() {
        assert_eq!(until_next_look(&Store::default(), &Sources::default(), SystemTime::now()), DAY);
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
        assert_eq!(until_next_look(&store, &Sources::default(), now), DAY);
        assert_eq!(
            until_next_look(&store, &Sources::default(), due - Duration::from_secs(60)),
            Duration::from_secs(60)
        );
        // Past its time it is tried again in a while, not at once and not without end.
        assert_eq!(until_next_look(&store, &Sources::default(), due), DAY);
        assert!(reminders(&store, SystemTime::UNIX_EPOCH, due + DAY * 365).is_empty());
    }

    fn from_file(validity: Validity) -> Store {
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
            let wait = until_next_look(&store, &Sources::default(), at - second * 60);
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
        assert_eq!(until_next_look(&store, &Sources::default(), now), Duration::from_secs(90));
        assert_eq!(until_next_look(&store, &Sources::default(), end), DAY);
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
        assert_eq!(until_next_look(&Store::default(), &sources, end - minute), minute);
        assert_eq!(until_next_look(&Store::default(), &sources, end), DAY);
        let told = |since, now| overdue_lists(&sources, since, now).len();
        assert_eq!(told(end - minute, end - Duration::from_secs(1)), 0);
        assert_eq!(told(end - minute, end), 1, "as soon as it has run out");
        assert_eq!(told(end, end + minute), 0, "and not with each look");
        assert_eq!(told(SystemTime::UNIX_EPOCH, end + DAY), 1, "but daily");
    }
}
