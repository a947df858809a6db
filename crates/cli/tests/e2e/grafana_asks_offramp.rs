//! Grafana's questions, to a running proxy and to a store alone.

use std::fs;
use std::net::SocketAddr;

use offramp_testkit::process::{Process, Ready, Signal, Source, temp_dir};
use offramp_testkit::server::{Listen, Server, apps};
use serde_json::{Value, json};

use crate::support::crowd::{close, connect, echo, trusting};
use crate::support::figures::ask;
use crate::support::instance::{Home, LIFE, PATIENCE};
use crate::support::offramp::{offramp, output, stderr};

/// Asks for a table of one target.
fn query(address: SocketAddr, path: &str, target: &str, range: Option<[&str; 2]>) -> Value {
    let mut body = json!({ "targets": [{ "target": target, "refId": "A", "type": "table" }] });
    if let Some([from, to]) = range {
        body["range"] = json!({ "from": from, "to": to });
    }
    let body = body.to_string();
    let request = format!(
        "POST {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let (head, answer) = ask(address, &request);
    assert!(head.starts_with("HTTP/1.1 200 "), "{head} {answer}");
    serde_json::from_str(&answer).unwrap()
}

/// The address in the line of the log that begins so.
fn address(process: &Process, message: &str) -> SocketAddr {
    let message = format!(" {message} ");
    process.wait_for(&Ready::Line(message.clone()), PATIENCE).unwrap();
    let lines = process.lines(Source::Stderr);
    let line = lines.iter().find(|line| line.contains(&message)).unwrap();
    line.split("address=").nth(1).unwrap().trim().trim_matches('"').parse().unwrap()
}

#[test]
fn a_running_proxy_answers_about_its_own_traffic() {
    let app = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    let instance = Home::new().run(&format!(
        "[admin]\naddress = \"127.0.0.1:0\"\n[log_store]\nurl = \"sqlite:access.db\"\n{}",
        Home::one_route(app.address())
    ));
    let admin = address(&instance.process, "admin");
    let config = trusting(&instance.home.ca.certificate());
    for _ in 0..3 {
        let mut tls = connect(&config, instance.address(), "localhost").unwrap();
        echo(&mut tls, "hello").unwrap();
        close(tls).unwrap();
    }
    instance.events_of(3);
    let expected = json!([["localhost", 3, 15]]);
    instance.until("the store has the connections", || {
        (query(admin, "/grafana/query", "sites", None)[0]["rows"] == expected).then_some(())
    });
    let (head, _) = ask(admin, "GET /grafana/ HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    instance.stop();
    assert!(std::net::TcpStream::connect(admin).is_err(), "it ends with the proxy");
}

#[test]
fn a_store_alone_is_served_until_a_signal() {
    let home = temp_dir();
    let line = |second: u32, path: &str| {
        format!(
            "192.0.2.7 - - [21/Nov/2026:10:00:{second:02} +0000] \"GET {path} HTTP/1.1\" 200 100 \"-\" \"Firefox\" \"blog.test\"\n"
        )
    };
    let log: String = (0..30).map(|n| line(n, if n % 3 == 0 { "/a" } else { "/b" })).collect();
    fs::write(home.path().join("access.log"), log).unwrap();
    let store = ["--store", "sqlite:access.db"];
    let read =
        output(home.path(), &["logs", "ingest", "--format", "vhost", store[0], store[1], "access.log"]);
    assert!(read.status.success(), "{}", stderr(&read));
    let command = offramp(home.path(), &["logs", "serve", store[0], store[1], "--address", "127.0.0.1:0"]);
    let process = Process::start(command, LIFE).unwrap();
    let range = Some(["2026-11-21T00:00:00.000Z", "2026-11-22T00:00:00.000Z"]);
    let answer = query(address(&process, "listening"), "/query", "pages?host=blog.test", range);
    assert_eq!(answer[0]["rows"], json!([["/b", "blog.test", 20, 2000], ["/a", "blog.test", 10, 1000]]));
    process.signal(Signal::TERM).unwrap();
    assert!(process.wait(PATIENCE).unwrap().success());
    let refused = output(home.path(), &["logs", "serve", "--store", "mysql://x"]);
    assert_eq!(refused.status.code(), Some(2), "{}", stderr(&refused));
}
