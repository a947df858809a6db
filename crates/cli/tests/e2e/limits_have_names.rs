//! Limits and timeouts: each ends in its named cause, in the event and in the counter, and others are
//! served meanwhile.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::thread;
use std::time::{Duration, Instant};

use offramp_testkit::process::{Signal, Source};
use offramp_testkit::server::{Address, Listen, Server, apps};
use offramp_testkit::tls_client::{Client, Options, Suite, wire};
use serde_json::Value;
use socket2::{Domain, Socket, Type};

use crate::support::crowd::{close, connect, echo, secure, tcp, trusting};
use crate::support::figures::Page;
use crate::support::instance::{CERTIFICATE, Home, Instance, LISTENER, PATIENCE, cause};

const METRICS: &str = "[metrics]\naddress = \"127.0.0.1:0\"\n";

/// An echo behind Offramp with these limits.
fn limited(limits: &str) -> (Server, Instance) {
    let app = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    let instance =
        Home::new().run(&format!("[limits]\n{limits}\n{METRICS}{}", Home::one_route(app.address())));
    (app, instance)
}

/// The event of the connection whose client had this address.
fn event_of(instance: &Instance, client: SocketAddr) -> Value {
    instance.event(&format!("of {client}"), |event| event["client_port"] == client.port())
}

/// That the connection ended by this cause, and that the counter knows it.
#[track_caller]
fn ended(instance: &Instance, client: SocketAddr, name: &str, fault: &str) -> Value {
    let event = event_of(instance, client);
    assert_eq!((cause(&event), &event["fault"]), (name, &fault.into()), "{event}");
    assert!(Page::scrape(instance.metrics()).closed(name) >= 1.0, "no counter for {name}");
    event
}

/// That a new client is served.
#[track_caller]
fn others_are_served(instance: &Instance) {
    let config = trusting(&instance.home.ca.certificate());
    let mut tls = connect(&config, instance.address(), "localhost").unwrap();
    echo(&mut tls, "others").unwrap();
    close(tls).unwrap();
}

/// A connection whose client has the address `127.0.0.LAST`.
pub(crate) fn tcp_from(last: u8, to: SocketAddr) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from((Ipv4Addr::new(127, 0, 0, last), 0)).into()).unwrap();
    socket.connect(&to.into()).unwrap();
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// The record with the ClientHello, and the client that goes on from there.
fn hello(stream: TcpStream) -> (Vec<u8>, Client<TcpStream>) {
    let client = Client::new(stream, Options::new(Suite::ALL[0])).unwrap();
    let record = wire::record(wire::content::HANDSHAKE, [3, 1], client.hello());
    (record, client)
}

#[test]
fn a_handshake_that_takes_too_long() {
    let (_app, instance) = limited("handshake_timeout = \"3s\"");
    let begun = Instant::now();
    let silent = tcp(instance.address()).unwrap();
    let dripping = tcp(instance.address()).unwrap();
    let half = tcp(instance.address()).unwrap();
    // The hello is sent whole, and nothing after it.
    let (record, mut client) = hello(half.try_clone().unwrap());
    client.write_raw(&record).unwrap();
    let mut streams = [silent, dripping, half];
    let clients = streams.each_ref().map(|stream| stream.local_addr().unwrap());
    thread::scope(|scope| {
        // So slowly that the last byte would come after the timeout.
        let mut drip = streams[1].try_clone().unwrap();
        scope.spawn(move || {
            for byte in &record {
                if drip.write_all(&[*byte]).is_err() {
                    break;
                }
                thread::sleep(Duration::from_millis(40));
            }
        });
        others_are_served(&instance);
        for client in clients {
            ended(&instance, client, "handshake_timeout", "client");
        }
        assert!(begun.elapsed() >= Duration::from_millis(2900), "{:?}", begun.elapsed());
    });
    // Nobody is left hanging.
    for stream in &mut streams {
        let _ = stream.read_to_end(&mut Vec::new());
    }
    others_are_served(&instance);
    instance.stop();
}

#[test]
fn a_client_hello_that_comes_byte_by_byte_in_time() {
    let (_app, instance) = limited("handshake_timeout = \"30s\"");
    let (record, mut client) = hello(tcp(instance.address()).unwrap());
    for byte in record {
        client.write_raw(&[byte]).unwrap();
        thread::sleep(Duration::from_millis(1));
    }
    client.receive_server_flight().unwrap();
    client.send_key_exchange().unwrap();
    let finished = client.finished();
    for byte in client.seal(&offramp_testkit::tls_client::Seal::handshake(&finished)) {
        client.write_raw(&[byte]).unwrap();
    }
    client.complete(&finished).unwrap();
    drop(client);
    let event = instance.events_of(1).remove(0);
    assert_eq!(event["tls_version"], "TLSv1.3", "{event}");
    instance.stop();
}

/// Addresses at which connecting takes for ever: backlogs that are full.
struct Full {
    address: Address,
    _held: Vec<Box<dyn Send>>,
}

impl Full {
    fn tcp() -> Self {
        let listener = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        listener.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).unwrap();
        listener.listen(0).unwrap();
        let address = listener.local_addr().unwrap();
        let mut held: Vec<Box<dyn Send>> = Vec::new();
        // A backlog of 0 has room for one; another may be waiting to be let in.
        for _ in 0..3 {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
            let _ = socket.connect_timeout(&address, Duration::from_millis(200));
            held.push(Box::new(socket));
        }
        held.push(Box::new(listener));
        Self { address: Address::Tcp(address.as_socket().unwrap()), _held: held }
    }

    fn unix(home: &Home) -> Self {
        let path = home.file("full.sock");
        let listener = UnixListener::bind(&path).unwrap();
        // The backlog that the standard library asks for is 128 or what the system allows; it is lowered.
        rustix::net::listen(&listener, 0).unwrap();
        let mut held: Vec<Box<dyn Send>> = vec![Box::new(UnixStream::connect(&path).unwrap())];
        held.push(Box::new(listener));
        Self { address: Address::Unix(path), _held: held }
    }
}

#[test]
fn a_server_that_does_not_accept() {
    let home = Home::new();
    let full = [Full::tcp(), Full::unix(&home)];
    let app = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    let [a, b] = full.each_ref().map(|full| &full.address);
    let instance = home.run(&format!(
        "[limits]\nconnect_timeout = \"1s\"\n{METRICS}{CERTIFICATE}{LISTENER}\
         [[route]]\nhost = \"tcp.example.org\"\nserver = \"{a}\"\n\
         [[route]]\nhost = \"unix.example.org\"\nserver = \"{b}\"\n\
         [[route]]\nserver = \"{}\"\n",
        app.address()
    ));
    let config = trusting(&instance.home.ca.certificate());
    for name in ["tcp.example.org", "unix.example.org"] {
        let stream = tcp(instance.address()).unwrap();
        let client = stream.local_addr().unwrap();
        let mut tls = secure(&config, stream, name).unwrap();
        others_are_served(&instance);
        let error = tls.read(&mut [0; 16]).unwrap_err();
        assert!(error.to_string().contains("InternalError"), "{error}");
        let event = ended(&instance, client, "connect_timeout", "server");
        assert_eq!((&event["alert_sent"], &event["tries"]), (&"internal_error".into(), &1.into()), "{event}");
        assert!(event["connect_us"].as_u64().unwrap() >= 1_000_000, "{event}");
    }
    instance.stop();
}

/// The time of `[limits]` is that of backends without their own.
#[test]
fn a_backend_that_has_its_own_time_to_accept() {
    let full = Full::tcp();
    let instance = Home::new().run(&format!(
        "[limits]\nconnect_timeout = \"1h\"\n{METRICS}{CERTIFICATE}\
         [[listener]]\nname = \"tcp\"\naddress = \"127.0.0.1:0\"\n\
         [[listener]]\nname = \"http\"\nmode = \"http\"\naddress = \"127.0.0.1:0\"\n\
         [[route]]\nlistener = \"tcp\"\nbackend = \"full\"\n\
         [[route]]\nlistener = \"http\"\nbackend = \"full\"\n\
         [backend.full]\nservers = \"{}\"\nconnect_timeout = \"1s\"\n",
        full.address
    ));
    let config = trusting(&instance.home.ca.certificate());
    let begun = Instant::now();
    let mut tls = connect(&config, instance.address_of("tcp"), "localhost").unwrap();
    let client = tls.sock.local_addr().unwrap();
    let error = tls.read(&mut [0; 16]).unwrap_err();
    assert!(error.to_string().contains("InternalError"), "{error}");
    let event = ended(&instance, client, "connect_timeout", "server");
    assert!(event["connect_us"].as_u64().unwrap() >= 1_000_000, "{event}");
    let mut tls = connect(&config, instance.address_of("http"), "localhost").unwrap();
    tls.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    tls.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 504 "), "{answer}");
    assert!(begun.elapsed() < PATIENCE, "{:?}", begun.elapsed());
    let event = instance.event("of the request", |event| event["status"] == 504);
    assert_eq!(cause(&event), "connect_timeout", "{event}");
    instance.stop();
}

#[test]
fn a_connection_on_which_nothing_moves() {
    let (_app, instance) = limited("idle_timeout = \"3s\"");
    let config = trusting(&instance.home.ca.certificate());
    let mut idle = connect(&config, instance.address(), "localhost").unwrap();
    let client = idle.sock.local_addr().unwrap();
    let mut busy = connect(&config, instance.address(), "localhost").unwrap();
    let begun = Instant::now();
    echo(&mut idle, "hello").unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            // A little now and then is enough to stay.
            while begun.elapsed() < Duration::from_secs(5) {
                echo(&mut busy, "x").unwrap();
                thread::sleep(Duration::from_millis(100));
            }
        });
        // It is a goodbye, not a truncation (RFC 8446 section 6.1).
        assert_eq!(idle.read(&mut [0; 16]).unwrap(), 0);
        assert!(begun.elapsed() >= Duration::from_millis(2900), "{:?}", begun.elapsed());
    });
    ended(&instance, client, "idle_timeout", "nobody");
    close(busy).unwrap();
    instance.stop();
}

#[test]
fn too_many_connections_wait_for_a_place() {
    let (_app, instance) = limited("connections = 3");
    let config = trusting(&instance.home.ca.certificate());
    let mut held: Vec<_> = (0..3)
        .map(|_| {
            let mut tls = connect(&config, instance.address(), "localhost").unwrap();
            echo(&mut tls, "in").unwrap();
            tls
        })
        .collect();
    thread::scope(|scope| {
        let waits = |_| {
            scope.spawn(|| {
                let mut tls = connect(&config, instance.address(), "localhost").unwrap();
                echo(&mut tls, "in as well").unwrap();
                close(tls).unwrap();
            })
        };
        let waiting: Vec<_> = (0..4).map(waits).collect();
        let paused =
            || Page::scrape(instance.metrics()).get("offramp_accept_pauses_total{reason=\"connections\"}");
        instance.until("a pause", || (paused() >= 1.0).then_some(()));
        held.iter_mut().for_each(|tls| echo(tls, "still in").unwrap());
        assert!(waiting.iter().all(|thread| !thread.is_finished()));
        let page = Page::scrape(instance.metrics());
        assert_eq!(page.get("offramp_limit{limit=\"connections\"}"), 3.0);
        assert_eq!(page.get("offramp_limit_used{limit=\"connections\"}"), 3.0);
        assert_eq!(page.get("offramp_connections_active"), 3.0);
        close(held.pop().unwrap()).unwrap();
        waiting.into_iter().for_each(|thread| thread.join().unwrap());
    });
    drop(held);
    let said = |line: &String| line.contains("accepting pauses") && line.contains("limits.connections");
    assert_eq!(instance.process.lines(Source::Stderr).into_iter().filter(said).count(), 1);
    let events = instance.stop();
    assert_eq!(events.len(), 7, "{events:?}");
    assert!(events.iter().all(|event| cause(event) != "limit_connections"), "{events:?}");
}

/// A connection of which a PROXY header says that it comes from this client.
pub(crate) fn tcp_of(client: &str, to: SocketAddr) -> TcpStream {
    let mut stream = tcp(to).unwrap();
    let port = stream.local_addr().unwrap().port();
    stream.write_all(format!("PROXY TCP4 {client} 192.0.2.1 {port} 443\r\n").as_bytes()).unwrap();
    stream
}

#[test]
fn too_many_connections_of_one_client() {
    let app = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    let instance = Home::new().run(&format!(
        "[limits]\nconnections_per_client = 2\n{METRICS}{CERTIFICATE}{LISTENER}accept_proxy = \"127.0.0.0/8\"\n\
         [[route]]\nserver = \"{}\"\n",
        app.address()
    ));
    let config = trusting(&instance.home.ca.certificate());
    let enter = |client: &str| {
        let mut tls = secure(&config, tcp_of(client, instance.address()), "localhost").ok()?;
        echo(&mut tls, "in").ok().map(|()| tls)
    };
    let mut held = ["198.51.100.2"; 2].map(|client| enter(client).unwrap());
    for _ in 0..5 {
        let mut refused = tcp_of("198.51.100.2", instance.address());
        let client = refused.local_addr().unwrap();
        assert!(!matches!(refused.read(&mut [0; 16]), Ok(1..)));
        let event = ended(&instance, client, "limit_connections_per_client", "policy");
        assert_eq!(event["client"], "198.51.100.2");
    }
    let page = Page::scrape(instance.metrics());
    assert_eq!(page.get("offramp_limit_used{limit=\"connections_per_client\"}"), 2.0);
    assert_eq!(page.get("offramp_limit_refusals_total{limit=\"limit_connections_per_client\"}"), 5.0);
    drop(enter("198.51.100.3").expect("another client"));
    held.iter_mut().for_each(|tls| echo(tls, "still in").unwrap());
    drop(held);
    drop(instance.until("the client has its places again", || enter("198.51.100.2")));
    // One line for the first, and one at the end for the rest.
    let said = said_of(&instance, "limit_connections_per_client");
    assert_eq!(said.len(), 2, "{said:?}");
    for part in ["client=198.51.100.2", "refused=1 ", "key=limits.connections_per_client"] {
        assert!(said[0].contains(part), "{part} in {}", said[0]);
    }
    // Perhaps it was refused again before its places were free.
    let refused = said[1].split("refused=").nth(1).and_then(|rest| rest.split(' ').next());
    assert!(refused.and_then(|count| count.parse::<u32>().ok()).is_some_and(|count| count >= 4), "{said:?}");
}

/// Stops it, and gives what the log says of a limit that refuses.
fn said_of(instance: &Instance, limit: &str) -> Vec<String> {
    instance.process.signal(Signal::TERM).unwrap();
    instance.process.wait(PATIENCE).unwrap();
    let lines = instance.process.lines(Source::Stderr).into_iter();
    let limit = format!("limit={limit} ");
    lines.filter(|line| line.contains("a limit refuses clients") && line.contains(&limit)).collect()
}

#[test]
fn a_load_test_from_this_machine_meets_no_limit_of_clients() {
    let (_app, instance) = limited("connections_per_client = 2\ndrain_timeout = \"1s\"");
    let config = trusting(&instance.home.ca.certificate());
    // More at a time than one client may have, and more in a moment than there were handshakes a second once.
    let held: Vec<_> = thread::scope(|scope| {
        let some = |_| {
            scope.spawn(|| {
                (0..75).map(|_| connect(&config, instance.address(), "localhost").unwrap()).collect()
            })
        };
        let threads: Vec<thread::ScopedJoinHandle<'_, Vec<_>>> = (0..2).map(some).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    let page = Page::scrape(instance.metrics());
    assert_eq!(page.get("offramp_limit_used{limit=\"connections_per_client\"}"), 150.0);
    let refused = |name: &str, value: f64| name.starts_with("offramp_limit_refusals_total") && value > 0.0;
    assert!(!page.0.iter().any(|(name, value)| refused(name, *value)));
    drop(held);
    instance.stop();
}

#[test]
fn too_many_handshakes_of_one_client() {
    let (_app, instance) = limited("handshakes_per_client = \"3/h\"");
    let config = trusting(&instance.home.ca.certificate());
    for _ in 0..3 {
        let mut tls = secure(&config, tcp_from(3, instance.address()), "localhost").unwrap();
        echo(&mut tls, "in").unwrap();
        close(tls).unwrap();
    }
    let mut refused = tcp_from(3, instance.address());
    let client = refused.local_addr().unwrap();
    assert!(!matches!(refused.read(&mut [0; 16]), Ok(1..)));
    ended(&instance, client, "limit_handshakes_per_client", "policy");
    others_are_served(&instance);
    let said = said_of(&instance, "limit_handshakes_per_client");
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(
        said[0].contains("client=127.0.0.3 ") && said[0].contains("key=limits.handshakes_per_client"),
        "{said:?}"
    );
}
