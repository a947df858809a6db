//! Five thousand connections on which nothing moves: all alive, little memory, no CPU.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::net::{UnixListener, UnixStream};
use std::thread;
use std::time::{Duration, Instant};

use offramp_testkit::tls_client::{Client, Event, Options, Received, Seal, Suite};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::support::crowd::tcp;
use crate::support::figures::{Page, cpu, resident};
use crate::support::instance::Home;

const CONNECTIONS: usize = 5000;
/// The figure to reach is 8 KiB, in a build that is optimized.
const MOST_BYTES: u64 = 12 * 1024;

/// Two descriptors of this process for each connection, and some for the other tests.
const DESCRIPTORS: u64 = 2 * CONNECTIONS as u64 + 1000;

fn raise_limit() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current.is_some_and(|current| current < DESCRIPTORS) {
        let raised = setrlimit(Resource::Nofile, Rlimit { current: Some(DESCRIPTORS), maximum });
        assert!(
            raised.is_ok(),
            "this test needs {DESCRIPTORS} open files, and {maximum:?} is the hard limit"
        );
    }
}

/// An application without threads: it accepts and holds, and echoes when it is told to.
struct Application {
    thread: thread::JoinHandle<Vec<UnixStream>>,
}

impl Application {
    fn start(listener: UnixListener) -> Self {
        Self {
            thread: thread::spawn(move || (0..CONNECTIONS).map(|_| listener.accept().unwrap().0).collect()),
        }
    }

    /// All connections, once they are there.
    fn held(self) -> Vec<UnixStream> {
        self.thread.join().unwrap()
    }
}

fn client(address: std::net::SocketAddr) -> Client<TcpStream> {
    let mut client = Client::new(tcp(address).unwrap(), Options::new(Suite::ALL[0])).unwrap();
    client.handshake().unwrap();
    client
}

#[test]
fn five_thousand_stay_alive() {
    raise_limit();
    let home = Home::new();
    let path = home.file("app.sock");
    let application = Application::start(UnixListener::bind(&path).unwrap());
    let limits = "[limits]\nconnections_per_client = 10000\nidle_timeout = \"1h\"\n";
    let instance = home.run(&format!(
        "workers = 2\n{limits}[metrics]\naddress = \"127.0.0.1:0\"\n{}",
        Home::one_route(format_args!("unix:{}", path.display()))
    ));
    let (address, metrics, process) = (instance.address(), instance.metrics(), instance.process.id());
    let before = resident(process);
    let mut clients: Vec<_> = thread::scope(|scope| {
        let halves =
            [0, 1].map(|_| scope.spawn(|| (0..CONNECTIONS / 2).map(|_| client(address)).collect::<Vec<_>>()));
        halves.into_iter().flat_map(|half| half.join().unwrap()).collect()
    });
    let mut held = application.held();
    let active = || Page::scrape(metrics).get("offramp_connections_active");
    assert_eq!(active(), CONNECTIONS as f64);

    let each = (resident(process) - before) / CONNECTIONS as u64;
    eprintln!("{each} bytes for an idle connection");
    assert!(each <= MOST_BYTES, "{each} bytes for an idle connection");
    let (used, begun) = (cpu(process), Instant::now());
    thread::sleep(Duration::from_secs(2));
    let (used, time) = (cpu(process) - used, begun.elapsed());
    assert!(used <= time / 4, "{used:?} of CPU in {time:?} of idleness");

    // Every one of them still carries bytes, in both directions.
    for client in &mut clients {
        client.send(&Seal::data(b"ping")).unwrap();
    }
    for stream in &mut held {
        let mut ping = [0; 4];
        stream.read_exact(&mut ping).unwrap();
        stream.write_all(&ping).unwrap();
    }
    for client in &mut clients {
        let answer = loop {
            match client.receive().unwrap() {
                Received::Event(Event::Data(data)) => break data,
                Received::Event(_) => {}
                Received::End(end) => panic!("{end:?}"),
            }
        };
        assert_eq!(answer, b"ping");
    }
    drop(held);
    drop(clients);
    instance.until("all are closed", || (active() == 0.0).then_some(()));
    assert_eq!(instance.stop().len(), CONNECTIONS);
}
