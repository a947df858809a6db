//! Checks of servers and roots of files before the first client connects: whether the user that Offramp runs as may open
//! their sockets and read their directories, and whether an address is a listener of this very configuration.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use offramp_config::model::{
    BackendConfig, ListenAddress, ListenerConfig, Name, Passthrough, RelayConfig, RelayTarget, RouteConfig,
    RouteTarget, ServerAddress, ServerState,
};
use offramp_config::{At, Config};
use offramp_net::listen::is_own;
use offramp_net::process::UserIdentity;
use offramp_process::{Finding, descriptors};

/// The warnings of [`look`], and those of this process, which `check` is not.
pub(crate) fn look_here(config: &Config, identity: &UserIdentity) -> Vec<Finding> {
    let mut findings = look(config, identity);
    findings.extend(descriptors::look(config));
    findings
}

/// The warnings. `identity` is the user that will connect.
pub(crate) fn look(config: &Config, identity: &UserIdentity) -> Vec<Finding> {
    let named: Named<'_> = config.backends.iter().map(|backend| (&backend.name, backend)).collect();
    let mut findings = Vec::new();
    let mut seen: Vec<(&At, &ServerAddress)> = Vec::new();
    for route in &config.routes {
        for (at, server) in servers(&named, route) {
            if let ServerAddress::Unix(path) = server
                && !seen.iter().any(|(_, other)| *other == server)
                && let Err(closed) = identity.may_connect(path)
            {
                findings.push(Finding::new(
                    at,
                    format!(
                        "the user `{}` may not connect to {server}: {} has mode {:04o} and belongs to {}:{}; put \
                         the user into that group, or open it",
                        identity.name(),
                        closed.path.display(),
                        closed.mode,
                        closed.owner,
                        closed.group
                    ),
                ));
            }
            seen.push((at, server));
        }
    }
    findings.extend(config.routes.iter().filter_map(|route| unreadable_root(route, identity)));
    findings.extend(config.backends.iter().filter_map(idle));
    for listener in &config.listeners {
        for finding in config.routes_of(listener).filter_map(|route| own(config, &named, listener, route)) {
            // Several listeners may have the route.
            if !findings.contains(&finding) {
                findings.push(finding);
            }
        }
    }
    findings
}

/// The warning of a root that the user may not read.
fn unreadable_root(route: &RouteConfig, identity: &UserIdentity) -> Option<Finding> {
    let RouteTarget::Files(files) = &route.target else { return None };
    let closed = identity.may_read(&files.root.path).err()?;
    let text = format!(
        "root: the user `{}` may not read {}: {} has mode {:04o} and belongs to {}:{}; put the user into that \
         group, or open it",
        identity.name(),
        files.root.path.display(),
        closed.path.display(),
        closed.mode,
        closed.owner,
        closed.group
    );
    Some(Finding::new(&files.root.at, text))
}

/// The warning of a backend without an enabled server.
fn idle(backend: &BackendConfig) -> Option<Finding> {
    if backend.servers.iter().any(|server| server.state == ServerState::Enabled) {
        return None;
    }
    let text = format!(
        "no server of the backend `{}` gets anything new, because all of them drain or are disabled: clients \
         get an error",
        backend.name
    );
    Some(Finding::new(&backend.at, text))
}

/// The backends by name: each route looks for its own, and a configuration has thousands.
type Named<'c> = BTreeMap<&'c Name, &'c BackendConfig>;

/// The servers of a route, each with its place.
fn servers<'c>(named: &Named<'c>, route: &'c RouteConfig) -> Vec<(&'c At, &'c ServerAddress)> {
    match &route.target {
        RouteTarget::Relay(RelayConfig {
            to: RelayTarget::Server(server) | RelayTarget::TlsServer(server),
            ..
        })
        | RouteTarget::Passthrough(Passthrough { server, .. }) => {
            vec![(&route.at, server)]
        }
        RouteTarget::Relay(RelayConfig { to, .. }) => {
            let mirror = route.http.mirror.iter().map(|mirror| &mirror.backend);
            let backends = to.backends().into_iter().chain(mirror).filter_map(|name| named.get(name));
            let servers = backends.flat_map(|backend| &backend.servers);
            servers.map(|server| (&server.at, &server.address)).collect()
        }
        RouteTarget::Redirect(_) | RouteTarget::Respond(_) | RouteTarget::Files(_) => Vec::new(),
    }
}

/// True if the servers of a route get plain text.
fn speaks_plain(config: &Config, route: &RouteConfig) -> bool {
    match &route.target {
        RouteTarget::Relay(RelayConfig { to, .. }) => {
            let plain = |name: &Name| config.backend(name).is_none_or(|backend| backend.tls.is_none());
            matches!(to, RelayTarget::Server(_)) || to.backends().into_iter().any(plain)
        }
        _ => false,
    }
}

/// The warning of a route of `listener` that leads to a listener of this configuration.
fn own(
    config: &Config,
    named: &Named<'_>,
    listener: &ListenerConfig,
    route: &RouteConfig,
) -> Option<Finding> {
    servers(named, route).into_iter().find_map(|(at, server)| {
        let target = config.listeners.iter().find(|one| listens(one, server))?;
        let text = if leads_to(config, named, target, listener, &mut Vec::new()) {
            format!(
                "the server {server} is Offramp's own listener `{}`, which leads here again: a loop; write the \
                 address of the application",
                target.name
            )
        } else if target.tls && speaks_plain(config, route) {
            format!(
                "the server {server} is Offramp's own listener `{}`, which expects TLS, and gets what was \
                 decrypted; write the address of the application, or use `passthrough`",
                target.name
            )
        } else {
            return None;
        };
        Some(Finding::new(at, text))
    })
}

/// True if connections to `from` may come to `to` in the end.
fn leads_to<'c>(
    config: &'c Config,
    named: &Named<'c>,
    from: &'c ListenerConfig,
    to: &ListenerConfig,
    seen: &mut Vec<&'c ListenerConfig>,
) -> bool {
    if from.name == to.name {
        return true;
    }
    if seen.iter().any(|known| known.name == from.name) {
        return false;
    }
    seen.push(from);
    let servers = config.routes_of(from).flat_map(|route| servers(named, route));
    let next: Vec<&ListenerConfig> = servers
        .filter_map(|(_, server)| config.listeners.iter().find(|listener| listens(listener, server)))
        .collect();
    next.into_iter().any(|next| leads_to(config, named, next, to, seen))
}

/// True if a connection to `server` comes to `listener`.
fn listens(listener: &ListenerConfig, server: &ServerAddress) -> bool {
    let takes = |at: SocketAddr| {
        listener.addresses.iter().any(|address| match address {
            ListenAddress::Ip(own) => {
                if own.port() != at.port() {
                    return false;
                }
                let (own_ip, ip) = (own.ip().to_canonical(), at.ip().to_canonical());
                // `[::]` takes IPv4 as well; to connect to a wildcard address is to connect to this machine.
                let family = own_ip.is_ipv6() || ip.is_ipv4();
                let everywhere = own_ip.is_unspecified() && family && (ip.is_unspecified() || is_own(ip));
                let here = ip.is_unspecified() && own_ip.is_loopback();
                own_ip == ip || everywhere || here
            }
            ListenAddress::Unix(_) => false,
        })
    };
    match server {
        ServerAddress::Unix(path) => listener.addresses.contains(&ListenAddress::Unix(path.clone())),
        ServerAddress::Ip(address) => takes(*address),
        ServerAddress::Name { host, port } if host.to_string() == "localhost" => {
            let local = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];
            local.into_iter().any(|ip| takes(SocketAddr::new(ip, *port)))
        }
        // What a name stands for is known when it has been looked up.
        ServerAddress::Name { .. } => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use offramp_config::{Environment, parse};

    fn told(text: &str) -> Vec<String> {
        let (config, _) = parse(text, "/f.toml", &Environment::default()).unwrap();
        look(&config, &UserIdentity::current()).into_iter().map(|finding| finding.to_string()).collect()
    }

    #[test]
    fn a_server_that_is_ones_own_listener_is_a_loop() {
        let listener = "[[listener]]\naddress = \"[::]:8443\"\n";
        for server in ["127.0.0.1:8443", "[::1]:8443", "localhost:8443", "0.0.0.0:8443"] {
            let told = told(&format!("{listener}[[route]]\nserver = \"{server}\"\n"));
            assert_eq!(told.len(), 1, "{server}: {told:?}");
            assert!(told[0].starts_with("/f.toml:3:1: ") && told[0].contains("a loop"), "{told:?}");
        }
        for server in ["127.0.0.1:8444", "192.0.2.1:8443", "app.test:8443", "unix:/run/app.sock"] {
            assert_eq!(told(&format!("{listener}[[route]]\nserver = \"{server}\"\n")), [""; 0], "{server}");
        }
        let unix =
            "[[listener]]\naddress = \"unix:/run/tls.sock\"\n[[route]]\nserver = \"unix:/run/tls.sock\"\n";
        assert!(told(unix)[0].contains("a loop"));
        let backend =
            "[[route]]\nbackend = \"x\"\n[backend.x]\nservers = [\"a.test:1\", \"127.0.0.1:8443\"]\n";
        assert!(told(&format!("{listener}{backend}"))[0].starts_with("/f.toml:6:"));
    }

    #[test]
    fn a_backend_whose_servers_all_leave_is_told() {
        let text = "[[route]]\nbackend = \"x\"\n[backend.x]\nservers = [\"a.test:1 drain\", \"b.test:1 disabled\"]\n";
        let leave = told(text);
        assert!(
            leave.len() == 1 && leave[0].starts_with("/f.toml:3:10: no server of the backend `x`"),
            "{leave:?}"
        );
        assert_eq!(told(&text.replace(" drain", " backup")), [""; 0]);
    }

    #[test]
    fn a_chain_of_listeners_is_a_loop_only_where_it_leads_back() {
        let two = "[[listener]]\nname = \"a\"\naddress = \"127.0.0.1:1\"\n\
                   [[listener]]\nname = \"b\"\naddress = \"127.0.0.1:2\"\n\
                   [[route]]\nlistener = \"a\"\nhost = \"x.test\"\npassthrough = \"127.0.0.1:2\"\n\
                   [[route]]\nlistener = \"b\"\nserver = ";
        assert_eq!(told(&format!("{two}\"127.0.0.1:3\"\n")), [""; 0]);
        let round = told(&format!("{two}\"127.0.0.1:1\"\n"));
        assert_eq!(round.len(), 2, "{round:?}");
        assert!(round.iter().all(|line| line.contains("a loop")), "{round:?}");
        // Decrypted bytes for a listener of TLS are no good either.
        let text = two.replace("host = \"x.test\"\npassthrough", "server");
        let told = told(&format!("{text}\"127.0.0.1:3\"\n"));
        assert!(told.len() == 1 && told[0].contains("expects TLS"), "{told:?}");
    }
}
