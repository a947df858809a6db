//! The model: a configuration as meant.
//!
//! Alternatives are enums and bounded values are newtypes, so that most invalid configurations cannot be
//! expressed. All fields are public: a configuration may be made in code as well as parsed. Rules beyond the
//! types (a route names an existing listener) are checked by [`parse`](crate::parse). Nothing here opens a
//! file or a socket: a missing certificate is found by its reader, and [`FilePath::at`] lets that error name
//! the line.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use access::{
    BasicAuthConfig, ClientNetworks, Country, Credentials, ForwardAuthConfig, JwtAuth, Networks, Satisfy,
    parse_networks,
};
pub use acme::{
    AcmeAuthority, AcmeCertificate, AcmeKeyType, Challenge, DirectoryUrl, DnsProvider, DnsUpdate,
    ExternalAccount, ImpliedCertificates, TsigAlgorithm, contact, not_issuable,
};
pub use address::{Cidr, ListenAddress, ServerAddress};
pub use backend::{BackendConfig, BackendServer, Balance, BalanceWay, HashKey, Pool, Protocol, ServerState};
pub use bounded::{Bounded, RecordSizeLimit, Size, Tickets, Weight};
pub use canary::{BackendShare, MirrorConfig, SplitBy, SplitWay, TrafficSplit};
pub use compress::{CompressionAlgorithm, CompressionConfig, MediaRange};
pub use figures::{
    Admin, GraphitePrefix, LogStore, Metrics, OtlpUrl, ServiceEndpoint, StoreUrl, TracingConfig,
};
pub use files::{StaticFiles, fallback};
pub use fingerprint::Ja4Pattern;
pub use header::{CookieName, HeaderChanges, HeaderField, HeaderName, HeaderValue};
pub use health::{Eject, Health, HttpProbe, Probe, StatusRange};
pub use http::{
    EncodedSlashes, FixedResponse, Hsts, HttpRules, LimitOverrides, PathForm, PathRewrite, PlainRules,
    PrefixRewrite, RedirectPart, RedirectResponse, RedirectTo, RoutePath, UpgradeProtocol,
};
pub use jwks::{Jwks, KeyServer, KeySetUrl};
pub use limits::{HttpLimits, Limits};
pub use mail::{MailAddress, MailServer, MailTarget};
pub use names::{AlpnId, CertificateName, HostName, HostPattern, Name};
pub use notify::{
    BodyTemplate, ErrorShare, NotifyConfig, NotifyField, NotifyFormat, NotifyKind, NotifyTarget, NotifyUrl,
    Webhook, is_local,
};
pub use on_demand::{AskUrl, OnDemand};
pub use outputs::{
    AccessFormat, AccessLog, AccessOutput, Anonymize, FieldName, LogConfig, LogLevel, LogOutput,
    ProgramLogFormat, StandardStream, SyslogAddress, Telemetry,
};
pub use pages::{ErrorPageFiles, MaintenanceMode};
pub use process::{Environment, ProcessSettings, Sandbox, User, Workers};
pub use program::{NotifyProgram, ProgramCommand};
pub use route::{
    Allow, AllowKind, AuthMode, ClientAuth, Listeners, Passthrough, ProxyProtocolHeader, ProxyV2,
    ProxyVersion, RelayConfig, RelayTarget, RouteConfig, RouteTarget, RouteTls, TrustDomainConfig,
    TrustDomainName,
};

pub use server_tls::{ClientCertificate, Pin, ServerTls, TlsName, Verify};
pub use shared::{Shared, SharedSection};
pub use variable::{HeaderTemplate, HeaderVariable, TemplatePart};

use crate::error::{At, Problem, shown};
use words::words;

pub(crate) mod access;
pub(crate) mod acme;
pub(crate) mod figures;
pub(crate) mod files;
pub(crate) mod header;
pub(crate) mod health;
pub(crate) mod http;
pub(crate) mod words;

mod address;
mod backend;
mod bounded;
mod canary;
mod compress;
mod fingerprint;
pub(crate) mod foreign_variable;
mod implied;
mod jwks;
mod limits;
mod mail;
mod names;
mod notify;
mod on_demand;
mod outputs;
mod pages;
mod process;
mod program;
mod route;
mod server_tls;
mod shared;
mod variable;
mod web_url;

/// One whole configuration.
///
/// `Config::default()` has every default of the language for an unprivileged process without listeners,
/// routes or certificates; [`Config::fill_implied`] adds those that are implied by their absence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The process itself: its threads, its user and what it may do.
    pub process: ProcessSettings,
    /// The database of countries by address.
    pub geoip: Option<FilePath>,
    /// The admin interface for operators.
    pub admin: Admin,
    /// Logs, metrics and traces.
    pub telemetry: Telemetry,
    /// The TLS settings towards clients.
    pub tls: Tls,
    /// Limits on the use of resources.
    pub limits: Limits,
    /// Certificates in the order of the file.
    pub certificates: Vec<CertificateConfig>,
    /// ACME authorities sorted by name, their names unique.
    pub authorities: Vec<AcmeAuthority>,
    /// Listeners in the order of the file, their names unique.
    pub listeners: Vec<ListenerConfig>,
    /// Error pages for requests without a route.
    pub error_pages: ErrorPageFiles,
    /// Shared settings as written; the routes have inherited them.
    pub shared: Shared,
    /// Routes in the order of the file.
    pub routes: Vec<RouteConfig>,
    /// Named backends sorted by name, their names unique.
    pub backends: Vec<BackendConfig>,
    /// The places of plain values that were written.
    pub origins: Origins,
}

impl Default for Config {
    fn default() -> Self {
        Config::for_environment(&Environment::default())
    }
}

impl Config {
    /// Every default of the language in `environment`, without listeners, routes or certificates.
    pub fn for_environment(environment: &Environment) -> Self {
        Config {
            process: ProcessSettings::for_environment(environment),
            geoip: None,
            admin: Admin::default(),
            telemetry: Telemetry::default(),
            tls: Tls::default(),
            limits: Limits::default(),
            certificates: Vec::new(),
            authorities: Vec::new(),
            listeners: Vec::new(),
            error_pages: ErrorPageFiles::default(),
            shared: Shared::default(),
            routes: Vec::new(),
            backends: Vec::new(),
            origins: Origins::default(),
        }
    }

    /// The Unix socket of the admin interface if no address is configured.
    pub fn admin_socket(&self) -> PathBuf {
        self.process.state_dir.join("admin.sock")
    }

    /// The configuration without what absence implies: the additions of [`Config::fill_implied`], and names
    /// of certificates that come from routes.
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

    /// The listener of that name.
    pub fn listener(&self, name: &Name) -> Option<&ListenerConfig> {
        self.listeners.iter().find(|listener| listener.name == *name)
    }

    /// The authority of that name.
    pub fn authority(&self, name: &Name) -> Option<&AcmeAuthority> {
        self.authorities.iter().find(|authority| authority.name == *name)
    }

    /// The backend of that name.
    pub fn backend(&self, name: &Name) -> Option<&BackendConfig> {
        self.backends.iter().find(|backend| backend.name == *name)
    }
}

/// The places of plain values by key path. Any two values compare equal, as with [`At`].
#[derive(Clone, Debug, Default)]
pub struct Origins {
    keys: BTreeMap<&'static str, At>,
    /// The indexes of certificates without names of their own, which cover the hosts of routes.
    pub(crate) named_by_routes: Vec<usize>,
}

impl Origins {
    /// The place of a key; none for a default.
    pub fn of(&self, path: &str) -> Option<&At> {
        self.keys.get(path)
    }

    /// Records the place of a key, or its absence.
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

/// A file path with its place in the configuration. Relative paths have been joined to the directory of the
/// file that contains them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilePath {
    /// The path of the file.
    pub path: PathBuf,
    /// The place in the configuration.
    pub at: At,
}

impl FilePath {
    /// A path without a place.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        FilePath { path: path.into(), at: At::NOWHERE }
    }
}

impl AsRef<Path> for FilePath {
    fn as_ref(&self) -> &Path {
        &self.path
    }
}

/// The TLS settings towards clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tls {
    /// The versions and suites to offer.
    pub policy: Policy,
    /// The highest version to negotiate.
    pub max_version: TlsVersionLimit,
    /// The AEADs to offer; at least one.
    pub aeads: Vec<AeadCipher>,
    /// The treatment of clients without a server name.
    pub no_server_name: Nameless,
    /// The treatment of clients with a server name without a certificate.
    pub unknown_name: Nameless,
    /// TLS 1.3 tickets per handshake; 0 disables resumption.
    pub tickets: Tickets,
    /// The lifetime of a ticket key before it is replaced: 1 s to 72 h.
    pub ticket_rotation: Duration,
    /// The size of sent records.
    pub record_size: RecordSizePolicy,
    /// Set to offer X25519MLKEM768.
    pub post_quantum: bool,
    /// The source of certificates for hosts that no `[[certificate]]` covers.
    pub certificates: ImpliedCertificates,
    /// The authorities of [`ImpliedCertificates::Acme`] in order of preference; at least one with it, empty
    /// without.
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
            record_size: RecordSizePolicy::Adaptive,
            post_quantum: true,
            certificates: ImpliedCertificates::Local,
            acme: Vec::new(),
        }
    }
}

words! {
    /// The highest version of TLS to negotiate.
    pub enum TlsVersionLimit {
        /// TLS 1.2, defined in RFC 5246.
        Tls12 = "1.2",
        /// TLS 1.3, defined in RFC 8446.
        Tls13 = "1.3",
    }
}

words! {
    /// An AEAD for TLS 1.2 and 1.3.
    pub enum AeadCipher {
        /// AES-GCM with a key of 128 bits.
        Aes128Gcm = "aes-128-gcm",
        /// AES-GCM with a key of 256 bits.
        Aes256Gcm = "aes-256-gcm",
        /// ChaCha20-Poly1305, defined in RFC 8439.
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
    /// The treatment of clients for which no certificate is found by name.
    pub enum Nameless {
        /// The default certificate, if there is one.
        Default = "default",
        /// The alert `unrecognized_name`, or `missing_extension`.
        Refuse = "refuse",
    }
}

words! {
    /// The TLS versions and suites to offer.
    pub enum Policy {
        /// TLS 1.3 and nothing older.
        Modern = "modern",
        /// TLS 1.2 and 1.3 with AEAD suites only.
        Intermediate = "intermediate",
    }
}

/// The size of sent records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordSizePolicy {
    /// Small records first on a fresh or idle connection, then 16 KiB.
    Adaptive,
    /// At most this many bytes of plaintext per record.
    Fixed(RecordSizeLimit),
}

/// A certificate and its key, or several for the names of one local certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateConfig {
    /// The source of the certificate.
    pub source: CertificateSource,
    /// Its role in the choice of the default certificate.
    pub default: DefaultRole,
    /// The place in the configuration.
    pub at: At,
}

impl CertificateConfig {
    /// A certificate of this source, which is the default if no other is.
    pub(crate) fn new(source: CertificateSource) -> Self {
        CertificateConfig { source, default: DefaultRole::Unsaid, at: At::NOWHERE }
    }

    /// The name in the admin API: the file or directory, or the names to be ordered.
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

/// The source of a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CertificateSource {
    /// PEM files of the operator.
    Files {
        /// The file with the chain.
        cert: FilePath,
        /// The file with the key; `None` if it is in the file of the chain.
        key: Option<FilePath>,
        /// The file with the OCSP response to staple; `None` for one beside the file of the chain, if
        /// present.
        ocsp: Option<FilePath>,
    },
    /// Every pair of certificate and key in a directory.
    Directory {
        /// The path of the directory.
        path: FilePath,
    },
    /// A certificate of the local CA for these names; at least one.
    Local {
        /// The names and addresses that it is valid for.
        names: Vec<CertificateName>,
    },
    /// Obtained from an authority and renewed.
    Acme(AcmeCertificate),
}

/// The value of a certificate's `default`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DefaultRole {
    /// Absent: the first such certificate is the default unless another says `true`.
    #[default]
    Unsaid,
    /// `true`: it is the default.
    Always,
    /// `false`: it is never the default.
    Never,
}

/// One or several addresses that accept connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenerConfig {
    /// The name in routes, events and metrics.
    pub name: Name,
    /// The addresses to listen on; at least one.
    pub addresses: Vec<ListenAddress>,
    /// The treatment of connections.
    pub mode: Mode,
    /// Set if clients use TLS.
    pub tls: bool,
    /// Sources that must send a PROXY header, which is trusted.
    pub accept_proxy: Vec<Cidr>,
    /// The networks that clients may come from.
    pub networks: ClientNetworks,
    /// The protocol in which clients ask for TLS; `None` if they start with it. Only with [`Mode::Tcp`] and
    /// TLS.
    pub preamble: Option<PreambleProtocol>,
    /// The ways to cancel a query; only [`PostgresCancel::Tls`] without `preamble`.
    pub cancel: PostgresCancel,
    /// Proxies with trusted `X-Forwarded-*`, `Forwarded` and `X-Request-Id`; empty with [`Mode::Tcp`].
    pub trusted_proxies: Vec<Cidr>,
    /// Set to add `Via` to requests and responses; never with [`Mode::Tcp`].
    pub via: bool,
    /// The place in the configuration.
    pub at: At,
}

words! {
    /// The ways in which PostgreSQL clients may send a CancelRequest.
    pub enum PostgresCancel {
        /// Over TLS connections only.
        Tls = "tls",
        /// In plain text too, like clients before libpq 17.
        Clear = "clear",
    }
}

words! {
    /// The protocol in which TLS is negotiated (STARTTLS) with clients or servers.
    pub enum PreambleProtocol {
        /// PostgreSQL's `SSLRequest`. Clients that start with TLS are served too.
        Postgres = "postgres",
    }
}

words! {
    /// The treatment of the connections of a listener.
    pub enum Mode {
        /// Relay the bytes of any protocol.
        Tcp = "tcp",
        /// HTTP/1.1 and HTTP/2, with a route per request.
        Http = "http",
    }
}
