//! The oracle: a plain buffered rustls server that terminates TLS and echoes.
//!
//! Its answers to malformed input are the least that Offramp gives. After a refusal it sends what rustls
//! has to say, closes its own side, and reads on until the client closes: closing a socket with bytes
//! unread would make the kernel send a reset, and the verdict would be about TCP.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::path::Path;
use std::sync::Arc;

use rustls::crypto::aws_lc_rs;
use rustls::{ServerConfig, ServerConnection};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

use crate::Error;
use crate::ca::Files;
use crate::server::apps::drain;
use crate::server::{Listen, Server, Stream};

/// A running oracle; it stops when dropped.
pub struct Oracle {
    server: Server,
}

impl Oracle {
    /// Starts one on a free port, with this certificate for every name.
    ///
    /// # Errors
    /// [`Error::Setup`] for unusable files, [`Error::Io`] for what binding says.
    pub fn start(files: &Files) -> Result<Self, Error> {
        let config = Arc::new(server_config(&files.chain, &files.key)?);
        let server = Server::start(&Listen::Ipv4, move |stream| {
            if let Ok(connection) = ServerConnection::new(Arc::clone(&config)) {
                serve(connection, stream);
            }
        })?;
        Ok(Self { server })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.server.address().socket()
    }
}

/// The settings of a plain rustls server: TLS 1.2 and 1.3, the defaults of `aws-lc-rs`, no client
/// certificates, no resumption, no 0-RTT.
///
/// # Errors
/// [`Error::Setup`] for unusable files.
pub fn server_config(chain: &Path, key: &Path) -> Result<ServerConfig, Error> {
    let chain: Vec<_> =
        CertificateDer::pem_file_iter(chain).and_then(Iterator::collect).map_err(Error::setup)?;
    let key = PrivateKeyDer::from_pem_file(key).map_err(Error::setup)?;
    ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(Error::setup)?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(Error::setup)
}

/// One connection, to its end.
fn serve(mut tls: ServerConnection, mut stream: Stream) {
    // A flood of data is echoed whole; the client's patience is the bound.
    tls.set_buffer_limit(None);
    let mut chunk = vec![0; 16 * 1024];
    let mut open = true;
    while open {
        open = match tls.read_tls(&mut stream) {
            Ok(0) | Err(_) => false,
            Ok(_) => match tls.process_new_packets() {
                Ok(_) => echo(&mut tls, &mut chunk),
                Err(_) => false,
            },
        };
        if flush(&mut tls, &mut stream).is_err() {
            return;
        }
    }
    let _ = stream.shutdown(Shutdown::Write);
    drain(&mut stream);
}

/// Sends back what was received; whether more may come. The answer to close_notify is close_notify.
fn echo(tls: &mut ServerConnection, chunk: &mut [u8]) -> bool {
    loop {
        match tls.reader().read(chunk) {
            Ok(0) => {
                tls.send_close_notify();
                return false;
            }
            Ok(length) => {
                if tls.writer().write_all(&chunk[..length]).is_err() {
                    return false;
                }
            }
            Err(error) => return error.kind() == ErrorKind::WouldBlock,
        }
    }
}

fn flush(tls: &mut ServerConnection, stream: &mut Stream) -> std::io::Result<()> {
    while tls.wants_write() {
        tls.write_tls(stream)?;
    }
    Ok(())
}
