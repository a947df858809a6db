//! Requests to one side: one connection, kept, with a bound on the time and on the body of each answer.

use std::fmt;
use std::time::{Duration, Instant};

use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::{http1, http2};
use hyper::header::{ACCEPT, ACCEPT_ENCODING, HOST, USER_AGENT};
use hyper::{Method, Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use offramp_certs::explain::stream_error;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::{timeout, timeout_at};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::answer::{BodyEnd, SideAnswer, body_of};
use super::request::ReplayRequest;
use super::side::{ComparedSide, SeenChain, SideAddress, SideTls};
use crate::failure::chain;

/// The reason why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NoAnswer {
    /// No connection.
    Unreachable(String),
    /// The certificate is not trusted.
    Untrusted(String),
    /// The connection ended, or was no HTTP, before the head of an answer was there.
    Broken(String),
    /// Not within the time.
    Late(Duration),
}

impl fmt::Display for NoAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable(why) | Self::Broken(why) => f.write_str(why),
            Self::Untrusted(why) => write!(f, "its certificate is not trusted: {why}"),
            Self::Late(time) => write!(f, "no answer within {} ms", time.as_millis()),
        }
    }
}

/// TLS as a side offers it for a name.
#[derive(Clone, Debug)]
pub(super) struct OfferedTls {
    pub(super) version: String,
    /// The version of HTTP that it chooses.
    pub(super) protocol: String,
    pub(super) seen: Option<SeenChain>,
}

/// Bounds of answers.
#[derive(Clone, Copy, Debug)]
pub(super) struct AnswerLimits {
    pub(super) time: Duration,
    pub(super) body: u64,
}

/// The client of one side.
pub(super) struct SideClient {
    pub(super) side: ComparedSide,
    tls: SideTls,
    limits: AnswerLimits,
    is_http2: bool,
    open: Option<OpenConnection>,
}

/// A connection, for requests with one server name.
struct OpenConnection {
    name: String,
    sender: RequestSender,
}

enum RequestSender {
    One(http1::SendRequest<Full<Bytes>>),
    Two(http2::SendRequest<Full<Bytes>>),
}

impl SideClient {
    pub(super) fn new(side: ComparedSide, tls: SideTls, limits: AnswerLimits, http2: bool) -> Self {
        let is_http2 = http2 && side.is_tls;
        Self { side, tls, limits, is_http2, open: None }
    }

    /// Looks at the TLS that is offered for a host.
    ///
    /// # Errors
    /// There is no handshake.
    pub(super) async fn look(&self, authority: &str) -> Result<OfferedTls, NoAnswer> {
        let stream = self.handshake(authority, &self.tls.looking).await?;
        let session = stream.get_ref().1;
        let version = session.protocol_version().and_then(|version| version.as_str().map(str::to_owned));
        let protocol = session.alpn_protocol().map(|name| String::from_utf8_lossy(name).into_owned());
        Ok(OfferedTls {
            version: version.unwrap_or_default(),
            protocol: protocol.unwrap_or_else(|| "none".to_owned()),
            seen: self.tls.rule.rule().take(),
        })
    }

    /// Connects, and closes again.
    ///
    /// # Errors
    /// There is no connection.
    pub(super) async fn reach(&self) -> Result<(), NoAnswer> {
        match &self.side.address {
            SideAddress::Tcp(_) => self.tcp().await.map(drop),
            SideAddress::Unix(_) => self.unix().await.map(drop),
        }
    }

    /// Sends a request, and reads the answer. A kept connection that was closed meanwhile is opened again.
    ///
    /// # Errors
    /// There is no answer.
    pub(super) async fn ask(
        &mut self,
        request: &ReplayRequest,
        authority: &str,
    ) -> Result<SideAnswer, NoAnswer> {
        let kept = self.open.take().filter(|open| open.name == authority && !open.sender.is_closed());
        if let Some(open) = kept {
            let safe = matches!(request.method, Method::GET | Method::HEAD | Method::OPTIONS);
            match self.ask_over(open, request, authority).await {
                Err(NoAnswer::Broken(_)) if safe => {}
                outcome => return outcome,
            }
        }
        let open = OpenConnection { name: authority.to_owned(), sender: self.connect(authority).await? };
        self.ask_over(open, request, authority).await
    }

    async fn ask_over(
        &mut self,
        mut open: OpenConnection,
        request: &ReplayRequest,
        authority: &str,
    ) -> Result<SideAnswer, NoAnswer> {
        let begun = Instant::now();
        let deadline = tokio::time::Instant::from_std(begun + self.limits.time);
        let message = self.message(request, authority)?;
        let sent = timeout_at(deadline, open.sender.send(message)).await;
        let answer = sent.map_err(|_| NoAnswer::Late(self.limits.time))?;
        let answer = answer.map_err(|error| NoAnswer::Broken(chain(&error)))?;
        let (head, body) = answer.into_parts();
        let (raw, end) = self.body(body, deadline).await;
        let time = begun.elapsed();
        let is_whole = end == BodyEnd::Whole;
        let body = body_of(&raw, &head.headers, end, self.limits.body);
        // After part of a body the connection has the rest of it.
        self.open = is_whole.then_some(open);
        Ok(SideAnswer { status: head.status.as_u16(), fields: head.headers, body, time })
    }

    async fn body(&self, mut body: Incoming, deadline: tokio::time::Instant) -> (Vec<u8>, BodyEnd) {
        let mut raw = Vec::new();
        let most = usize::try_from(self.limits.body).unwrap_or(usize::MAX);
        loop {
            match timeout_at(deadline, body.frame()).await {
                Err(_) => return (raw, BodyEnd::Endless),
                Ok(None) => return (raw, BodyEnd::Whole),
                Ok(Some(Err(error))) => return (raw, BodyEnd::Broken(chain(&error))),
                Ok(Some(Ok(frame))) => {
                    let Some(data) = frame.data_ref() else { continue };
                    let room = most - raw.len();
                    raw.extend_from_slice(&data[..data.len().min(room)]);
                    if data.len() > room {
                        return (raw, BodyEnd::Long);
                    }
                }
            }
        }
    }

    fn message(&self, request: &ReplayRequest, authority: &str) -> Result<Request<Full<Bytes>>, NoAnswer> {
        let mut builder = Request::builder().method(request.method.clone());
        builder = if self.is_http2 {
            builder.uri(format!("{}://{authority}{}", self.side.scheme(), request.target))
        } else {
            builder.uri(request.target.as_str()).header(HOST, authority)
        };
        for (name, value) in &request.fields {
            builder = builder.header(name, value);
        }
        for (name, value) in DEFAULTS {
            if !request.fields.iter().any(|(given, _)| *given == name) {
                builder = builder.header(name, value);
            }
        }
        builder.body(Full::new(request.body.clone())).map_err(|error| NoAnswer::Broken(error.to_string()))
    }

    async fn connect(&self, authority: &str) -> Result<RequestSender, NoAnswer> {
        if self.side.is_tls {
            let stream = self.handshake(authority, &self.tls.config).await?;
            let chosen = stream.get_ref().1.alpn_protocol();
            if self.is_http2 && chosen != Some(b"h2") {
                return Err(NoAnswer::Unreachable("it does not speak HTTP/2 (ALPN)".to_owned()));
            }
            return self.speak(stream).await;
        }
        match &self.side.address {
            SideAddress::Tcp(_) => self.speak(self.tcp().await?).await,
            SideAddress::Unix(_) => self.speak(self.unix().await?).await,
        }
    }

    async fn speak(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    ) -> Result<RequestSender, NoAnswer> {
        let failed = |error: hyper::Error| NoAnswer::Broken(chain(&error));
        if self.is_http2 {
            let opened = http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
            let (sender, connection) = opened.await.map_err(failed)?;
            tokio::spawn(connection);
            return Ok(RequestSender::Two(sender));
        }
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(failed)?;
        tokio::spawn(connection);
        Ok(RequestSender::One(sender))
    }

    async fn handshake(
        &self,
        authority: &str,
        config: &std::sync::Arc<rustls::ClientConfig>,
    ) -> Result<TlsStream<TcpStream>, NoAnswer> {
        let host = authority.parse::<hyper::http::uri::Authority>().map(|parsed| parsed.host().to_owned());
        let host = host.unwrap_or_else(|_| authority.to_owned());
        let host = host.trim_matches(['[', ']']).to_owned();
        let name = ServerName::try_from(host.clone())
            .map_err(|_| NoAnswer::Unreachable(format!("`{host}` is no name for TLS")))?;
        let stream = self.tcp().await?;
        let connector = TlsConnector::from(std::sync::Arc::clone(config));
        let opened = timeout(self.limits.time.min(CONNECT), connector.connect(name, stream)).await;
        let opened =
            opened.map_err(|_| NoAnswer::Unreachable("the handshake of TLS takes too long".to_owned()))?;
        opened.map_err(|error| {
            let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
            match inner {
                Some(rustls::Error::InvalidCertificate(_)) => NoAnswer::Untrusted(stream_error(&error)),
                _ => NoAnswer::Unreachable(format!("no handshake of TLS: {}", stream_error(&error))),
            }
        })
    }

    async fn tcp(&self) -> Result<TcpStream, NoAnswer> {
        let SideAddress::Tcp(address) = &self.side.address else {
            return Err(NoAnswer::Unreachable("a Unix socket has no TLS".to_owned()));
        };
        let opened = timeout(self.limits.time.min(CONNECT), TcpStream::connect(address)).await;
        let stream = opened
            .map_err(|_| NoAnswer::Unreachable(format!("no connection to {address} in time")))?
            .map_err(|error| NoAnswer::Unreachable(format!("no connection to {address}: {error}")))?;
        // Without it, only the time of an answer would be less exact.
        let _ = stream.set_nodelay(true);
        Ok(stream)
    }

    async fn unix(&self) -> Result<UnixStream, NoAnswer> {
        let SideAddress::Unix(path) = &self.side.address else {
            return Err(NoAnswer::Unreachable("it is no Unix socket".to_owned()));
        };
        UnixStream::connect(path)
            .await
            .map_err(|error| NoAnswer::Unreachable(format!("no connection to {}: {error}", path.display())))
    }
}

impl RequestSender {
    fn is_closed(&self) -> bool {
        match self {
            Self::One(sender) => sender.is_closed(),
            Self::Two(sender) => sender.is_closed(),
        }
    }

    async fn send(&mut self, message: Request<Full<Bytes>>) -> Result<Response<Incoming>, hyper::Error> {
        match self {
            Self::One(sender) => {
                sender.ready().await?;
                sender.send_request(message).await
            }
            Self::Two(sender) => {
                sender.ready().await?;
                sender.send_request(message).await
            }
        }
    }
}

/// Fields that each request has: codings that can be undone, and a name for the logs of both sides.
const DEFAULTS: [(hyper::header::HeaderName, &str); 3] = [
    (ACCEPT, "*/*"),
    (ACCEPT_ENCODING, "gzip, br"),
    (USER_AGENT, concat!("offramp-compare/", env!("CARGO_PKG_VERSION"))),
];

/// The time for a connection, and for a handshake.
const CONNECT: Duration = Duration::from_secs(10);
