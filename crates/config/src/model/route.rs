//! Routes: what connections and requests must match, and where they go.

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;

use super::words::words;
use super::{
    AeadCipher, AlpnId, ClientNetworks, Credentials, FilePath, HostPattern, HttpRules, Ja4Pattern, Name,
    Policy, Redirect, Respond, RoutePath, ServerAddress, Size, Split, StaticFiles, Tls, TlsVersionLimit,
};
use crate::error::{At, Problem, shown};

/// What a connection or a request must match, and where it goes then.
///
/// Of several routes that match, one that names its listeners goes before one that does not, then an exact
/// host before a wildcard before none, then the longest path, then one with `alpn` before one without, then the
/// first in the file:
/// see [`Config::ranked_routes`](super::Config::ranked_routes).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// The listeners that it applies to; see [`Config::routes_of`](super::Config::routes_of).
    pub listeners: Listeners,
    /// The server names that it matches; empty: any, and none.
    pub hosts: Vec<HostPattern>,
    /// The protocols of which a client must offer one; empty: any, and none. The first of them that the
    /// client offers is agreed on.
    pub alpn: Vec<AlpnId>,
    /// What the path of a request must begin with, by whole segments; `/` on routes of connections.
    pub path: RoutePath,
    /// Where what matches goes.
    pub target: Target,
    /// Whether and how clients are asked for a certificate; never with [`Target::Passthrough`].
    pub client_auth: Option<ClientAuth>,
    /// Differences from `[tls]`; none with [`Target::Passthrough`].
    pub tls: RouteTls,
    /// Clients that are refused by their JA4 fingerprint.
    pub deny_ja4: Vec<Ja4Pattern>,
    /// Where clients may come from.
    pub networks: ClientNetworks,
    /// What requests must show; only HTTP.
    pub credentials: Credentials,
    /// What is done to requests and responses of HTTP.
    pub http: HttpRules,
    /// One of how many events is written; failures always are: 1 to 1,000,000.
    pub log_one_in: NonZeroU32,
    /// Bytes per second that all of its clients may send together, and as many that they may receive: 16 KiB to 1 TiB.
    pub bandwidth: Option<Size>,
    /// Where it is written.
    pub at: At,
}

impl Route {
    /// A route that matches everything and does nothing but lead to `target`.
    pub fn to(target: Target) -> Self {
        Route {
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

impl Route {
    /// What events and metrics call it: what it matches, such as `a.example,b.example/api`, or `default`.
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

    /// Whether it says who may enter: not everybody gets what it leads to.
    pub fn is_guard(&self) -> bool {
        let refuses = matches!(&self.target, Target::Respond(respond) if respond.status >= 400);
        let asks_tls = self.client_auth.is_some() || !self.deny_ja4.is_empty();
        let asks = self.networks != ClientNetworks::default() || self.credentials != Credentials::default();
        refuses || asks_tls || asks || self.http.maintenance.is_some()
    }

    /// The backends that it names: of its target, its mirror, and who is asked about requests.
    pub fn backends(&self) -> Vec<&Name> {
        let target = match &self.target {
            Target::Relay(relay) => relay.to.backends(),
            Target::Passthrough(_) | Target::Redirect(_) | Target::Respond(_) | Target::Files(_) => {
                Vec::new()
            }
        };
        let mirror = self.http.mirror.iter().map(|mirror| &mirror.backend);
        let asked = self.credentials.forward.iter().flat_map(|auth| auth.to.backends());
        target.into_iter().chain(mirror).chain(asked).collect()
    }
}

/// The listeners that a route applies to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listeners {
    /// All that the route can apply to.
    All,
    /// These; at least one.
    Named(Vec<Name>),
}

/// Where the connections or requests of a route go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// TLS ends here, and plain bytes or requests go to servers.
    Relay(Relay),
    /// The TLS of the client goes to a server as it came.
    Passthrough(Passthrough),
    /// Requests are answered with a redirect; only HTTP.
    Redirect(Redirect),
    /// Requests are answered with a fixed response; only HTTP.
    Respond(Respond),
    /// Requests are answered with files; only HTTP.
    Files(StaticFiles),
}

/// A server that gets the TLS of clients as it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Passthrough {
    /// The server.
    pub server: ServerAddress,
    /// The PROXY protocol header that it gets first; never with a client's certificate.
    pub send_proxy: Option<SendProxy>,
}

impl Passthrough {
    /// A passthrough without a PROXY header.
    pub fn new(server: ServerAddress) -> Self {
        Passthrough { server, send_proxy: None }
    }
}

/// A relay of plain bytes or requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Relay {
    /// The servers.
    pub to: RelayTarget,
    /// The PROXY protocol header that a server gets first.
    pub send_proxy: Option<SendProxy>,
}

impl Relay {
    /// A relay without a PROXY header.
    pub fn new(to: RelayTarget) -> Self {
        Relay { to, send_proxy: None }
    }
}

/// The servers of a relay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RelayTarget {
    /// The backend of this name.
    Backend(Name),
    /// One server, written in the route.
    Server(ServerAddress),
    /// One server, written in the route, that speaks TLS with a certificate that the system's authorities vouch for.
    TlsServer(ServerAddress),
    /// Backends that share the requests; only HTTP.
    Split(Split),
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
        /// [`SendProxy::V1`].
        V1 = "v1",
        /// [`SendProxy::V2`].
        V2 = "v2",
    }
}

/// The PROXY protocol header that servers get first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendProxy {
    /// Version 1: one line of text with the addresses.
    V1,
    /// Version 2: binary, with TLVs.
    V2(ProxyV2),
}

/// The optional TLVs of a PROXY header of version 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProxyV2 {
    /// The terms agreed on with the client: TLS, the protocol, the server name (PP2_TYPE_SSL, _ALPN, _AUTHORITY).
    pub tls: bool,
    /// A checksum (PP2_TYPE_CRC32C).
    pub crc32c: bool,
    /// The client's certificate (PP2_SUBTYPE_SSL_CLIENT_CERT); only with [`ClientAuth`].
    pub client_certificate: bool,
}

impl Default for ProxyV2 {
    fn default() -> Self {
        ProxyV2 { tls: true, crc32c: false, client_certificate: false }
    }
}

/// The TLS of a route, where it differs from `[tls]`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RouteTls {
    /// Which versions and suites are offered.
    pub policy: Option<Policy>,
    /// The latest version that is spoken.
    pub max_version: Option<TlsVersionLimit>,
    /// The ciphers that are offered; empty: those of `[tls]`.
    pub aeads: Vec<AeadCipher>,
}

impl RouteTls {
    /// The versions and ciphers of the route: TLS 1.3, TLS 1.2, and the ciphers.
    pub fn over<'t>(&'t self, tls: &'t Tls) -> (bool, bool, &'t [AeadCipher]) {
        let newest = self.max_version.unwrap_or(tls.max_version) == TlsVersionLimit::Tls13;
        let older = self.policy.unwrap_or(tls.policy) == Policy::Intermediate;
        (newest, older, if self.aeads.is_empty() { &tls.aeads } else { &self.aeads })
    }
}

/// Mutual TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientAuth {
    /// Whether a client may come without a certificate.
    pub mode: AuthMode,
    /// The PEM files with the authorities; at least one, unless there are `trust_domains`.
    pub ca: Vec<FilePath>,
    /// The SPIFFE trust domains, each with its own authorities, by name; empty: certificates need no SPIFFE ID.
    pub trust_domains: Vec<TrustDomain>,
    /// The files with the authorities' revocation lists.
    pub crl: Vec<FilePath>,
    /// What a certificate must be valid for; empty: nothing in particular.
    pub allow: Vec<Allow>,
    /// Whether HTTP servers get `X-Forwarded-Client-Cert` beside `Client-Cert`.
    pub xfcc: bool,
}

impl ClientAuth {
    /// All files with authorities.
    pub fn authorities(&self) -> impl Iterator<Item = &FilePath> {
        self.ca.iter().chain(self.trust_domains.iter().flat_map(|domain| &domain.ca))
    }
}

/// A SPIFFE trust domain, and who may issue its identities.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrustDomain {
    /// Its name.
    pub name: TrustDomainName,
    /// The PEM files with its authorities (its bundle); at least one.
    pub ca: Vec<FilePath>,
}

/// The name of a SPIFFE trust domain: lower-case letters, digits, dots, dashes and underscores.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TrustDomainName(String);

impl TrustDomainName {
    /// The name.
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
    /// Whether a client may come without a certificate.
    pub enum AuthMode {
        /// No.
        Required = "required",
        /// Yes; a certificate that is given must be valid.
        Optional = "optional",
    }
}

/// A name that a client's certificate may bear.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allow {
    /// What kind of name it is.
    pub kind: AllowKind,
    /// The name; every `*` stands for any text, the empty one included.
    pub pattern: String,
}

words! {
    /// A kind of name in a certificate.
    pub enum AllowKind {
        /// A DNS name of the subject alternative names.
        Dns = "dns",
        /// A URI of the subject alternative names.
        Uri = "uri",
        /// An IP address of the subject alternative names, or a network that it is in.
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
