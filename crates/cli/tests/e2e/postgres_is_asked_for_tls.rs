//! `preamble = "postgres"` of a backend: a real PostgreSQL with `ssl = on` is asked for TLS by `SSLRequest`, and `psql`
//! reaches it in clear, or by TLS on both sides; servers that answer with something else have a cause of their own.

use std::io::Read as _;
use std::net::{SocketAddr, TcpListener};
use std::process::Command;

use offramp_testkit::ca::{Files, Key, Leaf};
use offramp_testkit::postgres;
use offramp_testkit::process::{Source, require};
use offramp_testkit::server::{Listen, Server, faults};

use crate::support::crowd::tcp;
use crate::support::instance::{CERTIFICATE, Home, Instance, LISTENER, PATIENCE, ask, cause, text};
use crate::the_first_minutes_are_plain::{said, started, stopped};

const PLAIN: &str = "[[listener]]\naddress = \"127.0.0.1:0\"\ntls = false\n";
/// What PostgreSQL knows of the TLS of the session that asks.
const HOW: &str = "SELECT ssl, version FROM pg_stat_ssl WHERE pid = pg_backend_pid()";

/// A PostgreSQL with `ssl = on` whose certificate is for `localhost`, and the name of a database there.
fn server(home: &Home) -> (postgres::Server, String) {
    let Files { cert, key, .. } = home.ca.issue("db", &Leaf::server(Key::P256, &["localhost"])).unwrap();
    let server = postgres::Server::start_with_tls(&cert, &key);
    let url = server.database();
    let name = url.split("log@/").nth(1).and_then(|rest| rest.split('?').next()).unwrap().to_owned();
    (server, name)
}

fn psql(address: SocketAddr, connection: &str, command: &str) -> (bool, String) {
    let mut psql = Command::new(require("psql", "postgresql-client"));
    let (ip, port) = (address.ip(), address.port());
    psql.arg(format!("host=localhost hostaddr={ip} port={port} user=log connect_timeout=20 {connection}"));
    psql.args(["--no-psqlrc", "--tuples-only", "--command", command]);
    let output = ask(psql, b"", PATIENCE);
    let said = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&said).into_owned())
}

#[test]
fn psql_in_clear_reaches_a_postgresql_with_tls_by_one_command() {
    let home = Home::new();
    let (server, name) = server(&home);
    let ca = home.ca.certificate().display().to_string();
    let target = format!("postgres+tls://localhost:{}", server.secure_address().port());
    let process = started(&home, &[&target, "--listen", "127.0.0.1:0", "--no-tls", "--server-ca", &ca]);
    let address: SocketAddr = said(&process, "listening").parse().unwrap();
    let open = format!("dbname={name} sslmode=disable");
    let (ok, said) = psql(address, &open, HOW);
    assert!(ok && said.contains("t   | TLSv1.3"), "{said}\n{}", process.transcript());
    let rows = "SELECT count(*), sum(length(repeat('x', 1000))) FROM generate_series(1, 5000)";
    let (ok, said) = psql(address, &open, rows);
    assert!(ok && said.contains("5000 | 5000000"), "{said}");
    stopped(&process);
}

#[test]
fn tls_on_both_sides_and_health_checks_ask_for_it() {
    let home = Home::new();
    let (server, name) = server(&home);
    let instance = home.run(&format!(
        "{CERTIFICATE}{LISTENER}preamble = \"postgres\"\n[[route]]\nbackend = \"db\"\n[backend.db]\n\
         servers = \"{}\"\nhealth = {{ interval = \"100ms\", timeout = \"30s\" }}\n\
         tls = {{ verify = \"ca.pem\", name = \"localhost\", preamble = \"postgres\" }}\n",
        server.secure_address()
    ));
    let ca = instance.home.ca.certificate();
    let open = format!("dbname={name} sslmode=verify-full sslrootcert={}", ca.display());
    for _ in 0..5 {
        let (ok, said) = psql(instance.address(), &open, HOW);
        assert!(ok && said.contains("t   | TLSv1.3"), "{said}\n{}", instance.process.transcript());
    }
    let log = instance.process.lines(Source::Stderr);
    assert!(!log.iter().any(|line| line.contains("a server is down")), "{log:?}");
    instance.stop();
}

/// An Offramp before this server, which is asked for TLS.
fn before(server: &str, more: &str) -> Instance {
    Home::new().run(&format!(
        "{PLAIN}[[route]]\nbackend = \"db\"\n[backend.db]\n\
         servers = \"{server}\"\ntls = {{ verify = \"ca.pem\", name = \"localhost\", preamble = \"postgres\" }}\n{more}"
    ))
}

#[test]
fn what_is_no_yes_has_a_cause() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let without = postgres::Server::start();
    let answers =
        |bytes: &'static [u8]| Server::start(&Listen::Ipv4, faults::close_in_the_middle(bytes)).unwrap();
    let full = answers(b"E\0\0\0\x1fSFATAL\0C53300\0Msorry, full\0\0");
    let no_process = answers(b"Ecould not fork new process\n\0");
    let (http, closes) = (answers(b"HTTP/1.1 400 Bad Request\r\n\r\n"), answers(b""));
    // What somebody on the way has put behind the answer is no word of the server's.
    let injected = answers(b"SE\0\0\0\x1fSFATAL\0C53300\0Msorry, full\0\0");
    let rows = [
        (silent.local_addr().unwrap().to_string(), "connect_timeout", ""),
        // PostgreSQL has no TLS on its Unix socket.
        (format!("unix:{}", without.socket().display()), "server_tls_declined", "answered N"),
        (full.address().to_string(), "server_tls_declined", "error message: sorry, full"),
        (no_process.address().to_string(), "server_tls_declined", "error message: could not fork"),
        (http.address().to_string(), "server_tls_declined", "0x48, which is not PostgreSQL"),
        (closes.address().to_string(), "server_tls_declined", "closed when it was asked"),
        (injected.address().to_string(), "server_handshake_failed", ""),
    ];
    for (server, expected, detail) in rows {
        let limits =
            if expected == "connect_timeout" { "[limits]\nconnect_timeout = \"500ms\"\n" } else { "" };
        let instance = before(&server, limits);
        let mut client = tcp(instance.address()).unwrap();
        let mut got = Vec::new();
        let _ = client.read_to_end(&mut got);
        assert!(got.is_empty(), "{server}: {got:?}");
        let event = instance.events_of(1).remove(0);
        assert_eq!((cause(&event), text(&event, "fault")), (expected, "server"), "{event}");
        assert!(text(&event, "detail").contains(detail), "{event}");
        instance.stop();
    }
}

#[test]
fn a_server_without_tls_is_down_by_its_health_check() {
    let declines = Server::start(&Listen::Ipv4, faults::close_in_the_middle(b"N")).unwrap();
    let health = "health = { interval = \"50ms\", timeout = \"30s\", fall = 1 }\n";
    let instance = before(&declines.address().to_string(), health);
    let line = instance.until("the log says why the server is down", || {
        let log = instance.process.lines(Source::Stderr);
        log.into_iter().find(|line| line.contains("answered N to SSLRequest"))
    });
    assert!(line.contains("server"), "{line}");
    instance.stop();
}
