//! The configuration as meant.
//!
//! Alternatives are enums and bounded values are newtypes, so that most of what is invalid cannot be
//! written down. All fields are public: a configuration may be made in code as well as parsed. What cannot
//! be said in types (a route names a listener that exists) is held by [`parse`](crate::parse). Nothing
//! here opens a file or a socket: whether a certificate exists is found out by whoever reads it, and
//! [`FilePath::at`] lets that error name the line.

use std::collections::BTreeMap;
use std::num::NonZeroU16;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use access::{
    BasicAuth, ClientNetworks, Country, Credentials, ForwardAuth, JwtAuth, Networks, Satisfy, parse_networks,
};
pub use acme::{
    AcmeCertificate, Authority, Challenge, DirectoryUrl, DnsProvider, DnsUpdate, ExternalAccount,
    ImpliedCertificates, KeyType, TsigAlgorithm, contact, not_issuable,
};
pub use address::{Cidr, ListenAddress, ServerAddress};
pub use backend::{Backend, Balance, BalanceWay, HashKey, Pool, Protocol, Server, ServerState};
pub use bounded::{Bounded, RecordSizeLimit, Size, Tickets, Weight};
pub use canary::{Mirror, Share, Split, SplitBy, SplitWay};
pub use compress::{Algorithm, Compress, MediaRange};
pub use figures::{Admin, Endpoint, GraphitePrefix, LogStore, Metrics, OtlpUrl, StoreUrl, Tracing};
pub(crate) use files::is_below;
pub use files::{StaticFiles, fallback};
pub use fingerprint::Ja4Pattern;
pub use header::{CookieName, HeaderChanges, HeaderField, HeaderName, HeaderValue};
pub use health::{Eject, Health, HttpProbe, Probe, StatusRange};
pub use http::{
    EncodedSlashes, Hsts, HttpRules, PathForm, PathRewrite, Redirect, RedirectPart, RedirectTo, Respond,
    Rewrite, RouteLimits, RoutePath, UpgradeProtocol,
};
pub use jwks::{Jwks, KeyServer, KeySetUrl};
pub use limits::{HttpLimits, Limits};
pub use names::{AlpnId, CertificateName, HostName, HostPattern, Name};
pub use on_demand::{AskUrl, OnDemand};
pub use outputs::{
    AccessFormat, AccessLog, AccessOutput, Anonymize, FieldName, Level, Log, LogFormat, LogOutput,
    SyslogAddress,
};
pub use pages::{ErrorPages, Maintenance};
pub use route::{
    Allow, AllowKind, AuthMode, ClientAuth, Listeners, Passthrough, ProxyV2, ProxyVersion, Relay,
    RelayTarget, Route, RouteTls, SendProxy, Target, TrustDomain, TrustDomainName,
};

pub use server_tls::{ClientCertificate, Pin, ServerTls, TlsName, Verify};
pub use shared::{Shared, SharedSection};
pub use variable::{HeaderTemplate, HeaderVariable, TemplatePart};

use crate::error::{At, Problem, shown};
use crate::settings::BINDINGS;
use words::words;

pub(crate) mod access;
pub(crate) mod acme;
pub(crate) mod figures;
mod files;
pub(crate) mod header;
pub(crate) mod health;
pub(crate) mod http;

mod address;
mod backend;
mod bounded;
mod canary;
mod compress;
mod fingerprint;
mod implied;
mod jwks;
mod limits;
mod names;
mod on_demand;
mod outputs;
mod pages;
mod route;
mod server_tls;
mod shared;
mod variable;
mod words;

/// One whole configuration.
///
/// `Config::default()` has every default of the language for an unprivileged process without listeners,
/// routes or certificates; [`Config::fill_implied`] adds those that are implied by their absence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Worker threads.
    pub workers: Workers,
    /// The user to become after start, if any.
    pub user: Option<User>,
    /// Where the local CA and other state are kept; absolute.
    pub state_dir: PathBuf,
    /// Whether a change of the file is a reload.
    pub watch: bool,
    /// What the process forbids itself once it has started.
    pub sandbox: Sandbox,
    /// The database of the countries of addresses.
    pub geoip: Option<FilePath>,
    /// The admin interface.
    pub admin: Admin,
    /// What the program says about itself.
    pub log: Log,
    /// One event per connection or request.
    pub access_log: AccessLog,
    /// The queryable access log, if its URL is set.
    pub log_store: LogStore,
    /// Figures for others.
    pub metrics: Metrics,
    /// What is exported to an OpenTelemetry collector, if its URL is set.
    pub tracing: Tracing,
    /// TLS towards the clients.
    pub tls: Tls,
    /// What bounds the use of the machine.
    pub limits: Limits,
    /// Certificates in the order of the file.
    pub certificates: Vec<Certificate>,
    /// Authorities that speak ACME sorted by name, their names unique.
    pub authorities: Vec<Authority>,
    /// Listeners in the order of the file, their names unique.
    pub listeners: Vec<Listener>,
    /// What clients get where there is an error and no route.
    pub error_pages: ErrorPages,
    /// What routes share, as it is written; they have taken it over.
    pub shared: Shared,
    /// Routes in the order of the file.
    pub routes: Vec<Route>,
    /// Named backends sorted by name, their names unique.
    pub backends: Vec<Backend>,
    /// Where the plain values are written that are no defaults.
    pub origins: Origins,
}

/// Replaces items by equal ones of `old`, which differ by their places alone.
fn keep<T: PartialEq + Clone>(new: &mut [T], old: &[T]) {
    // What was not touched is as far from the beginning, or as far from the end.
    let (count, had) = (new.len(), old.len());
    for (index, item) in new.iter_mut().enumerate() {
        let from_end = (index + had).checked_sub(count).and_then(|at| old.get(at));
        let same = old.get(index).filter(|one| *one == item).or_else(|| from_end.filter(|one| *one == item));
        if let Some(same) = same {
            item.clone_from(same);
        }
    }
}

impl Default for Config {
    fn default() -> Self {
        Config::for_environment(&Environment::default())
    }
}

impl Config {
    /// Every default of the language as it is in `environment`, without listeners, routes or
    /// certificates.
    pub fn for_environment(environment: &Environment) -> Self {
        Config {
            workers: Workers::Auto,
            user: environment.is_root.then(User::default),
            state_dir: environment.state_dir(),
            watch: false,
            sandbox: Sandbox::On,
            geoip: None,
            admin: Admin::default(),
            log: Log::default(),
            access_log: AccessLog::default(),
            log_store: LogStore::default(),
            metrics: Metrics::default(),
            tracing: Tracing::default(),
            tls: Tls::default(),
            limits: Limits::default(),
            certificates: Vec::new(),
            authorities: Vec::new(),
            listeners: Vec::new(),
            error_pages: ErrorPages::default(),
            shared: Shared::default(),
            routes: Vec::new(),
            backends: Vec::new(),
            origins: Origins::default(),
        }
    }

    /// The Unix socket of the admin interface where no address is written.
    pub fn admin_socket(&self) -> PathBuf {
        self.state_dir.join("admin.sock")
    }

    /// Without what absence implies: what [`Config::fill_implied`] adds, and the names of certificates that are those of
    /// the routes.
    #[must_use]
    pub fn without_implied(&self) -> Self {
        let mut config = self.clone();
        for at in &self.origins.named_by_routes {
            match config.certificates.get_mut(*at).map(|one| &mut one.source) {
                Some(CertificateSource::Local { names }) => names.clear(),
                Some(CertificateSource::Acme(acme)) => acme.names.clear(),
                _ => {}
            }
        }
        config.certificates.retain(|one| one.at.place().is_some());
        config.authorities.retain(|one| one.at.place().is_some());
        config.listeners.retain(|one| one.at.place().is_some());
        config
    }

    /// Gives what is the same as in `old` the places that it has there.
    pub fn keep_places(&mut self, old: &Self) {
        keep(&mut self.certificates, &old.certificates);
        keep(&mut self.authorities, &old.authorities);
        keep(&mut self.listeners, &old.listeners);
        keep(&mut self.routes, &old.routes);
        keep(&mut self.backends, &old.backends);
        // One that is written nowhere need not exist.
        if self.user == old.user {
            self.user.clone_from(&old.user);
        }
        for binding in BINDINGS {
            if (binding.get)(self) == (binding.get)(old) {
                self.origins.set(binding.path, old.origins.of(binding.path).cloned());
            }
        }
    }

    /// The listener of that name.
    pub fn listener(&self, name: &Name) -> Option<&Listener> {
        self.listeners.iter().find(|listener| listener.name == *name)
    }

    /// The authority of that name.
    pub fn authority(&self, name: &Name) -> Option<&Authority> {
        self.authorities.iter().find(|authority| authority.name == *name)
    }

    /// The backend of that name.
    pub fn backend(&self, name: &Name) -> Option<&Backend> {
        self.backends.iter().find(|backend| backend.name == *name)
    }
}

/// Where plain values are written, by the paths of their keys. Two of them always compare equal, as two [`At`] do.
#[derive(Clone, Debug, Default)]
pub struct Origins {
    keys: BTreeMap<&'static str, At>,
    /// The certificates, by their index, whose names are not written: they are the hosts of the routes.
    pub(crate) named_by_routes: Vec<usize>,
}

impl Origins {
    /// Where the key of this path is written; nothing for a default.
    pub fn of(&self, path: &str) -> Option<&At> {
        self.keys.get(path)
    }

    /// Takes note of where a key is written, or that it is not.
    pub(crate) fn set(&mut self, path: &'static str, at: Option<At>) {
        match at {
            Some(at) => self.keys.insert(path, at),
            None => self.keys.remove(path),
        };
    }
}

impl PartialEq for Origins {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Origins {}

/// What the meaning of absent keys depends on. It is passed in: this crate reads no environment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Environment {
    /// Whether the process was started as root.
    pub is_root: bool,
    /// `$XDG_STATE_HOME`, if set.
    pub xdg_state_home: Option<PathBuf>,
    /// `$HOME`, if set.
    pub home: Option<PathBuf>,
}

impl Environment {
    /// The default of `state_dir`: the system's for root, else the user's by the XDG base directory
    /// specification (a relative `XDG_STATE_HOME` is to be ignored), else the system's.
    pub fn state_dir(&self) -> PathBuf {
        let absolute = |path: &&PathBuf| path.is_absolute();
        let users = if self.is_root {
            None
        } else if let Some(state) = self.xdg_state_home.as_ref().filter(absolute) {
            Some(state.join("offramp"))
        } else {
            self.home.as_ref().filter(absolute).map(|home| home.join(".local/state/offramp"))
        };
        users.unwrap_or_else(|| PathBuf::from("/var/lib/offramp"))
    }
}

/// A path to a file and where it was written. Relative paths have been joined to the folder of the file
/// that names them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilePath {
    /// The path.
    pub path: PathBuf,
    /// Where the configuration names it.
    pub at: At,
}

impl FilePath {
    /// A path that comes from no file.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        FilePath { path: path.into(), at: At::NOWHERE }
    }
}

impl AsRef<Path> for FilePath {
    fn as_ref(&self) -> &Path {
        &self.path
    }
}

/// How many worker threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workers {
    /// One per core that the process may use.
    Auto,
    /// This many, at most 1024.
    Count(NonZeroU16),
}

/// The user that the process becomes after start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// The name in the system's list of users.
    pub name: String,
    /// Where it is written; nowhere for the default, which need not exist on a machine.
    pub at: At,
}

impl Default for User {
    fn default() -> Self {
        User { name: "offramp".to_owned(), at: At::NOWHERE }
    }
}

words! {
    /// Whether the process forbids itself what it does not need.
    pub enum Sandbox {
        /// As far as the kernel can; what it cannot is a warning.
        On = "on",
        /// The same wholly, or there is no start.
        Required = "required",
        /// Wholly, and besides nothing is read and no TCP port is used that the configuration does not name.
        Strict = "strict",
        /// Nothing is forbidden.
        Off = "off",
    }
}

/// TLS towards the clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tls {
    /// Which versions and suites are offered.
    pub policy: Policy,
    /// The latest version that is spoken.
    pub max_version: TlsVersionLimit,
    /// The ciphers that are offered; at least one.
    pub aeads: Vec<AeadCipher>,
    /// The lot of clients that name no host.
    pub no_server_name: Nameless,
    /// The lot of clients that name a host for which there is no certificate.
    pub unknown_name: Nameless,
    /// TLS 1.3 tickets per handshake; 0: no resumption.
    pub tickets: Tickets,
    /// How long a ticket key is used before a new one takes its place: 1 s to 72 h.
    pub ticket_rotation: Duration,
    /// The size of the records that are sent.
    pub record_size: RecordSize,
    /// Whether X25519MLKEM768 is offered.
    pub post_quantum: bool,
    /// Where the certificates of hosts come from that no `[[certificate]]` covers.
    pub certificates: ImpliedCertificates,
    /// The authorities of [`ImpliedCertificates::Acme`], the preferred one first; at least one with it, empty without.
    pub acme: Vec<Name>,
}

impl Default for Tls {
    fn default() -> Self {
        Tls {
            policy: Policy::Intermediate,
            max_version: TlsVersionLimit::Tls13,
            aeads: AeadCipher::ALL.to_vec(),
            no_server_name: Nameless::Default,
            unknown_name: Nameless::Default,
            tickets: Tickets::literal::<1>(),
            ticket_rotation: Duration::from_secs(6 * 3600),
            record_size: RecordSize::Adaptive,
            post_quantum: true,
            certificates: ImpliedCertificates::Local,
            acme: Vec::new(),
        }
    }
}

words! {
    /// The latest version of TLS that is spoken.
    pub enum TlsVersionLimit {
        /// TLS 1.2 (RFC 5246).
        Tls12 = "1.2",
        /// TLS 1.3 (RFC 8446).
        Tls13 = "1.3",
    }
}

words! {
    /// A cipher (AEAD) of TLS 1.2 and 1.3.
    pub enum AeadCipher {
        /// AES-GCM with a key of 128 bits.
        Aes128Gcm = "aes-128-gcm",
        /// AES-GCM with a key of 256 bits.
        Aes256Gcm = "aes-256-gcm",
        /// ChaCha20-Poly1305 (RFC 8439).
        ChaCha20Poly1305 = "chacha20-poly1305",
    }
}

impl std::str::FromStr for AeadCipher {
    type Err = Problem;

    fn from_str(text: &str) -> Result<Self, Problem> {
        Self::from_word(text).ok_or_else(|| {
            let words: Vec<&str> = Self::ALL.iter().map(|one| one.word()).collect();
            Problem::new(format!("`{}` is no cipher of TLS", shown(text))).suggest("cipher", None, &words)
        })
    }
}

words! {
    /// The lot of clients whose server name no certificate has.
    pub enum Nameless {
        /// The default certificate, if there is one.
        Default = "default",
        /// The alert `unrecognized_name`, or `missing_extension`.
        Refuse = "refuse",
    }
}

words! {
    /// Which TLS versions and suites are offered.
    pub enum Policy {
        /// TLS 1.3 only.
        Modern = "modern",
        /// TLS 1.2 and 1.3 with AEAD suites only.
        Intermediate = "intermediate",
    }
}

/// The size of the records that are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordSize {
    /// Small records first on a fresh or idle connection, then 16 KiB.
    Adaptive,
    /// At most this many bytes of plaintext in a record.
    Fixed(RecordSizeLimit),
}

/// A certificate and its key, or several for the names of one local certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    /// Where it comes from.
    pub source: CertificateSource,
    /// Its part in the choice of the certificate for unknown names.
    pub default: DefaultRole,
    /// Where it is written.
    pub at: At,
}

impl Certificate {
    /// What the admin API calls it: its file or folder, or the names that it is ordered for.
    pub fn name(&self) -> String {
        let joined = |names: &[String]| names.join(",");
        match &self.source {
            CertificateSource::Files { cert, .. } => cert.path.display().to_string(),
            CertificateSource::Directory { path } => path.path.display().to_string(),
            CertificateSource::Local { names } => {
                joined(&names.iter().map(ToString::to_string).collect::<Vec<_>>())
            }
            CertificateSource::Acme(acme) => {
                let names = acme.on_demand.as_ref().map_or(&acme.names, |on_demand| &on_demand.names);
                joined(&names.iter().map(ToString::to_string).collect::<Vec<_>>())
            }
        }
    }
}

/// Where a certificate comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CertificateSource {
    /// PEM files.
    Files {
        /// The file with the chain.
        cert: FilePath,
        /// The file with the key; `None`: it is in the file of the chain.
        key: Option<FilePath>,
        /// The file with the OCSP response to staple; `None`: one beside the file of the chain, if there is one.
        ocsp: Option<FilePath>,
    },
    /// Every pair of certificate and key in this folder.
    Directory {
        /// The folder.
        path: FilePath,
    },
    /// Minted by the local CA for these names; at least one.
    Local {
        /// The names and addresses that it is valid for.
        names: Vec<CertificateName>,
    },
    /// Obtained from an authority and renewed.
    Acme(AcmeCertificate),
}

/// What `default` of a certificate says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DefaultRole {
    /// Nothing: it is the default if it is the first such certificate and no other says `true`.
    #[default]
    Unsaid,
    /// `true`: it is the default.
    Always,
    /// `false`: it is never the default.
    Never,
}

/// An address, or several, that accept connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listener {
    /// What routes, events and metrics call it.
    pub name: Name,
    /// Where it listens; at least one.
    pub addresses: Vec<ListenAddress>,
    /// What is done with connections.
    pub mode: Mode,
    /// Whether clients speak TLS.
    pub tls: bool,
    /// Sources whose PROXY header is required and believed.
    pub accept_proxy: Vec<Cidr>,
    /// Where its clients may come from.
    pub networks: ClientNetworks,
    /// How clients ask for TLS; `None`: they begin with it. Only with [`Mode::Tcp`] and TLS.
    pub preamble: Option<Preamble>,
    /// How clients may ask for the end of a query; only [`PostgresCancel::Tls`] without `preamble`.
    pub cancel: PostgresCancel,
    /// Whose `X-Forwarded-*`, `Forwarded` and `X-Request-Id` are believed; empty with [`Mode::Tcp`].
    pub trusted_proxies: Vec<Cidr>,
    /// Whether `Via` is added to requests and responses; never with [`Mode::Tcp`].
    pub via: bool,
    /// Where it is written.
    pub at: At,
}

words! {
    /// How clients of PostgreSQL may send a CancelRequest.
    pub enum PostgresCancel {
        /// Behind TLS.
        Tls = "tls",
        /// In clear too, as those before libpq 17 do.
        Clear = "clear",
    }
}

words! {
    /// How TLS is asked for in the protocol that it protects (STARTTLS): by clients, or of servers.
    pub enum Preamble {
        /// As clients of PostgreSQL do, by `SSLRequest`. Clients that begin with TLS are served too.
        Postgres = "postgres",
    }
}

words! {
    /// What is done with the connections of a listener.
    pub enum Mode {
        /// Relay the bytes of any protocol.
        Tcp = "tcp",
        /// HTTP/1.1 and HTTP/2, each request with its own route.
        Http = "http",
    }
}
