//! SIGHUP: everything may be swapped under load and nobody notices, or nothing is and the log says why.

use std::fs;
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use offramp_testkit::ca::{Key, Leaf};
use offramp_testkit::process::{Signal, Source};
use offramp_testkit::server::{Listen, Server, apps};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use crate::support::crowd::{Crowd, connect, get, trusting};
use crate::support::instance::{CERTIFICATE, Home, Instance, LISTENER};

/// Sends SIGHUP, waits until it is over, and gives the line in which the log says how it went.
pub(crate) fn reload(instance: &Instance) -> String {
    let outcomes = || -> Vec<String> {
        let is_outcome = |line: &String| line.contains(" reloaded ") || line.contains(" reload refused");
        instance.process.lines(Source::Stderr).into_iter().filter(is_outcome).collect()
    };
    let before = outcomes().len();
    instance.process.signal(Signal::HUP).unwrap();
    instance.wait_for_notification("RELOADING=1");
    instance.wait_for_notification("READY=1");
    instance.until("the outcome of the reload", || outcomes().into_iter().nth(before))
}

/// The same with a new configuration.
pub(crate) fn reload_to(instance: &Instance, text: &str) -> String {
    instance.home.configure(text);
    reload(instance)
}

#[test]
fn no_request_fails_while_everything_is_swapped() {
    let apps = [1, 2].map(|_| Server::start(&Listen::Ipv4, apps::http).unwrap());
    let text = |turn: usize| {
        let extra = "[[listener]]\nname = \"extra\"\naddress = \"unix:state/extra.sock\"\n";
        let extra = if turn % 2 == 1 { extra } else { "" };
        let limits = "[limits]\nhandshake_timeout = \"1m\"\n";
        format!("workers = 2\n{limits}{extra}{}", Home::one_route(apps[turn % 2].address()))
    };
    let instance = Home::new().run(&text(0));
    let config = trusting(&instance.home.ca.certificate());
    let crowd = Crowd::send(8, &config, instance.address(), "localhost");
    crowd.busy(10);
    for turn in 1..=6 {
        instance.home.ca.issue("server", &Leaf::server(Key::P256, &["localhost"])).unwrap();
        let outcome = reload_to(&instance, &text(turn));
        // Whether it brings the new certificate depends on whether the watcher of the files was faster.
        assert!(outcome.contains(" reloaded "), "{outcome}");
        crowd.busy(10);
    }
    let tally = crowd.stop();
    assert!(tally.failures.is_empty() && tally.turned_away == 0, "{tally:?}");
    assert!(apps.iter().all(|app| app.accepted() > 0), "both applications were used");
    let events = instance.stop();
    assert_eq!(events.len(), tally.connections);
    assert!(events.iter().all(|event| event["cause"] == "client_closed"), "{events:?}");
}

#[test]
fn a_listener_comes_and_goes_and_whoever_it_has_accepted_is_served() {
    let app = Server::start(&Listen::Ipv4, apps::http).unwrap();
    // Another host of loopback has its ports to itself: nothing else of the tests listens there.
    let address = TcpListener::bind("127.0.0.2:0").unwrap().local_addr().unwrap();
    let text = |extra: bool| {
        let listener =
            format!("[[listener]]\nname = \"extra\"\naddress = [\"{address}\", \"unix:state/extra.sock\"]\n");
        let listener = if extra { listener } else { String::new() };
        format!("{listener}{}", Home::one_route(app.address()))
    };
    let instance = Home::new().run(&text(false));
    let config = trusting(&instance.home.ca.certificate());
    let socket = instance.home.file("state/extra.sock");
    assert!(UnixStream::connect(&socket).is_err());
    let outcome = reload_to(&instance, &text(true));
    assert!(outcome.contains(" reloaded "), "{outcome}");
    UnixStream::connect(&socket).unwrap();

    let crowd = Crowd::send(6, &config, address, "localhost");
    crowd.busy(10);
    let outcome = reload_to(&instance, &text(false));
    assert!(outcome.contains(" reloaded "), "{outcome}");
    // Those that are connected stay.
    crowd.closed_to_others(20);
    let tally = crowd.stop();
    assert!(tally.failures.is_empty(), "{tally:?}");
    assert!(UnixStream::connect(&socket).is_err());
    assert!(connect(&config, instance.address(), "localhost").is_ok());
    instance.stop();
}

#[test]
fn new_connections_see_the_new_certificate_and_old_ones_stay() {
    let app = Server::start(&Listen::Ipv4, apps::http).unwrap();
    let instance = Instance::before(app.address());
    let config = trusting(&instance.home.ca.certificate());
    let shown = || {
        let tls = connect(&config, instance.address(), "localhost").unwrap();
        tls.conn.peer_certificates().unwrap()[0].clone().into_owned()
    };
    let file = || CertificateDer::from_pem_file(instance.home.file("server.pem")).unwrap();
    let mut kept = connect(&config, instance.address(), "localhost").unwrap();
    let first = file();
    assert_eq!(shown(), first);
    instance.home.ca.issue("server", &Leaf::server(Key::P256, &["localhost"])).unwrap();
    // The watcher of the files may be faster; then the reload finds nothing new.
    let outcome = reload(&instance);
    assert!(outcome.contains(" reloaded "), "{outcome}");
    assert_ne!(file(), first);
    assert_eq!(shown(), file());
    assert_eq!(get(&mut kept, "/kept").unwrap(), "hello /kept\n");
    drop(kept);
    instance.stop();
}

#[test]
fn what_is_broken_is_refused_with_its_place_and_changes_nothing() {
    let app = Server::start(&Listen::Ipv4, apps::http).unwrap();
    let instance = Instance::before(app.address());
    let config = trusting(&instance.home.ca.certificate());
    let served = || get(&mut connect(&config, instance.address(), "localhost").unwrap(), "/x").unwrap();
    assert_eq!(served(), "hello /x\n");

    // Lines 1 and 2 are the ones that `configure` writes.
    let user = fs::read_to_string(instance.home.file("offramp.toml")).unwrap().contains("user = ");
    let line = if user { 3 } else { 2 };
    let broken =
        format!("[limits]\nidle_timout = \"5m\"\nconnections = 0\n{}", Home::one_route(app.address()));
    let outcome = reload_to(&instance, &broken);
    for part in ["reload refused", "idle_timout", "idle_timeout", "faults=2"] {
        assert!(outcome.contains(part), "{part} in {outcome}");
    }
    for line in [line + 1, line + 2] {
        assert!(outcome.contains(&format!("offramp.toml:{line}:")), "line {line} in {outcome}");
    }
    assert_eq!(served(), "hello /x\n");

    // Not TOML, no file, an address that cannot be had, a key that is none: the same.
    let other = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    let taken = format!(
        "{CERTIFICATE}{LISTENER}[[listener]]\nname = \"taken\"\naddress = \"{}\"\n[[route]]\nserver = \"{}\"\n",
        other.address(),
        app.address()
    );
    for (text, part) in [("[limits", "offramp.toml:"), (&taken, "cannot listen on")] {
        let outcome = reload_to(&instance, text);
        assert!(outcome.contains("reload refused") && outcome.contains(part), "{part} in {outcome}");
        assert_eq!(served(), "hello /x\n");
    }
    fs::remove_file(instance.home.file("offramp.toml")).unwrap();
    assert!(reload(&instance).contains("reload refused"));
    instance.home.configure(&Home::one_route(app.address()));
    fs::write(instance.home.file("server.key"), "no key").unwrap();
    let outcome = reload(&instance);
    assert!(outcome.contains("reload refused") && outcome.contains("server.key"), "{outcome}");
    assert_eq!(served(), "hello /x\n");
    instance.stop();
}

#[test]
fn keys_that_need_a_restart_are_named() {
    let app = Server::start(&Listen::Ipv4, apps::http).unwrap();
    let instance = Home::new().run(&format!("workers = 1\n{}", Home::one_route(app.address())));
    let outcome = reload_to(&instance, &format!("workers = 2\n{}", Home::one_route(app.address())));
    assert!(outcome.contains(" reloaded ") && outcome.contains("needs_an_upgrade=workers"), "{outcome}");
    // Asked again, it says so again: it is still not so.
    assert!(reload(&instance).contains("needs_an_upgrade=workers"));
    let config = Arc::clone(&trusting(&instance.home.ca.certificate()));
    assert!(connect(&config, instance.address(), "localhost").is_ok());
    instance.stop();
}
