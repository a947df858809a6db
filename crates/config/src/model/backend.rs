//! Backends: groups of servers, and the choice among them.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::words::words;
use super::{CookieName, Eject, HeaderName, Health, Name, ServerAddress, ServerTls, Weight};
use crate::error::{At, Problem, shown};

/// A group of equivalent servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackendConfig {
    /// The name in routes, events and metrics.
    pub name: Name,
    /// The servers in the order of the file; at least one.
    pub servers: Vec<BackendServer>,
    /// The algorithm that chooses a server.
    pub balance: Balance,
    /// The protocol of the servers behind HTTP routes.
    pub protocol: Protocol,
    /// The TLS settings for the servers; `None` for plain text.
    pub tls: Option<ServerTls>,
    /// The limits on connections.
    pub pool: Pool,
    /// The cookie that keeps a client with its server; only HTTP.
    pub sticky_cookie: Option<CookieName>,
    /// The active health checks, if any.
    pub health: Option<Health>,
    /// The ejection of servers that fail requests, if any.
    pub eject: Option<Eject>,
    /// The place in the configuration.
    pub at: At,
}

impl BackendConfig {
    /// A backend with the defaults of all keys but `servers`.
    pub fn new(name: Name, servers: Vec<BackendServer>) -> Self {
        BackendConfig {
            name,
            servers,
            balance: Balance::RoundRobin,
            protocol: Protocol::H1,
            tls: None,
            pool: Pool::default(),
            sticky_cookie: None,
            health: None,
            eject: None,
            at: At::NOWHERE,
        }
    }

    /// The key for which the backend can serve HTTP only, if there is one.
    pub fn needs_http(&self) -> Option<&'static str> {
        if self.protocol != Protocol::H1 {
            return Some("protocol");
        }
        if matches!(self.balance, Balance::Hash(HashKey::Cookie(_) | HashKey::Header(_))) {
            return Some("balance");
        }
        self.sticky_cookie.as_ref().map(|_| "sticky_cookie")
    }
}

/// A server of a backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackendServer {
    /// The address of the server.
    pub address: ServerAddress,
    /// Its share of the connections.
    pub weight: Weight,
    /// Set if it is used only when no other server can be connected to.
    pub backup: bool,
    /// The administrative state of the server.
    pub state: ServerState,
    /// The place in the configuration.
    pub at: At,
}

impl BackendServer {
    /// A server of weight 1 that is not a backup.
    pub fn new(address: ServerAddress) -> Self {
        let weight = Weight::literal::<1>();
        BackendServer { address, weight, backup: false, state: ServerState::Enabled, at: At::NOWHERE }
    }
}

words! {
    /// The administrative state of a server.
    pub enum ServerState {
        /// In use, as long as it works.
        Enabled = "enabled",
        /// Draining: no new requests, but present ones finish.
        Drain = "drain",
        /// Unused, as if it were not configured.
        Disabled = "disabled",
    }
}

impl FromStr for BackendServer {
    type Err = Problem;

    fn from_str(text: &str) -> Result<Self, Problem> {
        let mut words = text.split_ascii_whitespace();
        let mut server = BackendServer::new(words.next().unwrap_or_default().parse()?);
        let (mut weight_seen, mut backup_seen, mut state_seen) = (false, false, false);
        for word in words {
            let twice = if word == "backup" {
                server.backup = true;
                std::mem::replace(&mut backup_seen, true)
            } else if let Some(state) =
                ServerState::from_word(word).filter(|state| *state != ServerState::Enabled)
            {
                server.state = state;
                std::mem::replace(&mut state_seen, true)
            } else if let Some(number) = word.strip_prefix("weight=") {
                let weight = number.parse().ok().and_then(Weight::new);
                server.weight = weight.ok_or_else(|| {
                    let problem = Problem::new(format!("`{}` is no weight", shown(number)));
                    problem.help("weights are whole numbers from 1 to 256")
                })?;
                std::mem::replace(&mut weight_seen, true)
            } else {
                let problem =
                    Problem::new(format!("`{}` is not known after a server's address", shown(word)));
                return Err(problem.help("write ` weight=N`, ` backup`, ` drain` or ` disabled`"));
            };
            if twice {
                if ServerState::from_word(word).is_some() {
                    let problem = Problem::new("a server has two states");
                    return Err(problem.help("keep one of ` drain` and ` disabled`"));
                }
                let problem = Problem::new(format!("`{}` is written twice", shown(word)));
                return Err(problem.help("keep one of the two"));
            }
        }
        Ok(server)
    }
}

impl fmt::Display for BackendServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.address.fmt(f)?;
        if self.weight.get() != 1 {
            write!(f, " weight={}", self.weight)?;
        }
        if self.backup {
            f.write_str(" backup")?;
        }
        if self.state != ServerState::Enabled {
            write!(f, " {}", self.state)?;
        }
        Ok(())
    }
}

words! {
    /// The protocol of servers behind HTTP routes.
    pub enum Protocol {
        /// HTTP/1.1 over any connection.
        H1 = "h1",
        /// HTTP/2 with prior knowledge (RFC 9113 §3.3).
        H2 = "h2",
        /// The protocol negotiated by ALPN: HTTP/2, else HTTP/1.1.
        Auto = "auto",
    }
}

/// The algorithm that chooses a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Balance {
    /// Round robin, weighted by [`BackendServer::weight`].
    RoundRobin,
    /// The fewest connections or requests relative to the weight.
    LeastConn,
    /// The less busy of two random servers.
    TwoChoices,
    /// Consistent hashing: the same server for the same key, as long as it is alive.
    Hash(HashKey),
}

words! {
    /// The names of the algorithms in the table of keys; `NAME` stands for a name.
    pub enum BalanceWay {
        /// The way of [`Balance::RoundRobin`].
        RoundRobin = "round_robin",
        /// The way of [`Balance::LeastConn`].
        LeastConn = "least_conn",
        /// The way of [`Balance::TwoChoices`].
        TwoChoices = "two_choices",
        /// The way of [`HashKey::Client`].
        HashClient = "hash:client",
        /// The way of [`HashKey::Cookie`].
        HashCookie = "hash:cookie:NAME",
        /// The way of [`HashKey::Header`].
        HashHeader = "hash:header:NAME",
    }
}

/// The key for hashing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HashKey {
    /// The address of the client.
    Client,
    /// The value of a cookie; without it, round robin. Only HTTP.
    Cookie(CookieName),
    /// The value of a request header field; without it, round robin. Only HTTP.
    Header(HeaderName),
}

impl HashKey {
    /// Parses `client`, `cookie:NAME` or `header:NAME`; `None` for anything else.
    pub(crate) fn read(text: &str) -> Option<Result<Self, Problem>> {
        match text.split_once(':') {
            None if text == "client" => Some(Ok(HashKey::Client)),
            Some(("cookie", name)) => Some(name.parse().map(HashKey::Cookie)),
            Some(("header", name)) => Some(name.parse().map(HashKey::Header)),
            _ => None,
        }
    }
}

impl fmt::Display for HashKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HashKey::Client => f.write_str("client"),
            HashKey::Cookie(name) => write!(f, "cookie:{name}"),
            HashKey::Header(name) => write!(f, "header:{name}"),
        }
    }
}

impl FromStr for Balance {
    type Err = Problem;

    fn from_str(text: &str) -> Result<Self, Problem> {
        if let Some(key) = text.strip_prefix("hash:").and_then(HashKey::read) {
            return key.map(Balance::Hash);
        }
        match BalanceWay::from_word(text) {
            Some(BalanceWay::RoundRobin) => Ok(Balance::RoundRobin),
            Some(BalanceWay::LeastConn) => Ok(Balance::LeastConn),
            Some(BalanceWay::TwoChoices) => Ok(Balance::TwoChoices),
            _ => Err(Problem::new(format!("`{}` is no way to choose a server", shown(text)))),
        }
    }
}

impl fmt::Display for Balance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Balance::RoundRobin => BalanceWay::RoundRobin.fmt(f),
            Balance::LeastConn => BalanceWay::LeastConn.fmt(f),
            Balance::TwoChoices => BalanceWay::TwoChoices.fmt(f),
            Balance::Hash(key) => write!(f, "hash:{key}"),
        }
    }
}

/// The limits on connections to the servers of a backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    /// Concurrent connections or requests per server, over all workers: 1 to 1,000,000.
    pub max_connections: Option<u32>,
    /// The length of the queue while all servers are at that limit: up to 1,000,000.
    pub queue: u32,
    /// The maximum time in the queue: 1 ms to 1 h.
    pub queue_timeout: Duration,
    /// Idle connections that each worker keeps per server: up to 100,000.
    pub idle_connections: u32,
    /// The time for which an idle connection is kept: 1 ms to 24 h.
    pub idle_timeout: Duration,
    /// The timeout of a connection attempt, if not that of the limits: 1 ms to 1 h.
    pub connect_timeout: Option<Duration>,
}

impl Default for Pool {
    fn default() -> Self {
        Pool {
            max_connections: None,
            queue: 128,
            queue_timeout: Duration::from_secs(5),
            idle_connections: 256,
            idle_timeout: Duration::from_secs(60),
            connect_timeout: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_print_as_they_are_read() {
        for text in [
            "unix:/run/x.sock",
            "10.0.0.7:3000 weight=2",
            "10.0.0.8:3000 backup",
            "a:1 weight=256 backup drain",
            "a:1 disabled",
        ] {
            assert_eq!(text.parse::<BackendServer>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn what_is_no_server_is_refused() {
        for text in [
            "",
            "a:1 weight=0",
            "a:1 weight=257",
            "a:1 weight=x",
            "a:1 slow",
            "a:1 backup backup",
            "a:1 enabled",
            "a:1 drain disabled",
        ] {
            assert!(text.parse::<BackendServer>().is_err(), "{text}");
        }
    }

    #[test]
    fn ways_to_choose() {
        for way in BalanceWay::ALL {
            let text = way.word().replace("NAME", "x-user");
            assert_eq!(text.parse::<Balance>().unwrap().to_string(), text);
        }
        assert_eq!("hash:client".parse(), Ok(Balance::Hash(HashKey::Client)));
        for text in
            ["", "hash", "hash:cookie:", "hash:cookie:a b", "hash:header:ä", "hash:client:a", "least_conn:a"]
        {
            assert!(text.parse::<Balance>().is_err(), "{text}");
        }
    }
}
