//! `cancel = "clear"`: a `CancelRequest` without TLS, as libpq before version 17 sends it, ends a query of a real
//! PostgreSQL; nothing else passes in clear.

use std::io::{Read as _, Write as _};
use std::process::{Command, Stdio};

use offramp_testkit::ca::{Files, Key, Leaf};
use offramp_testkit::postgres;
use offramp_testkit::process::require;
use offramp_testkit::server::{Listen, Server, apps};

use crate::support::crowd::{tcp, until};
use crate::support::instance::{CERTIFICATE, Home, Instance, LISTENER, PATIENCE, ask, cause, text};

const CANCEL: &[u8] = b"\0\0\0\x10\x04\xd2\x16\x2e\0\0\0\x07\0\0\0\x09";
const STARTUP: &[u8] = b"\0\0\0\x12\0\x03\0\0user\0log\0\0";
const LISTENS: &str = "preamble = \"postgres\"\ncancel = \"clear\"\n";

fn run(home: Home, route: &str) -> Instance {
    home.run(&format!(
        "{CERTIFICATE}{LISTENER}{LISTENS}[limits]\nhandshake_timeout = \"20s\"\n[[route]]\n{route}\n"
    ))
}

fn psql(connection: &str) -> Command {
    let mut psql = Command::new(require("psql", "postgresql-client"));
    psql.args([connection, "--no-psqlrc", "--tuples-only", "--command"]);
    psql
}

/// Runs a long query through Offramp, and interrupts `psql` when the server is at it.
fn interrupted(instance: &Instance, server: &postgres::Server, name: &str) {
    let ca = instance.home.ca.certificate();
    let port = instance.address().port();
    let mut query = psql(&format!(
        "host=localhost hostaddr=127.0.0.1 port={port} user=log dbname={name} sslmode=verify-full sslrootcert={}",
        ca.display()
    ));
    query.arg("SELECT pg_sleep(600)").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let query = query.spawn().unwrap();
    let folder = server.socket().parent().unwrap().display().to_string();
    // Its file is called after the port.
    let socket = server.socket().extension().unwrap().to_str().unwrap().to_owned();
    let count = || {
        let mut look = psql(&format!("host={folder} port={socket} user=log dbname={name}"));
        look.arg(
            "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query LIKE '%pg_sleep(600)'",
        );
        let output = ask(look, b"", PATIENCE);
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    };
    until("the query runs", || (count() == "1").then_some(()));
    let interrupt = Command::new("kill").args(["-INT", &query.id().to_string()]).status().unwrap();
    assert!(interrupt.success());
    let output = query.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("canceling statement due to user request"), "{said}");
    until("the query has ended", || (count() == "0").then_some(()));
    let event = instance.event("that of the request", |event| cause(event) == "postgres_cancel");
    assert_eq!((text(&event, "fault"), &event["bytes_from_client"]), ("nobody", &16.into()), "{event}");
}

fn database(server: &postgres::Server) -> String {
    let url = server.database();
    url.split("log@/").nth(1).and_then(|rest| rest.split('?').next()).unwrap().to_owned()
}

#[test]
fn psql_cancels_a_query_in_clear() {
    let server = postgres::Server::start();
    let name = database(&server);
    let instance = run(Home::new(), &format!("server = \"unix:{}\"", server.socket().display()));
    interrupted(&instance, &server, &name);
    instance.stop();
}

#[test]
fn the_request_goes_by_tls_where_the_server_speaks_it() {
    let home = Home::new();
    let Files { cert, key, .. } = home.ca.issue("db", &Leaf::server(Key::P256, &["localhost"])).unwrap();
    let server = postgres::Server::start_with_tls(&cert, &key);
    let name = database(&server);
    let backend = format!(
        "backend = \"db\"\n[backend.db]\nservers = \"{}\"\n\
         tls = {{ verify = \"ca.pem\", name = \"localhost\", preamble = \"postgres\" }}",
        server.secure_address()
    );
    let instance = run(home, &backend);
    interrupted(&instance, &server, &name);
    instance.stop();
}

/// Sends this, closes, and gives what came back and the event.
fn sent(instance: &Instance, bytes: &[u8]) -> (Vec<u8>, serde_json::Value) {
    let seen = instance.events().len();
    let mut client = tcp(instance.address()).unwrap();
    client.write_all(bytes).unwrap();
    client.shutdown(std::net::Shutdown::Write).unwrap();
    let mut got = Vec::new();
    let _ = client.read_to_end(&mut got);
    (got, instance.events_of(seen + 1).pop().unwrap())
}

#[test]
fn nothing_else_passes_in_clear() {
    let app = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    let instance = run(Home::new(), &format!("server = \"{}\"", app.address()));
    let long = [&b"\0\0\0\x2c\x04\xd2\x16\x2e"[..], &[7; 36]].concat();
    let short = b"\0\0\0\x0c\x04\xd2\x16\x2e\0\0\0\x07";
    let gss = b"\0\0\0\x08\x04\xd2\x16\x30";
    for (bytes, expected) in [
        ([CANCEL, b"x"].concat(), "preamble_invalid"),
        ([CANCEL, CANCEL].concat(), "preamble_invalid"),
        (long, "preamble_invalid"),
        (short.to_vec(), "preamble_invalid"),
        (STARTUP.to_vec(), "tls_required"),
        ([CANCEL[..8].to_vec(), STARTUP.to_vec()].concat(), "preamble_invalid"),
        (CANCEL[..10].to_vec(), "handshake_abandoned"),
        ([&gss[..], CANCEL].concat(), "preamble_invalid"),
    ] {
        let (got, event) = sent(&instance, &bytes);
        assert_eq!(cause(&event), expected, "{}: {event}", bytes.escape_ascii());
        assert!(got.is_empty() || got[0] == b'E' || got[0] == b'N', "{}", got.escape_ascii());
    }
    assert_eq!(app.accepted(), 0);
    instance.stop();
}

#[test]
fn rules_of_the_route_hold_for_it() {
    let app = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    let server = format!("server = \"{}\"", app.address());
    for (route, expected) in [
        (format!("{server}\nclient_auth = {{ ca = \"ca.pem\" }}"), "tls_required"),
        (format!("{server}\ndeny = \"127.0.0.0/8\""), "address_denied"),
        (format!("{server}\nhost = \"localhost\""), "no_route"),
        // An application that does not close keeps nobody for ever, and its answer reaches nobody.
        ("server = \"127.0.0.1:1\"".to_owned(), "server_refused"),
    ] {
        let instance = run(Home::new(), &route);
        let (got, event) = sent(&instance, CANCEL);
        assert_eq!((cause(&event), &got[..]), (expected, &b""[..]), "{event}");
        instance.stop();
    }
    assert_eq!(app.accepted(), 0);
}
