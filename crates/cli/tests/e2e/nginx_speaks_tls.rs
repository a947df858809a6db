//! nginx as a server that speaks TLS: in the protocol that it chooses, under load, and while certificates change.

use std::fs;
use std::io::{Read as _, Write as _};
use std::process::Command;
use std::time::Duration;

use offramp_testkit::ca::{Ca, Key, Leaf};
use offramp_testkit::process::{Process, Signal, Source, require, temp_dir};

use crate::support::crowd::tcp;
use crate::support::http_curl::{HTTP, get};
use crate::support::instance::{CERTIFICATE, Home, Instance, ask, cause};
use crate::support::nginx::nginx;

/// Says of a request which HTTP it came in, what was agreed on and asked for, whether the session was resumed (`r`),
/// and by which connection it came.
const SAYS: &str = "location / { return 200 \"$server_protocol $ssl_alpn_protocol $ssl_server_name \
                    $ssl_session_reused $connection \"; }";

/// An nginx that speaks HTTP/1.1 on `h1.sock` and what clients like on `h2.sock`, and an Offramp before it, which
/// checks the first by `one.pem` and the second by `two.pem`.
fn start() -> (Process, Instance) {
    let home = Home::new();
    for name in ["one.pem", "two.pem"] {
        fs::copy(home.ca.certificate(), home.file(name)).unwrap();
    }
    let files = home.ca.issue("app", &Leaf::server(Key::P256, &["localhost"])).unwrap();
    let server = |listen: &str| {
        let (cert, key) = (files.chain.display(), files.key.display());
        format!("server {{ listen {listen}; ssl_certificate {cert}; ssl_certificate_key {key}; {SAYS} }}\n")
    };
    let servers = [server("unix:h1.sock ssl"), server("unix:h2.sock ssl http2")].concat();
    let nginx = nginx(&home, &servers, "h2.sock");
    let backend = |name: &str, socket: &str, ca: &str| {
        format!(
            "[[route]]\nlistener = \"default\"\nhost = \"{name}.example.org\"\nbackend = \"{name}\"\n\
             [backend.{name}]\nservers = \"unix:{socket}\"\nprotocol = \"auto\"\n\
             tls = {{ verify = \"{ca}\", name = \"localhost\" }}\n"
        )
    };
    let tunnel = "[[listener]]\nname = \"tunnel\"\naddress = \"127.0.0.1:0\"\ntls = false\n\
                  [[route]]\nlistener = \"tunnel\"\nbackend = \"raw\"\n[backend.raw]\n\
                  servers = \"unix:h1.sock\"\ntls = { verify = \"one.pem\", name = \"localhost\" }\n";
    let (one, two) = (backend("one", "h1.sock", "one.pem"), backend("two", "h2.sock", "two.pem"));
    let instance = home.run(&format!("workers = 1\n{CERTIFICATE}{HTTP}{tunnel}{one}{two}"));
    (nginx, instance)
}

/// What nginx says of a request for this host.
fn said(instance: &Instance, host: &str) -> Vec<String> {
    let answer = get(instance, &[], &format!("https://{host}.example.org/"));
    assert_eq!(answer.status(), 200, "{answer:?}");
    answer.text().split(' ').map(str::to_owned).collect()
}

/// What it says of one that comes through the tunnel, whose connection is new each time: whether it is resumed.
fn resumed(instance: &Instance) -> bool {
    let mut client = tcp(instance.address_of("tunnel")).unwrap();
    client.write_all(b"GET / HTTP/1.0\r\nHost: localhost\r\n\r\n").unwrap();
    let mut page = String::new();
    client.read_to_string(&mut page).unwrap();
    let body = page.split("\r\n\r\n").nth(1).unwrap_or_else(|| panic!("{page}"));
    body.split(' ').nth(3).unwrap_or_else(|| panic!("{page}")) == "r"
}

#[test]
fn nginx_is_asked_in_the_protocol_that_it_chooses() {
    let (_nginx, instance) = start();
    for (host, expected) in [("one", ["HTTP/1.1", "http/1.1"]), ("two", ["HTTP/2.0", "h2"])] {
        let first = said(&instance, host);
        assert_eq!(first[..3], [expected[0], expected[1], "localhost"], "{first:?}");
        assert_eq!(said(&instance, host), first, "the connection is kept");
    }
    for host in ["one", "two"] {
        let mut h2load = Command::new(require("h2load", "nghttp2-client"));
        h2load.args(["-n", "5000", "-c", "10", "-m", "10", "-t", "1"]);
        h2load.arg(format!("--connect-to=127.0.0.1:{}", instance.address().port()));
        h2load.arg(format!("https://{host}.example.org/"));
        let output = ask(h2load, b"", Duration::from_secs(120));
        let report = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(report.contains(" 5000 succeeded, 0 failed, 0 errored, 0 timeout"), "{host}: {report}");
        assert!(report.contains("5000 2xx"), "{host}: {report}");
    }
    for event in instance.stop() {
        assert_eq!(cause(&event), "completed", "{event}");
    }
}

/// Waits until the log has this line so many times.
fn until_told(instance: &Instance, text: &str, times: usize) {
    instance.until(text, || {
        let log = instance.process.lines(Source::Stderr);
        (log.iter().filter(|line| line.contains(text)).count() >= times).then_some(())
    });
}

/// A change replaces connections and sessions of those servers alone that are checked in another way from then on.
#[test]
fn connections_and_sessions_outlive_changes_that_are_not_theirs() {
    let (_nginx, instance) = start();
    let (one, two) = (said(&instance, "one"), said(&instance, "two"));
    assert!(!resumed(&instance) && resumed(&instance));
    let same = |what: &str| {
        assert_eq!((said(&instance, "one"), said(&instance, "two")), (one.clone(), two.clone()), "{what}");
        assert!(resumed(&instance), "{what}");
    };
    same("nothing has changed");
    // The certificate for clients.
    instance.home.ca.issue("server", &Leaf::server(Key::P256, &["localhost", "*.example.org"])).unwrap();
    until_told(&instance, " certificates changed ", 1);
    same("another certificate for clients");
    instance.process.signal(Signal::HUP).unwrap();
    until_told(&instance, " reloaded ", 1);
    same("a reload of the same");
    // Other authorities for one of the two.
    let elsewhere = temp_dir();
    let other = Ca::new(elsewhere.path()).unwrap();
    let both =
        [fs::read(instance.home.ca.certificate()).unwrap(), fs::read(other.certificate()).unwrap()].concat();
    fs::write(instance.home.file("one.pem"), both).unwrap();
    until_told(&instance, " certificates changed ", 2);
    assert!(!resumed(&instance), "no session outlives the rule by which its certificate was checked");
    let (anew, kept) = (said(&instance, "one"), said(&instance, "two"));
    assert_ne!(anew[4], one[4], "the connection is another");
    assert_eq!(kept, two);
    // Authorities that do not vouch for it: it is not asked any more.
    fs::copy(other.certificate(), instance.home.file("one.pem")).unwrap();
    until_told(&instance, " certificates changed ", 3);
    assert_eq!(get(&instance, &[], "https://one.example.org/").status(), 502);
    assert_eq!(said(&instance, "two"), two);
    // Half-written, it changes nothing.
    fs::write(instance.home.file("two.pem"), "-----BEGIN CERTIFICATE-----\nAAAA").unwrap();
    until_told(&instance, "what was read before stays in use", 1);
    assert_eq!(said(&instance, "two"), two);
    instance.stop();
}
