//! A worker on the thread of a test, whose turns can be counted.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use offramp_net::{Address, listen};
use offramp_observe::{Counters, EventFormat, Flusher, FlusherSettings, Log, Output};
use offramp_record::aead::Library;
use offramp_record::{LibraryChoice, RecordSize};
use tokio::runtime::{Builder, LocalOptions};

use super::event_loop::EventLoop;
use crate::RouteTable;
use crate::challenges::Challenges;
use crate::credentials::Logins;
use crate::demand::Demand;
use crate::late::Lateness;
use crate::limit::{ClientTable, ConnectionLimit, StreamMemory};
use crate::pressure::Pressure;
use crate::refusals::Refusals;
use crate::resources::{Resources, SharedResources};
use crate::snapshot::{AcceptorId, ClientLimits, Current, Listener, Network, Snapshot};

/// A listener whose connections stay open: it waits for a PROXY header.
pub(crate) const PROXIED: &str = "proxied";
/// How long anything in a test may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Runs a test with an idle worker.
pub(crate) fn block_on<F: Future<Output = ()>>(test: impl FnOnce(Rc<EventLoop>) -> F) {
    block_on_counted(1000, |event_loop, _| test(event_loop));
}

/// The same with a limit of connections, and with what the worker counts.
pub(crate) fn block_on_counted<F: Future<Output = ()>>(
    connections: u32,
    test: impl FnOnce(Rc<EventLoop>, Counters) -> F,
) {
    let settings = FlusherSettings::new(1, Output::None, EventFormat::Json, Log::silent());
    let (flusher, mut senders) = Flusher::start(settings).unwrap();
    let (counters, mut own) = Counters::new(1);
    let shared = SharedResources {
        current: Current::new(snapshot(connections)),
        admission: ConnectionLimit::new(),
        clients: ClientTable::new(Instant::now()),
        held: StreamMemory::new(),
        pressure: Pressure::new(),
        late: Lateness::new(),
        refusals: Refusals::new(Log::silent()),
        challenges: Challenges::none(),
        demand: Demand::new().0,
        logins: Logins::new(),
        log: Log::silent(),
    };
    let runtime = Builder::new_current_thread().enable_all().build_local(LocalOptions::default()).unwrap();
    let pulse = shared.late.add();
    let resources = Resources::new(0, own.remove(0), senders.remove(0), shared, pulse, 7);
    let event_loop = EventLoop::new(0, resources);
    runtime.block_on(async {
        let test = test(event_loop, counters);
        tokio::time::timeout(PATIENCE, test).await.expect("the test takes too long");
    });
    drop(runtime);
    let _ = flusher.stop(PATIENCE);
}

/// The snapshot of every test, with this limit.
pub(crate) fn snapshot(connections: u32) -> Snapshot {
    let listener = Listener {
        name: PROXIED.into(),
        accept_proxy: vec![Network::new([127, 0, 0, 0].into(), 8)],
        addresses: None,
        tls: None,
        routes: RouteTable::new(Vec::new()),
        http: None,
    };
    Snapshot {
        generation: 1,
        listeners: [(PROXIED.into(), Arc::new(listener))].into(),
        sockets: std::collections::HashMap::new(),
        backends: Vec::new(),
        limits: ClientLimits {
            connections,
            connections_per_client: 1000,
            handshakes_per_client: None,
            bandwidth_per_client: None,
            handshake_timeout: PATIENCE,
            max_age: None,
            max_age_grace: Duration::ZERO,
            idle_timeout: PATIENCE,
        },
        record_size: RecordSize::Adaptive,
        choice: LibraryChoice::always(Library::Ring),
        bandwidths: Default::default(),
        tracing: None,
    }
}

/// Has the worker listen, and gives where; nobody is accepted before the test awaits something.
pub(crate) fn listen(event_loop: &Rc<EventLoop>, id: u32) -> SocketAddr {
    let fd = listen::open(&Address::Tcp("127.0.0.1:0".parse().unwrap()), 1).unwrap().remove(0);
    let address = listen::bound_address(&fd).unwrap();
    event_loop.listen(AcceptorId(id), PROXIED.into(), fd);
    address
}
