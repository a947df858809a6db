//! Reload: the only way to change the running process.
//!
//! Everything that can fail happens first and changes nothing: reading, building, opening. Then the
//! change is made at once, in an order that leaves no gap: removed listeners stop, the snapshot is
//! replaced, new listeners begin. A refused reload changes nothing.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use offramp_certs::store::Store;
use offramp_config::model::{ServerState, Size};
use offramp_config::{At, Config, ConfigDiff, keep_until_restart};
use offramp_net::Address;
use offramp_net::process::Identity;
use offramp_observe::{EventStyle, Log, Output, Sink};
use offramp_proxy::Snapshot;
use offramp_tls::TicketKeys;
use offramp_upstream::Duty;

use crate::build::{Built, Contents, Inputs, Material, build_with};
use crate::certificates::OnFault;
use crate::change::{Settled, refused};
use crate::emptied;
use crate::error::{Error, Finding, none_or_refused};
use crate::history::{Kind, Requester};
use crate::inherited::Inherited;
use crate::jwks::fetch_new;
use crate::listeners::{self, Fresh, Opening, wanted};
use crate::metrics::{self, Endpoint};
use crate::outputs;
use crate::plan::{Plan, Wanted};
use crate::resolve::Resolver;
use crate::running::{Running, tell};
use crate::sandbox;
use crate::server::Origin;
use crate::servers;
use crate::unwritten::Unwritten;

/// How long workers accept what waits in the queue of a removed listener, before the snapshot forgets
/// it. Only a reload that removes a listener takes this time.
const SETTLE: Duration = Duration::from_millis(50);

/// What a reload changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// One line for each change of the configuration.
    pub lines: Vec<String>,
    /// How many certificates are in use that were not before.
    pub new_certificates: usize,
    /// Changed keys that keep their old value until the next start.
    pub needs_restart: Vec<&'static str>,
}

impl Changes {
    /// Whether everything is as it was.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.lines.is_empty() && self.new_certificates == 0 && self.needs_restart.is_empty()
    }
}

impl fmt::Display for Changes {
    /// On one line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.lines.is_empty() { f.write_str("none") } else { f.write_str(&self.lines.join("; ")) }
    }
}

impl Running {
    /// Reads the configuration again, and the certificates that it names. Changes nothing, and may be dropped.
    pub(crate) async fn read_again(&self) -> Result<Proposal, Error> {
        self.notifier.reloading();
        self.begins(Instant::now());
        let mut config = self.read()?;
        self.ends("parse_ms");
        none_or_refused(emptied::look(&self.config, &config))?;
        let needs_restart = keep_until_restart(&self.config, &mut config);
        let diff = ConfigDiff::between(&self.config, &config);
        self.ends("difference_ms");
        let proposal = self.propose(config, diff, needs_restart, true).await;
        self.ends("certificates_ms");
        proposal
    }

    /// Reads the files of a configuration, in which nothing frozen differs.
    pub(crate) async fn propose(
        &self,
        config: Config,
        diff: ConfigDiff,
        needs_restart: Vec<&'static str>,
        mint: bool,
    ) -> Result<Proposal, Error> {
        let denied = sandbox::beyond(&self.source, &config);
        let now = SystemTime::now();
        let before = self.ground.sources.clone();
        match self.read_material(&config, before, now, OnFault::Refuse, mint).await {
            Ok(material) => {
                let (contents, events) = (None, None);
                Ok(Proposal { config, needs_restart, diff, denied, material, now, mint, contents, events })
            }
            Err(error) => Err(sandbox::with_denied(denied, &error)),
        }
    }

    /// Applies what was read or keeps everything as it is, and reports which to the log and to the service manager.
    pub(crate) async fn reload(
        &mut self,
        proposal: Result<Proposal, Error>,
        by: Requester,
    ) -> Result<Changes, Error> {
        let outcome = match proposal {
            Ok(proposal) => self.change_to(proposal).await,
            Err(error) => Err(error),
        };
        let outcome = outcome.map_err(|error| sandbox::explain(&self.source, &error));
        if outcome.is_ok() {
            self.settle(Settled::Replaced);
            self.unwritten = Unwritten::none(&self.config);
        }
        self.remember(&outcome, Kind::Reload, by);
        let status = if outcome.is_ok() { "reloaded" } else { "reload refused: the log says why" };
        self.notifier.send(&format!("READY=1\nSTATUS={status}"));
        self.ends("commit_ms");
        self.tell_phases();
        outcome
    }

    /// Takes note of how a change ended, and says so in the log.
    pub(crate) fn remember(&mut self, outcome: &Result<Changes, Error>, kind: Kind, by: Requester) {
        let now = SystemTime::now();
        self.crew.reloads.note(outcome.is_ok(), now);
        self.acme.prompt();
        match outcome {
            Ok(changes) => self.log_changes(changes, kind, &by),
            Err(error) => {
                let reasons: Vec<String> = error.findings().iter().map(ToString::to_string).collect();
                let joined = reasons.join(" | ");
                let fields = [
                    ("faults", reasons.len().into()),
                    ("reasons", (&joined).into()),
                    ("by", by.as_str().into()),
                ];
                let message = match kind {
                    Kind::Reload => "reload refused; everything stays as it was",
                    _ => "change refused; everything stays as it was",
                };
                self.log.error(message, &fields);
            }
        }
        self.history.note(outcome, (kind, by), now);
        self.history.keep(&self.config);
        self.publish();
    }

    /// The configuration as its file has it now.
    pub(crate) fn read(&self) -> Result<Config, Error> {
        let Origin::File(path) = &self.source.origin else { return Ok(Config::clone(&self.config)) };
        let (config, warnings) =
            offramp_config::load(path, &self.source.environment).map_err(|errors| refused(&errors))?;
        tell(&self.log, "configuration", &warnings.iter().map(finding).collect::<Vec<_>>());
        Ok(config)
    }

    fn log_changes(&self, changes: &Changes, kind: Kind, by: &Requester) {
        let restart = changes.needs_restart.join(", ");
        let mut fields = vec![
            ("changes", changes.into()),
            ("new_certificates", changes.new_certificates.into()),
            ("by", by.as_str().into()),
        ];
        if !restart.is_empty() {
            fields.push(("needs_an_upgrade", (&restart).into()));
        }
        let message = match kind {
            Kind::Reload => "reloaded",
            _ => "configuration changed",
        };
        if kind != Kind::Reload {
            fields.push(("how", kind.as_str().into()));
        }
        self.log.info(message, &fields);
    }

    /// Changes to the configuration, in which nothing frozen differs.
    async fn change_to(&mut self, proposal: Proposal) -> Result<Changes, Error> {
        let ready = self.ready(proposal).await?;
        self.tell_warnings(ready.warnings());
        Ok(self.apply(ready, Sockets::Close).await)
    }

    /// Builds and opens everything, and changes nothing.
    pub(crate) async fn ready(&self, proposal: Proposal) -> Result<Ready, Error> {
        let Proposal { config, needs_restart, diff, denied, material, now, mint, contents, events } =
            proposal;
        let next = self.prepare(&config, denied, material, contents.as_ref(), (now, mint))?;
        self.ends("build_ms");
        let providers = next.built.sources.access.providers();
        let keys = fetch_new(providers, self.fetchers.fetches(), &self.log);
        tokio::join!(next.built.names.look_up_new(&self.log), keys);
        self.ends("names_ms");
        let changes = Changes {
            lines: diff.to_string().lines().map(str::to_owned).collect(),
            new_certificates: new_certificates(&self.ground.store, &next.built.store),
            needs_restart,
        };
        let servers = servers::look_here(&config, &Identity::current());
        self.ends("servers_ms");
        Ok(Ready { config, next, changes, servers, events })
    }

    /// Makes the change that is ready. Nothing in here is refused any more.
    pub(crate) async fn apply(&mut self, ready: Ready, sockets: Sockets) -> Changes {
        let Ready { config, next, changes, events, .. } = ready;
        self.commit(config, next, events, sockets).await;
        changes
    }

    /// The addresses that a change opens, and those that it closes.
    pub(crate) fn addresses_that_change(&self, ready: &Ready) -> (Vec<String>, Vec<String>) {
        let Next { plan, wanted, .. } = &ready.next;
        let opens = plan.open.iter().map(|at| wanted[*at].address.to_string());
        (opens.collect(), self.listening.closing(plan).map(ToString::to_string).collect())
    }

    /// Everything that can fail, with all that fails.
    fn prepare(
        &self,
        config: &Config,
        denied: Vec<Finding>,
        material: Material,
        contents: Option<&Contents>,
        (now, mint): (SystemTime, bool),
    ) -> Result<Next, Error> {
        let mut findings = Vec::new();
        let tickets = if config.tls.ticket_rotation == self.config.tls.ticket_rotation {
            Ok(Arc::clone(&self.ground.tickets))
        } else {
            TicketKeys::new(config.tls.ticket_rotation).map(Arc::new)
        };
        let tickets = tickets.map_err(|error| Error::one(error.to_string()))?;
        let current = self.crew.shared.current.load();
        let inputs = Inputs {
            now,
            generation: self.ground.generation + 1,
            choice: self.ground.choice,
            tickets: &tickets,
            names: &self.ground.names,
            backends: &current.backends,
            bandwidths: &current.bandwidths,
            sources: &self.ground.sources,
            contents,
            mint,
        };
        let built = build_with(config, &inputs, material).map_err(|error| error.findings().to_vec());
        let built = note(&mut findings, built);
        let (wanted, places) = wanted(config);
        let plan = self.listening.plan(&wanted);
        let fresh = self.open(&plan, &wanted, &places, &mut findings);
        let metrics = self.open_metrics(config, &mut findings);
        // On the way back an output that cannot be opened is told when the log moves, and holds up nothing.
        if contents.is_none() {
            self.try_outputs(config, &mut findings);
        }
        match built {
            Some(built) if findings.is_empty() && denied.is_empty() => {
                Ok(Next { built, tickets, plan, wanted, fresh, metrics })
            }
            _ => {
                fresh.iter().for_each(Fresh::abandon);
                if let Move::To(opened) = &metrics {
                    listeners::unlink(&opened.bound);
                }
                Err(sandbox::with_denied(denied, &findings.into()))
            }
        }
    }

    fn open(&self, plan: &Plan, wanted: &[Wanted], places: &[At], findings: &mut Vec<Finding>) -> Vec<Fresh> {
        let mut fresh = Vec::new();
        for at in &plan.open {
            let own = self.listening.closing(plan).chain(self.listening.reserved_addresses());
            let gives_way = own.into_iter().any(|own| overlap(own, &wanted[*at].address));
            let opening = match self.listening.reserved(&wanted[*at]) {
                Some(reserved) => Opening::Reserved(reserved),
                None if gives_way => Opening::BesideOwn,
                None => Opening::Alone,
            };
            match listeners::open(&wanted[*at], &places[*at], self.crew.workers.len(), opening) {
                Ok(opened) => fresh.push(opened),
                Err(finding) => findings.push(finding),
            }
        }
        fresh
    }

    fn open_metrics(&self, config: &Config, findings: &mut Vec<Finding>) -> Move {
        match (&config.metrics.endpoint, self.config.metrics.endpoint == config.metrics.endpoint) {
            (_, true) => Move::Stay,
            (None, false) => Move::Close,
            (Some(endpoint), false) => match metrics::open(endpoint, &mut Inherited::default()) {
                Ok(opened) => Move::To(opened),
                Err(finding) => {
                    findings.push(finding);
                    Move::Stay
                }
            },
        }
    }

    fn try_outputs(&self, config: &Config, findings: &mut Vec<Finding>) {
        let mut attempt = |changed: bool, output: Output| {
            if changed && let Err(error) = Sink::open(output) {
                findings.push(Finding::nowhere(error.to_string()));
            }
        };
        attempt(config.log != self.config.log, outputs::log(&config.log, self.source.journal).0);
        // What is wrong with its fields was found by the build.
        if let Ok((output, _)) = outputs::access_log(config, self.source.terminals) {
            attempt(config.access_log != self.config.access_log, output);
        }
    }

    /// Makes the change. Nothing in here is refused any more.
    async fn commit(&mut self, config: Config, next: Next, events: Option<Events>, sockets: Sockets) {
        let Next { built, tickets, plan, wanted, fresh, metrics } = next;
        let Built { mut snapshot, store, sources, names, contents, wants, warnings } = built;
        self.redirect(&config, events);
        // Before others are closed that take the same connections.
        fresh.iter().for_each(|fresh| fresh.begin(&self.log));
        if !plan.close.is_empty() {
            self.listening.close(&plan, &self.crew.workers, sockets == Sockets::Keep);
            tokio::time::sleep(SETTLE).await;
        }
        self.ground.generation = snapshot.generation;
        self.listening.assign(&plan, &wanted, &fresh, &mut snapshot);
        settle_servers(&config, &snapshot);
        self.crew.shared.current.replace(snapshot);
        self.crew.shared.admission.limit_changed();
        self.crew.shared.refusals.show(outputs::shown_clients(&config));
        self.crew.shared.pressure.bound(config.limits.process_memory.map(Size::bytes));
        let before = self.listening.addresses();
        self.listening.serve(&plan, &wanted, fresh, &self.crew.workers);
        self.announce_listening(&before);
        self.move_metrics(metrics);
        self.crew.page.counters.watch_clients(metrics::clients(&config));
        self.pushers.change(&config, &self.crew.page, &self.crew.spans, &self.log);
        self.retap(&config);
        self.fetchers.follow(sources.access.providers());
        self.resolver = Resolver::start(&names, &self.log);
        if !Arc::ptr_eq(&tickets, &self.ground.tickets) || config.tls.tickets != self.config.tls.tickets {
            self.calendar.set_rotation(rotation(&config));
        }
        self.calendar.set_certificates(&store, &sources);
        self.acme.configure(&config);
        self.acme.follow(&wants);
        (self.ground.tickets, self.ground.names) = (tickets, names);
        (self.ground.store, self.ground.sources) = (store, sources);
        (self.ground.contents, self.ground.warnings) = (contents, warnings);
        self.config = Arc::new(config);
    }

    fn redirect(&self, config: &Config, events: Option<Events>) {
        let mut outcome = Ok(());
        if config.log != self.config.log {
            let (output, format, level) = outputs::log(&config.log, self.source.journal);
            outcome = self.log.redirect(output, format);
            self.log.set_level(level);
        }
        // At the level debug a terminal gets long lines.
        if config.access_log != self.config.access_log || config.log.level != self.config.log.level {
            match events.map_or_else(|| outputs::access_log(config, self.source.terminals), Ok) {
                Ok((output, style)) => outcome = outcome.and(self.crew.flusher.redirect(output, style)),
                Err(error) => self.log.error(
                    "cannot open the new access log; the old one stays in use",
                    &[("error", (&error).into())],
                ),
            }
        }
        // They could be opened a moment ago.
        tell_output(&self.log, outcome);
    }

    /// Whoever takes events does it as the new configuration wants it.
    fn retap(&self, config: &Config) {
        let of = |config: &Config| (config.tracing.otlp.is_some(), config.access_log.anonymize);
        if of(config) != of(&self.config) {
            self.crew.tap(config);
        }
    }

    fn move_metrics(&mut self, metrics: Move) {
        match metrics {
            Move::Stay => {}
            Move::Close => self.metrics = None,
            Move::To(opened) => match Endpoint::serve(opened, self.crew.page.clone(), &self.log) {
                Ok(endpoint) => self.metrics = Some(endpoint),
                Err(error) => {
                    self.log.error(
                        "cannot open the new metrics endpoint; the old one stays in use",
                        &[("reason", (&error).into())],
                    );
                }
            },
        }
    }

    /// Reopens log files, after they were renamed.
    pub(crate) fn reopen(&self) {
        let outcome = self.log.reopen();
        if outcome.is_ok() {
            self.log.info("log files reopened", &[]);
        }
        tell_output(&self.log, outcome);
        self.crew.flusher.reopen();
    }
}

/// What was read for a reload.
pub(crate) struct Proposal {
    pub(crate) config: Config,
    /// Changed keys that keep their old value.
    pub(crate) needs_restart: Vec<&'static str>,
    /// What it names that the sandbox denies: it is refused, with what else is wrong.
    pub(crate) denied: Vec<Finding>,
    /// What is different from the configuration in force.
    pub(crate) diff: ConfigDiff,
    pub(crate) material: Material,
    /// The time by which the certificates were judged.
    pub(crate) now: SystemTime,
    /// Whether the local CA may issue; without, nothing is written.
    pub(crate) mint: bool,
    /// The files that routes answer with, as they were read before; `None`: they are read.
    pub(crate) contents: Option<Contents>,
    /// Where events go and how, where that was known before.
    pub(crate) events: Option<Events>,
}

/// Where events go, and how.
pub(crate) type Events = (Output, EventStyle);

/// What becomes of sockets that a change gives up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sockets {
    /// They are closed.
    Close,
    /// They are kept for the way back.
    Keep,
}

/// A change that everything is there for.
pub(crate) struct Ready {
    pub(crate) config: Config,
    pub(crate) changes: Changes,
    next: Next,
    /// What is odd about servers.
    servers: Vec<Finding>,
    events: Option<Events>,
}

impl Ready {
    /// What an operator should know: of certificates, and of the rest.
    pub(crate) fn warnings(&self) -> (&[Finding], &[Finding]) {
        (&self.next.built.warnings, &self.servers)
    }

    /// Gives up what was opened for it.
    pub(crate) fn abandon(&self) {
        self.next.fresh.iter().for_each(Fresh::abandon);
        if let Move::To(opened) = &self.next.metrics {
            listeners::unlink(&opened.bound);
        }
    }
}

/// What is ready to be put in force.
struct Next {
    built: Built,
    tickets: Arc<TicketKeys>,
    plan: Plan,
    wanted: Vec<Wanted>,
    fresh: Vec<Fresh>,
    metrics: Move,
}

/// What becomes of the metrics endpoint.
enum Move {
    Stay,
    Close,
    To(metrics::Opened),
}

/// Has the servers of a snapshot that comes into use do what the configuration wants: serve, drain, or nothing.
pub(crate) fn settle_servers(config: &Config, snapshot: &Snapshot) {
    let mut leaving: HashMap<&str, Vec<(String, Duty)>> = HashMap::new();
    for backend in &config.backends {
        for server in &backend.servers {
            let duty = match server.state {
                ServerState::Enabled => continue,
                ServerState::Drain => Duty::Drains,
                ServerState::Disabled => Duty::Disabled,
            };
            leaving.entry(backend.name.as_str()).or_default().push((server.address.to_string(), duty));
        }
    }
    for backend in &snapshot.backends {
        let leaving = leaving.get(&*backend.name).map_or(&[][..], Vec::as_slice);
        backend.settle(|server| {
            leaving.iter().find(|(name, _)| name == server).map_or(Duty::Serves, |(_, duty)| *duty)
        });
    }
}

/// How often ticket keys change, where there are tickets.
pub(crate) fn rotation(config: &Config) -> Option<Duration> {
    (config.tls.tickets.get() > 0).then_some(config.tls.ticket_rotation)
}

/// How many certificates of `new` are not in `old`.
pub(crate) fn new_certificates(old: &Store, new: &Store) -> usize {
    let known: HashSet<&[u8]> =
        old.certificates().filter_map(|one| one.certified_key.cert.first().map(AsRef::as_ref)).collect();
    let is_new = |der: &&[u8]| !known.contains(der);
    new.certificates()
        .filter_map(|one| one.certified_key.cert.first().map(AsRef::as_ref))
        .filter(is_new)
        .count()
}

/// Whether two addresses take some of the same connections, so that the second can only be opened beside the first.
fn overlap(one: &Address, other: &Address) -> bool {
    match (one, other) {
        (Address::Tcp(one), Address::Tcp(other)) => one.port() == other.port(),
        _ => one == other,
    }
}

fn note<T>(findings: &mut Vec<Finding>, outcome: Result<T, Vec<Finding>>) -> Option<T> {
    outcome.map_err(|found| findings.extend(found)).ok()
}

pub(crate) fn finding(problem: &offramp_config::Problem) -> Finding {
    let at = problem.place().map_or(At::NOWHERE, |place| place.clone().into());
    let text = match problem.remedy() {
        Some(remedy) => format!("{}; {remedy}", problem.message()),
        None => problem.message().to_owned(),
    };
    Finding { at, text }
}

fn tell_output(log: &Log, outcome: Result<(), offramp_observe::Error>) {
    if let Err(error) = outcome {
        log.error("cannot open the log; the old one stays in use", &[("reason", (&error).into())]);
    }
}
