//! A server that fails its health checks is shown with its reason before it is down, and on its way back.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use offramp_testkit::process::Source;
use serde_json::Value;

use crate::open_connections_are_shown_and_closed::ctl;
use crate::support::instance::{Home, Instance};
use crate::support::offramp::stdout;

/// Accepts and says nothing.
const SILENT: u8 = 0;
/// Answers each request with 503.
const REFUSING: u8 = 1;
/// Answers each request with 200.
const WELL: u8 = 2;

/// A server that behaves as the number says.
fn server(mode: &Arc<AtomicU8>) -> SocketAddr {
    let (listener, mode) = (TcpListener::bind("127.0.0.1:0").unwrap(), Arc::clone(mode));
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let mut kept = Vec::new();
        for stream in listener.incoming() {
            let mut stream: TcpStream = stream.unwrap();
            let status = match mode.load(Ordering::Relaxed) {
                SILENT => {
                    kept.push(stream);
                    continue;
                }
                REFUSING => "503 Service Unavailable",
                _ => "200 OK",
            };
            // The client may have gone.
            let _ = stream.read(&mut [0; 4096]);
            let _ = write!(stream, "HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        }
    });
    address
}

fn shown(instance: &Instance) -> Value {
    let said = ctl(instance, &["--json", "show", "backends"]);
    let all: Value = serde_json::from_slice(&said.stdout).unwrap();
    all["backends"][0]["servers"][0].clone()
}

fn why(server: &Value) -> &str {
    server["why"].as_str().unwrap()
}

#[test]
fn failed_checks_are_shown_before_the_server_is_down() {
    let mode = Arc::new(AtomicU8::new(SILENT));
    // So many failures that the test sees some of them.
    let instance = Home::new().run(&format!(
        "[[listener]]\naddress = \"127.0.0.1:0\"\nmode = \"http\"\ntls = false\n[[route]]\nbackend = \"app\"\n\
         [backend.app]\nservers = [\"{}\"]\n\
         health = {{ path = \"/up\", interval = \"100ms\", timeout = \"100ms\", rise = 40, fall = 40 }}\n",
        server(&mode)
    ));
    let first = instance.until("failed checks", || {
        Some(shown(&instance)).filter(|server| server["check"]["failed"].as_u64() > Some(1))
    });
    let failed = &first["check"]["failed"];
    assert_eq!(first["state"], "up");
    assert!(why(&first).starts_with(&format!("{failed} of 40 checks failed: timeout")), "{first}");
    assert_eq!((&first["check"]["fall"], &first["check"]["rise"]), (&40.into(), &40.into()));
    let table = stdout(&ctl(&instance, &["show", "backends"]));
    assert!(table.contains(" of 40 checks failed: timeout"), "{table}");

    mode.store(REFUSING, Ordering::Relaxed);
    let refused = instance
        .until("the latest reason", || Some(shown(&instance)).filter(|server| why(server).contains("503")));
    assert!(refused["check"]["error"].as_str().unwrap().contains("503"), "{refused}");
    instance.until("it is down", || {
        let server = shown(&instance);
        (server["state"] == "down")
            .then(|| assert!(why(&server).starts_with("it fails its health checks"), "{server}"))
    });

    mode.store(WELL, Ordering::Relaxed);
    let better = instance.until("good checks", || {
        Some(shown(&instance)).filter(|server| server["check"]["passed"].as_u64() > Some(1))
    });
    let passed = &better["check"]["passed"];
    assert_eq!(better["state"], "down");
    assert!(why(&better).contains(&format!(": {passed} of 40 passed")), "{better}");
    assert_eq!(better["check"]["error"], Value::Null);
    let up = instance.until("it is up", || Some(shown(&instance)).filter(|server| server["state"] == "up"));
    assert!(why(&up).starts_with("it passes its health checks"), "{up}");
    instance.stop();
}

#[test]
fn a_server_that_nothing_checks_has_no_check() {
    let server = server(&Arc::new(AtomicU8::new(WELL)));
    let instance = Home::new().run(&format!(
        "[[listener]]\naddress = \"127.0.0.1:0\"\nmode = \"http\"\ntls = false\n[[route]]\nserver = \"{server}\"\n"
    ));
    assert_eq!(shown(&instance)["check"], Value::Null);
    instance.stop();
}

/// `.invalid` resolves nowhere (RFC 6761 §6.4).
#[test]
fn a_name_that_does_not_resolve_is_told_at_the_start_and_shown() {
    let instance = Home::new().run(
        "[[listener]]\naddress = \"127.0.0.1:0\"\nmode = \"http\"\ntls = false\n\
         [[route]]\nserver = \"no-such-host.invalid:80\"\n",
    );
    let told = instance.until("the warning", || {
        let lines = instance.process.lines(Source::Stderr);
        lines.into_iter().find(|line| line.contains("a server's name does not resolve"))
    });
    assert!(told.contains("WARN") && told.contains("server=no-such-host.invalid:80"), "{told}");
    let server = shown(&instance);
    assert_eq!((&server["state"], why(&server)), (&"unresolved".into(), "its host name has no address"));
    instance.stop();
}
