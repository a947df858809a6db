//! One request to one proxy, and the differences between two responses.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::support::instance::{Home, PATIENCE};

/// A request.
pub(super) struct MovedRequest {
    /// Method and target.
    pub(super) line: String,
    pub(super) host: String,
    pub(super) fields: Vec<String>,
    pub(super) is_secure: bool,
}

impl MovedRequest {
    /// The text by which differences are decided.
    pub(super) fn title(&self) -> String {
        let scheme = if self.is_secure { "https" } else { "http" };
        format!("{} | {scheme}://{} | {}", self.line, self.host, self.fields.join(" | "))
    }

    fn bytes(&self) -> Vec<u8> {
        let has = |name: &str| self.fields.iter().any(|field| field.starts_with(name));
        let mut text = format!("{} HTTP/1.1\r\nHost: {}\r\n", self.line, self.host);
        if !has("Connection:") {
            text.push_str("Connection: close\r\n");
        }
        for field in &self.fields {
            text.push_str(&format!("{field}\r\n"));
        }
        let body = if self.line.starts_with('P') { "some=thing" } else { "" };
        if !body.is_empty() {
            text.push_str(&format!("Content-Length: {}\r\n", body.len()));
        }
        format!("{text}\r\n{body}").into_bytes()
    }

    /// The URL that a client goes to for a `Location`, without the ports of the test: those of the Web have none.
    fn followed(&self, location: &str, ports: [u16; 2]) -> String {
        let mut location = location.to_owned();
        for port in ports {
            location = location.replace(&format!(":{port}"), "");
        }
        let scheme = if self.is_secure { "https" } else { "http" };
        let whole = match location.starts_with('/') {
            true => format!("{scheme}://{}{location}", self.host),
            false => location,
        };
        normal(&whole)
    }
}

/// A URL in normal form: a redirect may lead to the path as it came, or to its normal form.
fn normal(url: &str) -> String {
    let start = url.find("://").map_or(0, |at| at + 3);
    let start = start + url[start..].find('/').unwrap_or(url.len() - start);
    let end = url.find(['?', '#']).unwrap_or(url.len()).max(start);
    let mut path = url[start..end].to_owned();
    for letter in ('a'..='z').chain('A'..='Z').chain('0'..='9') {
        path = path.replace(&format!("%{:02X}", u32::from(letter)), &letter.to_string());
    }
    while path.contains("//") || path.contains("/./") {
        path = path.replace("//", "/").replace("/./", "/");
    }
    format!("{}{path}{}", &url[..start], &url[end..])
}

/// A client of both proxies.
pub(super) struct MovedClient {
    roots: Arc<RootCertStore>,
}

impl MovedClient {
    pub(super) fn trusting(home: &Home) -> Self {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(home.ca.certificate()).unwrap()).unwrap();
        MovedClient { roots: Arc::new(roots) }
    }

    /// A client that has met neither: a ticket of one proxy is not shown to the other, and TLS 1.2 is spoken too, since
    /// nginx 1.22 speaks 1.3 only where it is told to.
    fn stranger(&self) -> Arc<ClientConfig> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let builder = builder.unwrap().with_root_certificates(Arc::clone(&self.roots));
        Arc::new(builder.with_no_client_auth())
    }

    pub(super) fn ask(&self, address: SocketAddr, asked: &MovedRequest) -> MovedAnswer {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        if !asked.is_secure {
            return MovedAnswer::read(stream, asked);
        }
        let name = ServerName::try_from(asked.host.clone()).unwrap();
        let tls = ClientConnection::new(self.stranger(), name).unwrap();
        MovedAnswer::read(StreamOwned::new(tls, stream), asked)
    }
}

/// A response; without a status where the connection ends.
#[derive(Debug, Default)]
pub(super) struct MovedAnswer {
    status: String,
    fields: BTreeMap<String, String>,
    body: Vec<u8>,
}

impl MovedAnswer {
    fn read(mut stream: impl Read + Write, asked: &MovedRequest) -> Self {
        let mut all = Vec::new();
        if stream.write_all(&asked.bytes()).is_ok() {
            match stream.read_to_end(&mut all) {
                Ok(_) => {}
                // A connection that is closed without a word, or reset.
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => {}
                Err(error) => panic!("{}: {error}", asked.title()),
            }
        }
        let Some(end) = all.windows(4).position(|window| window == b"\r\n\r\n") else {
            return MovedAnswer::default();
        };
        let head = String::from_utf8_lossy(&all[..end]).into_owned();
        let mut reply = MovedAnswer {
            status: head.split(' ').nth(1).unwrap_or_default().to_owned(),
            fields: BTreeMap::new(),
            body: all[end + 4..].to_vec(),
        };
        for line in head.lines().skip(1) {
            let (name, value) = line.split_once(':').unwrap_or((line, ""));
            let values = reply.fields.entry(name.to_ascii_lowercase()).or_default();
            values.push_str(value.trim());
            values.push('\n');
        }
        if reply.field("transfer-encoding") == "chunked" {
            reply.body = joined(&reply.body);
        }
        reply
    }

    fn field(&self, name: &str) -> &str {
        self.fields.get(name).map(|value| value.trim_end()).unwrap_or_default()
    }

    /// Says that the proxy has written the page itself: an error or a redirect.
    fn is_own_page(&self) -> bool {
        let is_app = self.fields.contains_key("x-app");
        !is_app && (self.status.starts_with(['3', '4', '5']))
    }

    /// Method and target, and the fields that the application got; empty for other bodies.
    fn got(&self) -> Option<Vec<&str>> {
        let is_echo =
            self.field("content-type") == "text/x-echo" && self.field("content-encoding").is_empty();
        let text = std::str::from_utf8(&self.body).ok().filter(|_| is_echo)?;
        Some(text.lines().collect())
    }

    pub(super) fn told(&self) -> String {
        let fields = self.fields.iter().map(|(name, value)| format!("{name}: {}", value.trim_end()));
        let body = String::from_utf8_lossy(&self.body[..self.body.len().min(500)]).replace('\n', " / ");
        format!("{} [{}] {body}", self.status, fields.collect::<Vec<_>>().join("; ")).replace('\n', ", ")
    }
}

/// The parts that differ, in order; where the status does, nothing else is compared.
pub(super) fn differences(
    ours: &MovedAnswer,
    theirs: &MovedAnswer,
    asked: &MovedRequest,
    ports: [u16; 2],
) -> Vec<String> {
    if ours.status != theirs.status {
        return vec!["status".to_owned()];
    }
    let is_own = ours.is_own_page() && theirs.is_own_page();
    let mut found = Vec::new();
    let names = ours.fields.keys().chain(theirs.fields.keys());
    for name in names.filter(|name| !OWN.contains(&name.as_str())) {
        let (one, other) = (ours.field(name), theirs.field(name));
        let differs = match name.as_str() {
            "location" => asked.followed(one, ports) != asked.followed(other, ports),
            "content-type" | "cache-control" if is_own => false,
            _ => one != other,
        };
        if differs {
            found.push(name.clone());
        }
    }
    let is_forged = asked.fields.iter().any(|field| field.starts_with("X-Forwarded-"));
    found.extend(bodies(ours, theirs, is_own, is_forged));
    found.sort();
    found.dedup();
    found
}

/// The parts of bodies that differ: what the application got, or the bytes.
fn bodies(ours: &MovedAnswer, theirs: &MovedAnswer, is_own: bool, is_forged: bool) -> Vec<String> {
    if let Some((ours, theirs)) = ours.got().zip(theirs.got()) {
        let name = |line: &str| format!("got-{}", line.split([':', ' ']).next().unwrap_or_default());
        let mut found = Vec::new();
        if ours.first() != theirs.first() {
            found.push("got-target".to_owned());
        }
        let rest = |lines: &[&str]| lines.iter().skip(1).map(|line| (*line).to_owned()).collect::<Vec<_>>();
        let (ours, theirs) = (rest(&ours), rest(&theirs));
        let added = ours.iter().filter(|line| !theirs.contains(line));
        let added = added.filter(|line| !SENT_BY_ITSELF.iter().any(|known| line.starts_with(known)));
        found.extend(added.map(|line| name(line)));
        // What a client says of proxies before it is replaced.
        let kept = theirs.iter().filter(|line| !is_forged || !line.starts_with("x-forwarded-"));
        found.extend(kept.filter(|line| !ours.contains(line)).map(|line| name(line)));
        return found;
    }
    let is_page = !is_own && ours.field("content-encoding").is_empty();
    if is_page && ours.body != theirs.body { vec!["body".to_owned()] } else { Vec::new() }
}

/// The parts of a chunked body.
fn joined(mut rest: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    while let Some(end) = rest.windows(2).position(|window| window == b"\r\n") {
        let size =
            std::str::from_utf8(&rest[..end]).ok().and_then(|text| usize::from_str_radix(text, 16).ok());
        let Some(size) = size.filter(|size| *size > 0 && rest.len() >= end + 2 + size + 2) else { break };
        body.extend_from_slice(&rest[end + 2..end + 2 + size]);
        rest = &rest[end + 2 + size + 2..];
    }
    body
}

/// Fields of responses that are about one connection or name the proxy.
const OWN: [&str; 10] = [
    "server",
    "date",
    "connection",
    "keep-alive",
    "transfer-encoding",
    "content-length",
    "etag",
    "accept-ranges",
    "x-request-id",
    "vary",
];

/// Fields that servers get from Offramp in any case, because many need them.
const SENT_BY_ITSELF: [&str; 6] =
    ["x-forwarded-", "forwarded", "x-real-ip", "x-request-id", "via", "accept-encoding"];
