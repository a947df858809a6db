//! Warnings of a change: everything that is odd about the new configuration and was not about the one in force.

use std::collections::{HashMap, HashSet};

use offramp_config::Config;
use offramp_config::model::{BackendConfig, BackendServer, ListenAddress, ServerState};
use offramp_net::process::UserIdentity;
use offramp_observe::Log;
use offramp_process::{Finding, log_warnings};

use crate::history::Kind;
use crate::plan::Plan;
use crate::running::Running;
use crate::servers;
use crate::view::View;

/// The warnings of a change.
pub(crate) struct Warnings {
    /// Of certificates: those that are new.
    certificates: Vec<Finding>,
    /// Of everything else: those that are new.
    rest: Vec<Finding>,
    /// Warnings of the configuration in force, which a reload logs once more.
    known: Known,
}

#[derive(Default)]
struct Known {
    certificates: Vec<Finding>,
    servers: Vec<Finding>,
}

impl Warnings {
    /// The warnings of a plan; `rest` are those of its text.
    pub(crate) fn of(running: &Running, plan: &Plan, mut rest: Vec<Finding>, kind: Kind) -> Self {
        let in_force = running.config();
        let carryover = &running.services.snapshot.carryover;
        let (certificates, known_certificates) =
            split(&plan.steps.snapshot.built.warnings, &carryover.warnings);
        let (servers, known_servers) = split(&of_servers(&plan.config), &of_servers(in_force));
        rest.extend(servers);
        rest.extend(left_to_none(in_force, &plan.config, &running.view));
        rest.extend(admin_moves(in_force, &plan.changes.needs_restart));
        if kind != Kind::Reload {
            return Self { certificates, rest, known: Known::default() };
        }
        rest.extend(discarded(running));
        Self { certificates, rest, known: Known { certificates: known_certificates, servers: known_servers } }
    }

    /// The new ones, a line for each.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.rest.iter().chain(&self.certificates).map(ToString::to_string).collect()
    }

    /// Logs them.
    pub(crate) fn log(&self, log: &Log) {
        for certificates in [&self.certificates, &self.known.certificates] {
            log_warnings(log, "certificate", certificates);
        }
        for rest in [&self.rest, &self.known.servers] {
            log_warnings(log, "configuration", rest);
        }
    }
}

/// The warnings of the servers of a configuration, for this process.
pub(crate) fn of_servers(config: &Config) -> Vec<Finding> {
    servers::look_here(config, &UserIdentity::current())
}

/// Those that are not known, and those that are.
fn split(all: &[Finding], known: &[Finding]) -> (Vec<Finding>, Vec<Finding>) {
    let known: HashSet<&str> = known.iter().map(|one| one.text.as_str()).collect();
    all.iter().cloned().partition(|one| !known.contains(one.text.as_str()))
}

/// The warning of a reload that it replaces a change that waits to be confirmed.
fn discarded(running: &Running) -> Option<Finding> {
    let waiting = running.ledger.waiting()?;
    let version = waiting.version.map(|version| format!(" (version {version})")).unwrap_or_default();
    Some(Finding::nowhere(format!(
        "a change{version} waits to be confirmed; reading the file again replaces it, and it is not kept"
    )))
}

/// The warning of a change that would cut off its requester, if it did not need an upgrade.
const ADMIN_STAYS: &str = "[admin] stays as it is until the next upgrade or start; then `offramp ctl` reaches Offramp as the new one says, or not at all";

/// The warnings of keys that keep their value until an upgrade or a start, and then may cut off the requester.
fn admin_moves(config: &Config, keys: &[&str]) -> Vec<Finding> {
    let admin = &config.admin;
    let mut all = Vec::new();
    if keys.iter().any(|key| key.starts_with("admin.")) {
        all.push(ADMIN_STAYS.to_owned());
    }
    let address = admin.endpoint.as_ref().map(|endpoint| &endpoint.address);
    if admin.enabled && keys.contains(&"state_dir") && address.is_none() {
        let socket = config.admin_socket();
        all.push(format!(
            "`state_dir` stays as it is until the next upgrade or start; then the admin socket is in the new directory, and \
             {} is gone: `offramp ctl` finds it by the new configuration",
            socket.display()
        ));
    }
    if admin.enabled && keys.contains(&"user") && !matches!(address, Some(ListenAddress::Ip(_))) {
        all.push(
            "`user` stays as it is until the next start, or until the next upgrade if Offramp runs as root; then the admin \
             socket is for root and the new user, who must be able to write to its directory"
                .to_owned(),
        );
    }
    all.into_iter().map(Finding::nowhere).collect()
}

/// The backends that lose their last server that works, though others are configured.
fn left_to_none(in_force: &Config, config: &Config, view: &View) -> Vec<Finding> {
    let before: HashMap<_, _> =
        in_force.backends.iter().map(|backend| (backend.name.as_str(), backend)).collect();
    let before = |backend: &BackendConfig| before.get(backend.name.as_str()).copied();
    let changed: Vec<&BackendConfig> = config
        .backends
        .iter()
        .filter(|backend| before(backend).is_some_and(|before| before != *backend))
        .collect();
    if changed.is_empty() {
        return Vec::new();
    }
    let now = view.backends();
    let now: HashMap<_, _> = now.iter().map(|backend| (&*backend.name, backend)).collect();
    let works = |name: &str, server: &BackendServer| {
        let known = now
            .get(name)
            .and_then(|backend| backend.servers.iter().find(|one| one.name == server.address.to_string()));
        // A new one is taken for one that works.
        known.is_none_or(|one| !matches!(one.state, "down" | "ejected" | "unresolved"))
    };
    let fares = |backend: &BackendConfig| {
        let mut enabled =
            backend.servers.iter().filter(|server| server.state == ServerState::Enabled).peekable();
        enabled.peek().is_some().then(|| enabled.any(|server| works(backend.name.as_str(), server)))
    };
    let lost = changed.into_iter().filter(|backend| {
        fares(backend) == Some(false) && before(backend).is_some_and(|before| fares(before) == Some(true))
    });
    lost.map(|backend| {
        let text = format!(
            "the servers that are left in the backend `{}` do not work at the moment: clients get an error",
            backend.name
        );
        Finding::nowhere(text)
    })
    .collect()
}
