//! Routes and backends: what connections must match, and where they go.

use std::fmt;
use std::str::FromStr;

use super::words::words;
use super::{AlpnId, FilePath, HostPattern, Name, ServerAddress, Weight};
use crate::error::{At, Problem, shown};

/// What a connection must match, and where it goes then.
///
/// Of several routes that match, one that names its listeners goes before one that does not, then an exact
/// host before a wildcard before none, then one with `alpn` before one without, then the first in the file:
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
    /// Where matching connections go.
    pub target: Target,
    /// Where it is written.
    pub at: At,
}

/// The listeners that a route applies to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listeners {
    /// All that the route can apply to.
    All,
    /// These; at least one.
    Named(Vec<Name>),
}

/// Where the connections of a route go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// TLS ends here and the plain bytes are relayed.
    Relay(Relay),
    /// The TLS of the client goes to this server as it came.
    Passthrough(ServerAddress),
}

/// A relay of plain bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Relay {
    /// The servers.
    pub to: RelayTarget,
    /// The PROXY protocol header that a server gets first.
    pub send_proxy: Option<SendProxy>,
    /// Whether and how clients are asked for a certificate.
    pub client_auth: Option<ClientAuth>,
}

impl Relay {
    /// A relay without a PROXY header and without client certificates.
    pub fn new(to: RelayTarget) -> Self {
        Relay { to, send_proxy: None, client_auth: None }
    }
}

/// The servers of a relay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RelayTarget {
    /// The backend of this name.
    Backend(Name),
    /// One server, written in the route.
    Server(ServerAddress),
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProxyV2 {
    /// A checksum (PP2_TYPE_CRC32C).
    pub crc32c: bool,
    /// The client's certificate (PP2_SUBTYPE_SSL_CLIENT_CERT); only with [`ClientAuth`].
    pub client_certificate: bool,
}

/// Mutual TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientAuth {
    /// Whether a client may come without a certificate.
    pub mode: AuthMode,
    /// The PEM file with the authorities.
    pub ca: FilePath,
    /// What a certificate must be valid for; empty: nothing in particular.
    pub allow: Vec<Allow>,
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
        /// The common name of the subject.
        Cn = "cn",
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
            problem.help("write \"dns:*.svc.example.org\", \"uri:spiffe://example.org/*\" or \"cn:backup\"")
        })
    }
}

impl fmt::Display for Allow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.kind, self.pattern)
    }
}

/// A group of servers that do the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backend {
    /// What routes, events and metrics call it.
    pub name: Name,
    /// Its servers in the order of the file; at least one.
    pub servers: Vec<Server>,
    /// How a server is chosen.
    pub balance: Balance,
    /// Where it is written.
    pub at: At,
}

/// A server of a backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// Where it is.
    pub address: ServerAddress,
    /// Its share of the connections.
    pub weight: Weight,
    /// Whether it is used only when no other can be connected.
    pub backup: bool,
    /// Where it is written.
    pub at: At,
}

impl Server {
    /// A server of weight 1 that is no backup.
    pub fn new(address: ServerAddress) -> Self {
        Server { address, weight: Weight::literal::<1>(), backup: false, at: At::NOWHERE }
    }
}

impl FromStr for Server {
    type Err = Problem;

    fn from_str(text: &str) -> Result<Self, Problem> {
        let mut words = text.split_ascii_whitespace();
        let mut server = Server::new(words.next().unwrap_or_default().parse()?);
        let (mut weight_seen, mut backup_seen) = (false, false);
        for word in words {
            let twice = if word == "backup" {
                server.backup = true;
                std::mem::replace(&mut backup_seen, true)
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
                return Err(problem.help("write ` weight=N` or ` backup`"));
            };
            if twice {
                let problem = Problem::new(format!("`{}` is written twice", shown(word)));
                return Err(problem.help("keep one of the two"));
            }
        }
        Ok(server)
    }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.address.fmt(f)?;
        if self.weight.get() != 1 {
            write!(f, " weight={}", self.weight)?;
        }
        if self.backup {
            f.write_str(" backup")?;
        }
        Ok(())
    }
}

words! {
    /// How a server of a backend is chosen.
    pub enum Balance {
        /// In turn, by weight.
        RoundRobin = "round_robin",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_print_as_they_are_read() {
        for text in
            ["unix:/run/x.sock", "10.0.0.7:3000 weight=2", "10.0.0.8:3000 backup", "a:1 weight=256 backup"]
        {
            assert_eq!(text.parse::<Server>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn what_is_no_server_is_refused() {
        for text in ["", "a:1 weight=0", "a:1 weight=257", "a:1 weight=x", "a:1 slow", "a:1 backup backup"] {
            assert!(text.parse::<Server>().is_err(), "{text}");
        }
    }

    #[test]
    fn allowed_names() {
        let allow: Allow = "uri:spiffe://example.org/*".parse().unwrap();
        assert_eq!((allow.kind, allow.pattern.as_str()), (AllowKind::Uri, "spiffe://example.org/*"));
        for text in ["", "dns:", "DNS:a", "email:a@b", "example.org"] {
            assert!(text.parse::<Allow>().is_err(), "{text}");
        }
    }
}
