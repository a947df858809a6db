//! Every kind of connection tells of itself and can be closed: passthrough, behind a proxy that names the client,
//! upgraded to another protocol, in the middle of a handshake, without a name in TLS. And with an upgrade of Offramp.

use std::io::{Read, Write as _};
use std::net::{SocketAddr, TcpStream};

use offramp_testkit::server::{Listen, Server, apps};
use rustls::ClientConnection;
use rustls::pki_types::ServerName;
use serde_json::Value;

use crate::http_websockets_pass_over_both_versions::{head, shouting_back};
use crate::open_connections_are_shown_and_closed::{conns, ctl};
use crate::support::crowd::{close, connect, echo, get, tcp, trusting};
use crate::support::h2_client::kind::{DATA, GOAWAY, HEADERS};
use crate::support::h2_client::{END_HEADERS, H2, data, headers, request};
use crate::support::http_curl::{HTTP, PLAIN};
use crate::support::instance::{CERTIFICATE, Home, Instance, cause, text};
use crate::support::offramp::{stderr, stdout};
use crate::support::upgrade::{Upgraded, install, run_at};
use crate::upgrades_fail_without_harm::script;

/// Waits until these are exactly as many, and `fit`.
fn shown(instance: &Instance, count: usize, fit: impl Fn(&Value) -> bool) -> Vec<Value> {
    instance.until(&format!("{count} connections"), || {
        let all = conns(instance, &[]);
        (all.len() == count && all.iter().all(&fit)).then_some(all)
    })
}

/// The one whose client has this address.
fn of(all: &[Value], client: SocketAddr) -> &Value {
    let client = client.to_string();
    all.iter()
        .find(|one| one["client"] == *client || one["peer"] == *client)
        .unwrap_or_else(|| panic!("{all:?}"))
}

fn killed(instance: &Instance, filter: &[&str]) -> String {
    let done = ctl(instance, &[&["conns", "--kill"], filter].concat());
    assert!(done.status.success(), "{filter:?}: {}", stderr(&done));
    stdout(&done)
}

/// Waits for the other side's end; a reset is one, too.
fn is_over(stream: &mut impl Read) -> bool {
    let mut piece = [0; 4096];
    loop {
        match stream.read(&mut piece) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) => {
                return !matches!(
                    error.kind(),
                    std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut
                );
            }
        }
    }
}

fn closed_by_operator(instance: &Instance, count: usize) -> Vec<Value> {
    instance.until("each closed connection has its event", || {
        let events = instance.events().into_iter().filter(|event| cause(event) == "closed_by_operator");
        Some(events.collect::<Vec<_>>()).filter(|events| events.len() >= count)
    })
}

#[test]
fn a_passthrough_route_shows_the_name_and_no_version_of_tls() {
    let app = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    let inner = Instance::before(app.address());
    let outer = Home::new().run(&format!(
        "{CERTIFICATE}[[listener]]\naddress = \"127.0.0.1:0\"\n\
         [[route]]\nhost = \"a.example.org\"\npassthrough = \"{}\"\n[[route]]\nserver = \"{}\"\n",
        inner.address(),
        app.address()
    ));
    let config = trusting(&inner.home.ca.certificate());
    let mut through = connect(&config, outer.address(), "a.example.org").unwrap();
    echo(&mut through, "hello").unwrap();
    let own = trusting(&outer.home.ca.certificate());
    let mut terminated = connect(&own, outer.address(), "localhost").unwrap();
    echo(&mut terminated, "hello").unwrap();
    let all = shown(&outer, 2, |one| one["bytes_to_client"].as_u64() > Some(0));
    let one = of(&all, through.sock.local_addr().unwrap());
    assert_eq!((text(one, "protocol"), text(one, "name")), ("passthrough", "a.example.org"), "{one}");
    assert_eq!((text(one, "route"), &one["tls"]), ("a.example.org", &Value::Null), "{one}");
    assert_eq!(text(one, "server"), inner.address().to_string());
    // It counts what it moves: the records of others.
    assert!(one["bytes_from_client"].as_u64() > Some(5), "{one}");
    assert_eq!(killed(&outer, &["--name", "*.example.org"]), "Closed 1 connection.\n");
    assert!(is_over(&mut through));
    echo(&mut terminated, "still here").unwrap();
    closed_by_operator(&outer, 1);
    // The server behind it is not left with half of a connection.
    inner.events_of(1);
    close(terminated).unwrap();
    outer.stop();
    inner.stop();
}

#[test]
fn the_client_is_the_one_that_a_believed_header_names() {
    let instance = Home::new().run(&format!(
        "{CERTIFICATE}[limits]\nhandshake_timeout = \"10m\"\n{PLAIN}accept_proxy = [\"127.0.0.0/8\"]\n\
         [[route]]\nrespond = {{ body = \"hello\" }}\n"
    ));
    let address = instance.address_of("plain");
    let named = ["192.0.2.7 192.0.2.1 5001 443", "198.51.100.7 192.0.2.1 5002 443"].map(|header| {
        let mut stream = tcp(address).unwrap();
        write!(stream, "PROXY TCP4 {header}\r\n").unwrap();
        assert_eq!(get(&mut stream, "/").unwrap(), "hello");
        stream
    });
    let mut silent = tcp(address).unwrap();
    let all = shown(&instance, 3, |_| true);
    let local = |stream: &TcpStream| stream.local_addr().unwrap();
    let one = of(&all, local(&named[0]));
    assert_eq!((text(one, "client"), text(one, "peer")), ("192.0.2.7:5001", &*local(&named[0]).to_string()));
    // Nobody is named yet.
    let waiting = of(&all, local(&silent));
    assert_eq!((text(waiting, "protocol"), &waiting["peer"]), ("opening", &Value::Null), "{waiting}");
    for (filter, found) in [("192.0.2.7", 1), ("192.0.2.0/24", 1), ("0.0.0.0/0", 3), ("127.0.0.0/8", 1)] {
        assert_eq!(conns(&instance, &["--client", filter]).len(), found, "{filter}");
    }
    let [mut first, mut second] = named;
    assert_eq!(killed(&instance, &["--client", "192.0.2.0/24"]), "Closed 1 connection.\n");
    assert!(is_over(&mut first));
    assert_eq!(killed(&instance, &["--client", "127.0.0.1"]), "Closed 1 connection.\n");
    assert!(is_over(&mut silent), "one that has said nothing");
    assert_eq!(get(&mut second, "/").unwrap(), "hello");
    let events = closed_by_operator(&instance, 2);
    assert!(events.iter().any(|event| text(event, "client") == "192.0.2.7"), "{events:?}");
    drop(second);
    instance.stop();
}

#[test]
fn one_that_has_become_a_tunnel_is_closed_on_both_sides() {
    let home = Home::new();
    let _app = shouting_back(&home);
    let instance = home.run(&format!("{CERTIFICATE}{HTTP}[[route]]\nserver = \"unix:app.sock\"\n"));
    let config = trusting(&instance.home.ca.certificate());
    let mut h1 = connect(&config, instance.address(), "localhost").unwrap();
    h1.write_all(
        b"GET /socket HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
    )
    .unwrap();
    assert!(head(&mut h1).starts_with("http/1.1 101 "));
    echo(&mut h1, &"x".repeat(5000)).unwrap();
    let mut h2 = H2::open(&config, instance.address(), &[]);
    let mut fields = request("CONNECT", "/socket", &[]);
    fields.extend([(":protocol", "websocket"), ("sec-websocket-version", "13")]);
    assert!(h2.send(&headers(1, END_HEADERS, &fields)));
    assert_eq!(h2.find("answer", |frame| frame.kind == HEADERS).status(), 200);
    assert!(h2.send(&data(1, 0, &[b'y'; 3000])));
    h2.find("an echo", |frame| frame.kind == DATA);
    let all = shown(&instance, 2, |one| one["bytes_to_client"].as_u64() >= Some(3000));
    for one in &all {
        assert_eq!(one["requests"], serde_json::json!({ "begun": 1, "open": 1 }), "{one}");
        assert!(text(one, "server").ends_with("app.sock"), "{one}");
    }
    assert_eq!(conns(&instance, &["--larger", "9KiB"]).len(), 1, "bytes of both directions");
    assert_eq!(killed(&instance, &["--larger", "9KiB"]), "Closed 1 connection.\n");
    assert!(is_over(&mut h1));
    let rest = shown(&instance, 1, |_| true);
    assert_eq!(text(&rest[0], "protocol"), "h2");
    assert_eq!(killed(&instance, &["--name", "localhost"]), "Closed 1 connection.\n");
    h2.find("a goodbye", |frame| frame.kind == GOAWAY);
    while h2.next().is_some() {}
    let events = instance.until("both tunnels have their events", || {
        let events = instance.events().into_iter().filter(|event| text(event, "path") == "/socket");
        Some(events.collect::<Vec<_>>()).filter(|events| events.len() == 2)
    });
    assert!(events.iter().all(|event| cause(event) == "closed_by_operator"), "{events:?}");
    instance.stop();
}

#[test]
fn one_in_its_handshake_is_closed_at_once() {
    let app = Server::start(&Listen::Ipv4, apps::http).unwrap();
    let text_ = format!("[limits]\nhandshake_timeout = \"10m\"\n{}", Home::one_route(app.address()));
    let instance = Home::new().run(&text_);
    let config = trusting(&instance.home.ca.certificate());
    let mut served = connect(&config, instance.address(), "localhost").unwrap();
    assert_eq!(get(&mut served, "/").unwrap(), "hello /\n");
    // Nothing is said, and all but the last word.
    let mut silent = tcp(instance.address()).unwrap();
    let mut half = tcp(instance.address()).unwrap();
    let name = ServerName::try_from("half.example.org").unwrap();
    let mut client = ClientConnection::new(config, name).unwrap();
    client.write_tls(&mut half).unwrap();
    half.read_exact(&mut [0; 100]).unwrap();
    let all = shown(&instance, 3, |_| true);
    for (stream, name) in [(&silent, Value::Null), (&half, "half.example.org".into())] {
        let one = of(&all, stream.local_addr().unwrap());
        assert_eq!((text(one, "protocol"), &one["name"]), ("opening", &name), "{one}");
    }
    assert_eq!(killed(&instance, &["--name", "half.example.org"]), "Closed 1 connection.\n");
    assert!(is_over(&mut half));
    let id = of(&all, silent.local_addr().unwrap())["id"].as_str().unwrap();
    assert_eq!(killed(&instance, &[id]), "Closed 1 connection.\n");
    assert!(is_over(&mut silent));
    closed_by_operator(&instance, 2);
    assert_eq!(get(&mut served, "/").unwrap(), "hello /\n");
    close(served).unwrap();
    instance.stop();
}

#[test]
fn without_a_name_in_tls_the_host_of_the_latest_request_is_the_name() {
    let (slow, _held) = unanswering();
    let instance = Home::new().run(&format!(
        "{CERTIFICATE}{PLAIN}[[route]]\nhost = \"a.example.org\"\nrespond = {{ body = \"hello\" }}\n\
         [[route]]\nhost = \"*.example.org\"\nrespond = {{ body = \"hello\" }}\n\
         [[route]]\nhost = \"*.example.org\"\npath = \"/slow\"\nserver = \"{slow}\"\n"
    ));
    let client = |host: &str, path: &str| {
        let mut stream = tcp(instance.address_of("plain")).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: {host}:80\r\n\r\n").unwrap();
        stream
    };
    let mut idle = client("a.example.org", "/");
    let mut vague = client("B.example.org", "/");
    for stream in [&mut idle, &mut vague] {
        assert!(head(stream).starts_with("http/1.1 200 "));
        stream.read_exact(&mut [0; 5]).unwrap();
    }
    let mut busy = client("C.example.org", "/slow");
    let all = instance.until("all rest, and one waits", || {
        let all = conns(&instance, &[]);
        let named = of(&all, busy.local_addr().unwrap())["route"].is_string();
        let rests = of(&all, vague.local_addr().unwrap())["name"].is_null();
        (all.len() == 3 && named && rests).then_some(all)
    });
    let name = |stream: &TcpStream| text(of(&all, stream.local_addr().unwrap()), "name").to_owned();
    // The host that was asked for is forgotten once nothing is, and a route of many hosts does not tell it.
    assert_eq!([&idle, &vague, &busy].map(name), ["a.example.org", "", "c.example.org"]);
    for (filter, found) in [("a.example.org", 1), ("b.example.org", 0), ("*.example.org", 2)] {
        assert_eq!(conns(&instance, &["--name", filter]).len(), found, "{filter}");
    }
    assert_eq!(killed(&instance, &["--name", "c.example.org"]), "Closed 1 connection.\n");
    assert!(is_over(&mut busy));
    assert_eq!(killed(&instance, &["--name", "*.example.org"]), "Closed 1 connection.\n");
    assert!(is_over(&mut idle));
    let rest = shown(&instance, 1, |_| true);
    assert_eq!(of(&rest, vague.local_addr().unwrap())["route"], "*.example.org");
    drop(vague);
    instance.stop();
}

/// A server that reads and never answers, as long as it is kept.
fn unanswering() -> (String, Server) {
    let server = Server::start(&Listen::Ipv4, apps::sink).unwrap();
    (server.address().to_string(), server)
}

#[test]
fn during_an_upgrade_all_are_shown_and_after_it_those_of_the_new_process() {
    let app = Server::start(&Listen::Ipv4, apps::http).unwrap();
    let home = Home::new();
    let program = home.file("bin");
    install(&program);
    let upgraded = run_at(home, &program, &Home::one_route(app.address()));
    let instance = &upgraded.instance;
    let config = trusting(&instance.home.ca.certificate());
    let open = || {
        let mut tls = connect(&config, instance.address(), "localhost").unwrap();
        assert_eq!(get(&mut tls, "/").unwrap(), "hello /\n");
        tls
    };
    let (mut kept, mut other) = (open(), open());
    // A new process that hangs: the old one answers, and obeys.
    script(&program, "echo $$ > child; exec sleep 600");
    upgraded.signal(offramp_testkit::process::Signal::USR2);
    instance.notified("RELOADING=1");
    instance.until("the new process", || std::fs::read(instance.home.file("child")).ok());
    let all = shown(instance, 2, |_| true);
    let id = of(&all, other.sock.local_addr().unwrap())["id"].as_str().unwrap();
    assert_eq!(killed(instance, &[id]), "Closed 1 connection.\n");
    assert!(is_over(&mut other));
    shown(instance, 1, |_| true);
    end_of_the_child(&upgraded);
    install(&program);
    upgraded.upgrade();
    let mut fresh = open();
    let all = shown(instance, 1, |_| true);
    assert_eq!(of(&all, fresh.sock.local_addr().unwrap())["requests"]["begun"], 0, "bytes of a tcp route");
    // The old one finishes what it has, and nobody can close that by the new one.
    assert_eq!(killed(instance, &["--client", "127.0.0.1"]), "Closed 1 connection.\n");
    assert!(is_over(&mut fresh));
    assert_eq!(get(&mut kept, "/kept").unwrap(), "hello /kept\n");
    close(kept).unwrap();
    upgraded.until_others_ended();
    upgraded.stop();
}

/// Ends the process that hangs in the place of a new one, and waits until the old one has noticed.
fn end_of_the_child(upgraded: &Upgraded) {
    let child = upgraded.instance.until("its number", || {
        let text = std::fs::read_to_string(upgraded.instance.home.file("child")).ok()?;
        text.trim().parse::<i32>().ok().and_then(rustix::process::Pid::from_raw)
    });
    rustix::process::kill_process(child, offramp_testkit::process::Signal::KILL).unwrap();
    upgraded.instance.notified("READY=1");
}
