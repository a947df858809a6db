//! Requests to servers of others by HTTP/1.1: one connection each, TLS by the rustls of everything else, bounded in size. The caller
//! bounds the time.

use std::error::Error;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use http::header::{HOST, HeaderValue};
use http::{Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt, Limited};
use hyper::body::Body;
use hyper_util::rt::TokioIo;
use offramp_certs::anchors::{Anchors, server_verifier};
use offramp_certs::explain::stream_error;
use rustls::crypto::aws_lc_rs;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, lookup_host};
use tokio::task::JoinSet;
use tokio::time::sleep;
use tokio_rustls::TlsConnector;
pub use tokio_rustls::client::TlsStream;

/// A client that checks servers against certain authorities. Cheap to clone.
#[derive(Clone)]
pub struct Web {
    connector: TlsConnector,
}

impl Web {
    /// Servers must have a certificate of one of these authorities, or one of these; without any, of one of the system's.
    ///
    /// # Errors
    /// There are no authorities, or rustls does not take them.
    pub fn new(anchors: Option<&Anchors>) -> Result<Self, String> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let verifier = match anchors {
            Some(anchors) => server_verifier(anchors, &provider)?,
            None => server_verifier(system_roots()?, &provider)?,
        };
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .dangerous()
            .with_custom_certificate_verifier(verifier)
            .with_no_client_auth();
        Ok(Self { connector: TlsConnector::from(Arc::new(config)) })
    }

    /// Sends a request to the server of its URL, which is one of `https`. The body of the response has at most `most` bytes.
    ///
    /// # Errors
    /// The reason why there is no answer.
    pub async fn exchange<B>(&self, request: Request<B>, most: usize) -> Result<Response<Bytes>, Unanswered>
    where
        B: Body + Send + 'static,
        B::Data: Send,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        let uri = request.uri();
        let (bare, port) = place(uri, "https").ok_or_else(|| Unanswered::new("not a URL of https"))?;
        let stream = connect(&bare, port.unwrap_or(443)).await.map_err(Unanswered::by_network)?;
        let stream = self.secure(&bare, stream).await?;
        talk(stream, request, most).await
    }

    /// Does a TLS handshake with the server of this name, whose certificate must be one of it.
    ///
    /// # Errors
    /// The reason why there is none.
    pub async fn secure<S>(&self, host: &str, stream: S) -> Result<TlsStream<S>, Unanswered>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let name = ServerName::try_from(host.to_owned());
        let name = name.map_err(|_| Unanswered::new("no host that a certificate could name"))?;
        let stream = self.connector.connect(name, stream).await;
        stream.map_err(|error| Unanswered {
            // A certificate that is refused does not get better within seconds.
            is_network: error.kind() != io::ErrorKind::InvalidData,
            status: None,
            reason: format!("TLS: {}", stream_error(&error)),
        })
    }
}

/// The reason why a request has no answer.
#[derive(Debug)]
pub struct Unanswered {
    /// The problem, in one line.
    pub reason: String,
    /// Set for what a machine meets while it boots: no route, no name server, connections that break.
    pub is_network: bool,
    /// The status of a response whose body cannot be read.
    pub status: Option<StatusCode>,
}

impl Unanswered {
    fn new(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), is_network: false, status: None }
    }

    /// A problem that may be over within seconds.
    pub fn by_network(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), is_network: true, status: None }
    }
}

impl From<hyper::Error> for Unanswered {
    fn from(error: hyper::Error) -> Self {
        Self { is_network: !error.is_parse() && !error.is_user(), reason: error.to_string(), status: None }
    }
}

/// The same over plain HTTP, to a server of this machine.
pub(crate) async fn exchange_here<B>(request: Request<B>, most: usize) -> Result<Response<Bytes>, Unanswered>
where
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    exchange_plain(request, most, Near { is_near: |address| address.is_loopback(), name: "this machine" })
        .await
}

/// The servers that plain HTTP goes to.
#[derive(Clone, Copy, Debug)]
pub struct Near {
    /// Returns `true` for an address of one.
    pub is_near: fn(IpAddr) -> bool,
    /// Their place, for messages.
    pub name: &'static str,
}

/// Sends a request over plain HTTP. The body of the response has at most `most` bytes.
///
/// # Errors
/// The reason why there is no answer; that the server is not near is one.
pub async fn exchange_plain<B>(
    request: Request<B>,
    most: usize,
    near: Near,
) -> Result<Response<Bytes>, Unanswered>
where
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let (bare, port) = place(request.uri(), "http").ok_or_else(|| Unanswered::new("not a URL of http"))?;
    let stream = connect(&bare, port.unwrap_or(80)).await.map_err(Unanswered::by_network)?;
    let peer = stream.peer_addr().map_err(|error| Unanswered::by_network(error.to_string()))?;
    if !(near.is_near)(peer.ip().to_canonical()) {
        return Err(Unanswered::new(format!("{peer} is not {}, and plain HTTP goes no farther", near.name)));
    }
    talk(stream, request, most).await
}

/// The host and the port of a URL of this scheme.
fn place(uri: &Uri, scheme: &str) -> Option<(String, Option<u16>)> {
    let host = uri.host().filter(|_| uri.scheme_str() == Some(scheme))?;
    Some((host.trim_start_matches('[').trim_end_matches(']').to_owned(), uri.port_u16()))
}

/// A connection to whichever address of a host takes one first.
///
/// # Errors
/// The reason why there is none.
pub async fn connect(host: &str, port: u16) -> Result<TcpStream, String> {
    let connected = async { first_of(lookup_host((host, port)).await?.take(MOST_ADDRESSES).collect()).await };
    connected.await.map_err(|error| format!("cannot connect: {error}"))
}

/// Connects to the addresses in their order, each a moment after the one before, and takes the first connection that
/// comes about (Happy Eyeballs, RFC 8305 §5): one that answers nothing must not use up the time of all.
async fn first_of(addresses: Vec<SocketAddr>) -> io::Result<TcpStream> {
    let mut rest = addresses.into_iter();
    let mut attempts = JoinSet::new();
    let mut failed = None;
    loop {
        if let Some(address) = rest.next() {
            attempts.spawn(TcpStream::connect(address));
        }
        let is_last = rest.as_slice().is_empty();
        tokio::select! {
            ended = attempts.join_next() => match ended {
                Some(Ok(Ok(stream))) => return Ok(stream),
                Some(Ok(Err(error))) => failed = Some(error),
                Some(Err(_)) => {}
                None => return Err(failed.unwrap_or_else(|| io::Error::other("the host has no address"))),
            },
            () = sleep(NEXT_ADDRESS), if !is_last => {}
        }
    }
}

/// The time from one address to the next try: the Connection Attempt Delay that RFC 8305 §8 recommends.
const NEXT_ADDRESS: Duration = Duration::from_millis(250);
/// As many addresses are tried of one host: with the delay between them, all begin within the time that callers give a
/// request, and no answer of a name server opens more sockets.
const MOST_ADDRESSES: usize = 8;

async fn talk<S, B>(stream: S, mut request: Request<B>, most: usize) -> Result<Response<Bytes>, Unanswered>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let uri = request.uri().clone();
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    // Ends with the response, or when its receiver is dropped; what went wrong is reported by the sender.
    let mut connections = JoinSet::new();
    connections.spawn(connection);
    let authority = uri.authority().map(ToString::to_string).unwrap_or_default();
    let authority = HeaderValue::try_from(authority).map_err(|error| Unanswered::new(error.to_string()))?;
    request.headers_mut().insert(HOST, authority);
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    *request.uri_mut() = path.parse::<Uri>().map_err(|error| Unanswered::new(error.to_string()))?;
    let (parts, body) = sender.send_request(request).await?.into_parts();
    let body =
        Limited::new(body, most).collect().await.map_err(|error| match error.downcast::<hyper::Error>() {
            Ok(error) => (*error).into(),
            Err(error) => Unanswered::new(error.to_string()),
        });
    match body {
        Ok(body) => Ok(Response::from_parts(parts, body.to_bytes())),
        Err(unanswered) => Err(Unanswered { status: Some(parts.status), ..unanswered }),
    }
}

/// The system's authorities, read once.
fn system_roots() -> Result<&'static Anchors, String> {
    static ROOTS: OnceLock<Anchors> = OnceLock::new();
    if let Some(roots) = ROOTS.get() {
        return Ok(roots);
    }
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        return Err("the system has no list of authorities; install ca-certificates, or set `ca`".into());
    }
    Ok(ROOTS.get_or_init(|| roots.into()))
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;

    use http_body_util::Empty;
    use offramp_certs::client_auth::load_roots;

    use super::*;

    /// What is made of this response of a server of this machine, of which 10 bytes are allowed, and the request.
    fn outcome(response: &'static str) -> (Result<Response<Bytes>, Unanswered>, String) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/keys?x=1", listener.local_addr().unwrap());
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 1024];
            let length = stream.read(&mut request).unwrap();
            // The caller closes when it has enough.
            let _ = stream.write_all(response.as_bytes());
            String::from_utf8_lossy(&request[..length]).into_owned()
        });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let request = Request::get(url).body(Empty::<Bytes>::new()).unwrap();
        (runtime.block_on(exchange_here(request, 10)), server.join().unwrap())
    }

    #[test]
    fn plain_http_is_bounded() {
        let (answer, request) = outcome("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n0123456789");
        assert_eq!(answer.unwrap().body(), "0123456789");
        assert!(request.starts_with("GET /keys?x=1 HTTP/1.1\r\nhost: 127.0.0.1:"), "{request}");
        for long in [
            "HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\n0123456789A",
            "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n0123456789A",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nb\r\n0123456789A\r\n0\r\n\r\n",
        ] {
            let unanswered = outcome(long).0.unwrap_err();
            assert_eq!(
                (unanswered.reason.as_str(), unanswered.is_network),
                ("length limit exceeded", false),
                "{long}"
            );
        }
        for (broken, is_network) in
            [("", true), ("<html>", false), ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n0", true)]
        {
            assert_eq!(outcome(broken).0.unwrap_err().is_network, is_network, "{broken}");
        }
    }

    /// A listener that takes no connection any more: the kernel drops who knocks, without an answer.
    fn silent() -> (TcpListener, Vec<std::net::TcpStream>) {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let listener = socket.listen(0).unwrap().into_std().unwrap();
        let address = listener.local_addr().unwrap();
        let mut queue = Vec::new();
        let wait = Duration::from_millis(200);
        while let Ok(waiting) = std::net::TcpStream::connect_timeout(&address, wait) {
            queue.push(waiting);
        }
        (listener, queue)
    }

    #[tokio::test]
    async fn an_address_that_is_silent_is_not_waited_for() {
        let (first_listener, _queue) = silent();
        let [live_listener, closed] = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let address = |listener: &TcpListener| listener.local_addr().unwrap();
        let [first, live, closed_address] = [&first_listener, &live_listener, &closed].map(address);
        drop(closed);
        for addresses in [vec![first, live], vec![closed_address, first, live], vec![live, first]] {
            let limit = Duration::from_secs(10);
            let connected = tokio::time::timeout(limit, first_of(addresses.clone())).await;
            assert_eq!(connected.expect("in time").unwrap().peer_addr().unwrap(), live, "{addresses:?}");
        }
        let refused = first_of(vec![closed_address; 2]).await.unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
        assert!(first_of(Vec::new()).await.unwrap_err().to_string().contains("no address"));
    }

    #[tokio::test]
    async fn schemes_are_not_mixed_up() {
        let request = |url: &str| Request::get(url).body(Empty::<Bytes>::new()).unwrap();
        let refused = exchange_here(request("https://127.0.0.1:1/"), 10).await;
        assert_eq!(refused.unwrap_err().reason, "not a URL of http");
        let directory = tempfile::tempdir().unwrap();
        let ca = offramp_testkit::ca::Ca::new(directory.path()).unwrap();
        let trusted = load_roots(&ca.certificate(), std::time::SystemTime::now()).unwrap().anchors;
        let web = Web::new(Some(&trusted)).unwrap();
        let refused = web.exchange(request("http://127.0.0.1:1/"), 10).await;
        assert_eq!(refused.unwrap_err().reason, "not a URL of https");
    }
}
