//! Store URLs: `sqlite:/path`, `sqlite::memory:`, and `postgres://user[:password]@host[:port]/database?…`.
//!
//! Unsupported parameters are refused: a connection with less protection than its URL asks for would be worse
//! than none.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use percent_encoding::percent_decode_str;

use crate::error::Error;

/// The parsed URL of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Location {
    /// A file of SQLite.
    File(PathBuf),
    /// SQLite in memory, which lasts as long as its writer.
    Memory,
    /// A database of a PostgreSQL server.
    Postgres(Box<PostgresServer>),
}

/// A PostgreSQL database and the way to reach it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PostgresServer {
    /// A host name, an address, or the directory of a Unix socket.
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) user: String,
    pub(crate) password: Option<String>,
    /// A file that contains only the password. Read for every connection.
    pub(crate) password_file: Option<PathBuf>,
    pub(crate) database: String,
    pub(crate) protection: Protection,
}

/// The encryption of the connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Protection {
    /// Plain text. The default only for Unix sockets and addresses of this machine.
    None,
    /// TLS with a server certificate for the host name, issued by one of these authorities (PEM).
    Verified(PathBuf),
}

impl Location {
    /// Parses a URL. Errors state the fault, never the password.
    pub(crate) fn parse(url: &str) -> Result<Self, Error> {
        if let Some(path) = url.strip_prefix("sqlite:") {
            return match path.strip_prefix("//").unwrap_or(path) {
                "" => Err(Error::Url("`sqlite:` needs the path of a file".into())),
                ":memory:" => Ok(Self::Memory),
                path if path.contains('\0') => Err(Error::Url("a path cannot contain NUL".into())),
                path => Ok(Self::File(PathBuf::from(path))),
            };
        }
        match url.strip_prefix("postgres://").or_else(|| url.strip_prefix("postgresql://")) {
            Some(rest) => PostgresServer::parse(rest).map(|server| Self::Postgres(Box::new(server))),
            None => Err(Error::Url("it must begin with `sqlite:` or `postgres://`".into())),
        }
    }
}

impl PostgresServer {
    fn parse(rest: &str) -> Result<Self, Error> {
        let (rest, parameters) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, database) = rest.split_once('/').unwrap_or((rest, ""));
        let (credentials, address) = authority.rsplit_once('@').unwrap_or(("", authority));
        let (user, password) = match credentials.split_once(':') {
            Some((user, password)) => (decode(user)?, Some(decode(password)?)),
            None => (decode(credentials)?, None),
        };
        let (host, port) = split_port(address)?;
        let mut server = Self {
            host: decode(host)?,
            port,
            user,
            password,
            password_file: None,
            database: decode(database)?,
            protection: Protection::None,
        };
        let (mut mode, mut authorities) = (None, None);
        for (key, value) in parameters.split('&').filter_map(|pair| pair.split_once('=')) {
            let value = decode(value)?;
            match key {
                "host" => server.host = value,
                "port" => {
                    server.port = value.parse().map_err(|_| Error::Url("port must be a number".into()))?;
                }
                "user" => server.user = value,
                "password" => server.password = Some(value),
                "password_file" => server.password_file = Some(PathBuf::from(value)),
                "dbname" => server.database = value,
                "sslmode" => mode = Some(value),
                "sslrootcert" => authorities = Some(value),
                other => return Err(Error::Url(format!("unknown parameter `{other}`"))),
            }
        }
        server.protection = protection(&server.host, mode.as_deref(), authorities)?;
        server.complete()
    }

    /// The password, from the URL or its file.
    pub(crate) fn password(&self) -> Result<Option<String>, Error> {
        let Some(path) = &self.password_file else { return Ok(self.password.clone()) };
        let failed = |error| Error::Io(format!("reading the password from {}", path.display()), error);
        let mut password = std::fs::read_to_string(path).map_err(failed)?;
        // Editors end files with a line feed.
        password.truncate(password.trim_end_matches(['\r', '\n']).len());
        Ok(Some(password))
    }

    /// Applies the defaults of PostgreSQL's own clients, and refuses URLs that lack more.
    fn complete(mut self) -> Result<Self, Error> {
        if self.user.is_empty() {
            return Err(Error::Url("it must name the user: postgres://user@host/database".into()));
        }
        if self.password.is_some() && self.password_file.is_some() {
            return Err(Error::Url("it has both a password and a password_file".into()));
        }
        if self.host.is_empty() {
            self.host = "localhost".into();
        }
        if self.database.is_empty() {
            self.database.clone_from(&self.user);
        }
        Ok(self)
    }
}

/// The files that are read to connect to a store, and the TCP port of its server, if it has one.
pub(crate) fn needs(url: &str) -> Result<(Vec<PathBuf>, Option<u16>), Error> {
    let Location::Postgres(server) = Location::parse(url)? else { return Ok((Vec::new(), None)) };
    let authorities = match server.protection {
        Protection::Verified(path) => Some(path),
        Protection::None => None,
    };
    let port = (!server.host.starts_with('/')).then_some(server.port);
    Ok((server.password_file.into_iter().chain(authorities).collect(), port))
}

/// Adds this password to a PostgreSQL URL without one.
pub(crate) fn with_password(url: &str, password: &str) -> String {
    match Location::parse(url) {
        Ok(Location::Postgres(server)) if server.password.is_none() && server.password_file.is_none() => {
            let before = if url.contains('?') { '&' } else { '?' };
            let mut url = format!("{url}{before}password=");
            for byte in password.bytes() {
                url.push_str(&format!("%{byte:02x}"));
            }
            url
        }
        _ => url.to_owned(),
    }
}

/// Splits `host`, `host:port` or `[address]:port`.
fn split_port(address: &str) -> Result<(&str, u16), Error> {
    let (host, port) = match address.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, "")) => (host, None),
        Some((host, rest)) => (host, Some(rest.strip_prefix(':').unwrap_or(rest))),
        None => match address.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (address, None),
        },
    };
    let port = match port {
        Some(port) => port.parse().map_err(|_| Error::Url(format!("`{port}` is not a port")))?,
        None => 5432,
    };
    Ok((host, port))
}

fn protection(host: &str, mode: Option<&str>, authorities: Option<String>) -> Result<Protection, Error> {
    match mode {
        Some("disable") => Ok(Protection::None),
        Some("verify-full") => {
            let path = authorities
                .filter(|path| path != "system")
                .map_or_else(system_authorities, |path| Ok(PathBuf::from(path)))?;
            Ok(Protection::Verified(path))
        }
        Some(mode @ ("allow" | "prefer" | "require" | "verify-ca")) => Err(Error::Url(format!(
            "sslmode={mode} would not check the server's certificate; use verify-full (with sslrootcert=FILE), \
             or disable"
        ))),
        Some(other) => Err(Error::Url(format!("unknown sslmode `{other}`: use verify-full or disable"))),
        None if is_near(host) => Ok(Protection::None),
        None => Err(Error::Url(format!(
            "`{host}` is another machine: write sslmode=verify-full (with sslrootcert=FILE) or sslmode=disable"
        ))),
    }
}

/// Returns `true` for hosts that are reached without leaving the machine.
fn is_near(host: &str) -> bool {
    host.is_empty()
        || host.starts_with('/')
        || host == "localhost"
        || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// The authorities that the system trusts, in the places of common distributions.
fn system_authorities() -> Result<PathBuf, Error> {
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"]
        .iter()
        .map(Path::new)
        .find(|path| path.exists())
        .map(Path::to_path_buf)
        .ok_or_else(|| {
            Error::Url("this system has no file of trusted authorities: give sslrootcert=FILE".into())
        })
}

/// Decodes percent-encoding (RFC 3986 §2.1).
fn decode(text: &str) -> Result<String, Error> {
    let is_hex = |digits: &[u8]| digits.iter().all(u8::is_ascii_hexdigit);
    if !text.split('%').skip(1).all(|after| after.as_bytes().get(..2).is_some_and(is_hex)) {
        return Err(Error::Url("a `%` is not followed by two hexadecimal digits".into()));
    }
    let decoded = percent_decode_str(text).decode_utf8();
    decoded.map(Cow::into_owned).map_err(|_| Error::Url("it is not UTF-8".into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(url: &str) -> PostgresServer {
        match Location::parse(url) {
            Ok(Location::Postgres(server)) => *server,
            other => panic!("{url}: {other:?}"),
        }
    }

    #[test]
    fn what_a_store_needs() {
        let of = |url: &str| needs(url).unwrap();
        assert_eq!(of("sqlite:/a/b.db"), (Vec::new(), None));
        assert_eq!(of("postgres://u@localhost/db"), (Vec::new(), Some(5432)));
        assert_eq!(of("postgres://u@/db?host=/run/postgresql&port=5433"), (Vec::new(), None));
        let url = "postgres://u@db.test:6432/db?sslmode=verify-full&sslrootcert=/ca.pem&password_file=/pw";
        assert_eq!(of(url), (vec!["/pw".into(), "/ca.pem".into()], Some(6432)));
    }

    #[test]
    fn files_and_memory() {
        assert_eq!(Location::parse("sqlite:/a/b.db").unwrap(), Location::File("/a/b.db".into()));
        assert_eq!(Location::parse("sqlite:///a/b.db").unwrap(), Location::File("/a/b.db".into()));
        assert_eq!(Location::parse("sqlite::memory:").unwrap(), Location::Memory);
        for url in ["sqlite:", "mysql://a@b/c", "", "sqlite:a\0b"] {
            assert!(Location::parse(url).is_err(), "{url}");
        }
    }

    #[test]
    fn servers() {
        let near = server("postgres://log:p%40ss@127.0.0.1:5433/access");
        assert_eq!((near.host.as_str(), near.port, near.user.as_str()), ("127.0.0.1", 5433, "log"));
        assert_eq!((near.password.as_deref(), near.database.as_str()), (Some("p@ss"), "access"));
        let socket = server("postgres://log@/access?host=/run/postgresql");
        assert_eq!((socket.host.as_str(), socket.protection), ("/run/postgresql", Protection::None));
        assert_eq!(server("postgres://log@[::1]:1/").port, 1);
        assert_eq!(server("postgres://log@/").database, "log");
    }

    #[test]
    fn passwords_come_from_files_and_from_elsewhere() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("password");
        let found = server(&format!("postgres://log@/access?password_file={}", path.display()));
        assert!(matches!(found.password(), Err(Error::Io(..))), "it may come later");
        std::fs::write(&path, "a b:c\n").unwrap();
        assert_eq!(found.password().unwrap().as_deref(), Some("a b:c"));
        assert!(Location::parse("postgres://log:x@/access?password_file=/y").is_err());
        for (url, expected) in [
            ("postgres://log@/access", Some("p@ss w%")),
            ("postgres://log@/access?host=/run", Some("p@ss w%")),
            ("postgres://log:own@/access", Some("own")),
        ] {
            assert_eq!(server(&with_password(url, "p@ss w%")).password().unwrap().as_deref(), expected);
        }
        assert_eq!(with_password("sqlite:/a.db", "x"), "sqlite:/a.db");
    }

    #[test]
    fn what_is_escaped_wrongly_is_refused() {
        for url in [
            "postgres://a%@localhost/c",
            "postgres://a%4@localhost/c",
            "postgres://a%+1@localhost/c",
            "postgres://a%ff@localhost/c",
        ] {
            assert!(Location::parse(url).is_err(), "{url}");
        }
    }

    #[test]
    fn remote_hosts_need_explicit_protection() {
        assert!(Location::parse("postgres://log@db.test/access").is_err());
        assert!(Location::parse("postgres://log@db.test/access?sslmode=require").is_err());
        assert_eq!(server("postgres://log@db.test/access?sslmode=disable").protection, Protection::None);
        let verified = server("postgres://log@db.test/access?sslmode=verify-full&sslrootcert=/ca.pem");
        assert_eq!(verified.protection, Protection::Verified("/ca.pem".into()));
        assert!(Location::parse("postgres://log@localhost/a?application_name=x").is_err());
    }
}
