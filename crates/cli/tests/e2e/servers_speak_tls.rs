//! TLS towards servers in mode `tcp`: both sides encrypted, or the server's alone. Servers are another Offramp, Redis
//! and `openssl s_server`.

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::Command;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use offramp_testkit::oracle;
use offramp_testkit::process::{Process, Ready, free_port, require};
use offramp_testkit::server::{Listen, Pattern, Server, apps, faults};
use rustls::version::{TLS12, TLS13};
use rustls::{ServerConnection, StreamOwned};

use crate::a_gibibyte_goes_both_ways::{both_ways, exchange};
use crate::quiet_http_connections_wake_nobody::{sleeps, waits};
use crate::support::conversation::Conversation;
use crate::support::crowd::tcp;
use crate::support::duplex::{connect, speaking};
use crate::support::instance::{CERTIFICATE, Home, Instance, LIFE, LISTENER, PATIENCE, ask, cause, text};
use crate::support::offramp::offramp;
use crate::the_first_minutes_are_plain::{said, started, stopped};

/// A listener without TLS, as configuration.
const PLAIN: &str = "[[listener]]\naddress = \"127.0.0.1:0\"\ntls = false\n";

/// An Offramp with this listener whose server is `server`, which has a certificate for `localhost` by the CA of
/// `inner`.
fn before(listener: &str, server: impl std::fmt::Display, inner: &Home, more: &str) -> Instance {
    let ca = inner.ca.certificate();
    let ca = ca.display();
    let tls = format!("tls = {{ verify = \"{ca}\", name = \"localhost\"{more} }}");
    Home::new().run(&format!(
        "{CERTIFICATE}{listener}[[route]]\nbackend = \"app\"\n[backend.app]\nservers = \"{server}\"\n{tls}\n"
    ))
}

/// Bytes each way.
const MUCH: u64 = 64 << 20;

/// The client's side is TLS 1.2, 1.3 or plain; the server's is TLS 1.3 by an Offramp before the application.
#[test]
fn sixty_four_mebibytes_go_both_ways() {
    for version in [&TLS13, &TLS12] {
        let (told, hear) = mpsc::channel();
        let told = Mutex::new(told);
        let behaviour = move |stream| told.lock().unwrap().send(both_ways(stream, MUCH)).unwrap();
        let app = Server::start(&Listen::Ipv4, behaviour).unwrap();
        let inner = Instance::before(app.address());
        let outer = before(LISTENER, inner.address(), &inner.home, "");
        let config = speaking(version, &outer.home.ca.certificate());
        let (sent, received) = exchange(MUCH, connect(&config, outer.address()));
        let (app_sent, app_received) = hear.recv_timeout(PATIENCE).unwrap();
        assert_eq!((&app_received, &received), (&sent, &app_sent), "{version:?}");
        for instance in [outer, inner] {
            let [event] = &instance.stop()[..] else { panic!("one event") };
            assert_eq!(event["bytes_from_client"], MUCH, "{event}");
            assert_eq!(event["bytes_to_client"], MUCH, "{event}");
            assert!(["client_closed", "server_closed"].contains(&cause(event)), "{event}");
        }
    }
}

#[test]
fn half_closes_pass_through_both_ways() {
    const LENGTH: usize = 3 << 20;
    let mut bytes = vec![0; LENGTH];
    Pattern::new(3).fill(&mut bytes);
    let expected = format!("{}\n", Pattern::new(3).sum(LENGTH as u64));
    // It answers only when its input is at its end.
    let app = Server::start(&Listen::Ipv4, apps::sink).unwrap();
    let inner = Instance::before(app.address());
    let outer = before(LISTENER, inner.address(), &inner.home, "");
    for version in [&TLS12, &TLS13] {
        let (mut sender, mut receiver) =
            connect(&speaking(version, &outer.home.ca.certificate()), outer.address());
        sender.send(&bytes);
        sender.close();
        assert_eq!(String::from_utf8_lossy(&receiver.rest()), expected);
        receiver.end();
    }
    let tunnel = before(PLAIN, inner.address(), &inner.home, "");
    let mut client = tcp(tunnel.address()).unwrap();
    client.write_all(&bytes).unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    let mut got = String::new();
    client.read_to_string(&mut got).unwrap();
    assert_eq!(got, expected);
    for instance in [outer, tunnel, inner] {
        for event in instance.stop() {
            assert_eq!(event["bytes_from_client"], LENGTH, "{event}");
            assert_eq!((cause(&event), &event["fault"]), ("client_closed", &"nobody".into()), "{event}");
        }
    }
}

/// An application that sends its pattern, and tells how much it had sent when nothing was taken any more.
fn source_that_blocks(length: u64, blocked: &mpsc::Sender<u64>) -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, blocked) = (listener.local_addr().unwrap(), blocked.clone());
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_write_timeout(Some(Duration::from_secs(2))).unwrap();
        let mut bytes = vec![0; length as usize];
        Pattern::new(5).fill(&mut bytes);
        let mut sent = 0;
        while sent < bytes.len() {
            match stream.write(&bytes[sent..]) {
                Ok(n) => sent += n,
                Err(_) => {
                    let _ = blocked.send(sent as u64);
                    stream.set_write_timeout(None).unwrap();
                }
            }
        }
    });
    address
}

/// A client that does not read stops the server, and loses nothing.
#[test]
fn a_slow_client_slows_the_server_down() {
    const LENGTH: u64 = 64 << 20;
    let (blocked, hear) = mpsc::channel();
    let inner = Instance::before(source_that_blocks(LENGTH, &blocked));
    let tunnel = before(PLAIN, inner.address(), &inner.home, "");
    let mut client = tcp(tunnel.address()).unwrap();
    let sent = hear.recv_timeout(PATIENCE).expect("somebody takes all that comes");
    assert!(sent < LENGTH);
    let mut got = Vec::new();
    client.read_to_end(&mut got).unwrap();
    let mut expected = vec![0; LENGTH as usize];
    Pattern::new(5).fill(&mut expected);
    assert!(got == expected, "{} bytes", got.len());
    drop(client);
    tunnel.stop();
    inner.stop();
}

/// A client in plain text that is reset in the middle of its upload has not ended it, even if the relay hears of the
/// reset when it writes to the client, and finds the end of the stream when it reads.
#[test]
fn a_reset_is_no_end_for_the_server() {
    let home = Home::new();
    let config = Arc::new(oracle::server_config(&home.server.chain, &home.server.key).unwrap());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = format!("localhost:{}", listener.local_addr().unwrap().port());
    let (step, steps) = mpsc::channel::<()>();
    let serving = std::thread::spawn(move || {
        let (socket, _) = listener.accept().unwrap();
        let mut tls = StreamOwned::new(ServerConnection::new(config).unwrap(), socket);
        tls.write_all(b"hello").unwrap();
        tls.flush().unwrap();
        steps.recv().unwrap();
        tls.write_all(b"are you there?").unwrap();
        tls.flush().unwrap();
        steps.recv().unwrap();
        io::copy(&mut tls, &mut io::sink())
    });
    let ca = home.ca.certificate();
    let tunnel = Home::new().run(&format!(
        "workers = 1\n{PLAIN}[[route]]\nbackend = \"app\"\n[backend.app]\nservers = \"{server}\"\n\
         tls = {{ verify = \"{}\" }}\n",
        ca.display()
    ));
    let mut client = TcpStream::connect(tunnel.address()).unwrap();
    // What it does not read makes its close a reset.
    client.peek(&mut [0; 5]).unwrap();
    client.set_write_timeout(Some(Duration::from_secs(1))).unwrap();
    let upload = vec![7; 1 << 20];
    while client.write(&upload).is_ok() {}
    let asleep = || {
        tunnel.until("the worker has nothing to do", || sleeps(&tunnel).then_some(()));
        waits(&tunnel)
    };
    asleep();
    drop(client);
    let before = asleep();
    step.send(()).unwrap();
    tunnel.until("the worker has heard of it", || {
        (waits(&tunnel) > before || !tunnel.events().is_empty()).then_some(())
    });
    asleep();
    step.send(()).unwrap();
    let taken = serving.join().unwrap();
    assert!(taken.is_err(), "the server takes {taken:?} bytes for all that the client had to say");
    let event = tunnel.events_of(1).remove(0);
    assert_eq!(cause(&event), "client_reset", "{event}");
    tunnel.stop();
}

/// A Redis with TLS of its own that asks clients for certificates (`yes`) or does not (`no`), and its port.
fn redis(home: &Home, clients: &str) -> (Process, u16) {
    let port = free_port();
    let mut command = Command::new(require("redis-server", "redis-server"));
    command.args(["--port", "0", "--save", "", "--appendonly", "no", "--tls-port", &port.to_string()]);
    command.args(["--bind", "127.0.0.1", "--tls-cert-file"]).arg(&home.server.chain);
    command.arg("--tls-key-file").arg(&home.server.key).arg("--tls-ca-cert-file").arg(home.ca.certificate());
    command.args(["--tls-auth-clients", clients, "--dir"]).arg(home.path());
    let redis = Process::start(command, LIFE).unwrap();
    redis.wait_for(&Ready::Tcp(([127, 0, 0, 1], port).into()), PATIENCE).unwrap();
    (redis, port)
}

/// Redis with certificates of clients, asked over TLS and in plain text.
#[test]
fn redis_speaks_tls() {
    let home = Home::new();
    let (_redis, port) = redis(&home, "yes");
    let own = home.ca.issue("own", &offramp_testkit::ca::Leaf::client("relay", &[])).unwrap();
    let own = format!(", cert = \"{}\", key = \"{}\"", own.chain.display(), own.key.display());
    let server = format!("localhost:{port}");

    let outer = before(LISTENER, &server, &home, &own);
    let cli = |instance: &Instance, tls: bool, arguments: &[&str], input: &[u8]| {
        let mut command = Command::new(require("redis-cli", "redis-tools"));
        let address = instance.address();
        command.args(["-h", &address.ip().to_string(), "-p", &address.port().to_string()]);
        if tls {
            command.args(["--tls", "--sni", "localhost", "--cacert"]).arg(instance.home.ca.certificate());
        }
        let output = ask(
            {
                command.args(arguments);
                command
            },
            input,
            Duration::from_secs(60),
        );
        assert!(output.status.success(), "{output:?}\n{}", instance.process.transcript());
        String::from_utf8(output.stdout).unwrap()
    };
    let commands: String = (0..20_000).map(|n| format!("SET key:{n} value:{n}\r\n")).collect();
    let said = cli(&outer, true, &["--pipe"], commands.as_bytes());
    assert!(said.contains("errors: 0, replies: 20000"), "{said}");
    let value: Vec<u8> = (0..5 << 20).map(|at: u32| b'a' + (at % 25) as u8).collect();
    assert_eq!(cli(&outer, true, &["-x", "SET", "large"], &value), "OK\n");

    let tunnel = before(PLAIN, &server, &home, &own);
    assert_eq!(cli(&tunnel, false, &["GET", "key:19999"], b""), "value:19999\n");
    assert_eq!(cli(&tunnel, false, &["GET", "large"], b"").trim_end().as_bytes(), value);
    for instance in [outer, tunnel] {
        for event in instance.stop() {
            assert!(["client_closed", "client_vanished"].contains(&cause(&event)), "{event}");
        }
    }

    // Without a certificate of its own the relay is refused, by an alert behind the handshake of TLS 1.3.
    let bare = before(PLAIN, &server, &home, "");
    let mut client = tcp(bare.address()).unwrap();
    let _ = client.write_all(b"PING\r\n");
    let _ = client.read_to_end(&mut Vec::new());
    let event = bare.events_of(1).remove(0);
    assert_eq!((cause(&event), &event["fault"]), ("server_alert", &"server".into()), "{event}");
    bare.stop();
}

/// `openssl s_server` in a conversation.
fn s_server(home: &Home, arguments: &[&str]) -> (Conversation, u16) {
    let port = free_port();
    let mut command = Command::new(require("openssl", "openssl"));
    command.args(["s_server", "-accept", &format!("127.0.0.1:{port}"), "-cert"]).arg(&home.server.cert);
    command.arg("-key").arg(&home.server.key).args(arguments);
    let mut server = Conversation::start(command);
    server.hear("ACCEPT");
    (server, port)
}

/// The server changes its keys, and asks for ours to be changed.
#[test]
fn openssl_updates_keys_towards_the_relay() {
    let home = Home::new();
    let (mut server, port) = s_server(&home, &["-tls1_3", "-msg"]);
    let tunnel = before(PLAIN, format!("localhost:{port}"), &home, "");
    let mut client = tcp(tunnel.address()).unwrap();
    let mut line = [0; 64];
    client.write_all(b"from the client\n").unwrap();
    server.hear("from the client");
    for (at, command) in ["k", "K", "K", "k", "K"].into_iter().enumerate() {
        server.say(&format!("{command}\n"));
        server.hear_times(">>> TLS 1.3, Handshake [length 0005], KeyUpdate", at + 1);
        let said = format!("behind update {at}\n");
        server.say(&said);
        client.read_exact(&mut line[..said.len()]).unwrap();
        assert_eq!(&line[..said.len()], said.as_bytes());
        client.write_all(format!("answer {at}\n").as_bytes()).unwrap();
        server.hear(&format!("answer {at}"));
    }
    drop(client);
    server.hear("shutting down SSL");
    let heard = server.heard();
    let updates =
        |from: &str| heard.lines().filter(|l| l.starts_with(from) && l.ends_with(", KeyUpdate")).count();
    assert_eq!((updates(">>>"), updates("<<<")), (5, 3), "{heard}");
    let event = tunnel.events_of(1).remove(0);
    assert_eq!(cause(&event), "client_closed", "{event}");
    tunnel.stop();
}

/// The second connection is resumed, as the server says.
#[test]
fn openssl_sees_sessions_resumed() {
    for version in ["-tls1_3", "-tls1_2"] {
        let home = Home::new();
        let (server, port) = s_server(&home, &[version, "-www"]);
        let tunnel = before(PLAIN, format!("localhost:{port}"), &home, "");
        let page = || {
            let mut client = tcp(tunnel.address()).unwrap();
            client.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
            let mut page = String::new();
            client.read_to_string(&mut page).unwrap();
            page
        };
        let first = page();
        assert!(first.contains("\nNew, TLSv1"), "{first}");
        let second = page();
        assert!(second.contains("\nReused, TLSv1"), "{version}: {second}");
        tunnel.stop();
        drop(server);
    }
}

/// Each failure has its cause, is the server's fault, and leaves the client with nothing.
#[test]
fn servers_fail_in_the_handshake() {
    let home = Home::new();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let resets = Server::start(&Listen::Ipv4, faults::reset).unwrap();
    let closes = Server::start(&Listen::Ipv4, faults::close_in_the_middle(b"")).unwrap();
    let alerts =
        Server::start(&Listen::Ipv4, faults::close_in_the_middle(b"\x15\x03\x03\x00\x02\x02\x28")).unwrap();
    let no_tls = Server::start(&Listen::Ipv4, faults::close_in_the_middle(b"220 mail ESMTP\r\n")).unwrap();
    let rows = [
        (silent.local_addr().unwrap().to_string(), "500ms", "connect_timeout"),
        (resets.address().to_string(), "1m", "server_reset"),
        (closes.address().to_string(), "1m", "server_handshake_failed"),
        (alerts.address().to_string(), "1m", "server_handshake_alert"),
        (no_tls.address().to_string(), "1m", "server_handshake_failed"),
    ];
    for (server, limit, expected) in rows {
        let ca = home.ca.certificate();
        let instance = Home::new().run(&format!(
            "[limits]\nconnect_timeout = \"{limit}\"\n{PLAIN}[[route]]\nbackend = \"app\"\n[backend.app]\n\
             servers = \"{server}\"\ntls = {{ verify = \"{}\", name = \"localhost\" }}\n",
            ca.display()
        ));
        let mut client = TcpStream::connect(instance.address()).unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut got = Vec::new();
        let _ = client.read_to_end(&mut got);
        assert!(got.is_empty());
        let event = instance.events_of(1).remove(0);
        assert_eq!((cause(&event), text(&event, "fault")), (expected, "server"), "{event}");
        instance.stop();
    }
}

/// A `redis-cli` that knows nothing of TLS reaches a Redis that speaks nothing else through one command.
#[test]
fn redis_is_reached_through_one_command() {
    let home = Home::new();
    let (_redis, port) = redis(&home, "no");
    let ca = home.ca.certificate().display().to_string();
    let target = format!("tls://localhost:{port}");
    let process = started(&home, &[&target, "--listen", "127.0.0.1:0", "--no-tls", "--server-ca", &ca]);
    let address: std::net::SocketAddr = said(&process, "listening").parse().unwrap();
    let cli = |arguments: &[&str], input: &[u8]| {
        let mut command = Command::new(require("redis-cli", "redis-tools"));
        command.args(["-h", "127.0.0.1", "-p", &address.port().to_string()]).args(arguments);
        let output = ask(command, input, Duration::from_secs(60));
        assert!(output.status.success(), "{output:?}\n{}", process.transcript());
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(cli(&["SET", "colour", "green"], b""), "OK\n");
    assert_eq!(cli(&["GET", "colour"], b""), "green\n");
    let commands: String = (0..5_000).map(|n| format!("SET key:{n} value:{n}\r\n")).collect();
    let piped = cli(&["--pipe"], commands.as_bytes());
    assert!(piped.contains("errors: 0, replies: 5000"), "{piped}");
    stopped(&process);
}

/// `offramp to tls://… --no-tls`: nothing but a command line.
#[test]
fn one_command_makes_a_tunnel() {
    let app = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    let inner = Instance::before(app.address());
    let ca = inner.home.ca.certificate().display().to_string();
    let target = format!("tls://localhost:{}", inner.address().port());
    let home = Home::new();
    let process = started(&home, &[&target, "--no-tls", "--listen", "127.0.0.1:0", "--server-ca", &ca]);
    let mut client = tcp(said(&process, "listening").parse().unwrap()).unwrap();
    client.write_all(b"through the tunnel\n").unwrap();
    let mut line = [0; 19];
    client.read_exact(&mut line).unwrap();
    assert_eq!(&line, b"through the tunnel\n");
    assert!(said(&process, "clients").starts_with("speak plain text"), "{}", process.transcript());
    drop(client);
    stopped(&process);
    // By the system's authorities the same server is not believed.
    let process = started(&home, &[&target, "--no-tls", "--listen", "127.0.0.1:0"]);
    let mut client = tcp(said(&process, "listening").parse().unwrap()).unwrap();
    assert_eq!(client.read_to_end(&mut Vec::new()).unwrap_or(0), 0);
    process.wait_for(&Ready::Line("server_certificate_".to_owned()), PATIENCE).unwrap();
    stopped(&process);
    let output = offramp(home.path(), &["to", "3000", "--server-name", "a"]).output().unwrap();
    assert!(String::from_utf8_lossy(&output.stderr).contains("need a TARGET that speaks TLS"), "{output:?}");
    inner.stop();
}
