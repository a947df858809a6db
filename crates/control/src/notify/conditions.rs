//! What receivers are reported of, as it is now: servers, certificates, limits, workers, errors, the log store, panics.
//!
//! Everything is read from what others publish; no worker notices. A look costs a walk over servers and notices; figures
//! and certificates are looked at less often.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use offramp_certs::{Certificate, CertificateOrigin};
use offramp_config::model::{ErrorShare, NotifyConfig, NotifyKind};
use offramp_net::clock::coarse_ms;
use offramp_observe::names::{self, Metric};
use offramp_observe::series::{CODES, METHODS};
use offramp_observe::timestamp::{Precision, write_rfc3339};
use offramp_observe::{Counters, Detail, Exposition, Notice, NoticeKind, Notices, Sampled, Sampler};
use offramp_proxy::{Current, Snapshot};
use offramp_upstream::health::ProbeProgress;
use offramp_upstream::{Backend, Duty, UpstreamAddress};

use super::tracker::{AlertKey, AlertTracker};
use crate::acme::Orders;

/// The time between two looks at figures and certificates.
const SELDOM: Duration = Duration::from_secs(10);
/// The time after which a limit is taken to refuse no more: notices of one come once a minute.
const OVER: Duration = Duration::from_secs(120);
/// The time in which a failed order is tried again by a process that goes on.
const RETRIED: Duration = Duration::from_secs(3600);
/// The time over which errors are counted.
const WINDOW: Duration = Duration::from_secs(300);

/// The places where conditions are seen. Cheap to clone.
#[derive(Clone)]
pub(crate) struct NotifySources {
    pub(crate) current: Current,
    pub(crate) page: Exposition,
    pub(crate) notices: Notices,
    pub(crate) orders: Arc<Orders>,
}

impl NotifySources {
    /// The figures that no worker counts. To be read without a lock of a receiver: those of receivers are among them.
    pub(super) fn figures(&self) -> Vec<Sampled> {
        self.page.sampler.as_ref().map(Sampler::sample).unwrap_or_default()
    }
}

/// The memory of the looks for one receiver.
#[derive(Debug)]
pub(super) struct Conditions {
    seen: SeenNotices,
    limits: RecentAlerts,
    workers: RecentAlerts,
    lost: RecentAlerts,
    errors: ErrorWindow,
    /// The counts at the latest look.
    panics: Option<u64>,
    dropped: Option<u64>,
    /// The time of the next look at figures.
    seldom_at: Option<Instant>,
    /// The time of the first look: what the process before saw of recent events is over no earlier than this one can tell.
    began: Option<Instant>,
}

/// The numbers of the latest notices that were looked at.
#[derive(Debug)]
struct SeenNotices {
    limit: u64,
    late: u64,
    confirm: u64,
}

impl Conditions {
    /// Of a receiver that is reported what comes from now on.
    pub(super) fn new(sources: &NotifySources) -> Self {
        let latest = |kind| sources.notices.since(kind, 0).last().map_or(0, |notice| notice.number);
        let seen = SeenNotices {
            limit: latest(NoticeKind::Limit),
            late: latest(NoticeKind::Late),
            confirm: latest(NoticeKind::Confirm),
        };
        Self::after(seen)
    }

    fn after(seen: SeenNotices) -> Self {
        Self {
            seen,
            limits: RecentAlerts::default(),
            workers: RecentAlerts::default(),
            lost: RecentAlerts::default(),
            errors: ErrorWindow::default(),
            panics: None,
            dropped: None,
            seldom_at: None,
            began: None,
        }
    }

    /// Returns `true` if the next look needs [figures](NotifySources::figures).
    pub(super) fn needs_figures(&self, now: Instant) -> bool {
        self.seldom_at.is_none_or(|at| at <= now)
    }

    /// Has the tracker know the conditions of now, of the kinds that the receiver wants.
    pub(super) fn look(
        &mut self,
        sources: &NotifySources,
        figures: Option<&[Sampled]>,
        config: &NotifyConfig,
        tracker: &mut AlertTracker<NotifyKind>,
        now: Instant,
    ) {
        let wanted = |kind: NotifyKind| config.on.contains(&kind);
        self.began.get_or_insert(now);
        if wanted(NotifyKind::Server) {
            let snapshot = sources.current.load();
            let (present, on_duty) = (servers(&snapshot), on_duty(&snapshot));
            tracker.forget(NotifyKind::Server, |about| !on_duty.contains(about));
            tracker.observe(NotifyKind::Server, &present, "it gets requests again", now);
        }
        if wanted(NotifyKind::Limit) {
            for notice in sources.notices.since(NoticeKind::Limit, self.seen.limit) {
                self.seen.limit = notice.number;
                self.limits.note(limit(&notice), now);
            }
            let over = "nobody was refused for two minutes";
            self.recent(NotifyKind::Limit, over, tracker, now);
        }
        if wanted(NotifyKind::Late) {
            for notice in sources.notices.since(NoticeKind::Late, self.seen.late) {
                self.seen.late = notice.number;
                self.workers.note(worker(&notice), now);
            }
            let over = "it was in time for two minutes";
            self.recent(NotifyKind::Late, over, tracker, now);
        }
        if wanted(NotifyKind::TakenBack) {
            for notice in sources.notices.since(NoticeKind::Confirm, self.seen.confirm) {
                self.seen.confirm = notice.number;
                if let Some((about, says)) = taken_back(&notice) {
                    tracker.occur(&AlertKey { kind: NotifyKind::TakenBack, about }, &says, 1, now);
                }
            }
        }
        if let Some(sampled) = figures {
            self.seldom_at = now.checked_add(SELDOM);
            self.look_seldom(sources, config, tracker, now);
            self.look_at_figures(sampled, config, tracker, now);
        }
    }

    /// Returns `true` if this process knows all that happened within a time: it has looked for so long, or nothing was
    /// reported before it.
    fn knows(&self, long: Duration, tracker: &AlertTracker<NotifyKind>, now: Instant) -> bool {
        !tracker.has_resumed() || self.began.is_some_and(|began| now.saturating_duration_since(began) >= long)
    }

    /// Has the tracker know what happened lately.
    fn recent(&mut self, kind: NotifyKind, over: &str, tracker: &mut AlertTracker<NotifyKind>, now: Instant) {
        let recent = if kind == NotifyKind::Late { &mut self.workers } else { &mut self.limits };
        let present = recent.present(now);
        if self.knows(OVER, tracker, now) {
            tracker.observe(kind, &present, over, now);
        } else {
            tracker.observe_some(kind, &present, now);
        }
    }

    fn look_seldom(
        &mut self,
        sources: &NotifySources,
        config: &NotifyConfig,
        tracker: &mut AlertTracker<NotifyKind>,
        now: Instant,
    ) {
        let wanted = |kind: NotifyKind| config.on.contains(&kind);
        if wanted(NotifyKind::Certificate) {
            let time = SystemTime::now();
            let mut present = certificates(&sources.current.load(), time);
            let failed = sources.orders.failing(time).into_iter();
            present.extend(failed.map(|(names, why)| (names, format!("it could not be obtained: {why}"))));
            // Failed orders of the process before are not known until they fail again.
            if self.knows(RETRIED, tracker, now) {
                tracker.observe(NotifyKind::Certificate, &present, "", now);
            } else {
                tracker.observe_some(NotifyKind::Certificate, &present, now);
            }
        }
        if wanted(NotifyKind::Errors) {
            let present = self.errors.add(RequestCounts::of(&sources.page.counters), now);
            let present = present.filter(|counts| counts.requests >= u64::from(config.errors_at_least));
            let above = present.filter(|counts| counts.exceeds(config.errors));
            let says = above.map(|counts| (REQUESTS.into(), counts.says(config.errors)));
            let present: Vec<(Box<str>, String)> = says.into_iter().collect();
            if self.knows(WINDOW, tracker, now) {
                tracker.observe(NotifyKind::Errors, &present, "", now);
            } else {
                tracker.observe_some(NotifyKind::Errors, &present, now);
            }
        }
    }

    fn look_at_figures(
        &mut self,
        sampled: &[Sampled],
        config: &NotifyConfig,
        tracker: &mut AlertTracker<NotifyKind>,
        now: Instant,
    ) {
        let wanted = |kind: NotifyKind| config.on.contains(&kind);
        if wanted(NotifyKind::LogStore) {
            let dropped = value(sampled, &names::LOG_STORE_EVENTS, Some("dropped"));
            let more = increase(&mut self.dropped, dropped);
            if more > 0 {
                self.lost.note(("spool".into(), format!("{more} events were lost: the spool is full")), now);
            }
            let mut present = self.lost.present(now);
            if value(sampled, &names::LOG_STORE_UP, None) == Some(0) {
                let says = "it takes no events, which wait in the spool of `state_dir`";
                present.push(("database".into(), says.to_owned()));
            }
            if self.knows(OVER, tracker, now) {
                tracker.observe(NotifyKind::LogStore, &present, "", now);
            } else {
                tracker.observe_some(NotifyKind::LogStore, &present, now);
            }
        }
        if wanted(NotifyKind::Panic) {
            let more = increase(&mut self.panics, value(sampled, &names::PANICS, None));
            let key = AlertKey { kind: NotifyKind::Panic, about: "the program".into() };
            let says = "this is a bug of Offramp; please report it with the lines of the log that begin with \"panicked\"";
            tracker.occur(&key, says, more, now);
        }
    }
}

/// The requests that errors are a share of.
const REQUESTS: &str = "all requests";

/// The name of a server in messages.
fn server_name(backend: &Backend, at: usize) -> Box<str> {
    let server = &*backend.servers[at].name;
    // A server that is written in a route is its own backend.
    if *backend.name == *server { server.into() } else { format!("{} {server}", backend.name).into() }
}

/// The servers that should get requests.
fn on_duty(snapshot: &Snapshot) -> HashSet<Box<str>> {
    let all =
        snapshot.backends.iter().flat_map(|backend| (0..backend.servers.len()).map(move |at| (backend, at)));
    let meant = all.filter(|(backend, at)| backend.health[*at].duty() != Duty::Disabled);
    meant.map(|(backend, at)| server_name(backend, at)).collect()
}

/// The servers that get nothing though they should.
fn servers(snapshot: &Snapshot) -> Vec<(Box<str>, String)> {
    let now = coarse_ms();
    let mut present = Vec::new();
    for backend in &snapshot.backends {
        for at in 0..backend.servers.len() {
            if let Some(why) = trouble(backend, at, now) {
                present.push((server_name(backend, at), why));
            }
        }
    }
    present
}

/// The reason why a server gets nothing; none where that is meant.
fn trouble(backend: &Backend, at: usize, now: u64) -> Option<String> {
    let health = &backend.health[at];
    if health.duty() == Duty::Disabled {
        return None;
    }
    if let UpstreamAddress::Resolved(cell) = &backend.servers[at].target
        && cell.load().is_empty()
    {
        return Some("its host name has no address".to_owned());
    }
    if health.is_down() {
        let ProbeProgress { fault, .. } = health.probes();
        return Some(match fault {
            Some(fault) => format!("it fails its health checks: {fault}"),
            None => "it fails its health checks".to_owned(),
        });
    }
    health.is_ejected(now).then(|| "requests to it failed in a row: it is left alone for a while".to_owned())
}

/// The certificates that expire soon, and those that have expired.
fn certificates(snapshot: &Snapshot, now: SystemTime) -> Vec<(Box<str>, String)> {
    // All listeners have the same store.
    let tls = snapshot.listeners.values().find_map(|listener| listener.tls.as_ref());
    let all = tls.into_iter().flat_map(|tls| tls.store.certificates());
    all.flat_map(|certificate| expiring(certificate, now)).collect()
}

/// A certificate that expires soon, and once more when it has expired: that is news, and the first does not end by it.
fn expiring(certificate: &Certificate, now: SystemTime) -> Vec<(Box<str>, String)> {
    let (name, until) = (first_name(certificate), date(certificate.not_after));
    if certificate.not_after <= now {
        let says = format!("it has expired on {until}");
        return vec![(name.clone().into(), says.clone()), (format!("{name} (expired)").into(), says)];
    }
    if now < worrying_at(certificate) {
        return Vec::new();
    }
    let renewal = match certificate.source {
        CertificateOrigin::Files { .. } => "a renewed file is used as soon as it is there",
        _ => "its renewal has not succeeded",
    };
    vec![(name.into(), format!("it expires on {until}; {renewal}"))]
}

/// The time from which an operator has to act. A certificate that Offramp renews itself gets half the time that is left
/// after the beginning of its renewal.
fn worrying_at(certificate: &Certificate) -> SystemTime {
    let soon = certificate.soon_at();
    if matches!(certificate.source, CertificateOrigin::Files { .. }) {
        return soon;
    }
    let renewed = certificate.renew_at();
    let left = certificate.not_after.duration_since(renewed).unwrap_or_default();
    soon.max(renewed + left / 2)
}

fn first_name(certificate: &Certificate) -> String {
    match (certificate.names.first(), certificate.addresses.first()) {
        (Some(name), _) => name.to_string(),
        (None, Some(address)) => address.to_string(),
        (None, None) => "unnamed".to_owned(),
    }
}

fn date(time: SystemTime) -> String {
    let mut text = Vec::with_capacity(20);
    write_rfc3339(&mut text, time, Precision::Seconds);
    String::from_utf8_lossy(&text).into_owned()
}

/// A detail of a notice as text; empty without it.
fn detail(notice: &Notice, name: &str) -> String {
    let found = notice.fields.iter().find(|(field, _)| *field == name);
    found.map_or_else(String::new, |(_, detail)| match detail {
        Detail::Count(count) => count.to_string(),
        Detail::Flag(flag) => flag.to_string(),
        Detail::Text(text) => text.clone(),
    })
}

fn limit(notice: &Notice) -> (Box<str>, String) {
    let of = |name| detail(notice, name);
    if notice.what == "accepting_pauses" {
        return (
            of("reason").into(),
            format!("accepting pauses for listener {}: {}", of("listener"), of("advice")),
        );
    }
    let says = format!("{} refused, the latest from {} ({})", of("refused"), of("client"), of("key"));
    (of("limit").into(), says)
}

fn worker(notice: &Notice) -> (Box<str>, String) {
    let of = |name| detail(notice, name);
    (
        of("worker").into(),
        format!("its loop is {} ms late, and began last: {}", of("late_ms"), of("began_last")),
    )
}

fn taken_back(notice: &Notice) -> Option<(Box<str>, String)> {
    let of = |name| detail(notice, name);
    let says = match notice.what {
        "taken_back" => "nobody confirmed it in time, and it was taken back".to_owned(),
        "not_taken_back" => {
            format!("nobody confirmed it in time, and it cannot be taken back yet: {}", of("reason"))
        }
        _ => return None,
    };
    Some((format!("back to version {}", of("version")).into(), says))
}

/// The value of a figure, with this label.
fn value(sampled: &[Sampled], metric: &Metric, label: Option<&str>) -> Option<u64> {
    let is_meant =
        |one: &&Sampled| one.metric.name == metric.name && one.labels.first().map(|label| &**label) == label;
    sampled.iter().find(is_meant).map(|one| one.value as u64)
}

/// The increase of a count since the look before; the first look has none.
fn increase(before: &mut Option<u64>, now: Option<u64>) -> u64 {
    let Some(now) = now else { return 0 };
    before.replace(now).map_or(0, |before| now.saturating_sub(before))
}

/// Things that happen now and then, and are taken to be over when they have not happened for a while.
#[derive(Debug, Default)]
struct RecentAlerts(BTreeMap<Box<str>, (Instant, String)>);

impl RecentAlerts {
    fn note(&mut self, alert: (Box<str>, String), now: Instant) {
        let (about, says) = alert;
        self.0.insert(about, (now, says));
    }

    fn present(&mut self, now: Instant) -> Vec<(Box<str>, String)> {
        self.0.retain(|_, (at, _)| now.saturating_duration_since(*at) < OVER);
        self.0.iter().map(|(about, (_, says))| (about.clone(), says.clone())).collect()
    }
}

/// Requests and errors, since the start or within a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct RequestCounts {
    requests: u64,
    /// Those with a status of 5xx.
    errors: u64,
}

impl RequestCounts {
    fn of(counters: &Counters) -> Self {
        let code = CODES.iter().position(|code| *code == "5xx").unwrap_or(CODES.len());
        let mut counts = Self::default();
        for set in counters.sets() {
            counts.requests += set.all_requests();
            counts.errors += (0..METHODS.len()).map(|method| set.requests(method, code)).sum::<u64>();
        }
        counts
    }

    fn exceeds(self, share: ErrorShare) -> bool {
        u128::from(self.errors) * 10_000 > u128::from(self.requests) * u128::from(share.hundredths())
    }

    fn says(self, bound: ErrorShare) -> String {
        let share = self.errors as f64 * 100.0 / self.requests.max(1) as f64;
        let Self { requests, errors } = self;
        format!("{errors} of {requests} requests within five minutes, {share:.1} %; the bound is {bound}")
    }
}

/// The counts of the last five minutes.
#[derive(Debug, Default)]
struct ErrorWindow(VecDeque<(Instant, RequestCounts)>);

impl ErrorWindow {
    /// Adds the counts of now; gives those within the window, once there are two looks.
    fn add(&mut self, counts: RequestCounts, now: Instant) -> Option<RequestCounts> {
        let begin = now.checked_sub(WINDOW);
        // The last one at or before the begin of the window is its base.
        while self.0.len() > 1 && begin.is_some_and(|begin| self.0[1].0 <= begin) {
            self.0.pop_front();
        }
        self.0.push_back((now, counts));
        let (_, base) = self.0.front().filter(|_| self.0.len() > 1)?;
        Some(RequestCounts {
            requests: counts.requests.saturating_sub(base.requests),
            errors: counts.errors.saturating_sub(base.errors),
        })
    }
}

#[cfg(test)]
mod tests;
