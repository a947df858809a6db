//! An ACME authority (RFC 8555) of this test's own, which offers ARI (RFC 9773) and certificate profiles, and does
//! anything wrong on request. It validates no name: orders are ready at once.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use offramp_observe::timestamp::{Precision, write_rfc3339};
use offramp_testkit::ca::{Ca, Key, Leaf};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, IsCa, Issuer, KeyPair, SerialNumber,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::{Value, json};

/// What the authority does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Nothing.
    None,
    /// Every response is a page for people.
    Html,
    /// Every response is 500 without a problem document.
    Error,
    /// Every response is bytes that are not HTTP.
    Garbage,
    /// Every response is JSON that is none of ACME's.
    Nonsense,
    /// Nothing is answered.
    Silent,
    /// Bodies have no end.
    Endless,
    /// Connections are closed before TLS.
    Down,
    /// Every order is refused with 429, and this `Retry-After` in seconds.
    Limited(u64),
    /// The certificate is for another key.
    OtherKey,
    /// The certificate is for another name.
    OtherName,
    /// Nothing is issued as long as this lasts; whoever asks waits.
    Slow,
    /// The certificate is no PEM.
    NoCertificate,
    /// Responses do not say what an order replaces, nor when to ask for advice again.
    Forgetful,
    /// A challenge is looked at before it is answered: the answer says that nothing was found, and the order has ended.
    Looks,
    /// Everything is issued, in an odd way.
    Odd(Oddity),
}

impl Fault {
    /// Returns true if control of the name is to be proved.
    const fn has_authorizations(self) -> bool {
        match self {
            Self::Looks => true,
            Self::Odd(oddity) => oddity.has_authorizations(),
            _ => false,
        }
    }
}

/// What real authorities do that RFC 8555 has otherwise, or leaves open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Oddity {
    /// `newNonce` is answered with 204.
    NonceWithoutContent,
    /// An order that is ready is not, when it is finalized for the first and the second time.
    NotReady,
    /// `finalize` is answered with the order as it was before.
    StaleOrder,
    /// What there is not is `null`: in the directory, in orders, in authorizations, in challenges.
    Nulls,
    /// Orders and challenges have an error without anything in it.
    EmptyErrors,
    /// Authorizations offer challenges that nobody has heard of, with parts of their own.
    UnknownChallenges,
}

impl Oddity {
    /// All of them.
    pub(crate) const ALL: [Self; 6] = [
        Self::NonceWithoutContent,
        Self::NotReady,
        Self::StaleOrder,
        Self::Nulls,
        Self::EmptyErrors,
        Self::UnknownChallenges,
    ];

    /// Whether control of the name is to be proved; whatever is done for that is enough.
    const fn has_authorizations(self) -> bool {
        matches!(self, Self::Nulls | Self::EmptyErrors | Self::UnknownChallenges)
    }
}

/// An order as it was asked for.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    /// The payload of `newOrder`.
    pub(crate) payload: Value,
    /// When it came.
    pub(crate) at: SystemTime,
    /// The identifier of the certificate that was issued (RFC 9773 section 4.1).
    pub(crate) certificate: Option<String>,
    chain: String,
}

struct State {
    fault: Fault,
    orders: Vec<Asked>,
    /// The paths of all requests.
    requests: Vec<String>,
    /// The certificates whose renewal is suggested for long ago; that of all others lies far ahead.
    due: Vec<String>,
    /// The certificates that are to be renewed between two moments.
    windows: Vec<(String, [SystemTime; 2])>,
    /// How many certificates were fetched, and how many orders were under way at the most.
    fetched: usize,
    most_at_once: usize,
    life: Duration,
}

/// A running authority.
pub(crate) struct Authority {
    /// The port of its API.
    pub(crate) port: u16,
    state: Arc<Mutex<State>>,
    stopped: Arc<AtomicBool>,
    root: String,
}

impl Drop for Authority {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::Relaxed);
        // Wakes the one that accepts.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

impl Authority {
    /// Starts it with certificates of this life; its API has a certificate of `ca`.
    pub(crate) fn start(ca: &Ca, life: Duration) -> Self {
        let files = ca.issue("authority", &Leaf::server(Key::P256, &["localhost"])).unwrap();
        let chain = CertificateDer::pem_file_iter(&files.chain).unwrap().map(Result::unwrap).collect();
        let key = PrivateKeyDer::from_pem_file(&files.key).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let config = Arc::new(config.unwrap().with_no_client_auth().with_single_cert(chain, key).unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (orders, requests, due, windows) = Default::default();
        let (fetched, most_at_once) = (0, 0);
        let state = State { fault: Fault::None, orders, requests, due, windows, fetched, most_at_once, life };
        let state = Arc::new(Mutex::new(state));
        let stopped = Arc::new(AtomicBool::new(false));
        let signer = Arc::new(Signer::new());
        let root = signer.pem.clone();
        let served = (Arc::clone(&state), Arc::clone(&stopped));
        thread::spawn(move || {
            for stream in listener.incoming() {
                if served.1.load(Ordering::Relaxed) {
                    return;
                }
                let (config, state, signer) =
                    (Arc::clone(&config), Arc::clone(&served.0), Arc::clone(&signer));
                let Ok(stream) = stream else { continue };
                thread::spawn(move || {
                    // The client may go at any time.
                    let _ = serve(stream, config, &state, &signer, port);
                });
            }
        });
        Self { port, state, stopped, root }
    }

    /// Writes the certificate that vouches for what it issues to a file, for clients.
    pub(crate) fn root(&self, home: &Path) -> PathBuf {
        let path = home.join("authority-root.pem");
        fs::write(&path, &self.root).unwrap();
        path
    }

    /// What it does wrong from now on.
    pub(crate) fn set_fault(&self, fault: Fault) {
        self.state.lock().unwrap().fault = fault;
    }

    /// The orders so far.
    pub(crate) fn orders(&self) -> Vec<Asked> {
        self.state.lock().unwrap().orders.clone()
    }

    /// How many requests there were whose path begins so.
    pub(crate) fn requests(&self, path: &str) -> usize {
        self.state.lock().unwrap().requests.iter().filter(|one| one.starts_with(path)).count()
    }

    /// Suggests to renew this certificate at once.
    pub(crate) fn suggest(&self, certificate: &str) {
        self.state.lock().unwrap().due.push(certificate.to_owned());
    }

    /// Suggests to renew this certificate between two moments.
    pub(crate) fn suggest_between(&self, certificate: &str, window: [SystemTime; 2]) {
        self.state.lock().unwrap().windows.push((certificate.to_owned(), window));
    }

    /// How many orders were under way at the most, from their beginning until their certificate was fetched.
    pub(crate) fn most_at_once(&self) -> usize {
        self.state.lock().unwrap().most_at_once
    }

    /// Itself as configuration, with further keys; its name is `own`.
    pub(crate) fn section(&self, ca: &Path, more: &str) -> String {
        format!(
            "[acme.own]\ndirectory = \"https://localhost:{}/dir\"\nemail = \"me@example.org\"\nca = \"{}\"\n{more}\n",
            self.port,
            ca.display()
        )
    }
}

/// Signs certificates.
struct Signer {
    issuer: Issuer<'static, KeyPair>,
    /// Its own key identifier.
    id: Vec<u8>,
    pem: String,
}

impl Signer {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        let (pem, id) = (certificate.pem(), params.key_identifier(&key));
        Self { issuer: Issuer::new(params, key), id, pem }
    }

    /// The chain and the identifier of a certificate for this request.
    fn sign(&self, csr: &[u8], number: usize, life: Duration, fault: Fault) -> (String, String) {
        let mut request = CertificateSigningRequestParams::from_der(&csr.to_vec().into()).unwrap();
        let now = SystemTime::now();
        if fault == Fault::OtherName {
            request.params = CertificateParams::new(vec!["other.test".to_owned()]).unwrap();
        }
        let [high, low] = u16::try_from(number).unwrap().to_be_bytes();
        let serial = vec![1, high, low];
        request.params.serial_number = Some(SerialNumber::from(serial.clone()));
        request.params.not_before = now.into();
        request.params.not_after = (now + life).into();
        request.params.use_authority_key_identifier_extension = true;
        let certificate = match fault {
            Fault::OtherKey => {
                let key = KeyPair::generate().unwrap();
                request.params.signed_by(&key, &self.issuer).unwrap().pem()
            }
            Fault::NoCertificate => "<html>".to_owned(),
            _ => request.signed_by(&self.issuer).unwrap().pem(),
        };
        let encoded = |bytes: &[u8]| BASE64_URL_SAFE_NO_PAD.encode(bytes);
        (format!("{certificate}{}", self.pem), format!("{}.{}", encoded(&self.id), encoded(&serial)))
    }
}

type Tls = StreamOwned<ServerConnection, TcpStream>;

fn serve(
    stream: TcpStream,
    config: Arc<ServerConfig>,
    state: &Mutex<State>,
    signer: &Signer,
    port: u16,
) -> io::Result<()> {
    let fault = state.lock().unwrap().fault;
    stream.set_read_timeout(Some(Duration::from_secs(120)))?;
    if fault == Fault::Down {
        state.lock().unwrap().requests.push("/".to_owned());
        return Ok(());
    }
    let mut stream = Tls::new(ServerConnection::new(config).map_err(io::Error::other)?, stream);
    let (method, path, body) = request(&mut stream)?;
    state.lock().unwrap().requests.push(path.clone());
    match fault {
        Fault::Html => respond(&mut stream, 200, "text/html", &[], "<html><body>Maintenance</body></html>"),
        Fault::Error => respond(&mut stream, 500, "text/plain", &[], "oops"),
        Fault::Garbage => stream.write_all(&[0xff; 300]),
        Fault::Nonsense => respond(&mut stream, 200, "application/json", &[], "[{\"a\": \"\u{1}"),
        Fault::Silent => stream.read(&mut [0]).map(drop),
        Fault::Endless => {
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n{\"a\":\"")?;
            loop {
                stream.write_all(&[b'a'; 16 * 1024])?;
            }
        }
        _ => answer(&mut stream, &method, &path, &body, (state, signer, port)),
    }
}

/// Method, path and body.
fn request(stream: &mut Tls) -> io::Result<(String, String, Vec<u8>)> {
    let (mut bytes, mut piece) = (Vec::new(), [0; 4096]);
    let end = loop {
        if let Some(at) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break at + 4;
        }
        match stream.read(&mut piece)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            length => bytes.extend_from_slice(&piece[..length]),
        }
    };
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
    });
    while bytes.len() < end + length.unwrap_or(0) {
        match stream.read(&mut piece)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            length => bytes.extend_from_slice(&piece[..length]),
        }
    }
    let mut words = head.split(' ');
    let mut word = || words.next().unwrap_or_default().to_owned();
    Ok((word(), word(), bytes.split_off(end)))
}

fn respond(
    stream: &mut Tls,
    status: u16,
    kind: &str,
    fields: &[(&str, String)],
    body: &str,
) -> io::Result<()> {
    let fields: String = fields.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let nonce = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_nanos();
    let length = body.len();
    write!(
        stream,
        "HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\nReplay-Nonce: {nonce}\r\n{fields}Content-Length: {length}\r\n\
         Connection: close\r\n\r\n{body}"
    )?;
    stream.conn.send_close_notify();
    stream.flush()
}

fn problem(stream: &mut Tls, status: u16, kind: &str, fields: &[(&str, String)]) -> io::Result<()> {
    let body =
        json!({ "type": format!("urn:ietf:params:acme:error:{kind}"), "detail": "as the test wants it" });
    respond(stream, status, "application/problem+json", fields, &body.to_string())
}

fn answer(
    stream: &mut Tls,
    method: &str,
    path: &str,
    body: &[u8],
    (state, signer, port): (&Mutex<State>, &Signer, u16),
) -> io::Result<()> {
    let url = |path: &str| format!("https://localhost:{port}{path}");
    let payload = payload(body);
    let (kind, number) = path.trim_start_matches('/').split_once('/').unwrap_or((path, ""));
    let index = number.parse::<usize>().unwrap_or_default();
    let fields = |location: &str| vec![("Location", url(location))];
    match (method, kind) {
        ("GET", "/dir") => {
            let mut directory = json!({
                "newNonce": url("/nonce"), "newAccount": url("/account"), "newOrder": url("/order"),
                "revokeCert": url("/revoke"), "keyChange": url("/key"), "renewalInfo": url("/ari"),
                "meta": { "profiles": { "classic": "…", "shortlived": "…" } },
            });
            if state.lock().unwrap().fault == Fault::Odd(Oddity::Nulls) {
                directory["meta"] = Value::Null;
                directory["newAuthz"] = Value::Null;
            }
            respond(stream, 200, "application/json", &[], &directory.to_string())
        }
        (_, "/nonce") => {
            let is_odd = state.lock().unwrap().fault == Fault::Odd(Oddity::NonceWithoutContent);
            respond(stream, if is_odd { 204 } else { 200 }, "text/plain", &[], "")
        }
        (_, "/account") => {
            respond(stream, 201, "application/json", &fields("/account/1"), "{\"status\":\"valid\"}")
        }
        (_, "/order") => {
            let mut locked = state.lock().unwrap();
            if let Fault::Limited(seconds) = locked.fault {
                return problem(stream, 429, "rateLimited", &[("Retry-After", seconds.to_string())]);
            }
            if payload["profile"].as_str().is_some_and(|name| name != "shortlived" && name != "classic") {
                return problem(stream, 400, "invalidProfile", &[]);
            }
            let replaced = |old: &str| locked.orders.iter().any(|order| order.payload["replaces"] == old);
            if payload["replaces"].as_str().is_some_and(replaced) {
                return problem(stream, 409, "alreadyReplaced", &[]);
            }
            let at = SystemTime::now();
            locked.orders.push(Asked { payload, at, certificate: None, chain: String::new() });
            let under_way = locked.orders.len() - locked.fetched;
            locked.most_at_once = locked.most_at_once.max(under_way);
            let index = locked.orders.len();
            let body = order(&locked, index, &url).to_string();
            respond(stream, 201, "application/json", &fields(&format!("/order/{index}")), &body)
        }
        (_, "order") => {
            let body = order(&state.lock().unwrap(), index, &url).to_string();
            respond(stream, 200, "application/json", &fields(path), &body)
        }
        (_, "authorization") => {
            let body = authorization(&state.lock().unwrap(), index, &url).to_string();
            respond(stream, 200, "application/json", &[], &body)
        }
        (_, "challenge") => {
            let mut body = challenge(index, &url);
            body["status"] = "processing".into();
            match state.lock().unwrap().fault {
                Fault::Looks => look(&mut body),
                Fault::Odd(Oddity::EmptyErrors) => body["error"] = json!({}),
                Fault::Odd(Oddity::Nulls) => body["token"] = Value::Null,
                _ => {}
            }
            respond(stream, 200, "application/json", &[], &body.to_string())
        }
        (_, "finalize") => finalize(stream, path, &payload, (state, signer), &url),
        (_, "cert") => {
            let chain = {
                let mut locked = state.lock().unwrap();
                locked.fetched += 1;
                locked.orders[index - 1].chain.clone()
            };
            respond(stream, 200, "application/pem-certificate-chain", &[], &chain)
        }
        ("GET", "ari") => {
            let locked = state.lock().unwrap();
            let due = locked.due.iter().any(|id| id == number);
            let days = if due { ["2020-01-01", "2020-01-02"] } else { ["2090-01-01", "2090-01-02"] };
            let suggested = locked.windows.iter().find(|(id, _)| id == number);
            let suggested = suggested.map(|(_, window)| window.map(rfc3339));
            let [start, end] = suggested.unwrap_or_else(|| days.map(|day| format!("{day}T00:00:00Z")));
            let fault = locked.fault;
            drop(locked);
            let window = json!({ "start": start, "end": end });
            let body = json!({ "suggestedWindow": window }).to_string();
            let again = [("Retry-After", "21600".to_owned())];
            let again = if fault == Fault::Forgetful { &[] } else { &again[..] };
            respond(stream, 200, "application/json", again, &body)
        }
        _ => problem(stream, 404, "malformed", &[]),
    }
}

/// Signs the certificate of an order.
fn finalize(
    stream: &mut Tls,
    path: &str,
    payload: &Value,
    (state, signer): (&Mutex<State>, &Signer),
    url: &impl Fn(&str) -> String,
) -> io::Result<()> {
    let index = path.rsplit('/').next().and_then(|number| number.parse::<usize>().ok()).unwrap_or_default();
    while state.lock().unwrap().fault == Fault::Slow {
        thread::park_timeout(Duration::from_millis(10));
    }
    let csr = BASE64_URL_SAFE_NO_PAD.decode(payload["csr"].as_str().unwrap_or_default()).unwrap();
    let mut locked = state.lock().unwrap();
    let times = locked.requests.iter().filter(|asked| *asked == path).count();
    if locked.fault == Fault::Odd(Oddity::NotReady) && times <= 2 {
        return problem(stream, 403, "orderNotReady", &[]);
    }
    let (chain, id) = signer.sign(&csr, index, locked.life, locked.fault);
    let before = order(&locked, index, url);
    let asked = &mut locked.orders[index - 1];
    (asked.chain, asked.certificate) = (chain, Some(id));
    let body = match locked.fault {
        Fault::Odd(Oddity::StaleOrder) => before,
        _ => order(&locked, index, url),
    };
    let body = body.to_string();
    respond(stream, 200, "application/json", &[("Location", url(&format!("/order/{index}")))], &body)
}

fn order(state: &State, index: usize, url: &impl Fn(&str) -> String) -> Value {
    let asked = &state.orders[index - 1];
    let odd = match state.fault {
        Fault::Odd(oddity) => Some(oddity),
        _ => None,
    };
    let is_proved = !state.fault.has_authorizations() || was_told(state, index);
    let status = match state.fault {
        Fault::Looks if is_proved => "invalid",
        _ if asked.certificate.is_some() => "valid",
        _ if is_proved => "ready",
        _ => "pending",
    };
    let mut body = json!({
        "status": status,
        "identifiers": asked.payload["identifiers"], "authorizations": [],
        "finalize": url(&format!("/finalize/{index}")),
    });
    for key in ["replaces", "profile"] {
        let is_forgotten = key == "replaces" && state.fault == Fault::Forgetful;
        if !asked.payload[key].is_null() && !is_forgotten {
            body[key] = asked.payload[key].clone();
        } else if odd == Some(Oddity::Nulls) {
            body[key] = Value::Null;
        }
    }
    if asked.certificate.is_some() {
        body["certificate"] = url(&format!("/cert/{index}")).into();
    } else if odd == Some(Oddity::Nulls) {
        body["certificate"] = Value::Null;
    }
    if state.fault.has_authorizations() {
        body["authorizations"] = json!([url(&format!("/authorization/{index}"))]);
    }
    match odd {
        Some(Oddity::Nulls) => body["error"] = Value::Null,
        Some(Oddity::EmptyErrors) => body["error"] = json!({}),
        _ => {}
    }
    body
}

/// Whether the authority was told that it may look.
fn was_told(state: &State, index: usize) -> bool {
    state.requests.iter().any(|path| *path == format!("/challenge/{index}"))
}

fn challenge(index: usize, url: &impl Fn(&str) -> String) -> Value {
    let url = url(&format!("/challenge/{index}"));
    json!({ "type": "tls-alpn-01", "url": url, "token": "LoqXcYV8q5ONbJQxbmR7SCTNo3tiAXDfowyjxAjEuX0",
        "status": "pending" })
}

/// Nothing is found.
fn look(challenge: &mut Value) {
    challenge["status"] = "invalid".into();
    challenge["error"] =
        json!({ "type": "urn:ietf:params:acme:error:unauthorized", "detail": "nothing is there" });
}

fn authorization(state: &State, index: usize, url: &impl Fn(&str) -> String) -> Value {
    let mut used = challenge(index, url);
    let is_over = state.fault == Fault::Looks && was_told(state, index);
    if is_over {
        look(&mut used);
    }
    let others = match state.fault {
        Fault::Odd(Oddity::Nulls) => {
            vec![Value::Null, json!({ "type": "dns-01", "url": null, "token": null, "status": null })]
        }
        Fault::Odd(Oddity::EmptyErrors) => vec![
            json!({ "type": "http-01", "url": "https://a.test/", "token": "t", "status": "pending", "error": {} }),
        ],
        _ => vec![
            json!({ "type": "dns-persist-01", "url": "https://a.test/", "status": "waiting",
                "issuer-domain-names": ["a.test"] }),
            json!({ "type": { "name": "of tomorrow" }, "accounts": 7 }),
        ],
    };
    let challenges = [others, vec![used]].concat();
    let mut body = json!({
        "status": if is_over { "invalid" } else if was_told(state, index) { "valid" } else { "pending" },
        "identifier": state.orders[index - 1].payload["identifiers"][0],
        "challenges": challenges,
    });
    if state.fault == Fault::Odd(Oddity::Nulls) {
        body["wildcard"] = Value::Null;
        body["expires"] = Value::Null;
    }
    body
}

fn rfc3339(time: SystemTime) -> String {
    let mut text = Vec::new();
    write_rfc3339(&mut text, time, Precision::Seconds);
    String::from_utf8(text).unwrap()
}

/// What a JWS says; its signature is not checked.
fn payload(body: &[u8]) -> Value {
    let parsed: Value = serde_json::from_slice(body).unwrap_or_default();
    let text = parsed["payload"].as_str().unwrap_or_default();
    let decoded = BASE64_URL_SAFE_NO_PAD.decode(text).unwrap_or_default();
    serde_json::from_slice(&decoded).unwrap_or_default()
}
