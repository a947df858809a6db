//! Arguments of `offramp ctl`.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum, ValueHint};
use offramp_config::model::ListenAddress;

use super::ConfigFile;

/// Arguments of `offramp ctl`.
#[derive(Debug, Args)]
pub(crate) struct Ctl {
    #[command(flatten)]
    pub(crate) reach: CtlOptions,
    #[command(subcommand)]
    pub(crate) command: CtlCommand,
}

/// Options for reaching the admin interface, and for the output; global to all subcommands.
#[derive(Debug, Args)]
pub(crate) struct CtlOptions {
    #[command(flatten)]
    pub(crate) at: ReachOptions,
    /// Print the answer as JSON
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// How long Offramp may take to begin its answer, such as 30s or 2m [default: 10s; a change and an upgrade may take
    /// longer as long as Offramp answers meanwhile]
    #[arg(long, global = true, value_name = "TIME", value_parser = time)]
    pub(crate) timeout: Option<Duration>,
}

/// Options for reaching the admin interface; global to all subcommands.
#[derive(Clone, Debug, Args)]
pub(crate) struct ReachOptions {
    /// The admin interface: unix:/path, 127.0.0.1:9901 or https://host:9901 [default: that of the configuration]
    #[arg(long, global = true, value_name = "ADDRESS")]
    pub(crate) admin: Option<AdminAddress>,
    /// The PEM file with the authorities that the certificate of https:// is checked against [default: the system's]
    #[arg(long, global = true, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) cacert: Option<PathBuf>,
    /// The file with the token that a TCP address asks for [default: that of the configuration]
    #[arg(long, global = true, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) token_file: Option<PathBuf>,
    /// The configuration that the running Offramp was started with [default: ./offramp.toml, else
    /// /etc/offramp/offramp.toml]
    #[arg(long = "config", short = 'c', global = true, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) config: Option<PathBuf>,
}

/// Address of an admin interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AdminAddress {
    /// Unix socket, or TCP without TLS, which is limited to this machine.
    Plain(ListenAddress),
    /// TCP with TLS, at any host.
    Https {
        /// Name or address, without brackets.
        host: String,
        port: u16,
    },
}

impl FromStr for AdminAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Some(rest) = text.strip_prefix("https://") else {
            if let Some(rest) = text.strip_prefix("http://") {
                return Err(format!("without TLS there is no scheme: write {}", rest.trim_end_matches('/')));
            }
            return text
                .parse()
                .map(Self::Plain)
                .map_err(|problem: offramp_config::Problem| problem.to_string());
        };
        let wrong = || "write https://host:port".to_owned();
        let authority = rest.strip_suffix('/').unwrap_or(rest);
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, port.parse().map_err(|_| wrong())?),
            _ => (authority, 443),
        };
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        if bare.is_empty() || bare.contains(['/', '@', '?', '#']) || (bare == host && host.contains(':')) {
            return Err(wrong());
        }
        Ok(Self::Https { host: bare.to_owned(), port })
    }
}

impl fmt::Display for AdminAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plain(address) => address.fmt(f),
            Self::Https { host, port } if host.contains(':') => write!(f, "https://[{host}]:{port}"),
            Self::Https { host, port } => write!(f, "https://{host}:{port}"),
        }
    }
}

impl ReachOptions {
    /// These options, without any for the output.
    pub(crate) fn plain(&self) -> CtlOptions {
        CtlOptions { at: self.clone(), json: false, timeout: None }
    }

    /// Option for the configuration, which names the admin interface.
    pub(crate) fn file(&self) -> ConfigFile {
        ConfigFile { path: self.config.clone() }
    }
}

/// Subcommands of `offramp ctl`.
#[derive(Debug, Subcommand)]
pub(crate) enum CtlCommand {
    /// Show what runs: version, connections, servers, the latest refused reload
    Status,
    /// Show listeners, routes, backends, certificates, workers or counters
    Show {
        /// The kind of items or figures
        what: ShowSubject,
    },
    /// Show what another configuration would change; change nothing
    ///
    /// It is validated as a whole, as with `apply`: its files are read and its new addresses opened for a moment. Exit
    /// code 1 if it would be refused.
    Plan {
        /// The configuration; - reads standard input
        #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
        file: PathBuf,
        /// As `apply --persist` would: relative paths start at the directory of the configuration file
        #[arg(long)]
        persist: bool,
        /// Even if it has no routes or listeners, and the one in force has some
        #[arg(long)]
        force: bool,
    },
    /// Replace the configuration in force
    ///
    /// It replaces the old one as a whole, or nothing changes and every error is shown. The configuration file stays as
    /// it is, unless --persist is given: the next reload reads it again.
    Apply {
        /// The configuration; - reads standard input
        #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
        file: PathBuf,
        /// Apply it only if this version is in force, as `status` shows it
        #[arg(long, value_name = "VERSION")]
        expect: Option<u64>,
        /// Apply it even if it has no routes or listeners, and the one in force has some
        #[arg(long)]
        force: bool,
        #[command(flatten)]
        terms: ChangeOptions,
    },
    /// Keep the latest change, which --confirm would take back
    Confirm {
        /// Do not write it to the configuration file, though --persist asked for that
        #[arg(long)]
        no_persist: bool,
    },
    /// Write the configuration in force to its file, with all changes that it does not have
    ///
    /// Comments and order of the file stay. It is not overwritten if it was changed since it was read.
    Persist {
        /// Only show what would be written
        #[arg(long)]
        dry_run: bool,
    },
    /// Go back to an earlier configuration
    ///
    /// That is the one before the latest change, or that of a version of `history`; the latest ten are remembered.
    Rollback {
        /// A version of `history` [default: the one before the latest change]
        #[arg(value_name = "VERSION")]
        version: Option<u64>,
        /// Only show what would change
        #[arg(long)]
        dry_run: bool,
    },
    /// Show the latest changes: when, by whom, and what
    History {
        /// Show those that were refused instead, and why
        #[arg(long)]
        refused: bool,
    },
    /// Show the connections that are open, or close some
    Conns(Conns),
    /// Show what happens as it happens: changes, refusals, connections that an operator closes, servers that go down or
    /// come up, new certificates, upgrades, the end, limits that refuse clients, late workers
    ///
    /// It ends when Offramp ends, or with Ctrl-C.
    Watch {
        /// Only these kinds of events; may be repeated [default: all]
        #[arg(long, value_name = "KIND")]
        kind: Vec<WatchedEvent>,
    },
    /// Read the configuration file and all certificates again, as SIGHUP does, and show what changed
    Reload {
        /// Only show what would change
        #[arg(long)]
        dry_run: bool,
        /// Even if the file has no routes or listeners, and the configuration in force has some
        #[arg(long)]
        force: bool,
    },
    /// Have the program on disk take over, as SIGUSR2 does, and show what came of it
    ///
    /// The new process reads the configuration file. Changes that were not written to it (--persist) stay in force. If the
    /// file was changed and not reloaded, only changes of single items do; with others the upgrade is refused. Exit code
    /// 1 if no new process took over; then the old one serves on.
    Upgrade {
        /// Use the configuration file as it is: changes that were not written to it are lost
        #[arg(long)]
        force: bool,
    },
    /// Stop, as SIGTERM does: open connections may finish within drain_timeout
    ///
    /// A second `stop` changes nothing. With --now they are closed at once, whether Offramp stops already or not.
    Stop {
        /// Close open connections at once
        #[arg(long)]
        now: bool,
    },
    /// Drain, disable, enable, add or remove a server, or change its weight
    Server {
        #[command(subcommand)]
        command: ServerCommand,
    },
    /// Add, change or remove a route
    Route {
        #[command(subcommand)]
        command: RouteCommand,
    },
    /// Add, change or remove a backend
    Backend {
        #[command(subcommand)]
        command: ItemCommand,
    },
    /// Add, change or remove a listener
    Listener {
        #[command(subcommand)]
        command: ItemCommand,
    },
    /// Add, change or remove an item that certificates come from
    Certificate {
        #[command(subcommand)]
        command: ItemCommand,
    },
    /// Change the level of the log
    LogLevel {
        /// The least important messages to write
        level: LogLevelName,
        #[command(flatten)]
        terms: ChangeOptions,
    },
}

/// A kind of event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum WatchedEvent {
    /// A change of the configuration
    Change,
    /// A change that was refused
    Refused,
    /// Connections that an operator has closed
    Closed,
    /// A server in another state
    Server,
    /// A certificate that was not in use before
    Certificate,
    /// Another process takes over, or does not
    Upgrade,
    /// Offramp stops: the drain and its end
    Stop,
    /// A change waits to be confirmed, is confirmed, taken back or replaced
    Confirm,
    /// A limit refuses clients, or has accepting pause; at most one a minute of each
    Limit,
    /// A worker's event loop is late; at most one a minute of each
    Late,
}

/// Arguments of `ctl conns`: a filter, and the operation.
#[derive(Debug, Args)]
pub(crate) struct Conns {
    /// One connection, by its id
    #[arg(value_name = "ID", conflicts_with_all = ["client", "name", "route", "listener", "older", "larger"])]
    pub(crate) id: Option<String>,
    /// Those of clients with this address, or in this network, such as 10.0.0.0/8
    #[arg(long, value_name = "NETWORK")]
    pub(crate) client: Option<String>,
    /// Those with this name (SNI, else the host of HTTP); *.example.org is any name below it
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Those on this route; of HTTP, those with their latest request on it
    #[arg(long, value_name = "ROUTE")]
    pub(crate) route: Option<String>,
    /// Those of this listener
    #[arg(long, value_name = "NAME")]
    pub(crate) listener: Option<String>,
    /// Those that are at least so old, such as 10s, 5m, 2h or 1d
    #[arg(long, value_name = "TIME")]
    pub(crate) older: Option<String>,
    /// Those that have moved at least so much, such as 1MiB, both directions together
    #[arg(long, value_name = "SIZE")]
    pub(crate) larger: Option<String>,
    /// How many are shown at most; --kill closes all that are meant
    #[arg(long, value_name = "NUMBER", default_value_t = 1000, value_parser = limit)]
    pub(crate) limit: usize,
    /// Close them; needs to know which
    #[arg(long)]
    pub(crate) kill: bool,
}

/// Parses a duration above zero, in the syntax of the configuration.
pub(super) fn time(text: &str) -> Result<Duration, String> {
    let time = offramp_config::parse_duration(text).map_err(|problem| problem.to_string())?;
    if time.is_zero() { Err("a time above zero, such as 30s".to_owned()) } else { Ok(time) }
}

/// Parses `--limit`; more than 1,000,000 connections would take the interface too long.
fn limit(text: &str) -> Result<usize, String> {
    let number: usize = text.parse().map_err(|_| "a whole number from 1 to 1000000".to_owned())?;
    if (1..=1_000_000).contains(&number) {
        Ok(number)
    } else {
        Err("a whole number from 1 to 1000000".to_owned())
    }
}

/// Argument of `ctl show`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ShowSubject {
    /// All listeners, and where they listen
    Listeners,
    /// All routes, and where they lead
    Routes,
    /// All backends, with the state of each server
    Backends,
    /// The certificates in use
    Certificates,
    /// The workers, and what each has open
    Workers,
    /// Every figure of the metrics
    Counters,
    /// The configuration in force, in TOML, with every default
    Config,
}

/// Options that all changes have.
#[derive(Debug, Args)]
pub(crate) struct ChangeOptions {
    /// Take the change back after this time, such as 60s, unless it is confirmed
    #[arg(long, value_name = "TIME")]
    pub(crate) confirm: Option<String>,
    /// Write the change to the configuration file too
    #[arg(long)]
    pub(crate) persist: bool,
    /// Only show what would change
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// Positional arguments that name a server of a backend.
#[derive(Debug, Args)]
pub(crate) struct ServerSelector {
    /// The backend of the server
    #[arg(value_name = "BACKEND")]
    pub(crate) backend: String,
    /// The server's address, as the configuration has it
    #[arg(value_name = "SERVER")]
    pub(crate) server: String,
}

/// Subcommands of `ctl server`.
#[derive(Debug, Subcommand)]
pub(crate) enum ServerCommand {
    /// Let it finish what it has, and give it nothing new
    Drain {
        #[command(flatten)]
        named: ServerSelector,
        #[command(flatten)]
        terms: ChangeOptions,
    },
    /// Give it its share again
    Enable {
        #[command(flatten)]
        named: ServerSelector,
        #[command(flatten)]
        terms: ChangeOptions,
    },
    /// Neither use nor check it
    Disable {
        #[command(flatten)]
        named: ServerSelector,
        #[command(flatten)]
        terms: ChangeOptions,
    },
    /// Change the share of a server
    Weight {
        #[command(flatten)]
        named: ServerSelector,
        /// The share of new requests and connections
        #[arg(value_parser = clap::value_parser!(u16).range(1..=256))]
        weight: u16,
        #[command(flatten)]
        terms: ChangeOptions,
    },
    /// Add one to its backend
    Add {
        #[command(flatten)]
        named: ServerSelector,
        /// The share of the server [default: 1]
        #[arg(long, value_parser = clap::value_parser!(u16).range(1..=256))]
        weight: Option<u16>,
        /// Use it only if no other is available
        #[arg(long)]
        backup: bool,
        #[command(flatten)]
        terms: ChangeOptions,
    },
    /// Remove one from its backend; drain it first, if what it has is to be finished
    Remove {
        #[command(flatten)]
        named: ServerSelector,
        #[command(flatten)]
        terms: ChangeOptions,
    },
}

/// Optional keys of an item.
#[derive(Debug, Args)]
pub(crate) struct ItemKeys {
    /// Keys as the configuration has them, such as balance=least_conn; a list is the key repeated (upgrade=websocket
    /// upgrade=mqtt, not upgrade=websocket,mqtt) or JSON, as is a table
    #[arg(value_name = "KEY=VALUE", value_parser = assignment)]
    pub(crate) keys: Vec<(String, String)>,
}

/// Required keys of an item that is added or changed.
#[derive(Debug, Args)]
pub(crate) struct ChangedKeys {
    /// Keys as the configuration has them, such as balance=least_conn; a list is the key repeated (upgrade=websocket
    /// upgrade=mqtt, not upgrade=websocket,mqtt) or JSON, as is a table; KEY= takes a key away
    #[arg(value_name = "KEY=VALUE", value_parser = assignment, required = true)]
    pub(crate) keys: Vec<(String, String)>,
}

fn assignment(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.trim().is_empty() => Ok((key.trim().to_owned(), value.to_owned())),
        _ => Err("write KEY=VALUE, with a key as in docs/reference/keys.md".to_owned()),
    }
}

/// Positional argument that names an item.
#[derive(Debug, Args)]
pub(crate) struct ItemName {
    /// Its name, as `ctl show` has it; that of a certificate is its file, its directory, or its names joined by commas
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
}

/// Subcommands of `ctl listener`, `ctl backend` and `ctl certificate`.
#[derive(Debug, Subcommand)]
pub(crate) enum ItemCommand {
    /// Add one, such as name=apps servers=127.0.0.1:3000 servers=127.0.0.1:3001
    Add {
        #[command(flatten)]
        keys: ChangedKeys,
        #[command(flatten)]
        terms: ChangeOptions,
    },
    /// Change some of its keys
    Change {
        #[command(flatten)]
        item: ItemName,
        #[command(flatten)]
        keys: ChangedKeys,
        #[command(flatten)]
        terms: ChangeOptions,
    },
    /// Remove one by its name
    Remove {
        #[command(flatten)]
        item: ItemName,
        #[command(flatten)]
        terms: ChangeOptions,
    },
}

/// Subcommands of `ctl route`.
#[derive(Debug, Subcommand)]
pub(crate) enum RouteCommand {
    /// Add a route: to a backend, to a server, or to what a key says
    Add {
        /// A host name that it matches; may be repeated [default: any]
        #[arg(long, value_name = "NAME")]
        host: Vec<String>,
        /// What the path of a request must begin with; HTTP only
        #[arg(long, value_name = "PATH")]
        path: Option<String>,
        /// A listener that it is for; may be repeated [default: all that it can apply to]
        #[arg(long, value_name = "NAME")]
        listener: Vec<String>,
        /// The backend that gets what matches
        #[arg(long, value_name = "NAME", conflicts_with = "to")]
        backend: Option<String>,
        /// The server that gets what matches
        #[arg(long, value_name = "ADDRESS")]
        to: Option<String>,
        #[command(flatten)]
        keys: ItemKeys,
        #[command(flatten)]
        terms: ChangeOptions,
    },
    /// Change some of its keys
    Change {
        #[command(flatten)]
        item: ItemName,
        #[command(flatten)]
        keys: ChangedKeys,
        #[command(flatten)]
        terms: ChangeOptions,
    },
    /// Remove a route by its name
    Remove {
        #[command(flatten)]
        item: ItemName,
        #[command(flatten)]
        terms: ChangeOptions,
    },
}

/// A level of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogLevelName {
    /// What does not work
    Error,
    /// What will not work, or not as meant
    Warn,
    /// What an operator wants to know
    Info,
    /// What a developer wants to know
    Debug,
}
