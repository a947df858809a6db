//! Certificates that do not fit, have run out or cannot be read: at the start, on reload, and in `check`.

use std::fs;

use offramp_testkit::ca::{Key, Leaf, Validity};
use offramp_testkit::process::{Process, Ready, Signal, Source};

use crate::support::crowd::{connect, trusting};
use crate::support::instance::{CERTIFICATE, Home, LIFE, LISTENER, PATIENCE};
use crate::support::offramp::{offramp, output, stderr};

const ROUTE: &str = "[[route]]\nserver = \"127.0.0.1:9\"\n";

/// A configuration that refers to `server.chain.pem` and `server.key` in line 5 at the latest.
fn configuration() -> String {
    format!("{CERTIFICATE}{LISTENER}{ROUTE}")
}

/// That neither a start nor `check` accepts what is in the home, that both say `part`, and that a running
/// one refuses to reload it for the same reason.
#[track_caller]
fn refused(spoil: impl Fn(&Home), part: &str) {
    let home = Home::new();
    home.configure(&configuration());
    spoil(&home);
    let check = output(home.path(), &["check"]);
    assert_eq!(check.status.code(), Some(2), "{}", stderr(&check));
    let told = stderr(&check);
    assert!(told.contains(part), "{part} in {told}");
    let reason = told.lines().find(|line| line.contains(part)).unwrap();
    let reason = reason.trim_start_matches("error: ");

    let start = Process::start(offramp(home.path(), &["run"]), LIFE).unwrap();
    let status = start.wait(PATIENCE).unwrap();
    assert_ne!(status.code(), Some(0), "{}", start.transcript());
    assert!(start.transcript().contains(reason), "{reason} in {}", start.transcript());

    let instance = Home::new().run(&configuration());
    spoil(&instance.home);
    instance.process.signal(Signal::HUP).unwrap();
    instance.wait_for_notification("RELOADING=1");
    instance.process.wait_for(&Ready::Line("reload refused".into()), PATIENCE).unwrap();
    assert!(instance.process.transcript().contains(part), "{part} in {}", instance.process.transcript());
    let ca = instance.home.ca.certificate();
    let good = connect(&trusting(&ca), instance.address(), "localhost");
    // There is nobody behind it, but the handshake is made with the old certificate.
    assert!(good.is_ok(), "{good:?}");
    drop(good);
    instance.stop();
}

#[test]
fn a_key_that_is_not_the_certificates() {
    refused(
        |home| {
            let other = home.ca.issue("other", &Leaf::server(Key::P256, &["localhost"])).unwrap();
            fs::copy(other.key, home.file("server.key")).unwrap();
        },
        "server.key",
    );
}

#[test]
fn a_key_that_is_none() {
    refused(
        |home| {
            fs::write(
                home.file("server.key"),
                "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n",
            )
            .unwrap();
        },
        "server.key",
    );
}

#[test]
fn a_certificate_that_cannot_be_read() {
    refused(|home| fs::remove_file(home.file("server.chain.pem")).unwrap(), "server.chain.pem");
    refused(
        |home| {
            fs::remove_file(home.file("server.chain.pem")).unwrap();
            fs::create_dir(home.file("server.chain.pem")).unwrap();
        },
        "server.chain.pem",
    );
    refused(|home| fs::write(home.file("server.chain.pem"), [0xff; 64]).unwrap(), "server.chain.pem");
}

#[test]
fn one_that_has_run_out_is_used_with_a_loud_warning() {
    let home = Home::new();
    let expired = Leaf { validity: Validity::Expired, ..Leaf::server(Key::P256, &["localhost"]) };
    home.ca.issue("server", &expired).unwrap();
    home.configure(&configuration());
    let check = output(home.path(), &["check"]);
    assert_eq!(check.status.code(), Some(0), "{}", stderr(&check));
    let is_warning = |line: &String| {
        let line = line.to_lowercase();
        line.contains("warn") && line.contains("expired") && line.contains("server.chain.pem")
    };
    assert!(stderr(&check).lines().map(str::to_owned).any(|line| is_warning(&line)), "{}", stderr(&check));

    let instance = home.run(&configuration());
    let warnings = || instance.process.lines(Source::Stderr).into_iter().filter(is_warning).count();
    instance.until("a warning at the start", || (warnings() == 1).then_some(()));
    let ca = instance.home.ca.certificate();
    let error = connect(&trusting(&ca), instance.address(), "localhost").unwrap_err();
    assert!(error.to_string().contains("xpired"), "{error}");
    let event = instance.event("the client's refusal", |event| event["cause"] == "handshake_alert");
    assert_eq!(event["alert_received"], "certificate_expired", "{event}");

    // Read again, it is warned of again; renewed, it is not.
    instance.process.signal(Signal::HUP).unwrap();
    instance.until("a warning on reload", || (warnings() == 2).then_some(()));
    instance.home.ca.issue("server", &Leaf::server(Key::P256, &["localhost"])).unwrap();
    instance.process.signal(Signal::HUP).unwrap();
    // By the reload or by the watcher of the files, whichever was faster.
    instance.until("the new certificate", || connect(&trusting(&ca), instance.address(), "localhost").ok());
    assert_eq!(warnings(), 2);
    instance.stop();
}
