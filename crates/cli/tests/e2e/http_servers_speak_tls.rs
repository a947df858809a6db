//! TLS towards servers in mode `http`: HTTP/1.1 and HTTP/2, chosen by ALPN, with what servers do wrong, and health
//! checks.

use std::fs;
use std::net::TcpListener;
use std::process::Command;
use std::sync::Arc;

use offramp_testkit::ca::{Ca, Key, Leaf, Name, Validity};
use offramp_testkit::oracle;
use offramp_testkit::process::{Process, Ready, Source, require, temp_dir};
use offramp_testkit::server::{Listen, Server, apps};
use rustls::{ServerConnection, StreamOwned};

use crate::support::http_curl::{HTTP, get};
use crate::support::instance::{CERTIFICATE, Home, Instance, LIFE, LISTENER, PATIENCE, cause, text};

/// A Node.js server that speaks what the environment says. It tells which HTTP it was asked in, and echoes bodies.
const NODE: &str = r#"
const fs = require('fs'), http2 = require('http2'), https = require('https');
const options = { cert: fs.readFileSync(process.argv[2]), key: fs.readFileSync(process.argv[3]), allowHTTP1: true };
const make = process.argv[4] === 'h1' ? https.createServer : http2.createSecureServer;
const server = make(options, (request, response) => {
  const socket = request.stream ? request.stream.session.socket : request.socket;
  response.setHeader('x-version', request.httpVersion);
  response.setHeader('x-reused', String(socket.isSessionReused()));
  response.setHeader('x-host', request.headers[':authority'] || request.headers.host || '');
  response.setHeader('x-scheme', request.headers[':scheme'] || '');
  response.setHeader('x-name', String(socket.servername));
  response.setHeader('x-port', String(socket.remotePort));
  if (request.method === 'GET') return response.end('x'.repeat(Number(request.url.slice(1)) || 0));
  request.pipe(response);
});
server.on('upgrade', (request, socket) => {
  socket.write('HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n');
  socket.pipe(socket);
});
server.listen(0, '127.0.0.1', () => console.log('PORT ' + server.address().port));
"#;

/// The server, and where it is.
fn node(home: &Home, kind: &str) -> (Process, String) {
    fs::write(home.file("app.cjs"), NODE).unwrap();
    let mut node = Command::new(require("node", "nodejs"));
    node.arg("app.cjs").arg(&home.server.chain).arg(&home.server.key).arg(kind).current_dir(home.path());
    let app = Process::start(node, LIFE).unwrap();
    app.wait_for(&Ready::Line("PORT ".to_owned()), PATIENCE).unwrap();
    let port =
        app.lines(Source::Stdout).iter().find_map(|line| line.strip_prefix("PORT ").map(str::to_owned));
    (app, format!("localhost:{}", port.unwrap()))
}

/// An Offramp whose backend has these lines beside its servers.
fn instance(home: &Home, server: &str, protocol: &str, more: &str) -> Instance {
    let ca = home.ca.certificate();
    Home::new().run(&format!(
        "workers = 1\n{CERTIFICATE}{HTTP}[[route]]\nbackend = \"app\"\n[backend.app]\nservers = \"{server}\"\n\
         protocol = \"{protocol}\"\ntls = {{ verify = \"{}\" }}\n{more}",
        ca.display()
    ))
}

#[test]
fn protocols_are_chosen_by_alpn() {
    let home = Home::new();
    for (kind, protocol, version) in [
        ("h2", "auto", "2.0"),
        ("h1", "auto", "1.1"),
        ("h2", "h1", "1.1"),
        ("h2", "h2", "2.0"),
        ("h1", "h1", "1.1"),
    ] {
        let (_app, server) = node(&home, kind);
        let instance = instance(&home, &server, protocol, "");
        let what = format!("{kind} {protocol}");
        let mut ports = Vec::new();
        for size in [0_usize, 10, 20_000, 5_000_000] {
            let answer = get(&instance, &["--http1.1"], &format!("https://a.example.org/{size}"));
            assert_eq!((answer.status(), answer.body.len()), (200, size), "{what}: {answer:?}");
            assert_eq!((answer.field("x-version"), answer.field("x-name")), (version, "localhost"), "{what}");
            assert!(answer.field("x-host").starts_with("a.example.org"), "{what}: {answer:?}");
            if version == "2.0" {
                assert_eq!(answer.field("x-scheme"), "https", "{what}");
            }
            ports.push(answer.field("x-port").to_owned());
        }
        ports.dedup();
        assert_eq!(ports.len(), 1, "{what}: connections are kept: {ports:?}");
        let body = home.file("body");
        fs::write(&body, vec![b'y'; 3_000_000]).unwrap();
        for http in ["--http1.1", "--http2"] {
            let upload = format!("@{}", body.display());
            let answer = get(&instance, &[http, "--data-binary", &upload], "https://a.example.org/echo");
            assert_eq!((answer.status(), answer.body.len()), (200, 3_000_000), "{what}: {}", answer.said);
            assert_eq!(answer.field("x-version"), version, "{what}");
            let chunked = ["-H", "Transfer-Encoding: chunked", "-T", body.to_str().unwrap()];
            let answer = get(&instance, &[&[http], &chunked[..]].concat(), "https://a.example.org/echo");
            assert_eq!((answer.status(), answer.body.len()), (200, 3_000_000), "{what}: {}", answer.said);
        }
        for event in instance.stop() {
            assert_eq!(cause(&event), "completed", "{what}: {event}");
        }
    }
}

/// What a route sets is the host for every server, whatever the client asked for, and by whichever version.
#[test]
fn a_host_that_a_route_sets_reaches_every_server() {
    let home = Home::new();
    for (kind, protocol) in [("h2", "h2"), ("h2", "auto"), ("h1", "h1")] {
        let (_app, server) = node(&home, kind);
        let ca = home.ca.certificate();
        let instance = Home::new().run(&format!(
            "workers = 1\n{CERTIFICATE}{HTTP}[[route]]\nbackend = \"app\"\n\
             request_headers = {{ set = {{ Host = \"inside.test\" }} }}\n[backend.app]\nservers = \"{server}\"\n\
             protocol = \"{protocol}\"\ntls = {{ verify = \"{}\" }}\n",
            ca.display()
        ));
        for http in ["--http1.1", "--http2"] {
            let answer = get(&instance, &[http], "https://a.example.org/");
            let what = format!("{http} {kind} {protocol}");
            assert_eq!((answer.status(), answer.field("x-host")), (200, "inside.test"), "{what}: {answer:?}");
        }
        instance.stop();
    }
}

/// A server is told by close_notify that a connection was idle for too long, and needs not log a cut.
#[test]
fn idle_connections_end_in_order() {
    use std::io::{Read as _, Write as _};
    let home = Home::new();
    let config = Arc::new(oracle::server_config(&home.server.chain, &home.server.key).unwrap());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = format!("localhost:{}", listener.local_addr().unwrap().port());
    let serving = std::thread::spawn(move || {
        let (socket, _) = listener.accept().unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut tls = StreamOwned::new(ServerConnection::new(config).unwrap(), socket);
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            tls.read_exact(&mut byte).unwrap();
            head.push(byte[0]);
        }
        tls.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nhi\n").unwrap();
        tls.flush().unwrap();
        // What would be a cut is an error.
        tls.read(&mut [0])
    });
    let instance = instance(&home, &server, "h1", "idle_timeout = \"100ms\"\n");
    assert_eq!(get(&instance, &[], "https://a.example.org/").text(), "hi\n");
    assert_eq!(serving.join().unwrap().unwrap(), 0);
    instance.stop();
}

/// Upgrades go over HTTP/1.1, whatever else the server would choose.
#[test]
fn another_protocol_runs_within_tls() {
    use std::io::{Read as _, Write as _};
    let home = Home::new();
    let (_app, server) = node(&home, "h1");
    let instance = instance(&home, &server, "auto", "");
    let config = crate::support::crowd::trusting(&instance.home.ca.certificate());
    let mut tls = crate::support::crowd::connect(&config, instance.address(), "a.example.org").unwrap();
    tls.write_all(
        b"GET / HTTP/1.1\r\nHost: a.example.org\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
    )
    .unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        tls.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    assert!(head.starts_with(b"HTTP/1.1 101"), "{}", String::from_utf8_lossy(&head));
    let data: Vec<u8> = (0..300_000_u32).map(|at| at as u8).collect();
    for part in data.chunks(30_000) {
        tls.write_all(part).unwrap();
        let mut back = vec![0; part.len()];
        tls.read_exact(&mut back).unwrap();
        assert!(back == part);
    }
    drop(tls);
    instance.stop();
}

/// Certificates that must not be believed, one backend each; the last has a good server behind a bad one.
#[test]
fn bad_certificates_are_refused_with_their_cause() {
    let home = Home::new();
    let (elsewhere, unknown) = (temp_dir(), temp_dir());
    let strange = Ca::new(elsewhere.path()).unwrap();
    let unknown = Ca::named(unknown.path(), "nobody knows it").unwrap();
    let good = Leaf::server(Key::P256, &["localhost"]);
    let expired = Leaf { validity: Validity::Expired, ..good.clone() };
    let not_yet = Leaf { validity: Validity::NotYet, ..good.clone() };
    let other = Leaf::server(Key::P256, &["other.test"]);
    let clients = Leaf::client("c", &[Name::Dns("localhost".into())]);
    let rows = [
        ("expired", home.ca.issue("expired", &expired), "server_certificate_expired"),
        ("notyet", home.ca.issue("notyet", &not_yet), "server_certificate_not_yet_valid"),
        ("name", home.ca.issue("name", &other), "server_certificate_wrong_name"),
        ("purpose", home.ca.issue("purpose", &clients), "server_certificate_wrong_purpose"),
        // Two authorities of the tests have one name and two keys.
        ("strange", strange.issue("strange", &good), "server_certificate_invalid"),
        ("unknown", unknown.issue("unknown", &good), "server_certificate_untrusted"),
        ("pinned", home.ca.issue("pinned", &good), "server_certificate_not_pinned"),
    ];
    let app = Server::start(&Listen::Ipv4, apps::http).unwrap();
    // Each is an Offramp of its own before the application.
    let serve = |files: &offramp_testkit::ca::Files| {
        let pair = format!(
            "[[certificate]]\ncert = \"{}\"\nkey = \"{}\"\n",
            files.chain.display(),
            files.key.display()
        );
        Home::new().run(&format!("{pair}{LISTENER}[[route]]\nserver = \"{}\"\n", app.address()))
    };
    let ca = home.ca.certificate();
    let tls = format!("tls = {{ verify = \"{}\", name = \"localhost\" }}\n", ca.display());
    let mut text_of = format!("{CERTIFICATE}{HTTP}");
    let mut inner = Vec::new();
    let backend = |name: &str, server: &Instance, tls: &str| {
        format!(
            "[[route]]\nhost = \"{name}.example.org\"\nbackend = \"{name}\"\n[backend.{name}]\nservers = \"{}\"\n{tls}",
            server.address()
        )
    };
    for (name, files, _) in &rows {
        let server = serve(files.as_ref().unwrap());
        // The hash of no bytes, which no key has.
        let no_key = "tls = { pin = \"sha256/47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=\" }\n";
        text_of.push_str(&backend(name, &server, if *name == "pinned" { no_key } else { &tls }));
        inner.push(server);
    }
    // With a pin the key alone counts.
    let pin = crate::support::client_pki::pin(home.path(), "expired.pem");
    text_of.push_str(&backend("right", &inner[0], &format!("tls = {{ pin = \"sha256/{pin}\" }}\n")));
    let sound = serve(&home.server);
    let pair = [inner[0].address().to_string(), sound.address().to_string()];
    text_of.push_str(&format!(
        "[[route]]\nhost = \"two.example.org\"\nbackend = \"two\"\n[backend.two]\nservers = {pair:?}\n{tls}"
    ));
    let instance = Home::new().run(&text_of);
    for (name, _, expected) in &rows {
        let answer = get(&instance, &[], &format!("https://{name}.example.org/"));
        assert_eq!(answer.status(), 502, "{name}: {answer:?}");
        let event = instance.event(name, |event| text(event, "host").starts_with(name));
        let said = (cause(&event), text(&event, "fault"));
        assert_eq!(said, (*expected, "server"), "{name}: {event}");
        assert!(text(&event, "detail").contains("certificate"), "{event}");
    }
    for _ in 0..4 {
        assert_eq!(get(&instance, &[], "https://two.example.org/x").text(), "hello /x\n");
    }
    assert_eq!(get(&instance, &[], "https://right.example.org/x").text(), "hello /x\n");
    instance.stop();
    for server in inner.into_iter().chain([sound]) {
        server.stop();
    }
}

/// Checks speak TLS: a server with a bad certificate is down, with the reason in the log; a good one is up.
#[test]
fn health_checks_speak_tls() {
    let home = Home::new();
    let (_app, server) = node(&home, "h2");
    let health = "health = { path = \"/5\", interval = \"50ms\", timeout = \"1m\", fall = 1, rise = 1 }\n";
    for protocol in ["h1", "h2", "auto"] {
        let instance = instance(&home, &server, protocol, health);
        assert_eq!(get(&instance, &[], "https://a.example.org/7").status(), 200, "{protocol}");
        let log = instance.process.lines(Source::Stderr);
        assert!(!log.iter().any(|line| line.contains("is down")), "{log:?}");
        instance.stop();
    }
    let strange = Home::new();
    let instance = instance(&strange, &server, "auto", health);
    instance.until("a server is down", || {
        let log = instance.process.lines(Source::Stderr);
        log.iter().any(|line| line.contains("a server is down") && line.contains("certificate")).then_some(())
    });
    assert_eq!(get(&instance, &[], "https://a.example.org/7").status(), 503);
    instance.stop();
}
