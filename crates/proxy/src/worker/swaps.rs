//! How long a swap of a thousand routes keeps a worker's loop from its other tasks: by the CPU time of its thread, which
//! does not grow where the machine has no time for it.

use std::cell::Cell;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::num::NonZeroU32;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use offramp_config::model::PlainRules;
use offramp_net::Address;
use offramp_net::clock::thread_cpu;
use offramp_upstream::{Backend, Server, UpstreamAddress};
use tokio::task::{spawn_local, yield_now};

use super::rig;
use crate::route::{Match, PathMatch, Paths, RouteRule, RouteTable};
use crate::snapshot::http::{
    Access, Action, AuthClass, Detours, HeaderPolicy, Http, HttpRoute, HttpTls, RequestLimits, Respond,
};
use crate::snapshot::{AcceptorId, Current, Listener, Route, Snapshot, Target};

const ROUTES: usize = 1000;
const ONE: NonZeroU32 = NonZeroU32::MIN;
/// By how much a loop may be late for a swap.
const BOUND: Duration = Duration::from_millis(5);
/// The best counts: caches and interrupts are shared with other programs.
const SWAPS: u64 = 10;

/// The longest time between two turns of a task of the loop, which wants one at once each time.
#[derive(Default)]
struct Gaps {
    by_clock: Cell<Duration>,
    by_cpu: Cell<Duration>,
}

impl Gaps {
    async fn watch(self: Rc<Self>) {
        let (mut clock, mut cpu) = (Instant::now(), thread_cpu());
        loop {
            yield_now().await;
            let (clock_now, cpu_now) = (Instant::now(), thread_cpu());
            self.by_clock.set(self.by_clock.get().max(clock_now - clock));
            self.by_cpu.set(self.by_cpu.get().max(cpu_now.saturating_sub(cpu)));
            (clock, cpu) = (clock_now, cpu_now);
        }
    }

    /// What they were, and from now on.
    fn take(&self) -> (Duration, Duration) {
        (self.by_clock.take(), self.by_cpu.take())
    }
}

#[test]
fn a_swap_of_a_thousand_routes_holds_no_loop_up_for_5_ms() {
    rig::block_on(|event_loop| async move {
        let current = event_loop.resources.shared.current.clone();
        current.replace(snapshot(1));
        let address = rig::listen(&event_loop, 1);
        let gaps = Rc::new(Gaps::default());
        spawn_local(Rc::clone(&gaps).watch());
        let (swaps, wanted) = mpsc::channel();
        let (seen, answered) = mpsc::channel();
        let swapped = current.clone();
        let control = thread::spawn(move || swap(&swapped, address, &wanted, &seen));
        let mut all = Vec::new();
        for generation in 2..2 + SWAPS {
            swaps.send(generation).unwrap();
            while answered.try_recv().is_err() {
                // As a relay does that begins.
                drop(event_loop.resources.backend_state(&current.load(), 0));
                yield_now().await;
            }
            all.push(gaps.take());
        }
        drop(swaps);
        control.join().unwrap();
        println!("the longest times between two turns, by the clock and by CPU time: {all:?}");
        // The first one has the connections' beginning in it.
        let best = all.iter().skip(1).map(|(_, cpu)| *cpu).min();
        assert!(best.is_some_and(|best| best < BOUND), "{all:?}");
    });
}

/// Puts a snapshot in force for each number, and tells when a request on each of some kept connections has followed it.
fn swap(current: &Current, address: SocketAddr, wanted: &mpsc::Receiver<u64>, seen: &mpsc::Sender<()>) {
    let connect = |_| {
        let client = TcpStream::connect(address).unwrap();
        client.set_read_timeout(Some(rig::PATIENCE)).unwrap();
        client
    };
    let mut clients: Vec<TcpStream> = (0..4).map(connect).collect();
    for generation in wanted {
        current.replace(snapshot(generation));
        for (at, client) in clients.iter_mut().enumerate() {
            let number = (at * 317) % ROUTES;
            let request =
                format!("GET /{number}/{generation}/ HTTP/1.1\r\nHost: h{}.example.org\r\n\r\n", number % 50);
            client.write_all(request.as_bytes()).unwrap();
            let mut response = Vec::new();
            while !response.ends_with(b"\r\n\r\nyes") {
                let mut piece = [0; 1024];
                let read = client.read(&mut piece).unwrap();
                response.extend_from_slice(&piece[..read]);
                assert!(read > 0, "{}", String::from_utf8_lossy(&response));
            }
        }
        current.sweep();
        seen.send(()).unwrap();
    }
}

/// Of a thousand routes of HTTP, and as many backends with two servers each.
fn snapshot(generation: u64) -> Snapshot {
    let route = |number: usize| {
        let hosts = vec![format!("h{}.example.org", number % 50)];
        (PathMatch { hosts, path: format!("/{number}/{generation}/"), entry: 0 }, to(number))
    };
    let backend = |number: usize| {
        let port = 20_000 + u16::try_from(number).unwrap();
        let server = |port: u16| {
            let at = Address::Tcp(([127, 0, 0, 1], port).into());
            let target = UpstreamAddress::Fixed(at);
            Server { name: format!("127.0.0.1:{port}").into(), target }.into()
        };
        Arc::new(Backend::new(format!("b{number}"), [server(port), server(port + 1)]))
    };
    let (alone, configured, client_auth) = (None, Arc::default(), AuthClass::default());
    let all = Route {
        name: "default".into(),
        target: Target::Http(HttpTls { tls: None, allow: alone, configured, client_auth }),
        deny_ja4: Arc::default(),
        addresses: None,
        bandwidth: None,
        log_one_in: ONE,
    };
    let http = Http {
        routes: Paths::new((0..ROUTES).map(route).collect()),
        trusted_proxies: Vec::new(),
        via: false,
        limits: LIMITS,
        error_pages: None,
    };
    let listener = Listener {
        name: rig::PROXIED.into(),
        accept_proxy: Vec::new(),
        addresses: None,
        tls: None,
        routes: RouteTable::new(vec![RouteRule { matches: Match::default(), to: all }]),
        http: Some(http),
    };
    let listener = Arc::new(listener);
    Snapshot {
        generation,
        listeners: [(rig::PROXIED.into(), Arc::clone(&listener))].into(),
        sockets: [(AcceptorId(1), listener)].into(),
        backends: (0..ROUTES).map(backend).collect(),
        ..rig::snapshot(1000)
    }
}

fn to(number: usize) -> HttpRoute {
    let body = bytes::Bytes::from_static(b"yes");
    HttpRoute {
        name: format!("h{}.example.org/{number}", number % 50).into(),
        action: Action::Respond(Respond { status: http::StatusCode::OK, content_type: None, body }),
        client_auth: AuthClass::default(),
        access: Access::default(),
        xfcc: false,
        headers: HeaderPolicy::default(),
        upgrade: ["websocket".into()].into(),
        plain: PlainRules::default(),
        connect_timeout: None,
        detours: Detours::default(),
        error_pages: None,
        compress: None,
        mirror: None,
        bandwidth: None,
        log_one_in: ONE,
    }
}

const LIMITS: RequestLimits = RequestLimits {
    request_header_timeout: rig::PATIENCE,
    request_body_timeout: rig::PATIENCE,
    min_body_rate: 0,
    keepalive_timeout: rig::PATIENCE,
    request_headers: 100,
    request_header_size: 32 * 1024,
    request_target_size: 8 * 1024,
    requests_per_client: None,
    streams: 100,
    memory: 1 << 30,
    max_window: 8 << 20,
    file_cache: 1 << 20,
    compression_memory: 1 << 30,
};
