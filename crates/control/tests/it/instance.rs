//! A server on a thread of the test, with a folder of its own, and clients for it.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use offramp_config::Environment;
use offramp_control::outputs::Streams;
use offramp_control::{Changes, Exit, Handle, History, NotChanged, OpenStore, Server, Start};
use offramp_net::Address;
use offramp_observe::prometheus::Build;
use offramp_observe::{Level, Log, LogFormat, Output, Panics};
use offramp_process::sandbox::Reach;
use offramp_process::{Error, Origin, ServiceManager};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

/// The longest that any step may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A folder with a configuration, its state and its logs.
pub(crate) struct Folder(tempfile::TempDir);

impl Folder {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn file(&self) -> PathBuf {
        self.path().join("offramp.toml")
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.path().join("log")).unwrap_or_default()
    }

    /// Writes the configuration: `text` behind what every test has in common.
    pub(crate) fn write(&self, text: &str) {
        let head =
            "workers = 2\nuser = \"root\"\nstate_dir = \"state\"\n[access_log]\noutput = \"./events\"\n";
        let head =
            if offramp_net::process::is_root() { head } else { &head.replace("user = \"root\"\n", "") };
        std::fs::write(self.file(), format!("{head}{text}")).unwrap();
    }

    /// Starts a server with the configuration as it is now.
    pub(crate) fn start(&self) -> Result<Instance, Error> {
        self.start_with(None)
    }

    /// Starts it with a log store.
    pub(crate) fn start_with(&self, open_store: Option<OpenStore>) -> Result<Instance, Error> {
        let environment = Environment { is_root: offramp_net::process::is_root(), ..Environment::default() };
        let loaded = offramp_config::load(&self.file(), &environment);
        let (config, _) = loaded.unwrap_or_else(|errors| panic!("{errors}"));
        let log = Log::open(Output::File(self.path().join("log")), LogFormat::Logfmt, Level::Debug).unwrap();
        let server = Server::start(Start {
            config,
            origin: Origin::File(self.file()),
            environment,
            log,
            streams: Streams::default(),
            panics: Panics::default(),
            bound: None,
            build: Build { version: "0.0.0", commit: "" },
            open_store,
            program: None,
            helper: None,
            also: Reach::default(),
            from: offramp_control::StartFrom::File,
            manager: ServiceManager::default(),
            signals: false,
        })?;
        let (addresses, metrics) = (server.addresses(), server.metrics_address().cloned());
        let (handle, history) = (server.handle(), server.history());
        let thread = std::thread::spawn(|| server.run());
        Ok(Instance { addresses, metrics, handle, history, thread: Some(thread) })
    }

    /// Trusts what the local CA issues.
    pub(crate) fn client(&self) -> Arc<ClientConfig> {
        let authority = CertificateDer::from_pem_file(self.path().join("state/ca/ca.pem")).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(authority).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder =
            ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        Arc::new(builder.with_root_certificates(roots).with_no_client_auth())
    }
}

/// A server that runs; stopped when dropped.
pub(crate) struct Instance {
    addresses: Vec<(String, Address)>,
    pub(crate) metrics: Option<Address>,
    pub(crate) handle: Handle,
    pub(crate) history: History,
    thread: Option<JoinHandle<Exit>>,
}

impl Instance {
    /// The TCP address of a listener as it was at the start.
    pub(crate) fn address(&self, listener: &str) -> SocketAddr {
        let found = self.addresses.iter().find(|(name, _)| name == listener);
        match &found.unwrap_or_else(|| panic!("{listener} is not in {:?}", self.addresses)).1 {
            Address::Tcp(address) => *address,
            Address::Unix(path) => panic!("{} has no port", path.display()),
        }
    }

    pub(crate) fn reload(&self) -> Result<Changes, Error> {
        match self.handle.reload().blocking_recv().expect("the server runs") {
            Ok(report) => Ok(report.changes),
            Err(NotChanged::Invalid(error)) => Err(error),
            Err(other) => panic!("{other}"),
        }
    }

    /// Waits for the end.
    pub(crate) fn end(mut self) -> Exit {
        self.thread.take().unwrap().join().expect("the server does not panic")
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            self.handle.order_stop(true, offramp_control::Requester::Program);
            let _ = thread.join();
        }
    }
}

pub(crate) type Tls = StreamOwned<ClientConnection, TcpStream>;

/// A TLS connection whose handshake is done.
pub(crate) fn connect(config: &Arc<ClientConfig>, address: SocketAddr, name: &str) -> std::io::Result<Tls> {
    let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let client = ClientConnection::new(Arc::clone(config), name).unwrap();
    let mut tls = StreamOwned::new(client, stream);
    while tls.conn.is_handshaking() {
        tls.conn.complete_io(&mut tls.sock)?;
    }
    Ok(tls)
}

/// Sends `text` to an echo and reads it back.
pub(crate) fn echo(tls: &mut Tls, text: &str) {
    tls.write_all(text.as_bytes()).unwrap();
    let mut back = vec![0; text.len()];
    tls.read_exact(&mut back).unwrap();
    assert_eq!(back, text.as_bytes());
}
