//! What others see of the running process, from any thread and without waiting for the control loop.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use arc_swap::ArcSwap;
use offramp_certs::store::{MatchKind, Pick};
use offramp_certs::{Certificate, DnsPattern};
use offramp_config::Config;
use offramp_net::Address;
use offramp_net::clock::coarse_ms;
use offramp_observe::{Exposition, Notices};
use offramp_process::Origin;
use offramp_proxy::{Connections, Current, HelloTrial, Refusals};
use offramp_upstream::health::ProbeProgress;
use offramp_upstream::{Backend, Duty, ProbeSettings, ServerHealth, UpstreamAddress};

use crate::acme::{CertificateOutlook, NameOrders, NameReach, OrderDesk};
use crate::data_plane::DataPlane;
use crate::history::History;
use crate::notify::{NotifyRegistry, ReceiverView, TrialOutcome};

/// The process as other threads see it. Cheap to clone.
#[derive(Clone)]
pub struct View(Arc<Inner>);

struct Inner {
    in_force: ArcSwap<InForce>,
    current: Current,
    page: Exposition,
    notices: Notices,
    history: History,
    file: Option<PathBuf>,
    workers: usize,
    connections: Connections,
    refusals: Arc<Refusals>,
    registry: Arc<NotifyRegistry>,
    orders: OrderDesk,
}

/// The configuration in force, and what came of it.
#[derive(Clone, Debug)]
pub struct InForce {
    /// Its version; that of the start is 1.
    pub version: u64,
    /// It.
    pub config: Arc<Config>,
    /// Its text with comments, as a file would have it.
    pub text: Arc<str>,
    /// The addresses of listeners, with their names.
    pub listening: Vec<(String, Address)>,
    /// The address of the metrics.
    pub metrics: Option<Address>,
    /// Until when the latest change must be confirmed, if it must.
    pub confirm_until: Option<SystemTime>,
    /// The reason why the latest change, which was not confirmed, could not be taken back yet.
    pub not_taken_back: Option<Arc<str>>,
    /// The differences from the file, line by line.
    pub unwritten: Arc<[String]>,
    /// The reason why it is not saved for `run --resume`.
    pub unsaved: Option<Arc<str>>,
}

/// The servers of a backend.
#[derive(Clone, Debug)]
pub struct BackendView {
    /// The name, or the address of a server that is written in a route.
    pub name: String,
    /// Its servers, in the order of the configuration.
    pub servers: Vec<ServerView>,
}

/// A server.
#[derive(Clone, Debug)]
pub struct ServerView {
    /// Its address as configured.
    pub name: String,
    /// Its part in requests: `up`, `down`, `ejected`, `draining`, `disabled` or `unresolved`.
    pub state: &'static str,
    /// The reason, in one sentence.
    pub why: String,
    /// The outcome of its health checks, where there are any.
    pub check: Option<CheckView>,
    /// Its share.
    pub weight: u16,
    /// Set if it is used only when no other works.
    pub backup: bool,
    /// Requests and relayed connections on it.
    pub active: u32,
    /// The addresses of its connections: of a host name, the addresses that it has now.
    pub addresses: Vec<String>,
}

/// The health checks of a server since its state changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckView {
    /// Checks in a row that failed, of a server that is up.
    pub failed: u32,
    /// So many bring it down.
    pub fall: u32,
    /// Checks in a row that succeeded, of a server that is down.
    pub passed: u32,
    /// So many bring it up.
    pub rise: u32,
    /// The reason why the latest check failed; `None` if it succeeded.
    pub error: Option<String>,
}

impl View {
    /// Of a process that is about to serve.
    pub(crate) fn new(
        config: &Arc<Config>,
        plane: &DataPlane,
        history: &History,
        origin: &Origin,
        registry: &Arc<NotifyRegistry>,
        orders: OrderDesk,
    ) -> Self {
        let in_force = InForce {
            version: history.version(),
            config: Arc::clone(config),
            text: Arc::default(),
            listening: Vec::new(),
            metrics: None,
            confirm_until: None,
            not_taken_back: None,
            unwritten: Arc::default(),
            unsaved: None,
        };
        let file = match origin {
            Origin::File(path) => Some(path.clone()),
            Origin::CommandLine => None,
        };
        Self(Arc::new(Inner {
            in_force: ArcSwap::from_pointee(in_force),
            current: plane.shared.current.clone(),
            page: plane.page.clone(),
            notices: plane.shared.refusals.notices().clone(),
            history: history.clone(),
            file,
            workers: plane.workers.len(),
            connections: Connections::of(&plane.workers),
            refusals: Arc::clone(&plane.shared.refusals),
            registry: Arc::clone(registry),
            orders,
        }))
    }

    /// Shows what is in force now.
    pub(crate) fn publish(&self, in_force: InForce) {
        self.0.in_force.store(Arc::new(in_force));
    }

    /// The configuration in force.
    #[must_use]
    pub fn in_force(&self) -> Arc<InForce> {
        self.0.in_force.load_full()
    }

    /// The latest changes.
    #[must_use]
    pub fn history(&self) -> &History {
        &self.0.history
    }

    /// Events of the process as a whole.
    #[must_use]
    pub fn notices(&self) -> &Notices {
        &self.0.notices
    }

    /// The number of clients and requests that each limit has refused, by the names that the metrics have.
    #[must_use]
    pub fn limit_refusals(&self) -> Vec<(&'static str, u64)> {
        let refusals = &self.0.refusals;
        let limits = refusals.totals().map(|(cause, count)| (cause.name(), count));
        limits.chain([("memory", refusals.for_memory())]).collect()
    }

    /// The receivers of notifications.
    #[must_use]
    pub fn receivers(&self) -> Vec<ReceiverView> {
        self.0.registry.receivers()
    }

    /// Sends a message to the receiver of notifications of this name, to see if it arrives; nothing without one of this
    /// name. Takes ten seconds at most.
    pub async fn try_receiver(&self, name: &str) -> Option<TrialOutcome> {
        self.0.registry.try_out(name).await
    }

    /// Every figure.
    #[must_use]
    pub fn figures(&self) -> &Exposition {
        &self.0.page
    }

    /// The file that a reload reads.
    #[must_use]
    pub fn file(&self) -> Option<&PathBuf> {
        self.0.file.as_ref()
    }

    /// The number of workers.
    #[must_use]
    pub fn workers(&self) -> usize {
        self.0.workers
    }

    /// The connections that are open.
    #[must_use]
    pub fn connections(&self) -> &Connections {
        &self.0.connections
    }

    /// The verdict on the ClientHello in `records` that comes to a listener; without an address of the client, the rules
    /// for addresses are left out. `None` for a listener without TLS, or that is unknown.
    #[must_use]
    pub fn rehearse(&self, listener: &str, records: &[u8], client: Option<IpAddr>) -> Option<HelloTrial> {
        let snapshot = self.0.current.load();
        offramp_proxy::rehearse(snapshot.listeners.get(listener)?, records, client)
    }

    /// The certificates in use.
    #[must_use]
    pub fn certificates(&self) -> Vec<Arc<Certificate>> {
        let snapshot = self.0.current.load();
        // All listeners have the same store.
        let store = snapshot.listeners.values().find_map(|listener| listener.tls.as_ref());
        store.map_or_else(Vec::new, |tls| tls.store.certificates().cloned().collect())
    }

    /// The orders of the certificate with these names, or of those with some of them.
    #[must_use]
    pub fn outlook(&self, names: &[String]) -> CertificateOutlook {
        self.0.orders.outlook(names)
    }

    /// The certificate that clients of `name` get, and how it is found; `None` if none is served.
    #[must_use]
    pub fn certificate_of(&self, name: &DnsPattern) -> Option<(Arc<Certificate>, MatchKind)> {
        let snapshot = self.0.current.load();
        let store = &snapshot.listeners.values().find_map(|listener| listener.tls.as_ref())?.store;
        if name.is_wildcard() {
            let mut certificates = store.certificates();
            let found = certificates.find(|certificate| certificate.names.contains(name))?;
            return Some((Arc::clone(found), MatchKind::Exact));
        }
        match store.pick(Some(name.host()), &[]) {
            Pick::Found { certificate, by } => Some((Arc::clone(certificate), by)),
            Pick::NoneForName => None,
        }
    }

    /// The orders of certificates for `name`. Reads a few small files.
    #[must_use]
    pub fn orders(&self, name: &DnsPattern) -> NameOrders {
        self.0.orders.of(name)
    }

    /// Looks at `name` as an authority does: its addresses, their ports 80 and 443, its CAA records. Takes a few seconds;
    /// `None` if several others look now.
    pub async fn reach(&self, name: &str) -> Option<NameReach> {
        self.0.orders.reach(name).await
    }

    /// The backends, those of one server that are written in routes included, and how their servers fare.
    #[must_use]
    pub fn backends(&self) -> Vec<BackendView> {
        let (in_force, snapshot) = (self.in_force(), self.0.current.load());
        let now = coarse_ms();
        let written = &in_force.config.backends;
        let mut built: HashMap<&str, &Backend> = HashMap::with_capacity(snapshot.backends.len());
        for backend in &snapshot.backends {
            built.entry(&*backend.name).or_insert(backend);
        }
        let named =
            written.iter().map(|backend| named(backend, built.get(backend.name.as_str()).copied(), now));
        let names: HashSet<&str> = written.iter().map(|backend| backend.name.as_str()).collect();
        let inline = snapshot.backends.iter().filter(|backend| !names.contains(&*backend.name));
        let inline = inline.map(|backend| BackendView {
            name: backend.name.to_string(),
            servers: (0..backend.servers.len()).map(|at| server(backend, at, now)).collect(),
        });
        named.chain(inline).collect()
    }
}

/// A backend of the configuration, as it was built.
fn named(backend: &offramp_config::model::BackendConfig, built: Option<&Backend>, now: u64) -> BackendView {
    // A snapshot that is just being replaced may lack one that is new.
    let servers = backend.servers.iter().filter_map(|written| {
        let name = written.address.to_string();
        let at = built.and_then(|built| built.servers.iter().position(|server| *server.name == *name));
        let mut view = server(built?, at?, now);
        (view.weight, view.backup) = (written.weight.get(), written.backup);
        Some(view)
    });
    BackendView { name: backend.name.to_string(), servers: servers.collect() }
}

fn server(backend: &Backend, at: usize, now: u64) -> ServerView {
    let (server, health) = (&backend.servers[at], &backend.health[at]);
    let addresses = match &server.target {
        UpstreamAddress::Fixed(address) => vec![address.to_string()],
        UpstreamAddress::Resolved(cell) => cell.load().iter().map(ToString::to_string).collect(),
    };
    let check = backend.check.as_ref().map(|check| checked(check, health));
    let (state, why) = state(check.as_ref(), health, addresses.is_empty(), now);
    ServerView {
        name: server.name.to_string(),
        state,
        why,
        check,
        weight: 1,
        backup: false,
        active: health.in_flight(),
        addresses,
    }
}

fn checked(check: &ProbeSettings, health: &ServerHealth) -> CheckView {
    let ProbeProgress { row, fault } = health.probes();
    let (failed, passed) = if health.is_down() { (0, row) } else { (row, 0) };
    CheckView {
        failed,
        fall: check.fall,
        passed,
        rise: check.rise,
        error: fault.map(|fault| fault.to_string()),
    }
}

fn state(
    check: Option<&CheckView>,
    health: &ServerHealth,
    nowhere: bool,
    now: u64,
) -> (&'static str, String) {
    let (state, why) = if health.duty() == Duty::Disabled {
        ("disabled", "the configuration has disabled it")
    } else if health.duty() == Duty::Drains {
        ("draining", "it finishes what it has and gets nothing new, as the configuration has it")
    } else if nowhere {
        ("unresolved", "its host name has no address")
    } else if health.is_down() {
        return ("down", check.map_or_else(|| FAILS.to_owned(), of_down));
    } else if health.is_ejected(now) {
        ("ejected", "requests to it failed in a row: it is left alone for a while")
    } else if let Some(check) = check.filter(|check| check.failed > 0) {
        let error = check.error.as_deref().unwrap_or("the reason is not known");
        return ("up", format!("{} of {} checks failed: {error}", check.failed, check.fall));
    } else if check.is_some() {
        ("up", "it passes its health checks, or was not checked yet")
    } else {
        ("up", "nothing checks it, and requests to it do not fail in a row")
    };
    (state, why.to_owned())
}

/// The reason why a server is down.
const FAILS: &str = "it fails its health checks";

fn of_down(check: &CheckView) -> String {
    match &check.error {
        _ if check.passed > 0 => format!("{FAILS}: {} of {} passed by now", check.passed, check.rise),
        Some(error) => format!("{FAILS}: {error}"),
        None => FAILS.to_owned(),
    }
}
