//! Export of metrics and events: metrics endpoint, Graphite, OpenTelemetry, log store, admin interface.

use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use super::{FilePath, HostPattern, ListenAddress, ServerAddress, Size};
use crate::error::{At, Problem, shown};
use crate::folder::joined;

const DAY: Duration = Duration::from_secs(24 * 3600);

/// An address of the program itself, apart from those of listeners.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceEndpoint {
    /// The address to listen on.
    pub address: ListenAddress,
    /// The place in the configuration.
    pub at: At,
}

/// The settings of the admin interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admin {
    /// Set to run the interface.
    pub enabled: bool,
    /// The address; `None` for the Unix socket [`Config::admin_socket`](super::Config::admin_socket).
    pub endpoint: Option<ServiceEndpoint>,
    /// The file with the token for TCP clients of the admin API; `None` refuses them.
    pub token_file: Option<FilePath>,
    /// The file with names and password hashes for logins on the page over TCP; `None` leaves the token alone.
    pub users: Option<FilePath>,
    /// Names by which browsers reach the page, beside those of the certificate.
    pub hosts: Vec<HostPattern>,
    /// The PEM file with the chain for TLS on a TCP address; `None` for plain HTTP, on this machine only.
    pub certificate: Option<FilePath>,
    /// The PEM file with its key; `None` if it is in the file of the chain.
    pub key: Option<FilePath>,
}

impl Default for Admin {
    fn default() -> Self {
        Admin {
            enabled: true,
            endpoint: None,
            token_file: None,
            users: None,
            hosts: Vec::new(),
            certificate: None,
            key: None,
        }
    }
}

/// The export of metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metrics {
    /// The address of `/metrics` over plain HTTP.
    pub endpoint: Option<ServiceEndpoint>,
    /// The server for metrics in Graphite's plaintext protocol.
    pub graphite: Option<ServerAddress>,
    /// The interval of pushes: 1 s to 1 h.
    pub graphite_interval: Duration,
    /// The prefix of pushed metrics.
    pub graphite_prefix: GraphitePrefix,
    /// The number of clients with metrics of their own: up to 100,000.
    pub top_clients: u32,
}

impl Default for Metrics {
    fn default() -> Self {
        Metrics {
            endpoint: None,
            graphite: None,
            graphite_interval: Duration::from_secs(10),
            graphite_prefix: GraphitePrefix::default(),
            top_clients: 100,
        }
    }
}

/// The prefix of metrics in Graphite: names of `A-Z a-z 0-9 _ -` joined by dots, at most 128 bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GraphitePrefix(String);

impl GraphitePrefix {
    /// The prefix as text, without a trailing dot.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for GraphitePrefix {
    fn default() -> Self {
        GraphitePrefix("offramp".to_owned())
    }
}

impl FromStr for GraphitePrefix {
    type Err = Problem;

    fn from_str(text: &str) -> Result<Self, Problem> {
        let allowed = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
        let name = |name: &str| !name.is_empty() && name.bytes().all(allowed);
        if text.len() > 128 || !text.split('.').all(name) {
            let problem = Problem::new(format!("`{}` cannot be a prefix in Graphite", shown(text)));
            return Err(problem.help("write names of letters, digits, `_` and `-`, joined by dots"));
        }
        Ok(GraphitePrefix(text.to_owned()))
    }
}

impl fmt::Display for GraphitePrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The export to an OpenTelemetry collector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TracingConfig {
    /// The collector; `None` for no export.
    pub otlp: Option<OtlpUrl>,
    /// The sampling rate, one trace in this many requests: 1 to 1,000,000.
    pub sample_one_in: u32,
    /// Set to push metrics to the collector too.
    pub metrics: bool,
}

impl Default for TracingConfig {
    fn default() -> Self {
        TracingConfig { otlp: None, sample_one_in: 100, metrics: false }
    }
}

/// The URL of an OTLP/HTTP collector: `http://host:port/path`, port 4318 by default.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtlpUrl {
    /// Host and port; never a Unix socket.
    pub server: ServerAddress,
    /// The path before `/v1/traces`: empty, or without a trailing `/`.
    pub path: String,
}

/// The default port of OTLP over HTTP.
const OTLP_PORT: u16 = 4318;

impl FromStr for OtlpUrl {
    type Err = Problem;

    fn from_str(text: &str) -> Result<Self, Problem> {
        let wrong =
            |help: &str| Problem::new(format!("`{}` is not the URL of a collector", shown(text))).help(help);
        if text.starts_with("https://") {
            return Err(wrong(
                "TLS to collectors is not supported: run one on this machine, and write http://",
            ));
        }
        let rest = text.strip_prefix("http://").ok_or_else(|| wrong("write \"http://host:port\""))?;
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let path = path.trim_end_matches('/');
        if !path.bytes().all(|b| b.is_ascii_graphic() && !matches!(b, b'?' | b'#' | b'"' | b'\\')) {
            return Err(wrong("write the path alone, without query and fragment"));
        }
        let has_port = authority.rsplit_once(':').is_some_and(|(_, port)| !port.ends_with(']'));
        let server = if has_port { authority.parse() } else { format!("{authority}:{OTLP_PORT}").parse() };
        match server? {
            ServerAddress::Unix(_) => Err(wrong("write \"http://host:port\"")),
            server => Ok(OtlpUrl { server, path: path.to_owned() }),
        }
    }
}

impl fmt::Display for OtlpUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}{}", self.server, self.path)
    }
}

/// The queryable access log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogStore {
    /// The database; `None` for no store.
    pub url: Option<StoreUrl>,
    /// The retention of events: 1 h to 3650 d.
    pub retention: Duration,
    /// The retention of roll-ups: 1 h to 36,500 d.
    pub rollup_retention: Duration,
    /// The maximum size of the spool, for times without the database: 1 MiB to 1 TiB.
    pub spool: Size,
    /// Set to keep an index of words.
    pub full_text: bool,
    /// A database in MaxMind's format for countries and cities.
    pub geoip: Option<FilePath>,
}

impl Default for LogStore {
    fn default() -> Self {
        LogStore {
            url: None,
            retention: 90 * DAY,
            rollup_retention: 1825 * DAY,
            spool: Size::new(64 << 20),
            full_text: false,
            geoip: None,
        }
    }
}

/// The URL of a database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreUrl {
    /// A SQLite file: `sqlite:` and a path.
    Sqlite(FilePath),
    /// A PostgreSQL URL as written (`postgres://` or `postgresql://`); it may contain a password.
    Postgres(String),
}

impl StoreUrl {
    /// Parses a URL; a relative SQLite path starts at `folder`.
    pub(crate) fn read(text: &str, folder: &Path, at: &At) -> Result<Self, Problem> {
        let wrong = |help: &str| {
            // The URL may contain a password.
            let scheme = text.split_once(':').map_or(text, |(scheme, _)| scheme);
            Err(Problem::new(format!("this is not the URL of a database: `{}…`", shown(scheme))).help(help))
        };
        if let Some(path) = text.strip_prefix("sqlite:") {
            if path.starts_with("//") {
                return wrong("write \"sqlite:\" and the path: \"sqlite:/var/lib/offramp/access.db\"");
            }
            if path.is_empty() || path.starts_with(':') || path.ends_with('/') || path.contains('\0') {
                return wrong("write the path of a file: \"sqlite:/var/lib/offramp/access.db\"");
            }
            return Ok(StoreUrl::Sqlite(FilePath { path: joined(folder, path), at: at.clone() }));
        }
        if hides_password(text) {
            let said =
                "the password in the URL of the database is `***`, which stands for one that is not shown";
            return Err(Problem::new(said).help("write the password itself; one of three stars is %2A%2A%2A"));
        }
        match text.strip_prefix("postgres://").or_else(|| text.strip_prefix("postgresql://")) {
            Some(rest) if !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_graphic()) => {
                Ok(StoreUrl::Postgres(text.to_owned()))
            }
            Some(_) => wrong("write \"postgres://user@host/database\" without spaces; escape others as %XX"),
            None => wrong("write \"sqlite:/path\" or \"postgres://user@host/database\""),
        }
    }
}

impl StoreUrl {
    /// The URL with `***` in the place of its password; `None` if it has none.
    #[must_use]
    pub fn masked(&self) -> Option<Self> {
        let StoreUrl::Postgres(url) = self else { return None };
        let masked = without_password(url);
        (masked != *url).then_some(StoreUrl::Postgres(masked))
    }
}

impl fmt::Display for StoreUrl {
    /// The URL as written, with its password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoreUrl::Sqlite(file) => write!(f, "sqlite:{}", file.path.display()),
            StoreUrl::Postgres(url) => f.write_str(url),
        }
    }
}

/// The placeholder of a hidden password.
const HIDDEN: &str = "***";

/// A URL with `***` in the place of its password, for messages.
pub(crate) fn without_password(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else {
        return url.to_owned();
    };
    let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    let authority = match authority.rsplit_once('@') {
        Some((user, host)) => match user.split_once(':') {
            Some((name, _)) => format!("{name}:{HIDDEN}@{host}"),
            None => authority.to_owned(),
        },
        None => authority.to_owned(),
    };
    // libpq accepts it as a parameter as well.
    let mut out = format!("{scheme}://{authority}");
    let mut rest = path;
    while let Some((before, after)) = rest.split_once("password=") {
        out.push_str(before);
        out.push_str("password=");
        out.push_str(HIDDEN);
        rest = after.find('&').map_or("", |end| &after[end..]);
    }
    out + rest
}

/// Returns `true` for a URL printed with a hidden password, which would be lost by parsing it.
fn hides_password(url: &str) -> bool {
    let hidden = [format!(":{HIDDEN}@"), format!("password={HIDDEN}")];
    hidden.iter().any(|hidden| url.contains(hidden)) && without_password(url) == url
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn collectors() {
        for (text, meant) in [
            ("http://localhost", "http://localhost:4318"),
            ("http://[::1]/otlp/", "http://[::1]:4318/otlp"),
            ("http://10.0.0.1:80", "http://10.0.0.1:80"),
        ] {
            assert_eq!(text.parse::<OtlpUrl>().unwrap().to_string(), meant);
        }
        for text in
            ["", "localhost:4318", "https://a", "http://", "http://a:0", "http://a/?q", "http://unix:/x"]
        {
            assert!(text.parse::<OtlpUrl>().is_err(), "{text}");
        }
    }

    #[test]
    fn databases() {
        let read = |text: &str| StoreUrl::read(text, Path::new("/etc/offramp"), &At::NOWHERE);
        assert_eq!(read("sqlite:a.db").unwrap().to_string(), "sqlite:/etc/offramp/a.db");
        assert_eq!(read("postgres://u:p@h/db").unwrap().to_string(), "postgres://u:p@h/db");
        for text in [
            "",
            "sqlite:",
            "sqlite::memory:",
            "sqlite:///a",
            "mysql://u:secret@h",
            "postgres://",
            "postgres://a b",
        ] {
            let problem = read(text).unwrap_err().to_string();
            assert!(!problem.contains("secret"), "{problem}");
        }
    }

    #[test]
    fn a_password_that_is_not_shown_is_no_password() {
        let read = |text: &str| StoreUrl::read(text, Path::new("/"), &At::NOWHERE);
        for text in ["postgres://u:p@h/db", "postgresql://u@h/db?a=b&password=x"] {
            let masked = read(text).unwrap().masked().unwrap().to_string();
            let said = read(&masked).unwrap_err().to_string();
            assert!(said.contains("write the password itself"), "{said}");
        }
        for text in ["postgres://u:%2A%2A%2A@h/db", "postgres://u@h/***", "postgres://u:***x@h/db"] {
            assert!(read(text).is_ok(), "{text}");
        }
    }

    #[test]
    fn passwords_are_not_shown() {
        assert_eq!(without_password("postgres://u:p@ss@h:1/db"), "postgres://u:***@h:1/db");
        assert_eq!(without_password("postgres://h/db?password=x&a=b"), "postgres://h/db?password=***&a=b");
        let twice = without_password("postgres://h/db?password=x&password=y");
        assert_eq!(twice, "postgres://h/db?password=***&password=***");
        assert_eq!(StoreUrl::Postgres("postgres://u@h/db".to_owned()).masked(), None);
        let masked = StoreUrl::Postgres("postgres://u:p@h/db".to_owned()).masked().unwrap();
        assert_eq!(masked.to_string(), "postgres://u:***@h/db");
        assert_eq!(without_password("postgres://u@h/db"), "postgres://u@h/db");
        assert_eq!(without_password("sqlite:/a"), "sqlite:/a");
    }

    #[test]
    fn prefixes() {
        assert!("a.b-c_1".parse::<GraphitePrefix>().is_ok());
        for text in ["", ".", "a.", "a b", "a/b"] {
            assert!(text.parse::<GraphitePrefix>().is_err(), "{text}");
        }
    }
}
