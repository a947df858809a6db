//! A change of which everything is ready: a step of each service, and the differences that they make.
//!
//! Everything that can fail happens here, and changes nothing. All services are asked before anything is refused, so that
//! an operator learns of all mistakes at once.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use offramp_config::{Config, ConfigDiff, model};
use offramp_observe::Log;
use offramp_process::inherited::Inherited;
use offramp_process::{Error, Finding, sandbox};
use offramp_sources::contents::Contents;
use offramp_sources::jwks::{Fetches, Provider, fetch_new};
use offramp_sources::resolve::Names;

use crate::build::Material;
use crate::changes::Changes;
use crate::notify::Receiver;
use crate::outputs::Events;
use crate::push::PushTargets;
use crate::service::{Service, Way};
use crate::services::{
    AccessLogStep, AcmeStep, AcmeWanted, EventsWanted, InUse, LimitsStep, ListenersStep, ListenersWanted,
    MetricsStep, MetricsWanted, Services, SnapshotStep, SnapshotWanted, TicketsStep,
};

/// A configuration and everything that was read for it.
pub(crate) struct Proposal {
    pub(crate) config: Arc<Config>,
    /// Changed keys that keep their old value.
    pub(crate) needs_restart: Vec<&'static str>,
    /// The differences from the configuration in force; `None` at a start.
    pub(crate) diff: Option<ConfigDiff>,
    /// The files and ports that it names and the sandbox denies.
    pub(crate) denied: Vec<Finding>,
    pub(crate) material: Material,
    /// The time by which the certificates were judged.
    pub(crate) now: SystemTime,
    /// Set where the local CA may issue; without, nothing is written.
    pub(crate) mint: bool,
    /// Set on the way back from a change that was not confirmed.
    pub(crate) kept: Option<Kept>,
}

/// Everything that was read from files for a configuration, for the way back to it.
#[derive(Clone)]
pub(crate) struct Kept {
    /// The files that routes answer with.
    pub(crate) contents: Contents,
    /// The output of events and their form, where they are known.
    pub(crate) events: Option<Events>,
}

/// A step of each service.
pub(crate) struct Steps {
    pub(crate) outputs: OutputSteps,
    pub(crate) tickets: TicketsStep,
    pub(crate) limits: LimitsStep,
    pub(crate) listeners: ListenersStep,
    pub(crate) snapshot: SnapshotStep,
    pub(crate) followers: FollowerSteps,
    pub(crate) metrics: MetricsStep,
}

/// The steps of services that write.
pub(crate) struct OutputSteps {
    pub(crate) log: Option<model::LogConfig>,
    pub(crate) access_log: AccessLogStep,
    pub(crate) store: Arc<Config>,
    pub(crate) push: PushTargets,
    pub(crate) notify: Vec<Receiver>,
}

/// The steps of services that follow from a snapshot.
pub(crate) struct FollowerSteps {
    /// The time until certificates need something.
    pub(crate) certificates: Duration,
    pub(crate) jwks: Vec<Arc<Provider>>,
    pub(crate) resolver: Names,
    pub(crate) acme: AcmeStep,
}

/// A change that cannot fail any more.
pub(crate) struct Plan {
    pub(crate) config: Arc<Config>,
    pub(crate) changes: Changes,
    pub(crate) steps: Steps,
}

impl Plan {
    /// The way from what services do to what a proposal wants. At a start `inherited` has the sockets of another process.
    /// To be called within the runtime.
    ///
    /// # Errors
    /// Everything that stands in the way.
    pub(crate) fn between(
        services: &Services,
        proposal: Proposal,
        inherited: &mut Inherited,
    ) -> Result<Self, Error> {
        let Proposal { config, needs_restart, diff, denied, material, now, mint, kept } = proposal;
        let way = if kept.is_some() { Way::Back } else { Way::Forward };
        let (contents, events) = kept.map(|kept| (kept.contents, kept.events)).unzip();
        let mut findings = Vec::new();
        let tickets = gather(&mut findings, services.tickets.prepare((&config.tls).into(), way));
        let snapshot = tickets.as_ref().and_then(|tickets| {
            let (contents, tickets) = (contents.as_ref(), &tickets.keys);
            let wanted = SnapshotWanted { config: &config, material, contents, now, mint, tickets };
            gather(&mut findings, services.snapshot.prepare(wanted, way))
        });
        let wanted = ListenersWanted { listeners: &config.listeners, inherited: &mut *inherited };
        let listeners = gather(&mut findings, services.listeners.prepare(wanted, way));
        let wanted = MetricsWanted { endpoint: config.telemetry.metrics.endpoint.as_ref(), inherited };
        let metrics = gather(&mut findings, services.metrics.prepare(wanted, way));
        let limits = gather(&mut findings, services.limits.prepare((&*config).into(), way));
        let outputs = OutputSteps::prepare(services, &config, events.flatten(), way);
        let outputs = gather(&mut findings, outputs);
        let followers = snapshot.as_ref().and_then(|snapshot| {
            gather(&mut findings, FollowerSteps::prepare(services, &config, snapshot, way))
        });
        let steps = match (outputs, tickets, limits, listeners, snapshot, followers, metrics) {
            (
                Some(outputs),
                Some(tickets),
                Some(limits),
                Some(listeners),
                Some(snapshot),
                Some(followers),
                Some(metrics),
            ) if denied.is_empty() => {
                Steps { outputs, tickets, limits, listeners, snapshot, followers, metrics }
            }
            (_, _, _, listeners, _, _, metrics) => {
                abandon(services, listeners.as_ref(), metrics.as_ref());
                return Err(sandbox::with_denied(denied, &findings.into()));
            }
        };
        let lines = diff.map(|diff| diff.to_string().lines().map(str::to_owned).collect());
        let new_certificates = services.snapshot.new_certificates(&steps.snapshot);
        let changes = Changes { lines: lines.unwrap_or_default(), new_certificates, needs_restart };
        Ok(Self { config, changes, steps })
    }

    /// Looks up the host names that are new, and fetches the keys of tokens that are new; bounded in time.
    pub(crate) async fn fetch(&self, fetches: &Fetches, log: &Log) {
        let keys = fetch_new(self.steps.followers.jwks.iter().cloned(), fetches, log);
        tokio::join!(self.steps.followers.resolver.look_up_new(log), keys);
    }

    /// Gives up what was opened for it.
    pub(crate) fn abandon(&self, services: &Services) {
        abandon(services, Some(&self.steps.listeners), Some(&self.steps.metrics));
    }
}

impl OutputSteps {
    fn prepare(
        services: &Services,
        config: &Arc<Config>,
        known: Option<Events>,
        way: Way,
    ) -> Result<Self, Vec<Finding>> {
        let mut findings = Vec::new();
        let log = gather(&mut findings, services.log.prepare(&config.telemetry.log, way));
        let wanted = EventsWanted { settings: (&**config).into(), known };
        let access_log = gather(&mut findings, services.access_log.prepare(wanted, way));
        let notify = gather(&mut findings, services.senders.notify.prepare(&config.telemetry.notify, way));
        let (Some(log), Some(access_log), Some(notify)) = (log, access_log, notify) else {
            return Err(findings);
        };
        let targets = PushTargets::of(&config.telemetry.metrics, &config.telemetry.tracing);
        let (store, push) =
            (services.store.prepare(config, way)?, services.senders.push.prepare(targets, way)?);
        Ok(Self { log, access_log, store, push, notify })
    }
}

impl FollowerSteps {
    fn prepare(
        services: &Services,
        config: &Arc<Config>,
        snapshot: &SnapshotStep,
        way: Way,
    ) -> Result<Self, Vec<Finding>> {
        let built = &snapshot.built;
        let in_use = InUse { store: &built.store, sources: &built.sources };
        Ok(Self {
            certificates: services.certificates.prepare(in_use, way)?,
            jwks: services.jwks.prepare(built.sources.access.providers().collect(), way)?,
            resolver: services.resolver.prepare(&built.names, way)?,
            acme: services.acme.prepare(AcmeWanted { config, wants: &built.wants }, way)?,
        })
    }
}

fn gather<T>(findings: &mut Vec<Finding>, outcome: Result<T, Vec<Finding>>) -> Option<T> {
    outcome.map_err(|found| findings.extend(found)).ok()
}

fn abandon(services: &Services, listeners: Option<&ListenersStep>, metrics: Option<&MetricsStep>) {
    listeners.into_iter().for_each(|step| services.listeners.abandon(step));
    metrics.into_iter().for_each(|step| services.metrics.abandon(step));
}
