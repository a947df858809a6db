//! One worker with listeners and routes made by hand, and the clients that speak to it.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::num::NonZeroU32;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime};

use offramp_certs::store::{CertificateStore, StoreEntry};
use offramp_net::{Address, listen};
use offramp_observe::counters::Totals;
use offramp_observe::{Counters, EventFormat, Flusher, FlusherSettings, Log, Output};
use offramp_proxy::snapshot::{Destination, ListenerTls};
use offramp_proxy::{
    AcceptorId, Challenges, ClientLimits, ClientTable, ConnectionLimit, Current, Demand, Lateness, Listener,
    Match, Network, Refusals, Relay, Route, RouteRule, RouteTable, SendProxy, SharedResources, Snapshot,
    Target, Tracing, Worker, WorkerCommand, WorkerHandle,
};
use offramp_proxy::{
    Access, Action, AuthClass, Detours, HeaderPolicy, Http, HttpRoute, HttpTls, PathMatch, Paths, Proxy,
    RequestLimits, Rewrite,
};
use offramp_record::aead::Library;
use offramp_record::{LibraryChoice, RecordSize};
use offramp_testkit::ca::{Ca, Key, Leaf};
use offramp_testkit::server;
use offramp_tls::{Ciphers, ClientVerification, Configs, TicketKeys, TlsPolicy};
use offramp_upstream::{Backend, Server};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName};
use serde_json::Value;

/// The longest that any step of a test may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// The name that the certificate is for.
pub(crate) const NAME: &str = "a.test";

/// The listeners of every proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ListenerKind {
    /// TLS ends here.
    Tls,
    /// The client's TLS goes on as it came.
    Passthrough,
    /// There is no TLS.
    Plain,
    /// HTTP over TLS.
    Https,
    /// HTTP without TLS.
    Http,
}

impl ListenerKind {
    const ALL: [Self; 5] = [Self::Tls, Self::Passthrough, Self::Plain, Self::Https, Self::Http];

    const fn name(self) -> &'static str {
        match self {
            Self::Tls => "tls",
            Self::Passthrough => "passthrough",
            Self::Plain => "plain",
            Self::Https => "https",
            Self::Http => "http",
        }
    }
}

/// What a test may set.
pub(crate) struct Setup {
    pub(crate) limits: ClientLimits,
    pub(crate) drain: Duration,
    pub(crate) send_proxy: Option<SendProxy>,
    /// Of the connections of every listener.
    pub(crate) log_one_in: NonZeroU32,
    pub(crate) tracing: Option<Tracing>,
    pub(crate) trusted: Vec<Network>,
    pub(crate) http: RequestLimits,
    pub(crate) trusted_proxies: Vec<Network>,
    pub(crate) via: bool,
    /// Where requests go; the backend is number 0.
    pub(crate) routes: fn() -> Vec<(PathMatch, HttpRoute)>,
}

/// A route of HTTP that does nothing but what it is made for.
pub(crate) fn to(action: Action) -> HttpRoute {
    HttpRoute {
        name: "app".into(),
        action,
        client_auth: AuthClass::default(),
        access: Access::default(),
        xfcc: false,
        headers: HeaderPolicy::default(),
        upgrade: ["websocket".into()].into(),
        error_pages: None,
        detours: Detours::default(),
        plain: offramp_config::model::PlainRules::default(),
        connect_timeout: None,
        compress: None,
        mirror: None,
        log_one_in: NonZeroU32::MIN,
        bandwidth: None,
    }
}

/// To the backend.
pub(crate) fn proxied() -> Action {
    Action::Proxy(Proxy {
        to: offramp_proxy::RouteBackends::Backend(0),
        send_proxy: None,
        rewrite: Rewrite::Keep,
        paths: offramp_proxy::PathHandling::default(),
    })
}

/// What hosts and paths match.
pub(crate) fn at(hosts: &[&str], path: &str) -> PathMatch {
    PathMatch { hosts: hosts.iter().map(ToString::to_string).collect(), path: path.to_owned(), entry: 0 }
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            limits: ClientLimits {
                connections: 1000,
                connections_per_client: 1000,
                handshakes_per_client: None,
                bandwidth_per_client: None,
                handshake_timeout: PATIENCE,
                max_age: None,
                max_age_grace: Duration::ZERO,
                idle_timeout: PATIENCE,
            },
            drain: PATIENCE,
            send_proxy: None,
            log_one_in: NonZeroU32::MIN,
            tracing: None,
            trusted: Vec::new(),
            http: RequestLimits {
                request_header_timeout: PATIENCE,
                request_body_timeout: PATIENCE,
                min_body_rate: 0,
                keepalive_timeout: PATIENCE,
                request_headers: 100,
                request_header_size: 32 * 1024,
                request_target_size: 8 * 1024,
                requests_per_client: None,
                streams: 100,
                memory: 1 << 30,
                file_cache: 1 << 20,
                max_window: 8 << 20,
                compression_memory: 1 << 30,
            },
            trusted_proxies: Vec::new(),
            via: false,
            routes: || vec![(at(&[], "/"), to(proxied()))],
        }
    }
}

/// A CA and a certificate of it, minted once.
struct Pki {
    store: Arc<CertificateStore>,
    roots: Arc<RootCertStore>,
}

fn pki() -> &'static Pki {
    static PKI: OnceLock<Pki> = OnceLock::new();
    PKI.get_or_init(|| {
        let directory = tempfile::tempdir().unwrap();
        let ca = Ca::new(directory.path()).unwrap();
        let files = ca.issue("server", &Leaf::server(Key::P256, &[NAME])).unwrap();
        let now = SystemTime::now();
        let certificate = offramp_certs::file::load(&files.cert, Some(&files.key), now).unwrap().certificate;
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(ca.certificate()).unwrap()).unwrap();
        let entry = StoreEntry { certificate: Arc::new(certificate), default: false };
        Pki { store: Arc::new(CertificateStore::new([entry], now)), roots: Arc::new(roots) }
    })
}

/// A running worker; ended by [`TestProxy::end`].
pub(crate) struct TestProxy {
    listeners: HashMap<&'static str, SocketAddr>,
    worker: WorkerHandle,
    index: usize,
    counters: Counters,
    flusher: Flusher,
    events: tempfile::NamedTempFile,
    drain: Duration,
}

impl TestProxy {
    /// Serves `servers`, as one backend, behind every listener.
    pub(crate) fn open(servers: &[&server::Address], setup: &Setup) -> Self {
        Self::of_worker(0, servers, setup)
    }

    /// The same by a worker of this number. If no other test uses it, its thread is known by it.
    pub(crate) fn of_worker(index: usize, servers: &[&server::Address], setup: &Setup) -> Self {
        let events = tempfile::NamedTempFile::new().unwrap();
        let output = Output::File(events.path().to_path_buf());
        let settings = FlusherSettings::new(1, output, EventFormat::Json, Log::silent());
        let (flusher, mut senders) = Flusher::start(settings).unwrap();
        let (counters, mut own) = Counters::new(1);
        let shared = SharedResources {
            current: Current::new(snapshot(servers, setup)),
            admission: ConnectionLimit::new(),
            clients: ClientTable::new(Instant::now()),
            held: offramp_proxy::limit::StreamMemory::new(),
            pressure: offramp_proxy::Pressure::new(),
            late: Lateness::new(),
            refusals: Refusals::new(Log::silent()),
            challenges: Challenges::none(),
            demand: Demand::new().0,
            logins: offramp_proxy::credentials::Logins::new(),
            log: Log::silent(),
        };
        let worker =
            Worker { index, core: None, counters: own.remove(0), events: senders.remove(0), shared, seed: 7 };
        let worker = worker.start().unwrap();
        let mut listeners = HashMap::new();
        for (id, kind) in (0..).zip(ListenerKind::ALL) {
            let fd = listen::open(&Address::Tcp("127.0.0.1:0".parse().unwrap()), 1).unwrap().remove(0);
            listeners.insert(kind.name(), listen::bound_address(&fd).unwrap());
            worker.send(WorkerCommand::Listen { id: AcceptorId(id), listener: kind.name().into(), fd });
        }
        Self { listeners, worker, index, counters, flusher, events, drain: setup.drain }
    }

    /// A plain connection to a listener.
    pub(crate) fn connect(&self, kind: ListenerKind) -> TcpStream {
        let stream = TcpStream::connect_timeout(&self.listeners[kind.name()], PATIENCE).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// A TLS connection whose handshake is done.
    pub(crate) fn tls(&self) -> Tls {
        shake(self.connect(ListenerKind::Tls)).unwrap()
    }

    /// The same for HTTP.
    pub(crate) fn https(&self) -> Tls {
        shake(self.connect(ListenerKind::Https)).unwrap()
    }

    /// What is counted now.
    pub(crate) fn totals(&self) -> Totals {
        self.counters.totals()
    }

    /// How often the thread of the worker has fallen asleep; its number is its own, see [`TestProxy::of_worker`].
    pub(crate) fn waits(&self) -> u64 {
        let name = format!("offramp-{}", self.index);
        let tasks = std::fs::read_dir("/proc/self/task").unwrap().map(|task| task.unwrap().path());
        let is_worker = |task: &std::path::PathBuf| {
            std::fs::read_to_string(task.join("comm")).is_ok_and(|comm| comm.trim_end() == name)
        };
        let worker = tasks.into_iter().find(is_worker).expect("the worker runs");
        let status = std::fs::read_to_string(worker.join("status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        line.unwrap().trim().parse().unwrap()
    }

    /// Waits until the figures satisfy `enough`.
    pub(crate) fn wait(&self, enough: impl Fn(&Totals) -> bool) {
        eventually(|| enough(&self.totals()));
    }

    /// Drains the worker; the events of all connections, in the order of their ends.
    pub(crate) fn end(self) -> Vec<Value> {
        self.worker.send(WorkerCommand::Drain { limit: self.drain });
        assert!(self.worker.join().is_some(), "the worker panicked");
        assert_eq!(self.flusher.stop(PATIENCE).lost(), 0);
        let lines = std::fs::read_to_string(self.events.path()).unwrap();
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// [`TestProxy::end`] where there was one connection.
    pub(crate) fn end_of_one(self) -> Value {
        let mut events = self.end();
        assert_eq!(events.len(), 1, "{events:?}");
        events.remove(0)
    }
}

/// Polls until `done`, with a bound.
pub(crate) fn eventually(done: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < deadline, "it did not come to pass");
        std::thread::yield_now();
    }
}

fn snapshot(servers: &[&server::Address], setup: &Setup) -> Snapshot {
    let tickets = Arc::new(TicketKeys::new(Duration::from_secs(3600)).unwrap());
    let policy =
        TlsPolicy { tls13: true, tls12: true, ciphers: Ciphers::ALL, post_quantum: false, tickets: 2 };
    let configs = Configs::build(&policy, &pki().store, &[], &ClientVerification::None, &tickets).unwrap();
    let alpn = [b"h2".to_vec(), b"http/1.1".to_vec()];
    let http = Configs::build(&policy, &pki().store, &alpn, &ClientVerification::None, &tickets).unwrap();
    let to = Destination { backend: 0, send_proxy: setup.send_proxy, connect_timeout: None };
    let relay =
        |tls: Option<Configs>| Target::Relay(Relay { to, tls, allow: None, configured: Arc::default() });
    let listener = |kind: ListenerKind| {
        let target = match kind {
            ListenerKind::Tls => relay(Some(configs.clone())),
            ListenerKind::Passthrough => Target::Passthrough(to),
            ListenerKind::Plain => relay(None),
            ListenerKind::Https | ListenerKind::Http => Target::Http(HttpTls {
                tls: (kind == ListenerKind::Https).then(|| http.clone()),
                allow: None,
                configured: Arc::default(),
                client_auth: AuthClass::default(),
            }),
        };
        let tls = (!matches!(kind, ListenerKind::Plain | ListenerKind::Http)).then(|| ListenerTls {
            strangers: offramp_proxy::snapshot::Strangers::default(),
            store: Arc::clone(&pki().store),
            fallback: configs.clone(),
            ja4: true,
            preamble: None,
        });
        let route = Route {
            name: kind.name().into(),
            target,
            deny_ja4: Arc::default(),
            addresses: None,
            log_one_in: setup.log_one_in,
            bandwidth: None,
        };
        let routes = RouteTable::new(vec![RouteRule { matches: Match::default(), to: route }]);
        let name: Arc<str> = kind.name().into();
        let accept_proxy = setup.trusted.clone();
        let http = matches!(kind, ListenerKind::Https | ListenerKind::Http).then(|| Http {
            routes: Paths::new((setup.routes)()),
            trusted_proxies: setup.trusted_proxies.clone(),
            via: setup.via,
            limits: setup.http,
            error_pages: None,
        });
        let listener = Listener { name: Arc::clone(&name), accept_proxy, addresses: None, tls, routes, http };
        (name, Arc::new(listener))
    };
    Snapshot {
        generation: 1,
        listeners: ListenerKind::ALL.into_iter().map(listener).collect(),
        sockets: HashMap::new(),
        backends: vec![Arc::new(backend(servers))],
        limits: setup.limits,
        record_size: RecordSize::Adaptive,
        choice: LibraryChoice::always(Library::Ring),
        bandwidths: Default::default(),
        tracing: setup.tracing,
    }
}

fn backend(servers: &[&server::Address]) -> Backend {
    let server = |address: &&server::Address| {
        let at = match address {
            server::Address::Tcp(tcp) => Address::Tcp(*tcp),
            server::Address::Unix(path) => Address::Unix(path.clone()),
        };
        Server { name: address.to_string().into(), target: offramp_upstream::UpstreamAddress::Fixed(at) }
            .into()
    };
    Backend::new("app", servers.iter().map(server))
}

pub(crate) type Tls = StreamOwned<ClientConnection, TcpStream>;

/// Does a client's handshake on a socket.
pub(crate) fn shake(stream: TcpStream) -> io::Result<Tls> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = builder.with_root_certificates(Arc::clone(&pki().roots)).with_no_client_auth();
    let client = ClientConnection::new(Arc::new(config), ServerName::try_from(NAME).unwrap()).unwrap();
    let mut tls = StreamOwned::new(client, stream);
    while tls.conn.is_handshaking() {
        tls.conn.complete_io(&mut tls.sock)?;
    }
    Ok(tls)
}

/// Sends `text` to an echo and reads it back.
pub(crate) fn echo(stream: &mut (impl Read + Write), text: &[u8]) {
    stream.write_all(text).unwrap();
    let mut back = vec![0; text.len()];
    stream.read_exact(&mut back).unwrap();
    assert!(back == text);
}

/// Says close_notify and leaves the other direction open.
pub(crate) fn finish(tls: &mut Tls) {
    tls.conn.send_close_notify();
    while tls.conn.wants_write() {
        tls.conn.write_tls(&mut tls.sock).unwrap();
    }
}
