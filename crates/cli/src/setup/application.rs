//! The application: its address or its files, and an answer from it.

use std::fmt;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use offramp_config::model::ServerAddress;

use super::finding::SetupFinding;
use crate::target::{self, ServerSpeaks, ServerTarget};

/// Origin of what the site shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SiteApplication {
    Server(ServerTarget),
    /// A directory with files.
    Files(PathBuf),
}

impl fmt::Display for SiteApplication {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Server(target) => target.fmt(f),
            Self::Files(path) => path.display().fmt(f),
        }
    }
}

impl SiteApplication {
    /// Parses the value of `--app`.
    ///
    /// # Errors
    /// Says what is wrong and what to write instead, in one line.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        if text.starts_with(['/', '.']) && Path::new(text).is_dir() {
            let path = offramp_config::absolute(text).map_err(|error| error.to_string())?;
            return Ok(Self::Files(path));
        }
        let target = target::target(text).map_err(|why| match text.starts_with(['/', '.']) {
            true => format!("there is no directory {text}; {why}"),
            false => why,
        })?;
        match target.tls {
            ServerSpeaks::TlsAfter(_) => Err(format!(
                "`{text}` needs a backend, which setup does not write: see docs/how-to/postgresql.md"
            )),
            ServerSpeaks::Plain | ServerSpeaks::Tls => Ok(Self::Server(target)),
        }
    }

    /// Connects to the application. None that answers is a warning: it may be started later.
    pub(crate) fn check(&self) -> SetupFinding {
        let answer = match self {
            Self::Files(path) => return files(path),
            Self::Server(target) => connect(&target.address),
        };
        match answer {
            Ok(()) => SetupFinding::good(format!("the application at {self} accepts connections")),
            Err(why) => SetupFinding::warning(format!("the application at {self} does not answer: {why}"))
                .advise("start it; until then clients get the status 502"),
        }
    }
}

/// Longest wait for a connection.
const PATIENCE: Duration = Duration::from_secs(2);

fn connect(address: &ServerAddress) -> Result<(), String> {
    let tcp = |addresses: Vec<SocketAddr>| {
        let mut last = "its name has no address".to_owned();
        for address in addresses {
            match TcpStream::connect_timeout(&address, PATIENCE) {
                Ok(_) => return Ok(()),
                Err(error) => last = error.to_string(),
            }
        }
        Err(last)
    };
    match address {
        ServerAddress::Unix(path) => UnixStream::connect(path).map(drop).map_err(|error| error.to_string()),
        ServerAddress::Ip(address) => tcp(vec![*address]),
        named @ ServerAddress::Name { .. } => {
            tcp(named.to_string().to_socket_addrs().map(Iterator::collect).unwrap_or_default())
        }
    }
}

fn files(path: &Path) -> SetupFinding {
    let shown = path.display();
    if is_hidden(path) {
        return SetupFinding::warning(format!(
            "{shown} is hidden from the service, which sees no homes and no /tmp"
        ))
        .advise("move the files to a place such as /srv/www");
    }
    if path.join("index.html").exists() {
        return SetupFinding::good(format!("{shown} has an index.html"));
    }
    SetupFinding::warning(format!("{shown} has no index.html"))
        .advise("a request for a directory without one gets the status 404")
}

/// Returns true for places that the unit hides from its service (`ProtectHome=`, `PrivateTmp=`).
pub(crate) fn is_hidden(path: &Path) -> bool {
    ["/home", "/root", "/run/user", "/tmp", "/var/tmp"].iter().any(|hidden| path.starts_with(hidden))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::setup::finding::FindingLevel;

    #[test]
    fn servers_and_directories_are_told_apart() {
        let folder = tempfile::tempdir().unwrap();
        let files = folder.path().display().to_string();
        assert_eq!(SiteApplication::parse(&files), Ok(SiteApplication::Files(folder.path().to_owned())));
        for (text, shown) in [("3000", "127.0.0.1:3000"), ("unix:/a", "unix:/a"), ("tls://b:1", "tls://b:1")]
        {
            assert_eq!(SiteApplication::parse(text).unwrap().to_string(), shown);
        }
        for (text, why) in [
            ("/no/such/place", "there is no directory /no/such/place; for a Unix socket write unix:"),
            ("http://localhost:3000/", "write localhost:3000 instead"),
            ("postgres+tls://db:5432", "docs/how-to/postgresql.md"),
        ] {
            let refused = SiteApplication::parse(text).unwrap_err();
            assert!(refused.contains(why), "{refused}");
        }
    }

    #[test]
    fn an_application_that_does_not_answer_is_a_warning() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let check = |text: &str| SiteApplication::parse(text).unwrap().check().level;
        assert_eq!(check(&port.to_string()), FindingLevel::Good);
        assert_eq!(check(&format!("localhost:{port}")), FindingLevel::Good);
        drop(listener);
        for gone in [port.to_string(), "unix:/no/such.sock".to_owned(), "nobody.invalid:1".to_owned()] {
            assert_eq!(check(&gone), FindingLevel::Warning, "{gone}");
        }
    }
}
