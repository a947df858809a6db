//! From a configuration and the files on disk to a snapshot.
//!
//! Every build reads all files again, so that it finds renewed certificates. It changes nothing of the
//! running process: the caller decides what to do with the result. It reports all faults at once.

mod backends;
mod bandwidths;
mod canary;
mod certificates;
mod chosen;
mod coverage;
mod http;
mod routes;
mod server_tls;
mod ties;
mod tls;
mod trust;

use std::collections::HashMap;
use std::num::{NonZeroU32, NonZeroU64};
use std::sync::Arc;
use std::time::SystemTime;

use offramp_certs::store::CertificateStore;
use offramp_config::model::{self, Size};
use offramp_config::{At, Config};
use offramp_net::process::{UserIdentity, is_root};
use offramp_process::{Error, Finding, Findings, descriptors, none_or_refused};
use offramp_proxy::limit::Quota;
use offramp_proxy::snapshot::{ListenerTls, Preamble, Strangers};
use offramp_proxy::{Bandwidths, ClientLimits, Listener, Network, RouteTable, Snapshot, Tracing};
use offramp_record::aead::Library;
use offramp_record::{LibraryChoice, RecordSize};
use offramp_sources::access::RuleSets;
use offramp_sources::certificates::{OnFault, Sources};
use offramp_sources::contents::Contents;
use offramp_sources::resolve::Names;
use offramp_tls::TicketKeys;
use offramp_upstream::Backend;

pub(crate) use self::certificates::Material;
pub use self::chosen::{BuiltRoutes, ChosenRoute};
use self::http::Ways;
pub(crate) use self::routes::name as route_name;
use crate::acme::Want;
use crate::notify;
use crate::outputs;
use crate::servers;
use backends::Backends;
use tls::Termination;

/// The parts of a snapshot beside the configuration.
pub(crate) struct Inputs<'a> {
    /// The time by which certificates are judged.
    pub(crate) now: SystemTime,
    /// Rises with every snapshot.
    pub(crate) generation: u64,
    /// The AEAD library for each suite.
    pub(crate) choice: LibraryChoice,
    /// The keys of session tickets, which outlive snapshots.
    pub(crate) tickets: &'a Arc<TicketKeys>,
    /// The host names that are known already.
    pub(crate) names: &'a Names,
    /// The backends of the snapshot before: what was learnt of their servers goes on.
    pub(crate) backends: &'a [Arc<Backend>],
    /// The bandwidths of the snapshot before: what clients have moved goes on.
    pub(crate) bandwidths: &'a Bandwidths,
    /// The sources of certificates as they were read before.
    pub(crate) sources: &'a Sources,
    /// The files that routes answer with, where they are not to be read again.
    pub(crate) contents: Option<&'a Contents>,
    /// Set if the local CA may be created and may issue; without, nothing is written.
    pub(crate) mint: bool,
}

/// Looks at everything that `config` names, as a start or a reload would, and writes nothing. What
/// only they can find out is not asked for: whether an address is free, whether a server answers.
/// Returns what is worth a warning.
///
/// # Errors
/// Everything that they would be refused for.
pub fn check(config: &Config, now: SystemTime) -> Result<Vec<Finding>, Error> {
    let identity = config
        .process
        .user
        .as_ref()
        .filter(|_| is_root())
        .and_then(|user| UserIdentity::find(&user.name).ok());
    let mut warnings = servers::look(config, &identity.unwrap_or_else(UserIdentity::current));
    with_inputs(config, now, |inputs| {
        let mut errors = notify::wrong_files(&config.telemetry.notify);
        match build(config, inputs) {
            Ok(built) => warnings.splice(0..0, built.warnings).for_each(drop),
            Err(error) => errors.splice(0..0, error.findings().iter().cloned()).for_each(drop),
        }
        none_or_refused(errors).map(|()| warnings)
    })
}

/// Reads the files that `config` names, and says what is wrong with each. For a configuration with mistakes, of
/// which parts are missing: nothing is held against anything else.
///
/// # Errors
/// Everything that a start would be refused for.
pub fn check_files(config: &Config, now: SystemTime) -> Result<Vec<Finding>, Error> {
    with_inputs(config, now, |inputs| {
        let mut report = Findings { errors: outputs::prepare(config, false), ..Findings::default() };
        let material = Material::read(config, inputs.sources, now, OnFault::Refuse, false);
        report.errors.extend(notify::wrong_files(&config.telemetry.notify));
        report.errors.extend(material.errors);
        report.warnings.extend(material.warnings);
        none_or_refused(report.errors).map(|()| report.warnings)
    })
}

/// Does `what` with inputs by which nothing is written anywhere.
fn with_inputs<T>(
    config: &Config,
    now: SystemTime,
    what: impl FnOnce(&Inputs<'_>) -> Result<T, Error>,
) -> Result<T, Error> {
    let tickets = TicketKeys::new(config.tls.ticket_rotation);
    let tickets = Arc::new(tickets.map_err(|error| Error::one(error.to_string()))?);
    let choice = LibraryChoice::always(Library::AwsLc);
    let names = Names::default();
    let sources = Sources::default();
    let (tickets, names, sources) = (&tickets, &names, &sources);
    what(&Inputs {
        now,
        generation: 0,
        choice,
        tickets,
        names,
        backends: &[],
        bandwidths: &Bandwidths::new(),
        sources,
        contents: None,
        mint: false,
    })
}

/// A snapshot and what goes with it.
pub(crate) struct Built {
    /// The snapshot for workers.
    pub(crate) snapshot: Snapshot,
    /// The certificates in it.
    pub(crate) store: Arc<CertificateStore>,
    /// The sources that were read for it.
    pub(crate) sources: Sources,
    /// The host names in it; new ones have no addresses yet.
    pub(crate) names: Names,
    /// The files that routes answer with.
    pub(crate) contents: Contents,
    /// The certificates that authorities are to issue.
    pub(crate) wants: Vec<Want>,
    /// Warnings, which stop nothing.
    pub(crate) warnings: Vec<Finding>,
}

/// A snapshot that serves nothing: the one before the first.
pub(crate) fn nothing() -> Snapshot {
    let default = model::Limits::default();
    Snapshot {
        generation: 0,
        listeners: HashMap::new(),
        sockets: HashMap::new(),
        backends: Vec::new(),
        limits: limits(&default, default.connections),
        record_size: RecordSize::Adaptive,
        choice: LibraryChoice::always(Library::AwsLc),
        bandwidths: Bandwidths::new(),
        tracing: None,
    }
}

/// Builds the snapshot of `config`.
///
/// # Errors
/// Everything that cannot be used: certificates, keys, authorities, the local CA.
pub(crate) fn build(config: &Config, inputs: &Inputs<'_>) -> Result<Built, Error> {
    let material = Material::read(config, inputs.sources, inputs.now, OnFault::Refuse, inputs.mint);
    build_with(config, inputs, material)
}

/// Builds the snapshot of `config` with what was read for it.
///
/// # Errors
/// As [`build`].
pub(crate) fn build_with(
    config: &Config,
    inputs: &Inputs<'_>,
    mut material: Material,
) -> Result<Built, Error> {
    let mut report = Findings::default();
    report.errors.extend(outputs::prepare(config, inputs.mint));
    report.warnings.append(&mut material.warnings);
    if material.errors.is_empty() {
        coverage::look(config, &material.store, &material.wants, &mut report);
    }
    contacts(config, &mut report);
    report.errors.append(&mut material.errors);
    assemble(config, inputs, material, report)
}

/// Warns of public authorities without a contact address. One with an account elsewhere has its address.
fn contacts(config: &Config, report: &mut Findings) {
    for authority in config.asked_authorities() {
        if authority.ca.is_none() && authority.eab.is_none() && authority.email.is_none() {
            let name = &authority.name;
            let text = format!("{name} has no contact for the account; add `email` in [acme.{name}]");
            report.warn(&authority.at, text);
        }
    }
}

/// Builds the snapshot of `config`, which is in force, with other certificates.
///
/// # Errors
/// What cannot be used; of the rest of the configuration everything could be before.
pub(crate) fn rebuild(config: &Config, inputs: &Inputs<'_>, material: Material) -> Result<Built, Error> {
    assemble(config, inputs, material, Findings::default())
}

/// The parts of a snapshot that its listeners and routes share while it is built.
struct Assembly<'c> {
    config: &'c Config,
    backends: Backends<'c>,
    access: RuleSets<'c>,
    bandwidths: Bandwidths,
    termination: Termination<'c>,
    contents: Contents,
    report: Findings,
}

fn assemble(
    config: &Config,
    inputs: &Inputs<'_>,
    material: Material,
    mut report: Findings,
) -> Result<Built, Error> {
    let Material { store, sources, wants, .. } = material;
    let mut parts = Assembly {
        config,
        backends: Backends::of(config, inputs, &sources, &mut report),
        access: RuleSets::new(&sources.access),
        bandwidths: bandwidths::bandwidths(config, inputs.bandwidths),
        termination: Termination::new(&config.tls, &store, inputs.tickets, &sources),
        contents: inputs.contents.map(Contents::again).unwrap_or_default(),
        report,
    };
    let tables = routes::tables(&mut parts);
    let mut listeners = HashMap::new();
    for (listener, routes) in config.listeners.iter().zip(tables) {
        let tls = if listener.tls { listener_tls(&mut parts, listener, &store) } else { None };
        let (routes, http) = match listener.mode {
            model::Mode::Tcp => (routes, None),
            model::Mode::Http => {
                let Ways { rules, http } = http::ways(&mut parts, listener);
                (rules, Some(http))
            }
        };
        let name: Arc<str> = listener.name.as_str().into();
        let network = |range: &model::Cidr| Network::new(range.address(), range.prefix());
        let accept_proxy = listener.accept_proxy.iter().map(network).collect();
        let routes = RouteTable::new(routes);
        let addresses = parts.access.rules(&listener.networks);
        let built = Listener { name: Arc::clone(&name), accept_proxy, addresses, tls, routes, http };
        listeners.insert(name, Arc::new(built));
    }
    let Assembly { backends, bandwidths, contents, mut report, .. } = parts;
    let tracing = tracing(&config.telemetry.tracing, &mut report);
    report.say_once();
    none_or_refused(report.errors)?;
    let (backends, names) = backends.finish();
    let snapshot = Snapshot {
        generation: inputs.generation,
        listeners,
        sockets: HashMap::new(),
        backends,
        limits: limits(&config.limits, descriptors::connections(config)),
        record_size: record_size(config.tls.record_size),
        choice: inputs.choice,
        bandwidths,
        tracing,
    };
    Ok(Built { snapshot, store, sources, names, contents, wants, warnings: report.warnings })
}

fn listener_tls(
    parts: &mut Assembly<'_>,
    listener: &model::ListenerConfig,
    store: &Arc<CertificateStore>,
) -> Option<ListenerTls> {
    let Assembly { config, termination, report, .. } = parts;
    let terms = termination.terms(&model::RouteTls::default(), &[], None, &At::NOWHERE, report)?;
    let clear_cancel = listener.cancel == model::PostgresCancel::Clear;
    let preamble =
        listener.preamble.map(|model::PreambleProtocol::Postgres| Preamble::Postgres { clear_cancel });
    let refuses = |what| what == model::Nameless::Refuse;
    let strangers = Strangers {
        without_name: refuses(config.tls.no_server_name),
        unknown_name: refuses(config.tls.unknown_name),
    };
    Some(ListenerTls {
        strangers,
        preamble,
        store: Arc::clone(store),
        fallback: terms.configs,
        ja4: outputs::tell_ja4(&config.telemetry.access_log, config.telemetry.log.level),
    })
}

/// The tracing of requests: none without a collector.
fn tracing(tracing: &model::TracingConfig, report: &mut Findings) -> Option<Tracing> {
    tracing.otlp.as_ref()?;
    if !cfg!(feature = "otlp") {
        report.error(&At::NOWHERE, WITHOUT_OTLP);
    }
    // The language has no 0.
    Some(Tracing { sample_one_in: NonZeroU32::new(tracing.sample_one_in).unwrap_or(NonZeroU32::MIN) })
}

const WITHOUT_OTLP: &str = "tracing.otlp: this program was built without the feature `otlp`, so that it cannot \
    tell a collector anything; leave [tracing] out, or build it without `--no-default-features`";

/// The limits of a snapshot, with so many connections at most.
fn limits(limits: &model::Limits, connections: u32) -> ClientLimits {
    let rate = |rate: offramp_config::Rate| Quota { count: rate.count.get(), per: rate.per.duration() };
    ClientLimits {
        connections,
        connections_per_client: limits.connections_per_client,
        handshakes_per_client: limits.handshakes_per_client.map(rate),
        bandwidth_per_client: limits.bandwidth_per_client.map(Size::bytes).and_then(NonZeroU64::new),
        handshake_timeout: limits.handshake_timeout,
        idle_timeout: limits.idle_timeout,
        max_age: limits.max_age,
        max_age_grace: limits.max_age_grace,
    }
}

fn record_size(size: model::RecordSizePolicy) -> RecordSize {
    match size {
        model::RecordSizePolicy::Adaptive => RecordSize::Adaptive,
        model::RecordSizePolicy::Fixed(bytes) => RecordSize::Fixed(bytes.get()),
    }
}

#[cfg(test)]
mod tests;
