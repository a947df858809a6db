//! What others see of the running process, from any thread and without waiting for the control loop.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use arc_swap::ArcSwap;
use offramp_certs::Certificate;
use offramp_config::Config;
use offramp_net::Address;
use offramp_net::clock::coarse_ms;
use offramp_observe::{Exposition, Notices};
use offramp_proxy::{Connections, Current};
use offramp_upstream::health::Progress;
use offramp_upstream::{Backend, Check, Duty, ServerHealth, Target};

use crate::history::History;
use crate::running::{Crew, Running};
use crate::server::Origin;

/// What there is to see. Cheap to clone.
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
}

/// The configuration in force, and what came of it.
#[derive(Clone, Debug)]
pub struct InForce {
    /// Its version; that of the start is 1.
    pub version: u64,
    /// It.
    pub config: Arc<Config>,
    /// Where connections are accepted, with the names of the listeners.
    pub listening: Vec<(String, Address)>,
    /// Where metrics are served.
    pub metrics: Option<Address>,
    /// Until when the latest change must be confirmed, if it must.
    pub confirm_until: Option<SystemTime>,
    /// Why the latest change could not be taken back yet, which nobody has confirmed.
    pub not_taken_back: Option<Arc<str>>,
    /// What is in force and not in the file: the lines of the difference.
    pub unwritten: Arc<[String]>,
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
    /// Whether it gets requests: `up`, `down`, `ejected`, `draining`, `disabled` or `unresolved`.
    pub state: &'static str,
    /// Why, in one sentence.
    pub why: String,
    /// How its health checks went, where there are any.
    pub check: Option<CheckView>,
    /// Its share.
    pub weight: u16,
    /// Whether it is used only when no other works.
    pub backup: bool,
    /// Requests and relayed connections on it.
    pub active: u32,
    /// Where connections to it go: of a host name, the addresses that it has now.
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
    /// Why the latest check failed; `None` if it succeeded.
    pub error: Option<String>,
}

impl View {
    /// Of a process that is about to serve.
    pub(crate) fn new(config: &Arc<Config>, crew: &Crew, history: &History, origin: &Origin) -> Self {
        let in_force = InForce {
            version: history.version(),
            config: Arc::clone(config),
            listening: Vec::new(),
            metrics: None,
            confirm_until: None,
            not_taken_back: None,
            unwritten: Arc::default(),
        };
        let file = match origin {
            Origin::File(path) => Some(path.clone()),
            Origin::CommandLine => None,
        };
        Self(Arc::new(Inner {
            in_force: ArcSwap::from_pointee(in_force),
            current: crew.shared.current.clone(),
            page: crew.page.clone(),
            notices: crew.shared.refusals.notices().clone(),
            history: history.clone(),
            file,
            workers: crew.workers.len(),
            connections: Connections::of(&crew.workers),
        }))
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

    /// What happens to the process as a whole.
    #[must_use]
    pub fn notices(&self) -> &Notices {
        &self.0.notices
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

    /// How many workers there are.
    #[must_use]
    pub fn workers(&self) -> usize {
        self.0.workers
    }

    /// The connections that are open.
    #[must_use]
    pub fn connections(&self) -> &Connections {
        &self.0.connections
    }

    /// The certificates in use.
    #[must_use]
    pub fn certificates(&self) -> Vec<Arc<Certificate>> {
        let snapshot = self.0.current.load();
        // All listeners have the same store.
        let store = snapshot.listeners.values().find_map(|listener| listener.tls.as_ref());
        store.map_or_else(Vec::new, |tls| tls.store.certificates().cloned().collect())
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
fn named(backend: &offramp_config::model::Backend, built: Option<&Backend>, now: u64) -> BackendView {
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
        Target::Fixed(address) => vec![address.to_string()],
        Target::Resolved(cell) => cell.load().iter().map(ToString::to_string).collect(),
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

fn checked(check: &Check, health: &ServerHealth) -> CheckView {
    let Progress { row, fault } = health.probes();
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

/// Why a server is down.
const FAILS: &str = "it fails its health checks";

fn of_down(check: &CheckView) -> String {
    match &check.error {
        _ if check.passed > 0 => format!("{FAILS}: {} of {} passed by now", check.passed, check.rise),
        Some(error) => format!("{FAILS}: {error}"),
        None => FAILS.to_owned(),
    }
}

impl Running {
    /// Shows others what is in force now.
    pub(crate) fn publish(&self) {
        self.view.0.in_force.store(Arc::new(InForce {
            version: self.history.version(),
            config: Arc::clone(&self.config),
            listening: self.listening.addresses(),
            metrics: self.metrics.as_ref().map(|metrics| metrics.address().clone()),
            confirm_until: self.unconfirmed_until(),
            not_taken_back: self.not_taken_back(),
            unwritten: Arc::clone(self.unwritten.lines()),
        }));
    }
}
