//! Requests to servers of others by HTTP/1.1: one connection each, TLS by the rustls of everything else, bounded in size. Who
//! calls bounds the time.

use std::error::Error;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use http::header::{HOST, HeaderValue};
use http::{Request, Response, Uri};
use http_body_util::{BodyExt, Limited};
use hyper::body::Body;
use hyper_util::rt::TokioIo;
use rustls::crypto::aws_lc_rs;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;

/// A client that checks servers against certain authorities. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Web {
    connector: TlsConnector,
}

impl Web {
    /// Servers must have a certificate of one of these authorities; without any, of one of the system's.
    pub(crate) fn new(roots: Option<RootCertStore>) -> Result<Self, String> {
        let roots = match roots {
            Some(roots) => roots,
            None => system_roots()?,
        };
        let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Self { connector: TlsConnector::from(Arc::new(config)) })
    }

    /// Sends a request to the server of its URL, which is one of `https`. The body of the response has at most `most` bytes.
    pub(crate) async fn exchange<B>(
        &self,
        request: Request<B>,
        most: usize,
    ) -> Result<Response<Bytes>, String>
    where
        B: Body + Send + 'static,
        B::Data: Send,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        let uri = request.uri();
        let (bare, port) = place(uri, "https").ok_or("not a URL of https")?;
        let name = ServerName::try_from(bare.clone()).map_err(|_| "no host that a certificate could name")?;
        let stream = TcpStream::connect((bare, port.unwrap_or(443)));
        let stream = stream.await.map_err(|error| format!("cannot connect: {error}"))?;
        let stream = self.connector.connect(name, stream).await.map_err(|error| format!("TLS: {error}"))?;
        talk(stream, request, most).await
    }
}

/// The same over plain HTTP, to a server of this machine.
pub(crate) async fn exchange_here<B>(request: Request<B>, most: usize) -> Result<Response<Bytes>, String>
where
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let (bare, port) = place(request.uri(), "http").ok_or("not a URL of http")?;
    let stream = TcpStream::connect((bare, port.unwrap_or(80)));
    let stream = stream.await.map_err(|error| format!("cannot connect: {error}"))?;
    let peer = stream.peer_addr().map_err(|error| error.to_string())?;
    if !peer.ip().to_canonical().is_loopback() {
        return Err(format!("{peer} is not this machine, and plain HTTP goes no farther"));
    }
    talk(stream, request, most).await
}

/// The host and the port of a URL of this scheme.
fn place(uri: &Uri, scheme: &str) -> Option<(String, Option<u16>)> {
    let host = uri.host().filter(|_| uri.scheme_str() == Some(scheme))?;
    Some((host.trim_start_matches('[').trim_end_matches(']').to_owned(), uri.port_u16()))
}

async fn talk<S, B>(stream: S, mut request: Request<B>, most: usize) -> Result<Response<Bytes>, String>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let uri = request.uri().clone();
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|error| error.to_string())?;
    // Ends with the response, or when nobody waits for it any more; what went wrong is reported by the sender.
    let mut connections = JoinSet::new();
    connections.spawn(connection);
    let authority = uri.authority().map(ToString::to_string).unwrap_or_default();
    let authority = HeaderValue::try_from(authority).map_err(|error| error.to_string())?;
    request.headers_mut().insert(HOST, authority);
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    *request.uri_mut() = path.parse::<Uri>().map_err(|error| error.to_string())?;
    let answered = sender.send_request(request).await.map_err(|error| error.to_string());
    let (parts, body) = answered?.into_parts();
    let body = Limited::new(body, most).collect().await.map_err(|error| error.to_string());
    body.map(|body| Response::from_parts(parts, body.to_bytes()))
}

/// The system's authorities, read once.
fn system_roots() -> Result<RootCertStore, String> {
    static ROOTS: OnceLock<RootCertStore> = OnceLock::new();
    if let Some(roots) = ROOTS.get() {
        return Ok(roots.clone());
    }
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        return Err("the system has no list of authorities; install ca-certificates, or set `ca`".into());
    }
    Ok(ROOTS.get_or_init(|| roots).clone())
}
