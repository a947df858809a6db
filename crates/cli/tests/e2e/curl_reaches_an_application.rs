//! `curl` fetches from an HTTP application on a Unix socket that knows nothing of TLS.

use std::fs;
use std::process::{Command, Output};
use std::time::Duration;

use offramp_testkit::process::require;
use offramp_testkit::server::{Listen, Pattern, Server, Sum, apps};

use crate::support::instance::{Home, Instance, ask, cause, text};

/// A home whose application is on `app.sock`, and Offramp before it.
fn served() -> (Server, Instance) {
    let home = Home::new();
    let app = Server::start(&Listen::Unix(home.file("app.sock")), apps::http).unwrap();
    (app, home.run(&Home::one_route("unix:app.sock")))
}

/// Asks for these paths with these arguments more, on as few connections as curl can.
fn curl(instance: &Instance, paths: &[&str], arguments: &[&str]) -> Output {
    // -q: without the machine's own curlrc.
    let mut command = Command::new(require("curl", "curl"));
    command.args(["-q", "--silent", "--show-error", "--noproxy", "*", "--cacert"]);
    command.arg(instance.home.ca.certificate());
    let port = instance.address().port();
    command.args(["--connect-to", &format!("localhost:{port}:127.0.0.1:{port}")]);
    command.args(arguments);
    command.args(paths.iter().map(|path| format!("https://localhost:{port}{path}")));
    command.current_dir(instance.home.path());
    ask(command, b"", Duration::from_secs(120))
}

fn good(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn curl_reaches_an_application() {
    let (app, instance) = served();
    let said = good(&curl(&instance, &["/over/there"], &[]));
    assert_eq!(said, "hello /over/there\n");

    // Without the CA curl refuses, and says so by an alert.
    let port = instance.address().port();
    let mut distrustful = Command::new(require("curl", "curl"));
    distrustful.args(["-q", "--silent", "--noproxy", "*", &format!("https://localhost:{port}/")]);
    assert_eq!(ask(distrustful, b"", Duration::from_secs(30)).status.code(), Some(60));
    assert_eq!(app.accepted(), 1);

    let events = instance.stop();
    assert!(text(&events[0], "server").ends_with("/app.sock"), "{}", events[0]);
    assert_eq!((cause(&events[1]), text(&events[1], "alert_received")), ("handshake_alert", "unknown_ca"));
}

#[test]
fn curl_keeps_its_connection() {
    let (app, instance) = served();
    let paths: Vec<_> = (0..50).map(|number| format!("/{number}")).collect();
    let paths: Vec<_> = paths.iter().map(String::as_str).collect();
    let said = good(&curl(&instance, &paths, &["--http1.1"]));
    let expected: String = paths.iter().map(|path| format!("hello {path}\n")).collect();
    assert_eq!(said, expected);
    assert_eq!(app.accepted(), 1);
    assert_eq!(instance.stop().len(), 1);
}

#[test]
fn curl_moves_a_hundred_mebibytes_up_and_down() {
    let (_app, instance) = served();
    let mut body = vec![0; 100 << 20];
    Pattern::new(1).fill(&mut body);
    fs::write(instance.home.file("up"), &body).unwrap();
    // Without Expect the body follows its header at once.
    let arguments = ["--data-binary", "@up", "--header", "Expect:", "--output", "down"];
    good(&curl(&instance, &["/"], &arguments));
    let (mut up, mut down) = (Sum::new(), Sum::new());
    up.add(&body);
    down.add(&fs::read(instance.home.file("down")).unwrap());
    assert_eq!(up.to_string(), down.to_string());
    let [event] = &instance.stop()[..] else { panic!("one event") };
    for field in ["bytes_from_client", "bytes_to_client"] {
        let bytes = event[field].as_u64().unwrap();
        // The body and the header before it.
        assert!((100 << 20..(100 << 20) + 1000).contains(&bytes), "{event}");
    }
}
