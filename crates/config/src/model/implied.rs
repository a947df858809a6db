//! Consequences of a configuration: implied items, the routes of a listener, the default certificate.

use std::collections::BTreeSet;

use super::{
    AcmeAuthority, CertificateConfig, CertificateName, CertificateSource, ClientNetworks, Config,
    Credentials, DefaultRole, HostName, HostPattern, HttpRules, ImpliedCertificates, ListenAddress,
    ListenerConfig, Listeners, Mode, Name, PostgresCancel, RedirectResponse, RedirectTo, RouteConfig,
    RouteTarget,
};
use crate::error::At;

impl Config {
    /// Adds the items implied by the absence of others: a listener named `default` on `[::]:443`, a
    /// certificate from the local CA for [`Config::route_hosts`] unless authorities are used, and the
    /// authorities that need no section. [`parse`](crate::parse) has done it; a configuration made in code
    /// needs it once, after its routes are set.
    pub fn fill_implied(&mut self) {
        if self.listeners.is_empty() {
            self.listeners.push(ListenerConfig::default());
        }
        self.fill_authorities();
        let local = self.tls.certificates == ImpliedCertificates::Local;
        if local && self.certificates.is_empty() && self.listeners.iter().any(|listener| listener.tls) {
            self.certificates.push(CertificateConfig {
                source: CertificateSource::Local { names: self.route_hosts() },
                default: DefaultRole::Unsaid,
                at: At::NOWHERE,
            });
        }
    }

    /// The hosts of all routes with TLS termination, without duplicates, in the order of the file;
    /// `localhost` if there are none.
    pub fn route_hosts(&self) -> Vec<CertificateName> {
        let mut seen = BTreeSet::new();
        let ended = self.routes.iter().filter(|route| !matches!(route.target, RouteTarget::Passthrough(_)));
        let hosts = ended.flat_map(|route| &route.hosts).filter(|host| seen.insert(*host));
        let mut names: Vec<_> = hosts.map(|host| CertificateName::Host(host.clone())).collect();
        if names.is_empty() {
            names.push(CertificateName::Host(HostPattern::Exact(HostName::localhost())));
        }
        names
    }

    /// The routes that apply to a listener, in the order of the file.
    ///
    /// A route that names no listeners does not apply to unsuitable ones: a route with keys for HTTP to
    /// listeners of connections, one with `alpn` to listeners of HTTP, one that needs TLS to those without
    /// it, and a redirect to https to those with it.
    pub fn routes_of<'a>(&'a self, listener: &'a ListenerConfig) -> impl Iterator<Item = &'a RouteConfig> {
        self.routes.iter().filter(|route| route.applies_to(listener))
    }

    /// The routes that need TLS, on a listener of HTTP without it: it redirects their requests to TLS.
    pub fn secured_routes_of<'a>(
        &'a self,
        listener: &'a ListenerConfig,
    ) -> impl Iterator<Item = &'a RouteConfig> {
        self.routes.iter().filter(|route| route.is_secured_on(listener))
    }

    /// The routes of a listener in order of precedence: the first with matching host (`None` for any, and
    /// none), path and protocols is taken. A route with several hosts occurs once per host, because an exact
    /// host precedes another route's wildcard.
    pub fn ranked_routes<'a>(
        &'a self,
        listener: &'a ListenerConfig,
    ) -> Vec<(Option<&'a HostPattern>, &'a RouteConfig)> {
        let mut ranked = Vec::new();
        for route in self.routes_of(listener) {
            if route.hosts.is_empty() {
                ranked.push((None, route));
            }
            ranked.extend(route.hosts.iter().map(|host| (Some(host), route)));
        }
        // The sort is stable: routes of equal rank stay in the order of the file.
        ranked.sort_by_key(|(host, route)| {
            let host = match host {
                Some(HostPattern::Exact(_)) => 0,
                Some(HostPattern::Wildcard(_)) => 1,
                None => 2,
            };
            let path = std::cmp::Reverse(route.path.as_str().len());
            (route.listeners == Listeners::All, host, path, route.alpn.is_empty())
        });
        ranked
    }

    /// The certificate for clients without a known server name: the one with `default = true`, else the first
    /// without `false`. Without one, clients get `unrecognized_name`.
    pub fn default_certificate(&self) -> Option<&CertificateConfig> {
        // Certificates on demand are many, and each is for its own name.
        let is_one = |source: &CertificateSource| !matches!(source, CertificateSource::Acme(acme) if acme.on_demand.is_some());
        let candidates = self.certificates.iter().filter(|certificate| is_one(&certificate.source));
        let says = |role| candidates.clone().find(|certificate| certificate.default == role);
        says(DefaultRole::Always).or_else(|| says(DefaultRole::Unsaid))
    }
}

impl Config {
    /// The authorities that certificates are ordered from.
    pub fn asked_authorities(&self) -> impl Iterator<Item = &AcmeAuthority> {
        self.authorities.iter().filter(|authority| self.asked_names().any(|name| *name == authority.name))
    }

    fn asked_names(&self) -> impl Iterator<Item = &Name> {
        let named = self.certificates.iter().flat_map(|certificate| match &certificate.source {
            CertificateSource::Acme(acme) => acme.authorities.as_slice(),
            _ => &[],
        });
        named.chain(&self.tls.acme)
    }

    /// Adds well-known authorities that are used, and the implied one of `tls.acme`.
    fn fill_authorities(&mut self) {
        if self.tls.certificates == ImpliedCertificates::Acme && self.tls.acme.is_empty() {
            let only = match self.authorities.as_slice() {
                [only] => Some(only.name.clone()),
                _ => "letsencrypt".parse().ok(),
            };
            self.tls.acme.extend(only);
        }
        let missing: Vec<Name> =
            self.asked_names().filter(|name| self.authority(name).is_none()).cloned().collect();
        for name in missing {
            if self.authority(&name).is_none() {
                self.authorities.extend(AcmeAuthority::well_known(&name));
            }
        }
        self.authorities.sort_by(|one, other| one.name.cmp(&other.name));
    }
}

impl RouteConfig {
    /// Returns `true` for routes of a listener; see [`Config::routes_of`].
    pub fn applies_to(&self, listener: &ListenerConfig) -> bool {
        match &self.listeners {
            Listeners::All => self.suits(listener),
            Listeners::Named(names) => names.contains(&listener.name),
        }
    }

    /// Returns `true` if a listener can serve the route.
    fn suits(&self, listener: &ListenerConfig) -> bool {
        let to_https =
            matches!(&self.target, RouteTarget::Redirect(RedirectResponse { to: RedirectTo::Https, .. }));
        let mode = match listener.mode {
            Mode::Tcp => !self.is_of_requests(),
            Mode::Http => self.alpn.is_empty(),
        };
        let tls = if listener.tls { !to_https } else { !self.needs_tls(listener.mode) };
        mode && tls
    }

    /// Returns `true` if a listener of HTTP without TLS redirects the route's requests to TLS: it would serve
    /// the route if it had TLS.
    pub fn is_secured_on(&self, listener: &ListenerConfig) -> bool {
        let plain = !listener.tls && listener.mode == Mode::Http && self.listeners == Listeners::All;
        plain && self.needs_tls(Mode::Http) && self.suits(&ListenerConfig { tls: true, ..listener.clone() })
    }

    /// Returns `true` for routes with keys that apply to HTTP requests only.
    pub fn is_of_requests(&self) -> bool {
        let answers =
            matches!(self.target, RouteTarget::Redirect(_) | RouteTarget::Respond(_) | RouteTarget::Files(_));
        let tells = self.client_auth.as_ref().is_some_and(|auth| auth.xfcc);
        let asks = self.credentials != Credentials::default();
        answers || tells || asks || !self.path.is_root() || self.http != HttpRules::default()
    }

    /// Returns `true` for routes that need TLS on a listener of this mode.
    pub fn needs_tls(&self, mode: Mode) -> bool {
        let handshake = self.client_auth.is_some()
            || !self.deny_ja4.is_empty()
            || matches!(self.target, RouteTarget::Passthrough(_));
        // A request names its host without TLS too.
        let matching = mode == Mode::Tcp && !self.hosts.is_empty() || !self.alpn.is_empty();
        handshake || matching
    }
}

impl Default for ListenerConfig {
    /// The implied listener: `default`, with TLS, on every address.
    fn default() -> Self {
        let everywhere = std::net::SocketAddr::from((std::net::Ipv6Addr::UNSPECIFIED, 443));
        ListenerConfig {
            name: Name::default(),
            addresses: vec![ListenAddress::Ip(everywhere)],
            mode: Mode::Tcp,
            tls: true,
            accept_proxy: Vec::new(),
            networks: ClientNetworks::default(),
            preamble: None,
            cancel: PostgresCancel::Tls,
            trusted_proxies: Vec::new(),
            via: false,
            at: At::NOWHERE,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{RelayConfig, RelayTarget};

    fn certificate(default: DefaultRole, name: &str) -> CertificateConfig {
        let names = vec![name.parse().unwrap()];
        CertificateConfig { source: CertificateSource::Local { names }, default, at: At::NOWHERE }
    }

    fn default_of(roles: &[DefaultRole]) -> Option<usize> {
        let certificates: Vec<_> =
            roles.iter().enumerate().map(|(at, role)| certificate(*role, &format!("n{at}"))).collect();
        let config = Config { certificates, ..Config::default() };
        let default = config.default_certificate()?;
        config.certificates.iter().position(|certificate| certificate == default)
    }

    #[test]
    fn the_default_certificate() {
        use DefaultRole::{Always, Never, Unsaid};
        assert_eq!(default_of(&[]), None);
        assert_eq!(default_of(&[Never]), None);
        assert_eq!(default_of(&[Never, Unsaid, Unsaid]), Some(1));
        assert_eq!(default_of(&[Unsaid, Never, Always]), Some(2));
    }

    #[test]
    fn implied_parts_are_added_once() {
        let mut config = Config::default();
        config.fill_implied();
        let once = config.clone();
        config.fill_implied();
        assert_eq!(config, once);
        assert_eq!(config.listeners, [ListenerConfig::default()]);
        assert_eq!(config.certificates, [certificate(DefaultRole::Unsaid, "localhost")]);
    }

    #[test]
    fn without_tls_no_certificate_is_implied() {
        let listeners = vec![ListenerConfig { tls: false, ..ListenerConfig::default() }];
        let mut config = Config { listeners, ..Config::default() };
        config.fill_implied();
        assert_eq!(config.certificates, []);
    }

    #[test]
    fn routes_are_ranked_by_listener_then_host_then_protocol() {
        let text = "[[route]]\nserver = \"h:1\"\n\
                    [[route]]\nhost = [\"*.a.org\", \"b.org\"]\nserver = \"h:2\"\n\
                    [[route]]\nhost = \"x.a.org\"\nserver = \"h:3\"\n\
                    [[route]]\nhost = \"x.a.org\"\nalpn = \"h2\"\nserver = \"h:4\"\n\
                    [[route]]\nlistener = \"default\"\nserver = \"h:5\"\n";
        let (config, _) = crate::parse(text, "f.toml", &crate::Environment::default()).unwrap();
        let ranked = config.ranked_routes(&config.listeners[0]);
        let said: Vec<String> = ranked
            .iter()
            .map(|(host, route)| {
                let at = config.routes.iter().position(|other| std::ptr::eq(other, *route)).unwrap() + 1;
                host.map_or_else(|| at.to_string(), |host| format!("{at} {host}"))
            })
            .collect();
        assert_eq!(said, ["5", "4 x.a.org", "2 b.org", "3 x.a.org", "2 *.a.org", "1"]);
    }

    #[test]
    fn routes_that_need_tls_keep_away_from_plain_listeners() {
        let server = "127.0.0.1:1".parse().unwrap();
        let relay = RouteTarget::Relay(RelayConfig::new(RelayTarget::Server(server)));
        let any = RouteConfig::to(relay);
        let hosted = RouteConfig { hosts: vec!["a.org".parse().unwrap()], ..any.clone() };
        let config = Config { routes: vec![hosted, any.clone()], ..Config::default() };
        let secure = ListenerConfig::default();
        let plain = ListenerConfig { tls: false, ..ListenerConfig::default() };
        assert_eq!(config.routes_of(&secure).count(), 2);
        assert_eq!(config.routes_of(&plain).collect::<Vec<_>>(), [&any]);
    }

    #[test]
    fn plain_listeners_know_which_routes_need_tls() {
        let text = "[[listener]]\nmode = \"http\"\n[[listener]]\nname = \"plain\"\naddress = \"[::]:80\"\nmode = \"http\"\n\
                    tls = false\n[[route]]\nhost = \"a.org\"\npassthrough = \"h:1\"\n\
                    [[route]]\nhost = \"b.org\"\nserver = \"h:2\"\ndeny_ja4 = [\"t13*\"]\n\
                    [[route]]\nhost = \"c.org\"\nserver = \"h:3\"\n\
                    [[route]]\nlistener = \"default\"\nhost = \"d.org\"\npassthrough = \"h:4\"\n";
        let (config, _) = crate::parse(text, "f.toml", &crate::Environment::default()).unwrap();
        let names = |name: &str| -> Vec<String> {
            let listener = config.listeners.iter().find(|listener| listener.name.as_str() == name).unwrap();
            config.secured_routes_of(listener).map(RouteConfig::name).collect()
        };
        assert_eq!(
            (names("plain"), names("default")),
            (vec!["a.org".to_owned(), "b.org".to_owned()], Vec::new())
        );
    }
}
