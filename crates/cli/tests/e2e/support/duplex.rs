//! A rustls client whose two directions run at the same time, and end apart.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, SupportedProtocolVersion};

use crate::support::crowd::tcp;

/// A client for one version of TLS that trusts one CA.
pub(crate) fn speaking(version: &'static SupportedProtocolVersion, ca: &Path) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(ca).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_protocol_versions(&[version]).unwrap();
    Arc::new(builder.with_root_certificates(roots).with_no_client_auth())
}

/// The sending half.
pub(crate) struct Sender {
    tls: Arc<Mutex<ClientConnection>>,
    stream: TcpStream,
    sealed: Vec<u8>,
}

/// The receiving half.
pub(crate) struct Receiver {
    tls: Arc<Mutex<ClientConnection>>,
    stream: TcpStream,
    closed: bool,
}

/// Connects to `localhost` at `address`; the handshake is done when both halves are there.
pub(crate) fn connect(config: &Arc<ClientConfig>, address: SocketAddr) -> (Sender, Receiver) {
    let mut stream = tcp(address).unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let mut tls = ClientConnection::new(Arc::clone(config), name).unwrap();
    while tls.is_handshaking() {
        tls.complete_io(&mut stream).unwrap();
    }
    let (tls, again) = (Arc::new(Mutex::new(tls)), stream.try_clone().unwrap());
    let sender = Sender { tls: Arc::clone(&tls), stream: again, sealed: Vec::new() };
    (sender, Receiver { tls, stream, closed: false })
}

impl Sender {
    /// Sends all of it.
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        for part in bytes.chunks(PART) {
            self.tls.lock().unwrap().writer().write_all(part).unwrap();
            self.flush();
        }
    }

    /// Sends close_notify: nothing more will come.
    pub(crate) fn close(mut self) {
        self.tls.lock().unwrap().send_close_notify();
        self.flush();
    }

    /// Ends the TCP direction without a word.
    pub(crate) fn cut(self) {
        self.stream.shutdown(Shutdown::Write).unwrap();
    }

    /// Seals under the lock, and writes without it.
    fn flush(&mut self) {
        let mut tls = self.tls.lock().unwrap();
        while tls.wants_write() {
            tls.write_tls(&mut self.sealed).unwrap();
        }
        drop(tls);
        self.stream.write_all(&self.sealed).unwrap();
        self.sealed.clear();
    }
}

impl Receiver {
    /// More of what comes; nothing after close_notify.
    ///
    /// # Panics
    /// If the connection ends without a close_notify.
    pub(crate) fn receive(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        // A server that speaks first may have been heard during the handshake.
        self.open(&mut bytes);
        let mut sealed = vec![0; PART];
        while bytes.is_empty() && !self.closed {
            let length = self.stream.read(&mut sealed).unwrap();
            assert!(length > 0, "the connection ends without close_notify");
            let mut rest = &sealed[..length];
            while !rest.is_empty() && !self.closed {
                self.tls.lock().unwrap().read_tls(&mut rest).unwrap();
                self.open(&mut bytes);
            }
        }
        bytes
    }

    /// Takes out what the connection has received.
    fn open(&mut self, bytes: &mut Vec<u8>) {
        let mut tls = self.tls.lock().unwrap();
        let state = tls.process_new_packets().unwrap();
        let begun = bytes.len();
        bytes.resize(begun + state.plaintext_bytes_to_read(), 0);
        tls.reader().read_exact(&mut bytes[begun..]).unwrap();
        self.closed = state.peer_has_closed();
    }

    /// All up to close_notify.
    pub(crate) fn rest(&mut self) -> Vec<u8> {
        let mut all = Vec::new();
        loop {
            match self.receive() {
                more if more.is_empty() => return all,
                more => all.extend_from_slice(&more),
            }
        }
    }

    /// Expects the end of TCP behind close_notify.
    pub(crate) fn end(mut self) {
        assert!(self.closed, "close_notify is awaited first");
        assert_eq!(self.stream.read(&mut [0; 1]).unwrap(), 0, "nothing comes behind close_notify");
    }
}

/// Bytes that are sealed, or received, at a time.
const PART: usize = 64 * 1024;
