//! The question about a handshake: where the client connects to, and its ClientHello.

use std::net::IpAddr;

use offramp_wire::capture;
use offramp_wire::known::{self, KnownClient};

use super::parse;

/// Bound on `hello`, in characters.
const LONGEST: usize = 64 * 1024;

/// A ClientHello, and where it goes.
pub(crate) struct HandshakeQuestion {
    /// The name or address that the client connects to, in lower case.
    pub(super) host: Option<String>,
    pub(super) port: Option<u16>,
    pub(super) known: Option<&'static KnownClient>,
    pub(super) records: Vec<u8>,
}

/// The client of a question.
#[derive(Clone, Copy, Default)]
pub(crate) struct AskedClient<'a> {
    /// The name of a known client.
    pub(crate) name: Option<&'a str>,
    /// A ClientHello in hexadecimal or base64.
    pub(crate) hello: Option<&'a str>,
    /// A ClientHello in any of the forms of a file; empty without one.
    pub(crate) file: &'a [u8],
}

impl HandshakeQuestion {
    /// Reads `HOST` or `HOST:PORT`, and the client.
    ///
    /// # Errors
    /// There is no client, or it cannot be read.
    pub(crate) fn read(to: Option<&str>, client: AskedClient<'_>) -> Result<Self, String> {
        let (host, port) = to.map(destination).transpose()?.unwrap_or_default();
        let known = client.name.map(|name| known::named(name).ok_or_else(|| unknown(name))).transpose()?;
        let records = match (known, client.hello, client.file) {
            (Some(client), None, []) => client.hello(),
            (None, Some(text), []) => digits(text)?,
            (None, None, []) => {
                return Err("this question needs `as` or `hello`, or a ClientHello as its body".to_owned());
            }
            (None, None, bytes) => capture::hello(bytes).map_err(|fault| format!("the body: {fault}"))?,
            _ => return Err("write one of `as`, `hello` and a body, not several".to_owned()),
        };
        let mut question = Self { host, port, known, records };
        if question.known.is_some() {
            question.address();
        }
        Ok(question)
    }

    /// Has the hello of a known client ask for the host; clients send no name for an address.
    fn address(&mut self) {
        let Ok(hello) = parse(&self.records) else { return };
        let name = self.host.as_deref().filter(|_| self.ip().is_none());
        let records = hello.addressed_to(name);
        self.records = records;
    }

    /// The records of the hello.
    pub(crate) fn records(&self) -> &[u8] {
        &self.records
    }

    /// The name that the client connects to; `None` for an address.
    pub(crate) fn name(&self) -> Option<&str> {
        self.host.as_deref().filter(|_| self.ip().is_none())
    }

    /// The address that the client connects to; `None` for a name.
    pub(super) fn ip(&self) -> Option<IpAddr> {
        self.host.as_deref()?.parse().ok()
    }
}

fn destination(text: &str) -> Result<(Option<String>, Option<u16>), String> {
    let wrong = || format!("`{}` is no HOST:PORT, such as example.org:443", text.escape_debug());
    let bare = text.parse::<std::net::Ipv6Addr>().is_ok();
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !bare => (host, Some(port.parse().map_err(|_| wrong())?)),
        _ => (text, None),
    };
    let host = host.trim_start_matches('[').trim_end_matches(']').trim_end_matches('.').to_ascii_lowercase();
    let is_name = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_' | '.' | ':');
    if host.is_empty() || host.len() > 253 || !host.chars().all(is_name) {
        return Err(wrong());
    }
    Ok((Some(host), port))
}

fn unknown(name: &str) -> String {
    let names: Vec<&str> = known::all().map(|client| client.name).collect();
    let near = offramp_config::nearest(name, names.iter().copied());
    let hint = near.map(|near| format!("the nearest one is {near}; ")).unwrap_or_default();
    format!("there is no client `{}`: {hint}known are {}", name.escape_debug(), names.join("; "))
}

fn digits(text: &str) -> Result<Vec<u8>, String> {
    if text.len() > LONGEST {
        return Err(format!("`hello` has more than {LONGEST} characters"));
    }
    // A plus of base64 that was not escaped in the query is a space.
    let read = capture::hello(text.as_bytes()).or_else(|_| capture::hello(text.replace(' ', "+").as_bytes()));
    read.map_err(|fault| format!("`hello`: {fault}"))
}
