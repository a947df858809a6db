//! Where the admin interface is, and one request to it.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::io::ErrorKind;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, ETAG, HOST, IF_MATCH};
use hyper::{Response, StatusCode};
use hyper_util::rt::TokioIo;
use offramp_certs::anchors::{Anchors, server_verifier};
use offramp_certs::explain::stream_error;
use offramp_config::model::ListenAddress;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;

use crate::check;
use crate::failure::Failure;
use crate::flags::ctl::{Admin, Reach};
use crate::surroundings;

/// How long a connection, and the beginning of an answer, may take; then Offramp does not run, or hangs.
pub(super) const SOON: Duration = Duration::from_secs(10);
/// How long an answer may take of an Offramp that runs: a large configuration is read, and certificates may be made for it.
const PATIENCE: Duration = Duration::from_secs(120);
/// The same of an upgrade, for which `limits.upgrade_timeout` may be as much.
const UPGRADE: Duration = Duration::from_secs(3700);
/// The largest answer, in bytes.
pub(super) const LARGEST: usize = 256 << 20;

/// What may have become of a socket, and what helps.
const REMOVED: &str = "\nIf one is running, somebody has removed or replaced its socket, or the directory of it: an upgrade \
                       (SIGUSR2) or a restart makes it again";

/// Why a connection may end without an answer, and what helps.
const FULL: &str = "\nPerhaps as many connections are open as may be, and the log of Offramp says whose these are; or Offramp \
                    ends. Try again";

/// Of a change without an answer.
const PERHAPS: &str = "\nWhat was asked for may still be done: `offramp ctl history` tells, once it answers";

/// What is asked.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) method: &'static str,
    /// Below `/v1`, with its query.
    pub(super) path: String,
    /// Its type, and it.
    pub(super) body: Option<(&'static str, Vec<u8>)>,
    /// The version that must be in force.
    pub(super) expect: Option<u64>,
    /// The event after which a stream begins.
    pub(super) last: Option<String>,
}

impl Request {
    pub(super) fn new(method: &'static str, path: &str) -> Self {
        Self { method, path: path.to_owned(), body: None, expect: None, last: None }
    }

    pub(super) fn json(method: &'static str, path: &str, body: &Value) -> Self {
        let body = Some(("application/json", body.to_string().into_bytes()));
        Self { body, ..Self::new(method, path) }
    }
}

/// Where requests go.
pub(super) struct Client {
    address: Admin,
    /// By which the certificate of `https://` is checked, and its name.
    tls: Option<(TlsConnector, ServerName<'static>)>,
    token: Option<Arc<str>>,
    /// How long it may take to begin an answer, if that was said.
    pub(super) timeout: Option<Duration>,
    /// Whether answers are shown as JSON.
    pub(super) json: bool,
    /// The latest refusal, as it came.
    pub(super) problem: RefCell<Option<Value>>,
}

impl Client {
    /// By the options, else by the configuration, as far as it can be understood: it may have mistakes, which is when an
    /// operator asks.
    ///
    /// # Errors
    /// A file cannot be read.
    pub(super) fn of(reach: &Reach) -> Result<Self, Failure> {
        let environment = surroundings::environment();
        let default = || offramp_config::Config::for_environment(&environment);
        let config = match check::find(reach.file()) {
            Err(_) => default(),
            Ok(path) => match offramp_config::survey(&path, &environment) {
                Ok(survey) => survey.config,
                Err(_) if reach.admin.is_some() && reach.config.is_none() => default(),
                Err(errors) => return Err(Failure::usage(errors)),
            },
        };
        let written = config.admin.endpoint.as_ref().map(|endpoint| Admin::Plain(endpoint.address.clone()));
        if let (None, Some(address), Some(_)) = (&reach.admin, &written, &config.admin.certificate) {
            return Err(Failure::usage(format_args!(
                "error: the admin interface at {address} speaks TLS\nName it as its certificate does: --admin \
                 https://HOST:PORT, with --cacert FILE unless the system knows the authority"
            )));
        }
        let address = reach.admin.clone().or(written);
        let address = address.unwrap_or_else(|| Admin::Plain(ListenAddress::Unix(config.admin_socket())));
        if let Admin::Plain(ListenAddress::Ip(address)) = &address
            && !address.ip().to_canonical().is_loopback()
        {
            return Err(Failure::usage(format_args!(
                "error: without TLS, everyone on the way to {address} can read the token and the answers\nUse --admin \
                 https://HOST:{}, which needs a certificate in [admin], or the socket through ssh: ssh HOST offramp ctl",
                address.port()
            )));
        }
        let near = match &address {
            Admin::Plain(ListenAddress::Ip(_)) => true,
            Admin::Plain(ListenAddress::Unix(_)) => false,
            Admin::Https { host, .. } => {
                host == "localhost" || host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback())
            }
        };
        // The token of the configuration is for this machine.
        let own = config.admin.token_file.map(|file| file.path).filter(|_| near);
        let token = match (&address, reach.token_file.clone().or(own)) {
            (Admin::Plain(ListenAddress::Unix(_)), _) | (_, None) => None,
            (_, Some(file)) => {
                let token = offramp_certs::read_secret(&file);
                let token = token.map_err(|error| Failure::usage(format_args!("error: {error}")))?;
                Some(Arc::from(token.as_str()))
            }
        };
        let tls = match &address {
            Admin::Https { host, .. } => Some(tls(host, reach.cacert.as_deref())?),
            Admin::Plain(_) if reach.cacert.is_some() => {
                return Err(Failure::usage("error: --cacert is for --admin https://HOST:PORT"));
            }
            Admin::Plain(_) => None,
        };
        let (json, problem) = (reach.json, RefCell::default());
        Ok(Self { address, tls, token, timeout: reach.timeout, json, problem })
    }

    /// What asks at this socket.
    #[cfg(test)]
    pub(super) fn at_socket(path: &Path) -> Self {
        let address = Admin::Plain(ListenAddress::Unix(path.to_owned()));
        Self { address, tls: None, token: None, timeout: None, json: false, problem: RefCell::default() }
    }

    /// Sends a request, and gives the body of the answer.
    ///
    /// # Errors
    /// Nobody answers, or refuses.
    pub(super) fn ask(&self, request: &Request) -> Result<Vec<u8>, Failure> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| self.failed(&error))?;
        runtime.block_on(async {
            let begins = Cell::new(false);
            tokio::select! {
                answer = self.exchange(request, &begins) => answer,
                failure = self.too_late(request, &begins) => Err(failure),
            }
        })
    }

    /// The same where the body is JSON.
    ///
    /// # Errors
    /// As [`Client::ask`]; or something else listens there.
    pub(super) fn ask_json(&self, request: &Request) -> Result<Value, Failure> {
        let answer = self.ask(request)?;
        serde_json::from_slice(&answer).map_err(|error| {
            self.failed(&format!("what listens there is no admin interface; its answer is not JSON: {error}"))
        })
    }

    /// Waits until it is no use to wait longer for the answer to a request, and says why. What changes something may take
    /// long: then Offramp is asked whether it still answers.
    async fn too_late(&self, request: &Request, begins: &Cell<bool>) -> Failure {
        let soon = self.timeout.unwrap_or(SOON);
        let is_long = request.method != "GET" && self.timeout.is_none();
        let all = if request.path.starts_with("/upgrade") { UPGRADE } else { PATIENCE };
        let begun = tokio::time::Instant::now();
        let mut is_told = false;
        loop {
            tokio::time::sleep(soon).await;
            // What has begun arrives as fast as the network has it.
            let goes_on = begins.get() || (is_long && self.is_there(soon).await);
            if !goes_on || begun.elapsed() >= all {
                return self.silent(request, begun.elapsed());
            }
            if !begins.get() && !std::mem::replace(&mut is_told, true) {
                surroundings::say("Offramp is still at work; waiting for it");
            }
        }
    }

    /// Whether Offramp answers another question in this time.
    async fn is_there(&self, time: Duration) -> bool {
        let status = Request::new("GET", "/status");
        matches!(tokio::time::timeout(time, self.send(&status, None)).await, Ok(Ok(_)))
    }

    /// Nobody has answered for so long.
    pub(super) fn silent(&self, request: &Request, time: Duration) -> Failure {
        let perhaps = match request.method {
            "GET" => "",
            _ => PERHAPS,
        };
        self.failed(&format!(
            "no answer within {} s; Offramp hangs, is stopped, or has very much to do (--timeout TIME waits longer){perhaps}",
            time.as_secs()
        ))
    }

    /// `begins` becomes true with the head of the answer.
    async fn exchange(&self, request: &Request, begins: &Cell<bool>) -> Result<Vec<u8>, Failure> {
        let tag = match request.expect {
            None => None,
            Some(version) => {
                let status = self.send(&Request::new("GET", "/status"), None).await?;
                let tag = status.headers().get(ETAG).and_then(|tag| tag.to_str().ok()).unwrap_or_default();
                let start = tag.split('-').next().unwrap_or_default();
                Some(format!("{start}-{version}\""))
            }
        };
        let response = self.send(request, tag).await?;
        begins.set(true);
        let status = response.status();
        let body = Limited::new(response.into_body(), LARGEST).collect().await;
        let body = body.map_err(|error| self.failed(&error))?.to_bytes().to_vec();
        if status.is_success() { Ok(body) } else { Err(self.refused(status, &body)) }
    }

    pub(super) async fn send(
        &self,
        request: &Request,
        tag: Option<String>,
    ) -> Result<Response<Incoming>, Failure> {
        match &self.address {
            Admin::Plain(ListenAddress::Unix(path)) => {
                let stream = UnixStream::connect(path).await.map_err(|error| self.nobody(&error))?;
                self.talk(stream, request, tag).await
            }
            Admin::Plain(ListenAddress::Ip(address)) => {
                let stream = TcpStream::connect(address).await.map_err(|error| self.nobody(&error))?;
                self.talk(stream, request, tag).await
            }
            Admin::Https { host, port } => {
                let stream = TcpStream::connect((host.as_str(), *port)).await;
                let stream = stream.map_err(|error| self.nobody(&error))?;
                let Some((connector, name)) = &self.tls else { return Err(self.failed(&"no TLS")) };
                let stream = connector.connect(name.clone(), stream).await;
                self.talk(stream.map_err(|error| self.no_tls(&error))?, request, tag).await
            }
        }
    }

    async fn talk(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        request: &Request,
        tag: Option<String>,
    ) -> Result<Response<Incoming>, Failure> {
        let handshake = http1::handshake(TokioIo::new(stream)).await;
        let (mut sender, connection) = handshake.map_err(|error| self.failed(&error))?;
        tokio::spawn(connection);
        let mut head = hyper::Request::builder().method(request.method).header(HOST, "localhost");
        head = head.uri(format!("/v1{}", request.path));
        if let Some(token) = &self.token {
            head = head.header(AUTHORIZATION, format!("Bearer {token}"));
        }
        if let Some(tag) = tag {
            head = head.header(IF_MATCH, tag);
        }
        if let Some(last) = &request.last {
            head = head.header("last-event-id", last);
        }
        let (kind, body) = request.body.clone().unwrap_or_default();
        if !kind.is_empty() {
            head = head.header(CONTENT_TYPE, kind);
        }
        let message = head.body(Full::new(Bytes::from(body))).map_err(|error| self.failed(&error))?;
        sender.send_request(message).await.map_err(|error| self.cut_off(request, &error))
    }

    /// Why a connection has ended without an answer, and what to do.
    fn cut_off(&self, request: &Request, error: &hyper::Error) -> Failure {
        let perhaps = if request.method == "GET" { "" } else { PERHAPS };
        self.failed(&format!("it closed the connection without an answer ({error}){FULL}{perhaps}"))
    }

    /// Why there is no TLS, and what to do.
    fn no_tls(&self, error: &std::io::Error) -> Failure {
        let plain = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
        match (plain, &self.address) {
            (Some(rustls::Error::InvalidMessage(_)), Admin::Https { host, port }) => {
                let own =
                    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
                self.failed(&format!("it does not speak TLS; without TLS it is --admin {own}"))
            }
            _ if matches!(error.kind(), ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset) => {
                self.failed(&format!("it closed the connection during the TLS handshake{FULL}"))
            }
            _ => self.failed(&format!("TLS: {}", stream_error(error))),
        }
    }

    /// What was said against a request.
    pub(super) fn refused(&self, status: StatusCode, body: &[u8]) -> Failure {
        let problem: Value = serde_json::from_slice(body).unwrap_or_default();
        let Some(detail) = problem["detail"].as_str() else {
            return self.failed(&format!("what listens there is no admin interface; it answers {status}"));
        };
        let text = refusal(&problem, detail);
        self.problem.replace(Some(problem));
        match status {
            StatusCode::UNAUTHORIZED => {
                Failure::runtime(text + "\n--token-file FILE names the file with the token")
            }
            // Values of the command line go as they are.
            StatusCode::BAD_REQUEST => Failure::usage(text),
            _ => Failure::runtime(text),
        }
    }

    pub(super) fn failed(&self, error: &impl fmt::Display) -> Failure {
        Failure::runtime(format_args!("error: the admin interface at {}: {error}", self.address))
    }

    /// Why there is no connection, and what to do.
    fn nobody(&self, error: &std::io::Error) -> Failure {
        let address = &self.address;
        Failure::runtime(match error.kind() {
            ErrorKind::NotFound | ErrorKind::ConnectionRefused => {
                let (what, removed) = match (&self.address, error.kind()) {
                    (Admin::Plain(ListenAddress::Unix(_)), ErrorKind::NotFound) => {
                        (": there is no such socket", REMOVED)
                    }
                    (Admin::Plain(ListenAddress::Unix(_)), _) => (": the socket belongs to nobody", REMOVED),
                    _ => ("", ""),
                };
                format!(
                    "error: no Offramp listens at {address}{what}\n\
                     Is one running with this configuration (`offramp run -c FILE`)? `offramp ctl -c FILE` asks that of a \
                     file, --admin that of an address{removed}"
                )
            }
            ErrorKind::PermissionDenied => {
                format!("error: {address}: {error}; run this as root, or as the user that Offramp runs as")
            }
            _ => format!("error: {address}: {error}"),
        })
    }
}

/// What checks the certificate of a host: by these authorities, or the system's.
fn tls(host: &str, authorities: Option<&Path>) -> Result<(TlsConnector, ServerName<'static>), Failure> {
    let anchors = match authorities {
        Some(file) => {
            let loaded = offramp_certs::client_auth::load_roots(file, SystemTime::now());
            loaded.map_err(|error| Failure::usage(format_args!("error: {error}")))?.anchors
        }
        None => {
            let mut roots = RootCertStore::empty();
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            Anchors::from(roots)
        }
    };
    let failed =
        |error: &dyn fmt::Display| Failure::usage(format_args!("error: --admin https://{host}: {error}"));
    let name = ServerName::try_from(host.to_owned()).map_err(|error| failed(&error))?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let verifier = server_verifier(&anchors, &provider).map_err(|error| failed(&error))?;
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.map_err(|error| failed(&error))?.dangerous();
    let config = config.with_custom_certificate_verifier(verifier).with_no_client_auth();
    Ok((TlsConnector::from(Arc::new(config)), name))
}

/// A refusal for people.
fn refusal(problem: &Value, detail: &str) -> String {
    let mut text = format!("error: {}", printable(detail));
    let errors = problem["errors"].as_array().map_or(&[][..], Vec::as_slice);
    for error in errors.iter().filter(|_| errors.len() > 1) {
        let at = error["at"].as_str().map(|at| format!("{at}: ")).unwrap_or_default();
        text.push_str(&format!(
            "\n  {}",
            printable(&format!("{at}{}", error["text"].as_str().unwrap_or_default()))
        ));
    }
    match problem["difference"].as_array() {
        Some(lines) if lines.is_empty() => {
            text.push_str("\nWhat has changed since the expected version is not remembered");
        }
        Some(_) => text.push_str("\nWhat has changed since the expected version:"),
        None => {}
    }
    for line in problem["difference"].as_array().into_iter().flatten() {
        text.push_str(&format!("\n  {}", printable(line.as_str().unwrap_or_default())));
    }
    text
}

/// Without control characters: this may be root's terminal.
pub(super) fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() && c != '\n' { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests;
