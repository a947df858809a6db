//! Connections of the load: HTTP/1.1, kept, one request at a time.

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use http_body_util::{BodyExt as _, Empty};
use hyper::Request;
use hyper::body::Bytes;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{ACCEPT, HOST, USER_AGENT};
use hyper_util::rt::TokioIo;
use offramp_certs::anchors::{Anchors, server_verifier};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;

use super::application::{Application, of_socket};
use crate::failure::{Failure, chain};

/// An address that the load connects to.
#[derive(Clone, Debug)]
pub(super) enum DialledAddress {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

/// The way to open connections to one address.
#[derive(Clone)]
pub(super) struct Dialler {
    address: DialledAddress,
    tls: Option<(TlsConnector, ServerName<'static>)>,
}

impl Dialler {
    pub(super) fn plain(address: DialledAddress) -> Self {
        Self { address, tls: None }
    }

    /// TLS with authorities from a file.
    ///
    /// # Errors
    /// The file has no certificate, or the name is none.
    pub(super) fn trusting(
        address: DialledAddress,
        name: &str,
        file: &Path,
        now: SystemTime,
    ) -> Result<Self, Failure> {
        let loaded = offramp_certs::client_auth::load_roots(file, now);
        let loaded = loaded.map_err(|error| Failure::usage(format_args!("error: {error}")))?;
        Self::with(address, name, &loaded.anchors)
    }

    /// TLS with the authorities of the system.
    ///
    /// # Errors
    /// The name is none.
    pub(super) fn trusting_system(address: DialledAddress, name: &str) -> Result<Self, Failure> {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        Self::with(address, name, &Anchors::from(roots))
    }

    fn with(address: DialledAddress, name: &str, anchors: &Anchors) -> Result<Self, Failure> {
        let failed = |error: &dyn fmt::Display| Failure::usage(format_args!("error: {name}: {error}"));
        let server = ServerName::try_from(name.to_owned()).map_err(|error| failed(&error))?;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let verifier = server_verifier(anchors, &provider).map_err(|error| failed(&error))?;
        let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let config = config.map_err(|error| failed(&error))?.dangerous();
        let config = config.with_custom_certificate_verifier(verifier).with_no_client_auth();
        Ok(Self { address, tls: Some((TlsConnector::from(Arc::new(config)), server)) })
    }
}

/// One connection.
pub(super) struct Line(SendRequest<Empty<Bytes>>);

impl Line {
    /// Connects.
    ///
    /// # Errors
    /// Says in words why there is no connection.
    pub(super) async fn open(dialler: &Dialler) -> Result<Self, String> {
        match &dialler.address {
            DialledAddress::Tcp(address) => {
                let stream = TcpStream::connect(address).await.map_err(|error| of_socket(&error))?;
                stream.set_nodelay(true).map_err(|error| of_socket(&error))?;
                match &dialler.tls {
                    None => Self::speak(stream).await,
                    Some((connector, name)) => {
                        let stream = connector.connect(name.clone(), stream).await;
                        Self::speak(stream.map_err(|error| of_socket(&error))?).await
                    }
                }
            }
            DialledAddress::Unix(path) => {
                Self::speak(UnixStream::connect(path).await.map_err(|error| of_socket(&error))?).await
            }
        }
    }

    async fn speak(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> Result<Self, String> {
        let handshake = http1::handshake(TokioIo::new(stream)).await;
        let (sender, connection) = handshake.map_err(|error| chain(&error))?;
        tokio::spawn(connection);
        Ok(Self(sender))
    }

    /// Sends a request, and reads the whole answer.
    ///
    /// # Errors
    /// The connection ended before the answer.
    pub(super) async fn ask(&mut self, app: &Application) -> Result<LineAnswer, String> {
        self.0.ready().await.map_err(|error| chain(&error))?;
        let request = Request::get(app.path.as_str())
            .header(HOST, app.authority.as_str())
            .header(USER_AGENT, concat!("offramp-bench/", env!("CARGO_PKG_VERSION")))
            .header(ACCEPT, "*/*")
            .body(Empty::new())
            .map_err(|error| chain(&error))?;
        let response = self.0.send_request(request).await.map_err(|error| chain(&error))?;
        let status = response.status().as_u16();
        let mut body = response.into_body();
        let mut bytes = 0;
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| chain(&error))?;
            bytes += frame.data_ref().map_or(0, Bytes::len);
        }
        Ok(LineAnswer { status, bytes })
    }

    /// Returns true if another request can be sent.
    pub(super) fn is_open(&self) -> bool {
        !self.0.is_closed()
    }
}

/// An answer, read to its end.
#[derive(Clone, Copy, Debug)]
pub(super) struct LineAnswer {
    pub(super) status: u16,
    /// Size of the body.
    pub(super) bytes: usize,
}
