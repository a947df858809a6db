//! kill -9 in each phase of an order: the next process goes on with it, and nobody orders twice.

use std::io::{self, Read as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use offramp_testkit::process::Signal;
use offramp_testkit::server::{Listen, Server, apps};

use crate::support::instance::{Home, LIFE};
use crate::support::openssl::echo;
use crate::support::pebble::{Pebble, Terms, section};

/// More connections than an order makes.
const MOST: usize = 40;

/// Passes connections on to the authority; one of them is held.
struct Gate {
    port: u16,
    seen: Arc<AtomicUsize>,
    held: Arc<AtomicUsize>,
}

impl Gate {
    fn before(authority: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (seen, held) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let gate = Self { port, seen: Arc::clone(&seen), held: Arc::clone(&held) };
        thread::spawn(move || {
            for stream in listener.incoming() {
                let stream = stream.unwrap();
                let number = seen.fetch_add(1, Ordering::SeqCst) + 1;
                let hold = number == held.load(Ordering::SeqCst);
                thread::spawn(move || if hold { wait(stream) } else { pass(&stream, authority) });
            }
        });
        gate
    }

    /// Holds this connection, counted from now on; 0: none.
    fn hold(&self, number: usize) {
        self.held.store(number, Ordering::SeqCst);
        self.seen.store(0, Ordering::SeqCst);
    }

    fn is_holding(&self) -> bool {
        let held = self.held.load(Ordering::SeqCst);
        held > 0 && self.seen.load(Ordering::SeqCst) >= held
    }
}

/// Answers nothing until the other side goes.
fn wait(mut stream: TcpStream) {
    let _ = io::copy(&mut stream, &mut io::sink());
    let _ = stream.read(&mut [0]);
}

fn pass(client: &TcpStream, authority: u16) {
    let Ok(server) = TcpStream::connect(SocketAddr::from(([127, 0, 0, 1], authority))) else { return };
    let copy = |from: &TcpStream, to: &TcpStream| {
        let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
        thread::spawn(move || {
            let _ = io::copy(&mut from, &mut to);
            let _ = to.shutdown(std::net::Shutdown::Write);
        })
    };
    let (up, down) = (copy(client, &server), copy(&server, client));
    let _ = (up.join(), down.join());
}

#[test]
fn an_order_goes_on_wherever_its_process_was_killed() {
    let app = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    let base = Home::new();
    let pebble = Pebble::start(base.path(), &base.ca, &Terms::default());
    let gate = Gate::before(pebble.port);
    let mut interrupted = 0;
    for number in 1..=MOST {
        let home = Home::new();
        let name = format!("a{number}.test");
        let text = format!(
            "{}[[certificate]]\nacme = \"pebble\"\nnames = [\"{name}\"]\n\
             [[listener]]\naddress = \"127.0.0.1:{}\"\n[[route]]\nserver = \"{}\"\n",
            section(gate.port, &base.ca, ""),
            pebble.tls,
            app.address()
        );
        let (orders, invalid) = (pebble.count("Added order"), pebble.count("set INVALID"));
        gate.hold(number);
        let instance = home.run(&text);
        let done = || logged_now(&instance, "a certificate was obtained");
        let finished = instance.until("the connection is held, or the certificate there", || {
            if done() { Some(true) } else { gate.is_holding().then_some(false) }
        });
        instance.process.signal(Signal::KILL).unwrap();
        instance.process.wait(LIFE).unwrap();
        gate.hold(0);
        let home = instance.home;
        std::fs::remove_file(home.file("notify.sock")).unwrap();
        let instance = home.run(&text);
        interrupted += usize::from(!finished);
        // It may have had its certificate already, and was killed before it said so.
        let served = || echo(&instance, &["-servername", &name]).contains("Pebble").then_some(());
        instance.until("a certificate of the authority", served);
        let placed = pebble.count("Added order") - orders;
        // The authority may have looked while nobody was there, which ends the order.
        let spoilt = pebble.count("set INVALID") - invalid;
        assert!(placed <= 1 + spoilt, "{number}: {placed} orders, {spoilt} spoilt");
        if finished {
            break;
        }
    }
    assert!((7..MOST).contains(&interrupted), "{interrupted}");
}

fn logged_now(instance: &crate::support::instance::Instance, text: &str) -> bool {
    instance.process.lines(offramp_testkit::process::Source::Stderr).iter().any(|line| line.contains(text))
}
