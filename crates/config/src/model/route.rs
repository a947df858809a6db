//! Routes: conditions on connections and requests, and their targets.

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;
use std::time::Duration;

use super::words::words;
use super::{
    AeadCipher, AlpnId, ClientNetworks, Credentials, FilePath, FixedResponse, HostPattern, HttpRules,
    Ja4Pattern, Name, Policy, RedirectResponse, RoutePath, ServerAddress, Size, StaticFiles, Tls,
    TlsVersionLimit, TrafficSplit,
};
use crate::error::{At, Problem, shown};

/// The conditions on a connection or request, and its target.
///
/// Of several matching routes, one that names its listeners precedes one that does not, then an exact host
/// precedes a wildcard and that a missing host, then the longest path, then one with `alpn`, then the first
/// in the file: see [`Config::ranked_routes`](super::Config::ranked_routes).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteConfig {
    /// The listeners that it applies to; see [`Config::routes_of`](super::Config::routes_of).
    pub listeners: Listeners,
    /// The server names to match; empty for any, and none.
    pub hosts: Vec<HostPattern>,
    /// The protocols of which a client must offer one; empty for any, and none. The first one that the client
    /// offers is negotiated.
    pub alpn: Vec<AlpnId>,
    /// The prefix of request paths, by whole segments; `/` on routes for connections.
    pub path: RoutePath,
    /// The target of matching traffic.
    pub target: RouteTarget,
    /// Client certificates, if requested; never with [`RouteTarget::Passthrough`].
    pub client_auth: Option<ClientAuth>,
    /// Overrides of `[tls]`; none with [`RouteTarget::Passthrough`].
    pub tls: RouteTls,
    /// Clients refused by their JA4 fingerprint.
    pub deny_ja4: Vec<Ja4Pattern>,
    /// The networks that clients may come from.
    pub networks: ClientNetworks,
    /// The credentials that requests need; only HTTP.
    pub credentials: Credentials,
    /// The processing of HTTP requests and responses.
    pub http: HttpRules,
    /// The sampling rate of events, except failures: one in 1 to 1,000,000.
    pub log_one_in: NonZeroU32,
    /// Bytes per second in each direction, shared by all clients of the route: 16 KiB to 1 TiB.
    pub bandwidth: Option<Size>,
    /// The place in the configuration.
    pub at: At,
}

impl RouteConfig {
    /// A route that matches everything and only leads to `target`.
    pub fn to(target: RouteTarget) -> Self {
        RouteConfig {
            listeners: Listeners::All,
            hosts: Vec::new(),
            alpn: Vec::new(),
            path: RoutePath::default(),
            target,
            client_auth: None,
            tls: RouteTls::default(),
            deny_ja4: Vec::new(),
            networks: ClientNetworks::default(),
            credentials: Credentials::default(),
            http: HttpRules::default(),
            log_one_in: NonZeroU32::MIN,
            bandwidth: None,
            at: At::NOWHERE,
        }
    }
}

impl RouteConfig {
    /// The name in events and metrics: its conditions, such as `a.example,b.example/api`, or `default`.
    pub fn name(&self) -> String {
        let hosts: Vec<String> = self.hosts.iter().map(ToString::to_string).collect();
        let mut name = hosts.join(",");
        if !self.path.is_root() {
            name.push_str(self.path.as_str());
        }
        if !self.alpn.is_empty() {
            let alpn: Vec<&str> = self.alpn.iter().map(AlpnId::as_str).collect();
            let gap = if name.is_empty() { "" } else { " " };
            name.push_str(&format!("{gap}alpn={}", alpn.join(",")));
        }
        if name.is_empty() { "default".to_owned() } else { name }
    }

    /// Returns `true` if the route restricts access.
    pub fn is_guard(&self) -> bool {
        let refuses = matches!(&self.target, RouteTarget::Respond(respond) if respond.status >= 400);
        let asks_tls = self.client_auth.is_some() || !self.deny_ja4.is_empty();
        let asks = self.networks != ClientNetworks::default() || self.credentials != Credentials::default();
        refuses || asks_tls || asks || self.http.maintenance.is_some()
    }

    /// The backends of its target, its mirror, and its authentication server.
    pub fn backends(&self) -> Vec<&Name> {
        let target = match &self.target {
            RouteTarget::Relay(relay) => relay.to.backends(),
            RouteTarget::Passthrough(_)
            | RouteTarget::Redirect(_)
            | RouteTarget::Respond(_)
            | RouteTarget::Files(_) => Vec::new(),
        };
        let mirror = self.http.mirror.iter().map(|mirror| &mirror.backend);
        let asked = self.credentials.forward.iter().flat_map(|auth| auth.to.backends());
        target.into_iter().chain(mirror).chain(asked).collect()
    }
}

/// The listeners that a route applies to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listeners {
    /// All listeners that can serve it.
    All,
    /// These listeners; at least one.
    Named(Vec<Name>),
}

/// The target of a route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RouteTarget {
    /// Terminates TLS, and relays plain bytes or requests to servers.
    Relay(RelayConfig),
    /// Relays the client's TLS to a server unchanged.
    Passthrough(Passthrough),
    /// Redirects requests; only HTTP.
    Redirect(RedirectResponse),
    /// Answers requests with a fixed response; only HTTP.
    Respond(FixedResponse),
    /// Answers requests with files; only HTTP.
    Files(StaticFiles),
}

/// A server that gets the clients' TLS unchanged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Passthrough {
    /// The address of the server.
    pub server: ServerAddress,
    /// The PROXY protocol header to send first; never with a client certificate.
    pub send_proxy: Option<ProxyProtocolHeader>,
    /// For one attempt to connect, instead of the time of `[limits]`: up to 1 h.
    pub connect_timeout: Option<Duration>,
}

impl Passthrough {
    /// A passthrough without a PROXY header and with the times of `[limits]`.
    pub fn new(server: ServerAddress) -> Self {
        Passthrough { server, send_proxy: None, connect_timeout: None }
    }
}

/// A relay of plain bytes or requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RelayConfig {
    /// The servers of the relay.
    pub to: RelayTarget,
    /// The PROXY protocol header to send first.
    pub send_proxy: Option<ProxyProtocolHeader>,
    /// For one attempt to connect, instead of the time of the backend: up to 1 h.
    pub connect_timeout: Option<Duration>,
}

impl RelayConfig {
    /// A relay without a PROXY header and with the times of its backend.
    pub fn new(to: RelayTarget) -> Self {
        RelayConfig { to, send_proxy: None, connect_timeout: None }
    }
}

/// The servers of a relay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RelayTarget {
    /// The backend of this name.
    Backend(Name),
    /// One server, given in the route.
    Server(ServerAddress),
    /// One server, given in the route, with TLS and verification against the system's authorities.
    TlsServer(ServerAddress),
    /// Backends that share the requests; only HTTP.
    Split(TrafficSplit),
}

impl RelayTarget {
    /// The names of its backends.
    pub fn backends(&self) -> Vec<&Name> {
        match self {
            RelayTarget::Backend(name) => vec![name],
            RelayTarget::Server(_) | RelayTarget::TlsServer(_) => Vec::new(),
            RelayTarget::Split(split) => split.backends.iter().map(|share| &share.backend).collect(),
        }
    }
}

words! {
    /// A version of the PROXY protocol.
    pub enum ProxyVersion {
        /// The version of [`ProxyProtocolHeader::V1`].
        V1 = "v1",
        /// The version of [`ProxyProtocolHeader::V2`].
        V2 = "v2",
    }
}

/// The PROXY protocol header for servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyProtocolHeader {
    /// Version 1: one line of text with the addresses.
    V1,
    /// Version 2: binary, with TLVs.
    V2(ProxyV2),
}

/// The optional TLVs of a PROXY header of version 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProxyV2 {
    /// TLS version, application protocol and server name (PP2_TYPE_SSL, _ALPN, _AUTHORITY).
    pub tls: bool,
    /// A checksum of the header (PP2_TYPE_CRC32C).
    pub crc32c: bool,
    /// The client's certificate (PP2_SUBTYPE_SSL_CLIENT_CERT); only with [`ClientAuth`].
    pub client_certificate: bool,
}

impl Default for ProxyV2 {
    fn default() -> Self {
        ProxyV2 { tls: true, crc32c: false, client_certificate: false }
    }
}

/// Overrides of `[tls]` by a route.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RouteTls {
    /// The versions and suites to offer.
    pub policy: Option<Policy>,
    /// The highest version to negotiate.
    pub max_version: Option<TlsVersionLimit>,
    /// The AEADs to offer; empty for those of `[tls]`.
    pub aeads: Vec<AeadCipher>,
}

impl RouteTls {
    /// The effective settings: TLS 1.3, TLS 1.2, and the AEADs.
    pub fn over<'t>(&'t self, tls: &'t Tls) -> (bool, bool, &'t [AeadCipher]) {
        let newest = self.max_version.unwrap_or(tls.max_version) == TlsVersionLimit::Tls13;
        let older = self.policy.unwrap_or(tls.policy) == Policy::Intermediate;
        (newest, older, if self.aeads.is_empty() { &tls.aeads } else { &self.aeads })
    }
}

/// Client certificates (mutual TLS).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientAuth {
    /// The necessity of a certificate.
    pub mode: AuthMode,
    /// The PEM files with the authorities; at least one, unless there are `trust_domains`.
    pub ca: Vec<FilePath>,
    /// The SPIFFE trust domains, each with its own authorities, by name; if empty, certificates need no
    /// SPIFFE ID.
    pub trust_domains: Vec<TrustDomainConfig>,
    /// The files with the authorities' revocation lists.
    pub crl: Vec<FilePath>,
    /// The permitted names; empty for any.
    pub allow: Vec<Allow>,
    /// Set to send `X-Forwarded-Client-Cert` to HTTP servers beside `Client-Cert`.
    pub xfcc: bool,
}

impl ClientAuth {
    /// A certificate of one of these authorities is required.
    pub fn of(ca: Vec<FilePath>) -> Self {
        let (trust_domains, crl, allow) = (Vec::new(), Vec::new(), Vec::new());
        ClientAuth { mode: AuthMode::Required, ca, trust_domains, crl, allow, xfcc: false }
    }

    /// All files with authorities.
    pub fn authorities(&self) -> impl Iterator<Item = &FilePath> {
        self.ca.iter().chain(self.trust_domains.iter().flat_map(|domain| &domain.ca))
    }
}

/// A SPIFFE trust domain with its authorities.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrustDomainConfig {
    /// The name of the trust domain.
    pub name: TrustDomainName,
    /// The PEM files with its authorities (its bundle); at least one.
    pub ca: Vec<FilePath>,
}

/// The name of a SPIFFE trust domain: lower-case letters, digits, dots, dashes and underscores.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TrustDomainName(String);

impl TrustDomainName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for TrustDomainName {
    type Err = Problem;

    fn from_str(text: &str) -> Result<Self, Problem> {
        let sound = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'.' | b'-' | b'_');
        if (1..=255).contains(&text.len()) && text.bytes().all(sound) {
            return Ok(Self(text.to_owned()));
        }
        let problem = Problem::new(format!("`{}` is no SPIFFE trust domain", shown(text)));
        Err(problem.help("write what stands between `spiffe://` and the next `/`, such as example.org"))
    }
}

impl fmt::Display for TrustDomainName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

words! {
    /// The necessity of a client certificate.
    pub enum AuthMode {
        /// A valid certificate is required.
        Required = "required",
        /// No certificate is required, but one that is presented must be valid.
        Optional = "optional",
    }
}

/// A permitted name in a client certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allow {
    /// The kind of name.
    pub kind: AllowKind,
    /// The name; every `*` stands for any text, empty ones included.
    pub pattern: String,
}

words! {
    /// A kind of name in a certificate.
    pub enum AllowKind {
        /// A DNS name of the subject alternative names.
        Dns = "dns",
        /// A URI of the subject alternative names.
        Uri = "uri",
        /// An IP address of the subject alternative names, or a network that contains it.
        Ip = "ip",
        /// The common name of the subject.
        Cn = "cn",
        /// An organizational unit of the subject.
        Ou = "ou",
        /// The hash of the public key: `sha256/` and base64.
        Pin = "pin",
    }
}

impl FromStr for Allow {
    type Err = Problem;

    fn from_str(text: &str) -> Result<Self, Problem> {
        let parsed = text.split_once(':').and_then(|(kind, pattern)| {
            let kind = AllowKind::from_word(kind)?;
            (!pattern.is_empty()).then(|| Allow { kind, pattern: pattern.to_owned() })
        });
        parsed.ok_or_else(|| {
            let problem = Problem::new(format!("`{}` is not a name of a client's certificate", shown(text)));
            problem.help(
                "write \"dns:*.svc.example.org\", \"uri:spiffe://example.org/*\", \"ip:10.0.0.0/8\", \"cn:backup\", \
                 \"ou:ops\" or \"pin:sha256/BASE64\"",
            )
        })
    }
}

impl fmt::Display for Allow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.kind, self.pattern)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allowed_names() {
        let allow: Allow = "uri:spiffe://example.org/*".parse().unwrap();
        assert_eq!((allow.kind, allow.pattern.as_str()), (AllowKind::Uri, "spiffe://example.org/*"));
        for text in ["", "dns:", "DNS:a", "email:a@b", "example.org"] {
            assert!(text.parse::<Allow>().is_err(), "{text}");
        }
    }
}
