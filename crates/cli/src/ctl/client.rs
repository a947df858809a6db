//! HTTP client of the admin interface: one connection and one request at a time.
//!
//! - [`events`]: event streams
//! - [`failures`]: what to say if a request fails

pub(crate) mod events;
mod failures;

use std::cell::Cell;
use std::fmt;
use std::io::ErrorKind;
use std::net::IpAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use http_body_util::{BodyExt as _, Full, Limited};
use hyper::Response;
use hyper::body::{Body, Bytes, Incoming};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, ETAG, HOST, IF_MATCH};
use hyper_util::rt::TokioIo;
use offramp_certs::anchors::{Anchors, server_verifier};
use offramp_config::model::ListenAddress;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;

use crate::check;
use crate::failure::Failure;
use crate::flags::ctl::{AdminAddress, CtlOptions};
use crate::surroundings;
pub(crate) use failures::printable;

/// Time to connect and to begin an answer; a longer silence means that Offramp does not run, or hangs.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);
/// Time for a change by a process that is responsive: it may read a large configuration and issue
/// certificates.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(120);
/// Time for an upgrade; above the largest `limits.upgrade_timeout`.
const UPGRADE_TIMEOUT: Duration = Duration::from_secs(3700);
/// Maximum size of an answer, in bytes.
const MAX_ANSWER: usize = 256 << 20;

/// A request to the admin interface.
#[derive(Debug)]
pub(crate) struct AdminRequest {
    pub(crate) method: &'static str,
    /// Path below `/v1`, with its query.
    pub(crate) path: String,
    /// Media type and content.
    pub(crate) body: Option<(&'static str, Vec<u8>)>,
    /// Version that must be in force (`If-Match`).
    pub(crate) expect: Option<u64>,
    /// Event after which a stream resumes (`Last-Event-ID`).
    pub(crate) last: Option<String>,
}

impl AdminRequest {
    pub(crate) fn new(method: &'static str, path: &str) -> Self {
        Self { method, path: path.to_owned(), body: None, expect: None, last: None }
    }

    pub(crate) fn json(method: &'static str, path: &str, body: &Value) -> Self {
        let body = Some(("application/json", body.to_string().into_bytes()));
        Self { body, ..Self::new(method, path) }
    }
}

/// Address, credentials and output options of one invocation of `ctl`.
pub(crate) struct AdminClient {
    address: AdminAddress,
    /// Verifier of `https://` certificates, and the name that they must have.
    tls: Option<(TlsConnector, ServerName<'static>)>,
    token: Option<Arc<str>>,
    /// Time for the beginning of an answer; the default depends on the request.
    pub(crate) timeout: Option<Duration>,
    /// Set by `--json`: print answers as JSON.
    pub(super) json: bool,
    /// Body of the latest refusal, for `--json`.
    pub(super) problem: Mutex<Option<Value>>,
}

impl AdminClient {
    /// Builds a client from the options, else from the configuration. The latter may be invalid, which is
    /// often the reason for using `ctl`: its valid parts are used.
    ///
    /// # Errors
    /// The configuration, the token or the authorities cannot be read, or the options contradict each other.
    pub(crate) fn of(reach: &CtlOptions) -> Result<Self, Failure> {
        let environment = surroundings::environment();
        let default = || offramp_config::Config::for_environment(&environment);
        let config = match check::find(reach.at.file()) {
            Err(_) => default(),
            Ok(path) => match offramp_config::survey(&path, &environment) {
                Ok(survey) => survey.config,
                Err(_) if reach.at.admin.is_some() && reach.at.config.is_none() => default(),
                Err(errors) => return Err(Failure::usage(errors)),
            },
        };
        let written =
            config.admin.endpoint.as_ref().map(|endpoint| AdminAddress::Plain(endpoint.address.clone()));
        if let (None, Some(address), Some(_)) = (&reach.at.admin, &written, &config.admin.certificate) {
            return Err(Failure::usage(format_args!(
                "error: the admin interface at {address} speaks TLS\nName it as its certificate does: --admin \
                 https://HOST:PORT, with --cacert FILE unless the system knows the authority"
            )));
        }
        let address = reach.at.admin.clone().or(written);
        let address =
            address.unwrap_or_else(|| AdminAddress::Plain(ListenAddress::Unix(config.admin_socket())));
        if let AdminAddress::Plain(ListenAddress::Ip(address)) = &address
            && !address.ip().to_canonical().is_loopback()
        {
            return Err(Failure::usage(format_args!(
                "error: without TLS, everyone on the way to {address} can read the token and the answers\nUse --admin \
                 https://HOST:{}, which needs a certificate in [admin], or the socket through ssh: ssh HOST offramp ctl",
                address.port()
            )));
        }
        let near = match &address {
            AdminAddress::Plain(ListenAddress::Ip(_)) => true,
            AdminAddress::Plain(ListenAddress::Unix(_)) => false,
            AdminAddress::Https { host, .. } => {
                host == "localhost" || host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback())
            }
        };
        // The configured token is never sent to other machines.
        let own = config.admin.token_file.map(|file| file.path).filter(|_| near);
        let token = match (&address, reach.at.token_file.clone().or(own)) {
            (AdminAddress::Plain(ListenAddress::Unix(_)), _) | (_, None) => None,
            (_, Some(file)) => {
                let token = offramp_certs::read_secret(&file);
                let token = token.map_err(|error| Failure::usage(format_args!("error: {error}")))?;
                Some(Arc::from(token.as_str()))
            }
        };
        let tls = match &address {
            AdminAddress::Https { host, .. } => Some(tls(host, reach.at.cacert.as_deref())?),
            AdminAddress::Plain(_) if reach.at.cacert.is_some() => {
                return Err(Failure::usage("error: --cacert is for --admin https://HOST:PORT"));
            }
            AdminAddress::Plain(_) => None,
        };
        let (json, problem) = (reach.json, Mutex::default());
        Ok(Self { address, tls, token, timeout: reach.timeout, json, problem })
    }

    /// Client of a Unix socket.
    #[cfg(test)]
    pub(crate) fn at_socket(path: &Path) -> Self {
        let address = AdminAddress::Plain(ListenAddress::Unix(path.to_owned()));
        Self { address, tls: None, token: None, timeout: None, json: false, problem: Mutex::default() }
    }

    /// Sends a request, and returns the body of the answer.
    ///
    /// # Errors
    /// No Offramp answers, or it refuses.
    pub(super) fn ask(&self, request: &AdminRequest) -> Result<Vec<u8>, Failure> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| self.failed(&error))?;
        runtime.block_on(async {
            let has_begun = Cell::new(false);
            tokio::select! {
                answer = self.exchange(request, &has_begun) => answer,
                failure = self.overdue(request, &has_begun) => Err(failure),
            }
        })
    }

    /// Like [`AdminClient::ask`], for a body of JSON.
    ///
    /// # Errors
    /// As [`AdminClient::ask`], or the answer is not JSON.
    pub(crate) fn ask_json(&self, request: &AdminRequest) -> Result<Value, Failure> {
        let answer = self.ask(request)?;
        serde_json::from_slice(&answer).map_err(|error| self.not_json(&error))
    }

    fn not_json(&self, error: &serde_json::Error) -> Failure {
        self.failed(&format!("what listens there is no admin interface; its answer is not JSON: {error}"))
    }

    /// Waits until the answer is overdue, and returns the failure. A change may take long: as long as Offramp
    /// answers `/status` meanwhile, the limit is [`CHANGE_TIMEOUT`] or [`UPGRADE_TIMEOUT`].
    async fn overdue(&self, request: &AdminRequest, has_begun: &Cell<bool>) -> Failure {
        let soon = self.timeout.unwrap_or(RESPONSE_TIMEOUT);
        let is_long = request.method != "GET" && self.timeout.is_none();
        let all = if request.path.starts_with("/upgrade") { UPGRADE_TIMEOUT } else { CHANGE_TIMEOUT };
        let begun = tokio::time::Instant::now();
        let mut is_reported = false;
        loop {
            tokio::time::sleep(soon).await;
            // A body that has begun arrives at the speed of the network.
            let goes_on = has_begun.get() || (is_long && self.is_responsive(soon).await);
            if !goes_on || begun.elapsed() >= all {
                return self.timed_out(request, begun.elapsed());
            }
            if !has_begun.get() && !std::mem::replace(&mut is_reported, true) {
                surroundings::say("Offramp is still at work; waiting for it");
            }
        }
    }

    /// Returns true if Offramp answers `/status` within `time`.
    async fn is_responsive(&self, time: Duration) -> bool {
        let status = AdminRequest::new("GET", "/status");
        matches!(tokio::time::timeout(time, self.send(&status, None)).await, Ok(Ok(_)))
    }

    /// Performs a request; `has_begun` becomes true with the head of the answer.
    async fn exchange(&self, request: &AdminRequest, has_begun: &Cell<bool>) -> Result<Vec<u8>, Failure> {
        let tag = match request.expect {
            None => None,
            Some(version) => {
                let status = self.send(&AdminRequest::new("GET", "/status"), None).await?;
                let tag = status.headers().get(ETAG).and_then(|tag| tag.to_str().ok()).unwrap_or_default();
                let start = tag.split('-').next().unwrap_or_default();
                Some(format!("{start}-{version}\""))
            }
        };
        let response = self.send(request, tag).await?;
        has_begun.set(true);
        let body = self.accepted(response).await?;
        Ok(self.whole(body).await?.to_vec())
    }

    /// Returns the body of an answer that is no refusal.
    async fn accepted(&self, response: Response<Incoming>) -> Result<Incoming, Failure> {
        let status = response.status();
        let body = response.into_body();
        if status.is_success() {
            return Ok(body);
        }
        Err(self.refused(status, &self.whole(body).await?))
    }

    async fn whole(&self, body: Incoming) -> Result<Bytes, Failure> {
        let body = Limited::new(body, MAX_ANSWER).collect().await;
        Ok(body.map_err(|error| self.failed(&error))?.to_bytes())
    }

    /// Like [`AdminClient::ask_json`] within a runtime, for `time` at most and without messages.
    ///
    /// # Errors
    /// As [`AdminClient::ask_json`].
    pub(crate) async fn fetch(&self, request: &AdminRequest, time: Duration) -> Result<Value, Failure> {
        let has_begun = Cell::new(false);
        let answer = tokio::time::timeout(time, self.exchange(request, &has_begun)).await;
        let answer = answer.unwrap_or_else(|_| Err(self.timed_out(request, time)))?;
        serde_json::from_slice(&answer).map_err(|error| self.not_json(&error))
    }

    async fn send(&self, request: &AdminRequest, tag: Option<String>) -> Result<Response<Incoming>, Failure> {
        let mut sender = self.connect().await?;
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
        sender.send_request(message).await.map_err(|error| self.closed_early(request, &error))
    }

    /// Connects, for requests with bodies of this type. The connection ends with the sender and its last answer.
    ///
    /// # Errors
    /// No Offramp listens there, or it cannot be trusted.
    pub(crate) async fn connect<B>(&self) -> Result<SendRequest<B>, Failure>
    where
        B: Body + Send + 'static,
        B::Data: Send,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        match &self.address {
            AdminAddress::Plain(ListenAddress::Unix(path)) => {
                let stream = UnixStream::connect(path).await.map_err(|error| self.connect_failed(&error))?;
                self.handshake(stream).await
            }
            AdminAddress::Plain(ListenAddress::Ip(address)) => {
                let stream =
                    TcpStream::connect(address).await.map_err(|error| self.connect_failed(&error))?;
                self.handshake(stream).await
            }
            AdminAddress::Https { host, port } => {
                let stream = TcpStream::connect((host.as_str(), *port)).await;
                let stream = stream.map_err(|error| self.connect_failed(&error))?;
                let Some((connector, name)) = &self.tls else { return Err(self.failed(&"no TLS")) };
                let stream = connector.connect(name.clone(), stream).await;
                self.handshake(stream.map_err(|error| self.handshake_failed(&error))?).await
            }
        }
    }

    /// Asks for the state of the process.
    ///
    /// # Errors
    /// No Offramp answers, or it refuses.
    pub(crate) async fn probe(&self) -> Result<(), Failure> {
        let status = AdminRequest::new("GET", "/status");
        let has_begun = Cell::new(false);
        let asked = tokio::time::timeout(RESPONSE_TIMEOUT, self.exchange(&status, &has_begun));
        asked.await.unwrap_or_else(|_| Err(self.timed_out(&status, RESPONSE_TIMEOUT))).map(drop)
    }

    /// Returns true if nothing listens at the address, as far as this machine can tell.
    pub(crate) fn is_absent(&self) -> bool {
        let refusal = match &self.address {
            AdminAddress::Plain(ListenAddress::Unix(path)) => {
                std::os::unix::net::UnixStream::connect(path).err()
            }
            AdminAddress::Plain(ListenAddress::Ip(address)) => std::net::TcpStream::connect(address).err(),
            AdminAddress::Https { .. } => None,
        };
        refusal
            .is_some_and(|error| matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused))
    }

    /// The address as it is written on a command line.
    pub(crate) fn address(&self) -> &AdminAddress {
        &self.address
    }

    /// The name of the interface for the `Host` field of its page.
    pub(crate) fn host(&self) -> &str {
        match &self.address {
            AdminAddress::Https { host, .. } if !host.contains(':') => host,
            _ => "localhost",
        }
    }

    /// The token that requests have to show.
    pub(crate) fn token(&self) -> Option<&str> {
        self.token.as_deref()
    }

    async fn handshake<B>(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    ) -> Result<SendRequest<B>, Failure>
    where
        B: Body + Send + 'static,
        B::Data: Send,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let handshake = http1::handshake(TokioIo::new(stream)).await;
        let (sender, connection) = handshake.map_err(|error| self.failed(&error))?;
        tokio::spawn(connection);
        Ok(sender)
    }
}

/// TLS connector that trusts `authorities`, else the system's, and the server name of `host`.
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

#[cfg(test)]
mod tests;
