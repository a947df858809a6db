//! `connect_timeout` of a route wins over that of its backend, longer or shorter: before servers of HTTP/1.1 and of HTTP/2, in
//! relays, and with `passthrough`. The handshake of TLS counts.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use socket2::{Domain, Socket, Type};

use crate::http_websockets_pass_over_both_versions::head;
use crate::support::crowd::{echo, secure, tcp, trusting};
use crate::support::http_app::named;
use crate::support::http_curl::HTTP;
use crate::support::instance::{CERTIFICATE, Home, Instance, LISTENER, PATIENCE, cause, text};
use offramp_testkit::server::{Listen, Server, apps};

/// The pause of a server before it says anything: longer than the short timeout, and shorter than the long one.
const LATE: Duration = Duration::from_secs(2);
const SHORT: &str = "connect_timeout = \"200ms\"\n";
const LONG: &str = "connect_timeout = \"1m\"\n";

/// A way to `to` by which the server's first bytes come late.
fn late(to: SocketAddr) -> Server {
    Server::start(&Listen::Ipv4, move |mut stream| {
        let mut server = TcpStream::connect(to).unwrap();
        let (mut up, mut back) = (stream.try_clone().unwrap(), server.try_clone().unwrap());
        let upward = thread::spawn(move || drop(std::io::copy(&mut up, &mut back)));
        let mut first = [0; 4096];
        if let Ok(n @ 1..) = server.read(&mut first) {
            thread::sleep(LATE);
            if stream.write_all(&first[..n]).is_ok() {
                drop(std::io::copy(&mut server, &mut stream));
            }
        }
        drop(stream.shutdown(std::net::Shutdown::Both));
        drop(server.shutdown(std::net::Shutdown::Both));
        drop(upward.join());
    })
    .unwrap()
}

/// The status line of the answer to a GET, in lower case.
fn ask(instance: &Instance, listener: &str) -> String {
    let config = trusting(&instance.home.ca.certificate());
    let mut tls = secure(&config, tcp(instance.address_of(listener)).unwrap(), "localhost").unwrap();
    tls.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    head(&mut tls).lines().next().unwrap_or_default().to_owned()
}

/// Routes of mode `mode`: of the backend with the time that is wrong for the server, with a key that mends it, and the reverse.
fn routes(mode: &str, protocol: &str, server: &Server, ca: &std::path::Path) -> String {
    let listener = |name: &str| format!("{LISTENER}name = \"{name}\"\n{mode}");
    let route = |name: &str, backend: &str, key: &str| {
        format!("[[route]]\nlistener = \"{name}\"\nbackend = \"{backend}\"\n{key}")
    };
    let backend = |name: &str, key: &str| {
        format!(
            "[backend.{name}]\nservers = \"{}\"\n{protocol}tls = {{ verify = \"{}\", name = \"localhost\" }}\n{key}",
            server.address(),
            ca.display()
        )
    };
    let names = ["default", "mended", "patient", "spoilt"].map(listener).concat();
    let all = [
        route("default", "hasty", ""),
        route("mended", "hasty", LONG),
        route("patient", "patient", ""),
        route("spoilt", "patient", SHORT),
        backend("hasty", SHORT),
        backend("patient", LONG),
    ];
    format!("workers = 1\n{CERTIFICATE}{names}{}", all.concat())
}

/// That a route fails with the cause, and well before the time of its backend.
fn is_late(instance: &Instance, listener: &str, begun: Instant) {
    assert!(begun.elapsed() < PATIENCE, "{listener}: {:?}", begun.elapsed());
    let event = instance.event("the end", |event| event["listener"] == listener);
    assert_eq!(cause(&event), "connect_timeout", "{event}");
}

#[test]
fn requests_have_the_time_of_their_route() {
    let home = Home::new();
    let (_app, _) = named(&Listen::Unix(home.file("app.sock")), "app");
    let ca = home.ca.certificate();
    let inner = home.run(&format!("{CERTIFICATE}{HTTP}[[route]]\nserver = \"unix:app.sock\"\n"));
    let server = late(inner.address());
    for protocol in ["", "protocol = \"h2\"\n", "protocol = \"auto\"\n"] {
        let instance = Home::new().run(&routes("mode = \"http\"\n", protocol, &server, &ca));
        for (listener, status) in [("default", 504), ("mended", 200), ("spoilt", 504), ("patient", 200)] {
            let begun = Instant::now();
            let answer = ask(&instance, listener);
            assert!(answer.starts_with(&format!("http/1.1 {status} ")), "{protocol} {listener}: {answer}");
            if status == 504 {
                is_late(&instance, listener, begun);
            }
        }
        instance.stop();
    }
}

/// One makes the connection that others wait for, and each of them has its own time.
#[test]
fn who_waits_for_a_shared_connection_has_its_own_time() {
    let home = Home::new();
    let (_app, _) = named(&Listen::Unix(home.file("app.sock")), "app");
    let ca = home.ca.certificate();
    let inner = home.run(&format!("{CERTIFICATE}{HTTP}[[route]]\nserver = \"unix:app.sock\"\n"));
    let server = late(inner.address());
    let instance = Home::new().run(&routes("mode = \"http\"\n", "protocol = \"h2\"\n", &server, &ca));
    let instance = &instance;
    thread::scope(|scope| {
        let all: Vec<_> = ["patient", "spoilt", "patient", "spoilt", "patient"]
            .map(|listener| scope.spawn(move || (listener, ask(instance, listener))))
            .into_iter()
            .collect();
        for one in all {
            let (listener, answer) = one.join().unwrap();
            let status = if listener == "spoilt" { 504 } else { 200 };
            assert!(answer.starts_with(&format!("http/1.1 {status} ")), "{listener}: {answer}");
        }
    });
}

#[test]
fn relays_have_the_time_of_their_route() {
    let echo_server = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    let inner = Instance::before(echo_server.address());
    let server = late(inner.address());
    let ca = inner.home.ca.certificate();
    let instance = Home::new().run(&routes("", "", &server, &ca));
    let config = trusting(&instance.home.ca.certificate());
    for (listener, works) in [("default", false), ("mended", true), ("spoilt", false), ("patient", true)] {
        let begun = Instant::now();
        let tls = secure(&config, tcp(instance.address_of(listener)).unwrap(), "localhost");
        let outcome = tls.map_err(|_| ()).and_then(|mut tls| echo(&mut tls, "there").map_err(drop));
        assert_eq!(outcome.is_ok(), works, "{listener}");
        if !works {
            is_late(&instance, listener, begun);
        }
    }
    instance.stop();
}

/// An address whose kernel answers no SYN: nobody accepts, and the queue is full.
fn full() -> (TcpListener, Vec<Socket>) {
    let listener = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    listener.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).unwrap();
    listener.listen(0).unwrap();
    let address = listener.local_addr().unwrap();
    let connect = |_| {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.set_nonblocking(true).unwrap();
        drop(socket.connect(&address));
        socket
    };
    let waiting = (0..4).map(connect).collect();
    (listener.into(), waiting)
}

#[test]
fn a_passthrough_has_the_time_of_its_route() {
    let (listener, _waiting) = full();
    let to = listener.local_addr().unwrap();
    let instance = Home::new()
        .run(&format!("[limits]\n{LONG}{CERTIFICATE}{LISTENER}[[route]]\npassthrough = \"{to}\"\n{SHORT}"));
    let config = trusting(&instance.home.ca.certificate());
    let begun = Instant::now();
    assert!(secure(&config, tcp(instance.address()).unwrap(), "localhost").is_err());
    assert!(begun.elapsed() < PATIENCE, "{:?}", begun.elapsed());
    let event = instance.event("the end", |event| event["listener"].is_string());
    assert_eq!((cause(&event), text(&event, "route")), ("connect_timeout", "default"), "{event}");
    instance.stop();
}
