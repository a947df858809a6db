//! Each kind of notification, made for real and seen at a webhook. Servers and changes are in `events_are_told`. A worker
//! that is late and a panic cannot be made from outside: they are in the tests of `control::notify::conditions`.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, SystemTime};

use offramp_testkit::ca::{Key, Leaf, Validity};
use offramp_testkit::postgres::Server;
use offramp_testkit::process::Source;
use serde_json::Value;

use crate::open_connections_are_shown_and_closed::ctl;
use crate::support::instance::{CERTIFICATE, Home, LISTENER, PATIENCE};
use crate::support::offramp::stderr;
use crate::support::upgrade::Upgraded;
use crate::support::webhook::{PLAIN, Site, Told, event, receiver};

/// A route that needs no server.
const ROUTE: &str = "[[route]]\nrespond = { status = 204 }\n";

/// A receiver of one kind at this site.
fn of_kind(hook: &Site, kind: &str, more: &str) -> String {
    receiver("one", &format!("http://{}/", hook.address), &format!("on = [\"{kind}\"]\n{more}"))
}

/// The reason of the only event of a message.
fn reason(told: &Told) -> String {
    told.json()["events"][0]["says"].as_str().unwrap().to_owned()
}

/// Sends requests on one connection, and waits for each response.
fn requests(to: SocketAddr, count: usize) {
    let mut stream = TcpStream::connect(to).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut read = BufReader::new(stream.try_clone().unwrap());
    for _ in 0..count {
        stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        let mut length = 0;
        loop {
            let mut line = String::new();
            assert!(read.read_line(&mut line).unwrap() > 0, "the connection was closed");
            let line = line.trim_end().to_lowercase();
            if let Some(value) = line.strip_prefix("content-length: ") {
                length = value.parse().unwrap();
            }
            if line.is_empty() {
                break;
            }
        }
        read.read_exact(&mut vec![0; length]).unwrap();
    }
}

#[test]
fn a_limit_that_refuses() {
    let hook = Site::start(200);
    // Clients of this machine have no such limit.
    let limits = "accept_proxy = \"127.0.0.0/8\"\n[limits]\nconnections_per_client = 1\n";
    let instance = Home::new().run(&format!("{PLAIN}{limits}{ROUTE}{}", of_kind(&hook, "limit", "")));
    let client = || {
        let mut stream = TcpStream::connect(instance.address()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
            .write_all(b"PROXY TCP4 192.0.2.7 192.0.2.1 5000 80\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n")
            .unwrap();
        let mut first = [0];
        (matches!(stream.read(&mut first), Ok(1)).then_some(()), stream)
    };
    let (answered, _open) = client();
    assert_eq!(answered, Some(()));
    let (refused, _) = client();
    assert_eq!(refused, None);
    let told = hook.request(&instance, 0);
    let [kind, state, about] = event(&told);
    assert_eq!((kind.as_str(), state.as_str()), ("limit", "begins"), "{told:?}");
    assert!(!about.is_empty() && reason(&told).contains("limits.connections_per_client"), "{told:?}");
    assert!(reason(&told).contains("192.0.2.7"), "{told:?}");
    instance.stop();
}

#[test]
fn errors_above_the_bound() {
    let hook = Site::start(200);
    let route = "[[route]]\nrespond = { status = 503 }\n";
    let receiver = of_kind(&hook, "errors", "errors = \"10%\"\nerrors_at_least = 20\n");
    let instance = Home::new().run(&format!("{PLAIN}{route}{receiver}"));
    // Counts are compared every ten seconds, from the first look on.
    let told = instance.until("the message", || {
        requests(instance.address(), 25);
        hook.requests().into_iter().next()
    });
    assert_eq!(event(&told), ["errors", "begins", "all requests"]);
    assert!(reason(&told).ends_with("100.0 %; the bound is 10%"), "{told:?}");
    instance.stop();
}

#[test]
fn a_log_store_that_is_away_and_back() {
    let (mut postgres, hook) = (Server::start(), Site::start(200));
    let store = format!("[log_store]\nurl = \"{}\"\n", postgres.database());
    let instance = Home::new().run(&format!("{PLAIN}{ROUTE}{store}{}", of_kind(&hook, "log_store", "")));
    postgres.pause();
    let told = instance.until("the message", || {
        requests(instance.address(), 1);
        hook.requests().into_iter().next()
    });
    assert_eq!(event(&told), ["log_store", "begins", "database"]);
    assert!(reason(&told).contains("wait in the spool"), "{told:?}");
    postgres.resume();
    assert_eq!(event(&hook.request(&instance, 1)), ["log_store", "ends", "database"]);
    instance.stop();
}

#[test]
fn a_certificate_that_expires_and_its_successor() {
    let (home, hook) = (Home::new(), Site::start(200));
    let until = SystemTime::now() + Duration::from_secs(3 * 24 * 3600);
    let leaf = Leaf { validity: Validity::Until(until), ..Leaf::server(Key::P256, &["soon.example.org"]) };
    home.ca.issue("server", &leaf).unwrap();
    let text =
        format!("{CERTIFICATE}{LISTENER}mode = \"http\"\n{ROUTE}{}", of_kind(&hook, "certificate", ""));
    let instance = home.run(&text);
    let told = hook.request(&instance, 0);
    assert_eq!(event(&told), ["certificate", "begins", "soon.example.org"]);
    assert!(reason(&told).starts_with("it expires on "), "{told:?}");
    instance.home.renew();
    assert!(ctl(&instance, &["reload"]).status.success());
    assert_eq!(event(&hook.request(&instance, 1)), ["certificate", "ends", "soon.example.org"]);
    instance.stop();
}

/// An authority that cannot be reached: told once, whatever the number of tries, and not at a reload.
#[test]
fn a_certificate_that_cannot_be_obtained() {
    let hook = Site::start(200);
    let certificate = "[[certificate]]\nacme = \"own\"\nnames = [\"a.example.org\"]\n\
                       [acme.own]\ndirectory = \"https://127.0.0.1:1/directory\"\n";
    let instance = Home::new().run(&format!(
        "{certificate}{LISTENER}mode = \"http\"\n{ROUTE}{}",
        of_kind(&hook, "certificate", "")
    ));
    let told = hook.request(&instance, 0);
    assert_eq!(event(&told), ["certificate", "begins", "a.example.org"]);
    assert!(reason(&told).starts_with("it could not be obtained: own: "), "{told:?}");
    let tries = || {
        let lines = instance.process.lines(Source::Stderr);
        lines.iter().filter(|line| line.contains("no certificate was obtained")).count()
    };
    let before = tries();
    assert!(ctl(&instance, &["reload"]).status.success());
    instance.until("another try", || (tries() > before).then_some(()));
    let shown = ctl(&instance, &["--json", "show", "certificates"]);
    assert!(shown.status.success(), "{}", stderr(&shown));
    let shown: Value = serde_json::from_slice(&shown.stdout).unwrap();
    let one = &shown["certificates"][0];
    assert!(one["last_refusal"]["detail"].as_str().is_some_and(|said| said.contains("own: ")), "{one}");
    assert!(one["next_renewal"].is_string(), "{one}");
    assert_eq!(hook.requests().len(), 1, "{:?}", hook.requests());
    instance.stop();
}

#[test]
fn a_change_that_was_taken_back() {
    let hook = Site::start(200);
    let instance = Home::new().run(&format!("{PLAIN}{ROUTE}{}", of_kind(&hook, "taken_back", "")));
    let text = fs::read_to_string(instance.home.file("offramp.toml")).unwrap();
    fs::write(instance.home.file("new.toml"), text.replace("204", "202")).unwrap();
    let applied = ctl(&instance, &["apply", "new.toml", "--confirm", "1s"]);
    assert!(applied.status.success(), "{}", stderr(&applied));
    let told = hook.request(&instance, 0);
    let [kind, state, about] = event(&told);
    assert_eq!((kind.as_str(), state.as_str()), ("taken_back", "happened"));
    assert!(about.starts_with("back to version "), "{about}");
    assert!(reason(&told).contains("it was taken back"), "{told:?}");
    instance.stop();
}

/// An occurrence that waits for its group when another process takes over is told once.
#[test]
fn an_upgrade_loses_nothing_that_waits() {
    let hook = Site::start(200);
    let url = format!("http://{}/", hook.address);
    let waits = format!("[[notify]]\nname = \"one\"\nurl = \"{url}\"\non = [\"change\"]\ngroup = \"8s\"\n");
    let upgraded = Upgraded::of(Home::new().run(&format!("{PLAIN}{ROUTE}{waits}")));
    let file = upgraded.instance.home.file("offramp.toml");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replace("204", "202")).unwrap();
    assert!(ctl(&upgraded.instance, &["reload"]).status.success());
    upgraded.upgrade();
    upgraded.until_others_ended();
    let told = hook.request(&upgraded.instance, 0);
    assert_eq!(event(&told), ["change", "happened", "to version 2"]);
    upgraded.stop();
    assert_eq!(hook.requests().len(), 1, "{:?}", hook.requests());
}
