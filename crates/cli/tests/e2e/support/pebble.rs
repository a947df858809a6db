//! Pebble, the ACME authority for tests, with its name server.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use offramp_testkit::ca::{Ca, Key, Leaf};
use offramp_testkit::process::{Process, Ready, Source, free_port, require};

use crate::support::instance::{Instance, LIFE, PATIENCE};

/// What an authority is asked to do.
pub(crate) struct Terms {
    /// How many of a hundred nonces it refuses.
    pub(crate) refused_nonces: u32,
    /// How long its certificates are valid.
    pub(crate) validity: Duration,
    /// Whether accounts must be bound to `kid-1`.
    pub(crate) bound: bool,
    /// Before it looks for a name it waits up to this time; 0: not at all.
    pub(crate) delay: Duration,
    /// Whether it believes every name without a look.
    pub(crate) believes: bool,
}

impl Default for Terms {
    fn default() -> Self {
        let validity = Duration::from_secs(90 * 24 * 3600);
        Self { refused_nonces: 0, validity, bound: false, delay: Duration::ZERO, believes: false }
    }
}

/// The key of `kid-1`.
pub(crate) const KEY: &str = "zWNDZM6eQGHWpSRTPal5eIUYFTu7EajVIoguysqZ9wG44nMEtx3MUAsUDkMTQ12W";

/// A running authority, which looks for every name on `127.0.0.1`.
pub(crate) struct Pebble {
    process: Process,
    _names: Process,
    /// The port of its API.
    pub(crate) port: u16,
    /// The port that it looks at for tls-alpn-01.
    pub(crate) tls: u16,
    /// The port that it looks at for http-01.
    pub(crate) http: u16,
    /// The port of its own management.
    pub(crate) admin: u16,
    /// The port that its name server is told things on.
    pub(crate) management: u16,
}

impl Pebble {
    /// Starts it in `home`; its API has a certificate of `ca`.
    pub(crate) fn start(home: &Path, ca: &Ca, terms: &Terms) -> Self {
        Self::start_with(home, ca, terms, None)
    }

    /// The same; it asks the name server on this port.
    pub(crate) fn start_with(home: &Path, ca: &Ca, terms: &Terms, dns_port: Option<u16>) -> Self {
        let looks = [free_port(), free_port()];
        Self::make(home, ca, terms, dns_port, looks)
    }

    /// The same; it looks at these ports for tls-alpn-01 and http-01.
    pub(crate) fn start_looking(home: &Path, ca: &Ca, terms: &Terms, looks: [u16; 2]) -> Self {
        Self::make(home, ca, terms, None, looks)
    }

    fn make(home: &Path, ca: &Ca, terms: &Terms, dns_port: Option<u16>, [tls, http]: [u16; 2]) -> Self {
        let [port, admin, dns, management] = [(); 4].map(|()| free_port());
        let files = ca.issue("pebble", &Leaf::server(Key::P256, &["localhost"])).unwrap();
        let config = serde_json::json!({ "pebble": {
            "listenAddress": format!("127.0.0.1:{port}"),
            "managementListenAddress": format!("127.0.0.1:{admin}"),
            "certificate": files.chain, "privateKey": files.key,
            "httpPort": http, "tlsPort": tls, "ocspResponderURL": "",
            "externalAccountBindingRequired": terms.bound,
            "externalAccountMACKeys": { "kid-1": KEY },
            "certificateValidityPeriod": terms.validity.as_secs(),
        }});
        let path = home.join("pebble.json");
        fs::write(&path, config.to_string()).unwrap();
        let mut command = Command::new(require("pebble-challtestsrv", "pebble"));
        command.args(["-management", &format!("127.0.0.1:{management}")]);
        command.args(["-dns01", &format!("127.0.0.1:{dns}"), "-defaultIPv6", ""]);
        command.args(["-http01", "", "-https01", "", "-tlsalpn01", ""]);
        let names = Process::start(command, LIFE).unwrap();
        names.wait_for(&Ready::Tcp(([127, 0, 0, 1], management).into()), PATIENCE).unwrap();
        let mut command = Command::new(require("pebble", "pebble"));
        let dns = dns_port.unwrap_or(dns);
        command.arg("-config").arg(path).args(["-dnsserver", &format!("127.0.0.1:{dns}")]);
        command.env("PEBBLE_AUTHZREUSE", "0");
        match terms.delay.as_secs() {
            0 => command.env("PEBBLE_VA_NOSLEEP", "1"),
            seconds => command.env("PEBBLE_VA_SLEEPTIME", seconds.to_string()),
        };
        if terms.believes {
            command.env("PEBBLE_VA_ALWAYS_VALID", "1");
        }
        command.env("PEBBLE_WFE_NONCEREJECT", terms.refused_nonces.to_string());
        let process = Process::start(command, LIFE).unwrap();
        process.wait_for(&Ready::Tcp(([127, 0, 0, 1], port).into()), PATIENCE).unwrap();
        Self { process, _names: names, port, tls, http, admin, management }
    }

    /// The authority as configuration, with further keys; its name is `pebble`.
    pub(crate) fn section(&self, ca: &Ca, more: &str) -> String {
        section(self.port, ca, more)
    }

    /// Writes the certificate that vouches for what it issues to a file, for clients.
    pub(crate) fn root(&self, home: &Path) -> PathBuf {
        let file = home.join("pebble-root.pem");
        let mut curl = Command::new(require("curl", "curl"));
        curl.args(["-skf", "-o"]).arg(&file).arg(format!("https://127.0.0.1:{}/roots/0", self.admin));
        assert!(curl.status().unwrap().success());
        file
    }

    /// How many lines of its log have this text.
    pub(crate) fn count(&self, text: &str) -> usize {
        let of = |source| self.process.lines(source).iter().filter(|line| line.contains(text)).count();
        of(Source::Stdout) + of(Source::Stderr)
    }

    /// Tells its name server something.
    pub(crate) fn tell_names(&self, path: &str, body: &str) {
        let mut stream = TcpStream::connect(("127.0.0.1", self.management)).unwrap();
        let length = body.len();
        write!(stream, "POST {path} HTTP/1.0\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n{body}")
            .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.0 200") || answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
}

/// An authority on this port as configuration.
pub(crate) fn section(port: u16, ca: &Ca, more: &str) -> String {
    format!(
        "[acme.pebble]\ndirectory = \"https://localhost:{port}/dir\"\nemail = \"me@example.org\"\nca = \"{}\"\n{more}\n",
        ca.certificate().display()
    )
}

/// Waits until a line of the log has both texts, and gives it.
pub(crate) fn logged(instance: &Instance, text: &str, more: &str) -> String {
    instance.until(&format!("the log says `{text}` with `{more}`"), || {
        let lines = instance.process.lines(Source::Stderr);
        lines.into_iter().find(|line| line.contains(text) && line.contains(more))
    })
}
