//! `preamble = "postgres"`: clients of PostgreSQL ask for TLS before it begins; what else may come first, and what
//! is refused. The examples of `docs/how-to/postgresql.md` serve a real PostgreSQL.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;

use offramp_testkit::postgres;
use offramp_testkit::process::require;
use offramp_testkit::server::{Listen, Server, apps};

use crate::support::crowd::{Tls, offering, secure, tcp, trusting};
use crate::support::instance::{CERTIFICATE, Home, Instance, LISTENER, PATIENCE, ask, cause, text};

const SSL_REQUEST: &[u8] = b"\0\0\0\x08\x04\xd2\x16\x2f";
const GSS_REQUEST: &[u8] = b"\0\0\0\x08\x04\xd2\x16\x30";
const CANCEL_REQUEST: &[u8] = b"\0\0\0\x10\x04\xd2\x16\x2e\0\0\0\x07\0\0\0\x09";
const STARTUP: &[u8] = b"\0\0\0\x12\0\x03\0\0user\0log\0\0";

/// An Offramp that asks for the preamble, before this server.
fn instance(server: &str) -> Instance {
    Home::new().run(&format!(
        "{CERTIFICATE}{LISTENER}preamble = \"postgres\"\n[limits]\nhandshake_timeout = \"20s\"\n\
         [[route]]\nserver = \"{server}\"\n"
    ))
}

/// The page's configuration, on a free port, before a real PostgreSQL; and its commands.
fn documented(server: &Path) -> (Instance, Vec<String>) {
    let page = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/how-to/postgresql.md");
    let page = fs::read_to_string(page).unwrap();
    let block = |kind: &str| {
        let from = page.split(&format!("```{kind}\n")).nth(1).unwrap();
        from.split("```").next().unwrap().to_owned()
    };
    let text = block("toml")
        .replace("[::]:5432", "127.0.0.1:0")
        .replace("/etc/offramp/db.example.org.pem", "server.chain.pem")
        .replace("/etc/offramp/db.example.org.key", "server.key")
        .replace("/run/postgresql/.s.PGSQL.5432", server.to_str().unwrap());
    assert!(!text.contains("/etc/") && !text.contains("/run/postgresql"), "{text}");
    let commands = block("sh").lines().filter(|line| line.starts_with("psql ")).map(str::to_owned).collect();
    (Home::new().run(&text), commands)
}

/// psql with this connection string, as the page has it but for names of this machine.
fn psql(instance: &Instance, connection: &str, command: &str) -> (bool, String) {
    let mut psql = Command::new(require("psql", "postgresql-client"));
    let port = instance.address().port();
    psql.arg(format!("{connection} hostaddr=127.0.0.1 port={port} connect_timeout=20"));
    psql.args(["--no-psqlrc", "--tuples-only", "--command", command]).current_dir(instance.home.path());
    psql.env("HOME", instance.home.path());
    let output = ask(psql, b"", PATIENCE);
    let said = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&said).into_owned())
}

#[test]
fn psql_reaches_a_real_postgresql_as_the_page_says() {
    let server = postgres::Server::start();
    let url = server.database();
    let name = url.split("log@/").nth(1).and_then(|rest| rest.split('?').next()).unwrap();
    let (instance, commands) = documented(&server.socket());
    assert!(commands.len() >= 2, "{commands:?}");
    for command in &commands {
        let connection = command.split('"').nth(1).unwrap();
        let connection = connection
            .replace("host=db.example.org", "host=localhost")
            .replace("dbname=app", &format!("dbname={name}"))
            .replace("user=app", "user=log")
            .replace(
                "sslrootcert=ca.pem",
                &format!("sslrootcert={}", instance.home.ca.certificate().display()),
            );
        let (ok, said) = psql(&instance, &connection, "\\conninfo");
        assert!(ok && said.contains("SSL connection (protocol: TLSv1.3"), "{connection}: {said}");
        let rows = "SELECT count(*), sum(length(repeat('x', 1000))) FROM generate_series(1, 5000)";
        let (ok, said) = psql(&instance, &connection, rows);
        assert!(ok && said.contains("5000 | 5000000"), "{said}");
    }
    // Bulk, both ways.
    let open = format!("host=localhost dbname={name} user=log sslmode=require");
    let (ok, said) = psql(
        &instance,
        &open,
        "CREATE TABLE t AS SELECT repeat('y', 900) AS v FROM generate_series(1, 20000)",
    );
    assert!(ok, "{said}");
    let (ok, said) = psql(&instance, &open, "SELECT v FROM t");
    assert!(ok && said.matches("yyyy ").count() + said.matches("yyyy\n").count() >= 20_000, "{}", said.len());

    let wrong_name = format!(
        "host=other.test dbname={name} user=log sslmode=verify-full sslrootcert={}",
        instance.home.ca.certificate().display()
    );
    let (ok, said) = psql(&instance, &wrong_name, "SELECT 1");
    assert!(!ok && said.contains("does not match host name"), "{said}");
    let (ok, said) =
        psql(&instance, &format!("host=localhost dbname={name} user=log sslmode=disable"), "SELECT 1");
    assert!(!ok && said.contains("FATAL:  TLS is required"), "{said}");
    // The server does not know of the certificate, so that nothing can be bound to it; the page says so.
    let (ok, said) = psql(&instance, &format!("{open} channel_binding=require"), "SELECT 1");
    assert!(!ok && said.contains("channel binding"), "{said}");
    let events = instance.stop();
    assert!(events.iter().any(|event| cause(event) == "tls_required" && event["fault"] == "policy"));
    assert!(
        events
            .iter()
            .any(|event| text(event, "tls_version") == "TLSv1.3" && cause(event).ends_with("closed"))
    );
}

/// A session over TLS that was begun in this way; the server must greet it.
fn session(mut tls: Tls) {
    tls.write_all(STARTUP).unwrap();
    let mut answer = [0; 1];
    tls.read_exact(&mut answer).unwrap();
    // `AuthenticationOk`, or an error of the server's own, of which the database is missing.
    assert!(matches!(answer[0], b'R' | b'E'), "{answer:?}");
}

#[test]
fn clients_ask_byte_by_byte_decline_gssapi_or_begin_with_tls() {
    let server = postgres::Server::start();
    let instance = instance(&format!("unix:{}", server.socket().display()));
    let ca = instance.home.ca.certificate();
    let hear = |stream: &mut TcpStream| {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        byte[0]
    };

    let mut slow = tcp(instance.address()).unwrap();
    for byte in SSL_REQUEST {
        slow.write_all(&[*byte]).unwrap();
    }
    assert_eq!(hear(&mut slow), b'S');
    session(secure(&trusting(&ca), slow, "localhost").unwrap());

    let mut gss = tcp(instance.address()).unwrap();
    gss.write_all(GSS_REQUEST).unwrap();
    assert_eq!(hear(&mut gss), b'N');
    gss.write_all(SSL_REQUEST).unwrap();
    assert_eq!(hear(&mut gss), b'S');
    session(secure(&trusting(&ca), gss, "localhost").unwrap());

    // As clients since version 17 with sslnegotiation=direct.
    let direct = offering(&trusting(&ca), &["postgresql"]);
    let tls = secure(&direct, tcp(instance.address()).unwrap(), "localhost").unwrap();
    assert_eq!(tls.conn.alpn_protocol(), Some(&b"postgresql"[..]));
    session(tls);
    instance.events_of(3);
    // Without its protocol, and with that of a browser.
    for config in [trusting(&ca), offering(&trusting(&ca), &["h2", "http/1.1"])] {
        assert!(secure(&config, tcp(instance.address()).unwrap(), "localhost").is_err());
    }
    for event in instance.stop().iter().skip(3) {
        let told = (cause(event), text(event, "alert_sent"));
        assert_eq!(told, ("no_common_alpn", "no_application_protocol"), "{event}");
    }
}

#[test]
fn what_is_in_clear_is_refused() {
    let app = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    let instance = instance(&app.address().to_string());
    let twice = [GSS_REQUEST, SSL_REQUEST].concat();
    let injected = [SSL_REQUEST, STARTUP].concat();
    let hello = [SSL_REQUEST, b"\x16\x03\x01\x02\x00"].concat();
    let cases: [(&[u8], &str, &str); 9] = [
        (STARTUP, "tls_required", "C28000\0MTLS is required"),
        (CANCEL_REQUEST, "tls_required", ""),
        (&injected, "preamble_invalid", "C08P01\0Mbytes in clear"),
        (&hello, "preamble_invalid", "C08P01\0Mbytes in clear"),
        (&twice, "preamble_invalid", "C08P01\0Mbytes in clear"),
        (b"\0\0\0\x07\x04\xd2\x16", "preamble_invalid", "C08P01\0Ma first packet of 7 bytes"),
        (b"\0\0\0\x08\0\0\0\0", "preamble_invalid", "C08P01\0Mthe first packet has the unknown code 0"),
        (b"GET / HTTP/1.1\r\n\r\n", "plain_http", "HTTP/1.1 400"),
        (b"EHLO a.test\r\n", "not_tls", ""),
    ];
    for (at, (bytes, expected, answer)) in cases.into_iter().enumerate() {
        let mut stream = tcp(instance.address()).unwrap();
        stream.write_all(bytes).unwrap();
        let mut said = Vec::new();
        // A reset may follow the last words.
        let _ = stream.read_to_end(&mut said);
        let said = String::from_utf8_lossy(&said).into_owned();
        assert!(said.contains(answer) && (!answer.is_empty() || !said.contains('C')), "{expected}: {said:?}");
        let event = instance.events_of(at + 1).pop().unwrap();
        assert_eq!(cause(&event), expected, "{event}");
    }
    assert_eq!(app.accepted(), 0, "no server hears of them");
    instance.stop();
}

#[test]
fn a_client_that_does_not_go_on_is_let_go() {
    let app = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    let instance = Home::new().run(&format!(
        "{CERTIFICATE}{LISTENER}preamble = \"postgres\"\n[limits]\nhandshake_timeout = \"3s\"\n\
         [[route]]\nserver = \"{}\"\n",
        app.address()
    ));
    for bytes in [&SSL_REQUEST[..5], GSS_REQUEST, SSL_REQUEST] {
        let mut stream = tcp(instance.address()).unwrap();
        stream.write_all(bytes).unwrap();
        let mut said = Vec::new();
        let _ = stream.read_to_end(&mut said);
        assert_eq!(said.len(), bytes.len() / 8);
    }
    drop(tcp(instance.address()).unwrap());
    let causes: Vec<_> = instance.stop().iter().map(|event| cause(event).to_owned()).collect();
    assert_eq!(causes, ["handshake_timeout", "handshake_timeout", "handshake_timeout", "client_silent"]);
}
