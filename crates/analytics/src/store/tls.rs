//! TLS to PostgreSQL, with verification of the server certificate against the host in the URL.

use std::future::Future;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::SystemTime;

use offramp_certs::anchors::server_verifier;
use offramp_certs::client_auth::load_roots;
use offramp_certs::explain::stream_error;
use postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream as RustlsStream;

use crate::error::Error;

/// The TLS connector for connections of `postgres`.
#[derive(Clone)]
pub(crate) struct Verified(Arc<ClientConfig>);

impl Verified {
    /// Trusts the certificates of a PEM file, as authorities and as end-entity certificates.
    pub(crate) fn by(authorities: &Path) -> Result<Self, Error> {
        let name = || format!("reading authorities from {}", authorities.display());
        let loaded = load_roots(authorities, SystemTime::now()).map_err(|error| match error {
            offramp_certs::Error::Io { source, .. } => Error::Io(name(), source),
            other => Error::Url(other.to_string()),
        })?;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let verifier = server_verifier(&loaded.anchors, &provider).map_err(Error::Url)?;
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| Error::Url(error.to_string()))?
            .dangerous()
            .with_custom_certificate_verifier(verifier)
            .with_no_client_auth();
        Ok(Self(Arc::new(config)))
    }
}

/// The pending handshake of one connection.
pub(crate) struct PendingHandshake {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

/// The encrypted connection. No channel binding: SCRAM without it is the default of `postgres`.
pub(crate) struct Encrypted<S>(RustlsStream<S>);

impl<S> MakeTlsConnect<S> for Verified
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    type Stream = Encrypted<S>;
    type TlsConnect = PendingHandshake;
    type Error = io::Error;

    fn make_tls_connect(&mut self, domain: &str) -> io::Result<PendingHandshake> {
        let name = ServerName::try_from(domain.to_owned()).map_err(io::Error::other)?;
        Ok(PendingHandshake { config: Arc::clone(&self.0), name })
    }
}

impl<S> TlsConnect<S> for PendingHandshake
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    type Stream = Encrypted<S>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Encrypted<S>>> + Send>>;

    fn connect(self, stream: S) -> Self::Future {
        Box::pin(async move {
            let connected = TlsConnector::from(self.config).connect(self.name, stream).await;
            connected.map(Encrypted).map_err(|error| io::Error::new(error.kind(), stream_error(&error)))
        })
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> TlsStream for Encrypted<S> {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Encrypted<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, into)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Encrypted<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
