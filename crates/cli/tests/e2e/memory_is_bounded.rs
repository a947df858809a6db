//! A process that holds as much memory as it may: new connections wait and are served later, those that are open go on, and
//! the log and the metrics say it.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use offramp_testkit::process::{Signal, Source};
use offramp_testkit::server::{Listen, Server, apps};

use crate::support::crowd::{connect, get, tcp, trusting, until};
use crate::support::figures::{Page, peak_resident, resident};
use crate::support::http_curl::PLAIN;
use crate::support::instance::Home;

/// Less than any process holds, and more than any.
const LITTLE: &str = "process_memory = \"8MiB\"\n";
const MUCH: &str = "process_memory = \"1024GiB\"\n";

#[test]
fn new_connections_wait_until_there_is_memory() {
    let app = Server::start(&Listen::Ipv4, apps::http).unwrap();
    let text = |limit: &str| {
        let limits = format!("workers = 1\n[limits]\nhandshake_timeout = \"5m\"\n{limit}");
        format!("{limits}[metrics]\naddress = \"127.0.0.1:0\"\n{}", Home::one_route(app.address()))
    };
    let instance = Home::new().run(&text(MUCH));
    let address = instance.address();
    let config = trusting(&instance.home.ca.certificate());
    let mut kept = connect(&config, address, "localhost").unwrap();
    assert_eq!(get(&mut kept, "/x").unwrap(), "hello /x\n");

    let reload = |limit: &str| {
        instance.home.configure(&text(limit));
        instance.process.signal(Signal::HUP).unwrap();
    };
    let lines = |what: &str| {
        let lines = instance.process.lines(Source::Stderr);
        lines.into_iter().filter(|line| line.contains(what)).collect::<Vec<_>>()
    };
    reload(LITTLE);
    until("a warning", || lines("as much memory as it may").first().cloned());
    let waiting = thread::spawn(move || {
        let mut next = connect(&config, address, "localhost").unwrap();
        get(&mut next, "/z").unwrap()
    });
    let page = || Page::scrape(instance.metrics());
    until("a pause", || {
        (page().get("offramp_accept_pauses_total{reason=\"process_memory\"}") >= 2.0).then_some(())
    });
    assert!(!waiting.is_finished(), "it was accepted");
    assert_eq!(page().get("offramp_limit{limit=\"process_memory\"}"), f64::from(8 << 20));
    assert_eq!(get(&mut kept, "/y").unwrap(), "hello /y\n");
    let said = lines("accepting pauses");
    assert!(said.len() == 1 && said[0].contains("limits.process_memory"), "{said:?}");

    reload(MUCH);
    assert_eq!(waiting.join().unwrap(), "hello /z\n");
    until("the end of it", || lines("less memory than it may").first().cloned());
}

/// The head of the response to a client that takes gzip.
fn head(client: &mut TcpStream) -> String {
    client.write_all(b"GET / HTTP/1.1\r\nHost: x\r\nAccept-Encoding: gzip\r\n\r\n").unwrap();
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        client.read_exact(&mut byte).unwrap();
        head.extend_from_slice(&byte);
    }
    String::from_utf8(head).unwrap().to_ascii_lowercase()
}

#[test]
fn responses_are_not_compressed_while_there_is_no_memory() {
    let text = |limit: &str| {
        format!(
            "workers = 1\n[limits]\n{limit}[[listener]]\naddress = \"127.0.0.1:0\"\nmode = \"http\"\ntls = false\n\
             [[route]]\ncompress = true\nrespond = {{ body = \"{}\" }}\n",
            "much of the same ".repeat(1000)
        )
    };
    let instance = Home::new().run(&text(MUCH));
    let [mut before, mut meanwhile, mut after] = [(); 3].map(|()| tcp(instance.address()).unwrap());
    // All of them are accepted when the last one is answered.
    assert!(head(&mut before).contains("content-encoding: gzip"));
    assert_eq!(get(&mut after, "/").unwrap().len(), 17_000);
    let reload = |limit: &str, says: &str| {
        instance.home.configure(&text(limit));
        instance.process.signal(Signal::HUP).unwrap();
        until(says, || {
            instance.process.lines(Source::Stderr).iter().any(|line| line.contains(says)).then_some(())
        });
    };
    reload(LITTLE, "as much memory as it may");
    let said = head(&mut meanwhile);
    assert!(!said.contains("content-encoding") && said.contains("content-length: 17000"), "{said}");
    reload(MUCH, "less memory than it may");
    assert!(head(&mut after).contains("content-encoding: gzip"));
    instance.stop();
}

/// The status of a request by a client of this address with name and password, through a trusted proxy.
pub(crate) fn log_in(address: SocketAddr, client: &str, credentials: &str) -> String {
    let credentials = STANDARD.encode(credentials);
    let request = format!(
        "GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: {client}\r\nAuthorization: Basic {credentials}\r\n\
         Connection: close\r\n\r\n"
    );
    let mut stream = tcp(address).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    response.split(' ').nth(1).unwrap_or_default().to_owned()
}

#[test]
fn a_hundred_wrong_passwords_leave_no_memory_behind() {
    /// What two checks hold at a time, of 19 MiB each.
    const CHECKS: u64 = 2 * (19 << 20);
    /// Stacks and heaps of the threads and connections, and code that was not paged in before.
    const SLACK: u64 = 20 << 20;
    let home = Home::new();
    // With the memory of a new hash and half of its passes.
    let salt_and_tag = "c29tZXNhbHQ$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
    fs::write(home.file("users"), format!("anna:$argon2id$v=19$m=19456,t=1,p=1${salt_and_tag}\n")).unwrap();
    let instance = home.run(&format!(
        "{PLAIN}trusted_proxies = [\"127.0.0.1\"]\n[[route]]\nrespond = {{ body = \"in\" }}\n\
         basic_auth = \"users\"\n"
    ));
    let (address, process) = (instance.address_of("plain"), instance.process.id());
    let before = peak_resident(process);
    thread::scope(|scope| {
        for client in 1..=10 {
            scope.spawn(move || {
                for guess in 0..10 {
                    let (client, credentials) = (format!("10.{client}.0.1"), format!("n{guess}:secret"));
                    assert_eq!(log_in(address, &client, &credentials), "401");
                }
            });
        }
    });
    let peak = peak_resident(process);
    assert!(peak < before + CHECKS + SLACK, "{} KiB more at most", (peak - before) / 1024);
    // The threads give their memory back when they have nothing to do.
    until("as little memory as before", || (resident(process) < before + SLACK).then_some(()));
    instance.stop();
}
