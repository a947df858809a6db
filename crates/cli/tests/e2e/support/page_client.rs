//! A browser, as far as the page's protection is concerned: requests as they stand, cookies by hand.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use serde_json::Value;

use crate::support::instance::PATIENCE;

/// An answer, whole.
#[derive(Debug)]
pub(crate) struct PageAnswer {
    pub(crate) status: u16,
    head: String,
    pub(crate) body: String,
}

impl PageAnswer {
    /// A field by its name in lower case.
    ///
    /// # Panics
    /// It is there twice.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        let mut values = self.head.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        let value = values.next()?;
        assert_eq!(values.next(), None, "{name} is there twice: {self:?}");
        Some(value)
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The sentence of a refusal.
    pub(crate) fn detail(&self) -> String {
        assert_eq!(self.field("content-type"), Some("application/problem+json"), "{self:?}");
        self.json()["detail"].as_str().unwrap().to_owned()
    }
}

/// A session: the cookie and the secret.
#[derive(Clone, Debug)]
pub(crate) struct PageLogin {
    pub(crate) cookie: String,
    pub(crate) csrf: String,
}

impl PageLogin {
    /// The fields of a change.
    pub(crate) fn fields(&self) -> String {
        format!("cookie: {}\r\nx-offramp-csrf: {}\r\n", self.cookie, self.csrf)
    }

    /// The fields of a look.
    pub(crate) fn reading(&self) -> String {
        format!("cookie: {}\r\n", self.cookie)
    }
}

/// Sends a request with these fields, each with its line end, and reads the whole answer. `Host` is the address, unless the
/// fields have one.
pub(crate) fn send(address: SocketAddr, line: &str, fields: &str, body: &str) -> PageAnswer {
    let mut stream = open(address, line, fields, body);
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let answer = String::from_utf8_lossy(&answer);
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    let body = if head.to_lowercase().contains("transfer-encoding: chunked") {
        unchunked(body)
    } else {
        body.to_owned()
    };
    PageAnswer { status: status.unwrap_or_else(|| panic!("{answer:?}")), head: head.to_owned(), body }
}

/// The same, without reading the answer.
pub(crate) fn open(address: SocketAddr, line: &str, fields: &str, body: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let host = if fields.contains("host: ") { String::new() } else { format!("host: {address}\r\n") };
    let length =
        if line.starts_with("GET") { String::new() } else { format!("content-length: {}\r\n", body.len()) };
    let request = format!("{line} HTTP/1.1\r\n{host}connection: close\r\n{length}{fields}\r\n{body}");
    stream.write_all(request.as_bytes()).unwrap();
    stream
}

/// Logs in with this body.
pub(crate) fn login(address: SocketAddr, body: &Value) -> PageAnswer {
    let fields = format!("content-type: application/json\r\norigin: http://{address}\r\n");
    send(address, "POST /ui/login", &fields, &body.to_string())
}

/// The session of a login.
///
/// # Panics
/// It was refused.
pub(crate) fn session(answer: &PageAnswer) -> PageLogin {
    assert_eq!(answer.status, 200, "{answer:?}");
    let cookie = answer.field("set-cookie").unwrap().split(';').next().unwrap().to_owned();
    PageLogin { cookie, csrf: answer.json()["csrf"].as_str().unwrap().to_owned() }
}

/// Reads the stream until a line has this text.
pub(crate) fn read_until(stream: &TcpStream, text: &str) {
    let mut reader = BufReader::new(stream);
    loop {
        let mut line = String::new();
        assert_ne!(reader.read_line(&mut line).unwrap(), 0, "the stream has ended without {text}");
        if line.contains(text) {
            return;
        }
    }
}

/// Waits until a stream has ended in order.
pub(crate) fn read_to_end(mut stream: &TcpStream) {
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).unwrap();
    assert!(rest.ends_with(b"0\r\n\r\n"), "{}", String::from_utf8_lossy(&rest));
}

fn unchunked(mut body: &str) -> String {
    let mut whole = String::new();
    while let Some((size, rest)) = body.split_once("\r\n") {
        let size = usize::from_str_radix(size.trim(), 16).unwrap();
        if size == 0 {
            break;
        }
        whole.push_str(&rest[..size]);
        body = &rest[size + 2..];
    }
    whole
}
