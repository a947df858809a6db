//! An admin interface in front of a store, and a plain client that sends requests byte for byte.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use offramp_admin::{AdminServer, Mount, Settings, Store};
use offramp_net::Address;
use offramp_observe::Log;
use serde_json::Value;

/// What came back.
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// Head lines, lower case names.
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| {
            panic!("{error} in {} {}", self.status, String::from_utf8_lossy(&self.body))
        })
    }

    /// The sentence of a refusal.
    pub(crate) fn message(&self) -> String {
        self.json()["message"].as_str().unwrap().to_owned()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| line.strip_prefix(&format!("{name}: ")))
    }
}

pub(crate) struct Client {
    pub(crate) admin: AdminServer,
    prefix: &'static str,
}

/// The interface over a store, at `/grafana`.
pub(crate) fn over(url: &str) -> Client {
    let store = Store { url: url.to_owned(), geoip: None };
    start(Some(store), Mount::Grafana)
}

pub(crate) fn start(store: Option<Store>, mount: Mount) -> Client {
    let settings = Settings {
        store,
        control: None,
        token: None,
        users: None,
        hosts: Arc::default(),
        identity: None,
        mount,
        log: Log::silent(),
    };
    let admin = AdminServer::start(&Address::Tcp("127.0.0.1:0".parse().unwrap()), settings).unwrap();
    let prefix = if mount == Mount::Grafana { "/grafana" } else { "" };
    Client { admin, prefix }
}

impl Client {
    pub(crate) fn connect(&self) -> TcpStream {
        let Address::Tcp(address) = self.admin.address() else { unreachable!() };
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream
    }

    /// Sends a request as it stands and reads to the end of the connection.
    pub(crate) fn raw(&self, request: &[u8]) -> Answer {
        let mut stream = self.connect();
        stream.write_all(request).unwrap();
        read(stream)
    }

    pub(crate) fn ask(&self, method: &str, path: &str, headers: &str, body: &str) -> Answer {
        let length = body.len();
        let head = format!(
            "{method} {}{path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{headers}content-length: {length}\r\n\r\n",
            self.prefix
        );
        self.raw(format!("{head}{body}").as_bytes())
    }

    pub(crate) fn post(&self, path: &str, body: &str) -> Answer {
        self.ask("POST", path, "content-type: application/json\r\n", body)
    }

    /// The answer of a request that must succeed.
    pub(crate) fn good(&self, path: &str, body: &str) -> Value {
        let answer = self.post(path, body);
        assert_eq!(answer.status, 200, "{path} {body}: {}", String::from_utf8_lossy(&answer.body));
        assert_eq!(answer.header("content-type"), Some("application/json"));
        answer.json()
    }
}

pub(crate) fn read(mut stream: impl Read) -> Answer {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n").expect("a whole head");
    let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let head = head.lines().skip(1).fold(String::new(), |all, line| {
        let (name, value) = line.split_once(':').unwrap();
        format!("{all}{}: {}\n", name.to_ascii_lowercase(), value.trim())
    });
    Answer { status, head, body: bytes[end + 4..].to_vec() }
}
