//! Orders certificates for names that clients ask for (`certificate.on_demand`).
//!
//! Workers hand over each name once ([`Demand`]). It is asked about where the configuration says so, ordered within the
//! rate, and kept by a keeper from then on. Whatever stops a name is remembered for a while, so that the next client that
//! asks for it costs nothing.

mod standing;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use offramp_certs::DnsPattern;
use offramp_certs::acme::on_demand::RateLimit;
use offramp_certs::acme::schedule::Occasion;
use offramp_certs::acme::{Demanded, Subject, UseMark};
use offramp_config::Config;
use offramp_config::model::{AcmeCertificate, AskUrl, CertificateSource, OnDemand, not_issuable};
use offramp_observe::LogField;
use offramp_proxy::{Demand, DemandOutcome, DemandRefusal, DemandRule};
use tokio::sync::Semaphore;
use tokio::sync::mpsc::Receiver;

use super::ask::{Answer, ask};
use super::attempt::{Meanwhile, attempt};
use super::context::AcmeContext;
use super::pause::Bars;
use super::{Terms, Want, key_type};

/// Names that are asked about at a time, and in a second.
const ASKED_AT_ONCE: usize = 4;
const ASKED_PER_SECOND: u32 = 20;
/// Certificates on demand at most: a state directory is bounded, too.
const MOST: usize = 10_000;
/// The time for which a refusal of a name is remembered.
const DENIED: Duration = Duration::from_secs(10 * 60);
/// The same after orders that failed: less than five fit into the hour in which authorities allow five.
const FAILED: Duration = Duration::from_secs(15 * 60);
/// The same where the next client may have more luck.
const LATER: Duration = Duration::from_secs(10);
/// An order without a new request for so long is forgotten.
const FORGOTTEN: Duration = Duration::from_secs(7 * 24 * 3600);
/// The interval between looks for forgotten ones.
pub(super) const TIDIED: Duration = Duration::from_secs(24 * 3600);
/// Between two warnings of the same.
const QUIET: Duration = Duration::from_secs(60);

/// One `[[certificate]]` with `on_demand`.
#[derive(Clone, Debug)]
pub(crate) struct Rule {
    certificate: AcmeCertificate,
    on_demand: OnDemand,
    names: Vec<DnsPattern>,
    /// Set if the name must be one that public authorities issue for.
    public: bool,
}

impl Rule {
    /// The rules of a configuration.
    pub(crate) fn all(config: &Config) -> Vec<Self> {
        let rule = |certificate: &AcmeCertificate| {
            let on_demand = certificate.on_demand.clone()?;
            let names = on_demand.names.iter().filter_map(|name| DnsPattern::parse(&name.to_string()).ok());
            let mut asked = certificate.authorities.iter().filter_map(|name| config.authority(name));
            let public = asked.any(|authority| authority.ca.is_none());
            Some(Self { certificate: certificate.clone(), names: names.collect(), on_demand, public })
        };
        let sources = config.certificates.iter().map(|certificate| &certificate.source);
        let acme = sources.filter_map(|source| match source {
            CertificateSource::Acme(acme) => Some(acme),
            _ => None,
        });
        acme.filter_map(rule).collect()
    }

    /// True if a service is asked about names.
    pub(crate) fn asks(&self) -> bool {
        self.on_demand.ask.is_some()
    }

    /// The names that need no question.
    pub(crate) fn names(&self) -> &[DnsPattern] {
        &self.names
    }

    /// The first rule by which `name` may have a certificate, and whether `ask` is to be queried.
    pub(crate) fn find<'a>(rules: &'a [Self], name: &str) -> Option<(&'a Self, bool)> {
        let by_name = |rule: &&Self| rule.names.iter().any(|allowed| allowed.matches(name));
        let named = rules.iter().find(by_name).map(|rule| (rule, false));
        named.or_else(|| rules.iter().find(|rule| rule.asks()).map(|rule| (rule, true)))
    }

    /// The certificate for `name`; `asks`: set if `ask` is queried before each order.
    pub(crate) fn want(
        &self,
        name: &str,
        asks: bool,
        config: &Config,
        mark: UseMark,
    ) -> Result<Want, offramp_certs::Error> {
        let subject = Subject::new(&[name], key_type(self.certificate.key_type))?;
        let authorities = self.certificate.authorities.iter().filter_map(|name| config.authority(name));
        let ask = self.on_demand.ask.clone().filter(|_| asks);
        Ok(Want {
            subject,
            reuse_key: self.certificate.reuse_key,
            authorities: authorities.cloned().collect(),
            on_demand: Some(Terms { mark, ask }),
        })
    }

    fn for_workers(&self) -> DemandRule {
        DemandRule { names: self.names.clone(), asks: self.asks(), wait: self.on_demand.wait }
    }
}

/// Orders names on demand.
pub(super) struct DemandHandler {
    context: Arc<AcmeContext>,
    demand: Arc<Demand>,
    asking: Semaphore,
    state: Mutex<State>,
}

struct State {
    rules: Arc<Vec<Rule>>,
    config: Arc<Config>,
    /// For each rule, how fast it orders.
    orders: Vec<RateLimit>,
    asks: RateLimit,
    /// Names with certificates on disk that workers do not use yet.
    fresh: Vec<Pending>,
    /// The time of the last warning.
    warned: Option<Instant>,
}

/// A name that workers wait for; dropped, they go on.
struct Pending {
    demand: Arc<Demand>,
    name: Box<str>,
    refused: Option<DemandRefusal>,
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.demand.end(&self.name, self.refused);
    }
}

/// The reason why a name got no certificate, and the time for which that holds.
struct Refusal(DemandOutcome, Option<Duration>);

impl DemandHandler {
    pub(super) fn new(context: Arc<AcmeContext>, demand: Arc<Demand>) -> Arc<Self> {
        let state = State {
            rules: Arc::default(),
            config: Arc::default(),
            orders: Vec::new(),
            asks: RateLimit::new(ASKED_PER_SECOND, Duration::from_secs(1), Instant::now()),
            fresh: Vec::new(),
            warned: None,
        };
        Arc::new(Self { context, demand, asking: Semaphore::new(ASKED_AT_ONCE), state: Mutex::new(state) })
    }

    /// The configuration is another one.
    pub(super) fn follow(&self, config: &Config) {
        let rules = Rule::all(config);
        let now = Instant::now();
        self.demand.set_rules(rules.iter().map(Rule::for_workers).collect());
        let mut state = self.state();
        let pace = |(index, rule): (usize, &Rule)| {
            let (count, per) = (rule.on_demand.rate.count.get(), rule.on_demand.rate.per.duration());
            let before = state.orders.get(index).filter(|pace| pace.is_of(count, per));
            before.cloned().unwrap_or_else(|| RateLimit::new(count, per, now))
        };
        let orders = rules.iter().enumerate().map(pace).collect();
        state.orders = orders;
        (state.rules, state.config) = (Arc::new(rules), Arc::new(config.clone()));
    }

    /// Takes names until the end of the process. There are never more tasks than names on their way.
    pub(super) async fn serve(self: Arc<Self>, names: &mut Receiver<Box<str>>) {
        while let Some(name) = names.recv().await {
            let handler = Arc::clone(&self);
            tokio::spawn(async move { handler.take(name).await });
        }
    }

    /// The names with certificates on disk by now. Handshakes that wait for them go on when the result is dropped.
    pub(super) fn fresh(&self) -> Fresh {
        Fresh { _names: std::mem::take(&mut self.state().fresh) }
    }

    async fn take(&self, name: Box<str>) {
        let mut pending = Pending { demand: Arc::clone(&self.demand), name, refused: None };
        match self.obtain(&pending.name).await {
            Ok(()) => {
                self.demand.count(DemandOutcome::Obtained);
                self.state().fresh.push(pending);
                self.context.announce();
            }
            Err(Refusal(outcome, lasts)) => {
                self.demand.count(outcome);
                pending.refused = lasts.map(|lasts| DemandRefusal { outcome, until: Instant::now() + lasts });
            }
        }
    }

    async fn obtain(&self, name: &str) -> Result<(), Refusal> {
        let (rules, config) = {
            let state = self.state();
            (Arc::clone(&state.rules), Arc::clone(&state.config))
        };
        let denied = Refusal(DemandOutcome::Denied, Some(DENIED));
        let (Some((rule, asks)), Ok(host)) = (Rule::find(&rules, name), name.parse()) else {
            return Err(denied);
        };
        if rule.public && not_issuable(&host).is_some() {
            return Err(denied);
        }
        let Ok(want) = rule.want(name, asks, &config, UseMark::default()) else { return Err(denied) };
        let now = SystemTime::now();
        if self.has_certificate(&want, now) {
            // Another process has obtained it, it came a moment ago, or it was not on demand before.
            return self.note(&want, name);
        }
        if self.context.lead().is_some() {
            return Err(Refusal(DemandOutcome::Busy, Some(LATER)));
        }
        if let Some(url) = rule.on_demand.ask.as_ref().filter(|_| asks) {
            self.may(url, name).await?;
        }
        let failures = self.context.failures(&want.subject);
        let barred = failures.earliest(now, Occasion::Due, 0).duration_since(now).unwrap_or_default();
        if !barred.is_zero() {
            return Err(Refusal(DemandOutcome::Failed, Some(barred)));
        }
        self.paused(&want)?;
        self.admit(&rules, rule, name)?;
        self.order(&want, name).await
    }

    async fn may(&self, url: &AskUrl, name: &str) -> Result<(), Refusal> {
        if !self.state().asks.admit(Instant::now()) {
            return Err(Refusal(DemandOutcome::Busy, None));
        }
        // The semaphore is never closed.
        let _permit = self.asking.acquire().await;
        match ask(url, name).await {
            Ok(Answer::Allowed) => Ok(()),
            Ok(Answer::Denied) => {
                self.context.log.debug("a name may have no certificate", &[("name", name.into())]);
                Err(Refusal(DemandOutcome::Denied, Some(DENIED)))
            }
            Err(reason) => {
                let fields = [("name", name.into()), ("reason", (&reason).into())];
                self.warn("nobody says whether a name may have a certificate", &fields);
                Err(Refusal(DemandOutcome::Unanswered, Some(LATER)))
            }
        }
    }

    /// Refuses where every authority wants to be left alone: a name without an earlier order must not wake it.
    fn paused(&self, want: &Want) -> Result<(), Refusal> {
        let own = Bars::default();
        match self.context.pauses(&own).shortest(&want.authorities, SystemTime::now()) {
            Some(wait) => Err(Refusal(DemandOutcome::Paused, Some(wait.max(LATER)))),
            None => Ok(()),
        }
    }

    /// Holds an order against the rate, and against how many certificates there may be. The rate first: clients make up
    /// as many names as they like, and to count certificates takes a walk over the disk.
    fn admit(&self, rules: &[Rule], rule: &Rule, name: &str) -> Result<(), Refusal> {
        let over = || Refusal(DemandOutcome::OverRate, Some(LATER));
        let index = rules.iter().position(|one| std::ptr::eq(one, rule)).unwrap_or_default();
        let admitted = self.state().orders.get_mut(index).is_none_or(|pace| pace.admit(Instant::now()));
        if !admitted {
            let rate = rule.on_demand.rate.to_string();
            let key = "certificate.on_demand.rate";
            let fields = [("name", name.into()), ("rate", (&rate).into()), ("key", key.into())];
            self.warn("no certificate is ordered on demand: more names than the rate allows", &fields);
            return Err(over());
        }
        if self.context.storage.all_demanded().len() >= MOST {
            let fields = [("name", name.into()), ("certificates", MOST.into())];
            self.warn("no certificate is ordered on demand: there are as many as there may be", &fields);
            return Err(over());
        }
        Ok(())
    }

    /// Notes that the certificate is one on demand, unless that was noted a short while ago.
    fn note(&self, want: &Want, name: &str) -> Result<(), Refusal> {
        let storage = &self.context.storage;
        let now = SystemTime::now();
        if storage.demanded(&want.subject).is_some_and(|noted| !is_forgotten(&noted, FORGOTTEN / 2, now)) {
            return Ok(());
        }
        let used = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        storage.keep_demanded(&want.subject, &Demanded { name: name.into(), used }).map_err(|error| {
            self.warn("no certificate can be kept", &[("reason", (&error).into())]);
            Refusal(DemandOutcome::Failed, Some(LATER))
        })
    }

    /// True if there is one that has not ended.
    fn has_certificate(&self, want: &Want, now: SystemTime) -> bool {
        self.context.storage.certificate(&want.subject, now).is_some_and(|one| now < one.not_after)
    }

    async fn order(&self, want: &Want, name: &str) -> Result<(), Refusal> {
        let storage = &self.context.storage;
        // Noted first, so that a later look at the certificate knows its kind.
        self.note(want, name)?;
        let _turn = self.context.turns.take(&want.subject).await;
        if self.has_certificate(want, SystemTime::now()) {
            // The keeper of the one that has ended has renewed it meanwhile.
            return Ok(());
        }
        let _permit = self.context.permits.acquire().await;
        // Another order may have been refused during the wait.
        if let Err(refusal) = self.paused(want) {
            if self.has_certificate(want, SystemTime::now()) {
                return Ok(());
            }
            if storage.order(&want.subject).is_none() {
                storage.remove(&want.subject);
            }
            return Err(refusal);
        }
        if attempt(want, &self.context, Meanwhile::Waits, &mut Bars::default()).await.is_ok() {
            return Ok(());
        }
        let now = SystemTime::now();
        if self.has_certificate(want, now) {
            // The keeper of the one that has ended was faster.
            return Ok(());
        }
        let next = self.context.failures(&want.subject).earliest(now, Occasion::Due, 0).duration_since(now);
        if storage.order(&want.subject).is_none() {
            // A flood of names must not fill the disk. What is to be known of the failure is known by name.
            storage.remove(&want.subject);
        }
        Err(Refusal(DemandOutcome::Failed, Some(next.unwrap_or_default().max(FAILED))))
    }

    /// Removes what was not requested for a long time: what was ordered and never obtained, and certificates that
    /// have ended and that no keeper looks after, as the configuration has no use for them any more.
    pub(super) fn tidy(&self) {
        let (rules, config) = {
            let state = self.state();
            (Arc::clone(&state.rules), Arc::clone(&state.config))
        };
        let (storage, now) = (&self.context.storage, SystemTime::now());
        for (kept, demanded) in storage.each_demanded() {
            if !is_forgotten(&demanded, FORGOTTEN, now) {
                continue;
            }
            let want = Rule::find(&rules, &demanded.name)
                .and_then(|(rule, asks)| rule.want(&demanded.name, asks, &config, UseMark::default()).ok());
            let has_keeper = want.is_some_and(|want| storage.is_of(&kept, &want.subject));
            match storage.certificate_in(&kept, now) {
                Ok(Some(certificate)) if has_keeper || now < certificate.not_after => {}
                // It is there, and may be read the next time.
                Err(_) => {}
                Ok(_) => storage.remove_kept(&kept),
            }
        }
    }

    /// At most once a minute: any client can choose names.
    fn warn(&self, message: &str, fields: &[LogField<'_>]) {
        let now = Instant::now();
        let mut state = self.state();
        if state.warned.is_none_or(|at| now.duration_since(at) >= QUIET) {
            state.warned = Some(now);
            drop(state);
            self.context.log.warn(message, fields);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// True if no client has asked for it for so long.
fn is_forgotten(demanded: &Demanded, after: Duration, now: SystemTime) -> bool {
    // What was noted after `now` was noted before the clock was set back.
    now.duration_since(demanded.used_at()).is_ok_and(|since| since > after)
}

/// Names with certificates that are about to be in use. Handshakes that wait for them go on when this is dropped.
pub(crate) struct Fresh {
    _names: Vec<Pending>,
}

#[cfg(test)]
mod tests;
