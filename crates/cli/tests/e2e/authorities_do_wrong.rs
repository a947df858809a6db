//! An authority that is down, answers garbage, or issues what is of no use: the old certificate stays, each failure is
//! logged and counted, and the authority is asked no more often than it allows.

use std::process::Output;
use std::time::Duration;

use offramp_testkit::process::{Signal, Source};
use offramp_testkit::server::{Listen, Server, apps};

use crate::support::authority::{Authority, Fault, Oddity};
use crate::support::crowd::{connect, trusting};
use crate::support::figures::Page;
use crate::support::instance::{Home, Instance};
use crate::support::offramp::{output, stderr};
use crate::support::openssl::echo;
use crate::support::pebble::logged;

fn configuration(home: &Home, authority: &Authority, app: &Server) -> String {
    format!(
        "{}[metrics]\naddress = \"127.0.0.1:0\"\n[[certificate]]\nacme = \"own\"\nnames = [\"a.test\"]\n\
         [[listener]]\nname = \"default\"\naddress = \"127.0.0.1:0\"\n[[route]]\nserver = \"{}\"\n",
        authority.section(&home.ca.certificate(), ""),
        app.address()
    )
}

/// The certificate that clients get, in PEM.
fn shown(instance: &Instance) -> String {
    let said = echo(instance, &["-servername", "a.test"]);
    let begin = said.find("-----BEGIN CERTIFICATE-----").unwrap();
    said[begin..].split("-----END CERTIFICATE-----").next().unwrap().to_owned()
}

fn renew(instance: &Instance) -> Output {
    output(instance.home.path(), &["cert", "renew", "a.test", "--config", "offramp.toml"])
}

fn failed(instance: &Instance) -> f64 {
    Page::scrape(instance.metrics()).get("offramp_acme_orders_total{outcome=\"failed\"}")
}

/// Has each fault stand in the way of a renewal, and expects a reason that has its text.
fn faults(faults: &[(Fault, &str)]) {
    assert!(faults.len() <= 5, "authorities allow no more failures in an hour");
    let app = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    let home = Home::new();
    let authority = Authority::start(&home.ca, Duration::from_secs(90 * 24 * 3600));
    let text = configuration(&home, &authority, &app);
    let instance = home.run(&text);
    logged(&instance, "certificates changed", "");
    let before = shown(&instance);
    for (count, (fault, reason)) in (1..).zip(faults) {
        authority.set_fault(*fault);
        let refused = renew(&instance);
        assert_eq!(refused.status.code(), Some(1), "{fault:?}: {}", stderr(&refused));
        assert!(stderr(&refused).contains(reason), "{fault:?}: {}", stderr(&refused));
        assert!(stderr(&refused).len() < 1500, "{fault:?}: {}", stderr(&refused));
        assert_eq!(shown(&instance), before, "{fault:?}");
        assert_eq!(failed(&instance), f64::from(count), "{fault:?}");
        let line = logged(&instance, "the next attempt comes later", &format!("failures={count} "));
        assert!(line.contains("names=a.test") && line.contains("not_after=20"), "{line}");
    }
    // What was wrong is over, and nothing is left of it.
    authority.set_fault(Fault::None);
    if faults.len() < 5 {
        let renewed = renew(&instance);
        assert_eq!(renewed.status.code(), Some(0), "{}", stderr(&renewed));
        instance.until("clients get the new one", || (shown(&instance) != before).then_some(()));
    }
    instance.stop();
}

#[test]
fn answers_that_are_none_leave_the_old_certificate() {
    faults(&[
        (Fault::Html, "answered 200 OK (text/html): <html><body>Maintenance"),
        (Fault::Error, "answered 500 Internal Server Error (text/plain): oops"),
        (Fault::Garbage, "/dir: "),
        (Fault::Nonsense, "own: "),
    ]);
}

#[test]
fn an_authority_that_does_not_stop_leaves_the_old_certificate() {
    faults(&[(Fault::Endless, "length limit exceeded")]);
}

/// Has each fault of the network stand in the way of a renewal: it is told, and is no failure that an authority counts.
fn unreachable(fault: Fault, reason: &str) {
    let app = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    let home = Home::new();
    let authority = Authority::start(&home.ca, Duration::from_secs(90 * 24 * 3600));
    let text = configuration(&home, &authority, &app);
    let instance = home.run(&text);
    logged(&instance, "certificates changed", "");
    let before = shown(&instance);
    authority.set_fault(fault);
    let refused = renew(&instance);
    assert_eq!(refused.status.code(), Some(1), "{fault:?}: {}", stderr(&refused));
    assert!(stderr(&refused).contains(reason), "{fault:?}: {}", stderr(&refused));
    assert_eq!((shown(&instance), failed(&instance)), (before.clone(), 1.0));
    logged(&instance, "no authority can be reached; the next attempt comes soon", "seconds=2");
    authority.set_fault(Fault::None);
    let renewed = renew(&instance);
    assert_eq!(renewed.status.code(), Some(0), "{}", stderr(&renewed));
    instance.until("clients get the new one", || (shown(&instance) != before).then_some(()));
    instance.stop();
}

#[test]
fn an_authority_that_is_gone_leaves_the_old_certificate() {
    unreachable(Fault::Down, "TLS: ");
}

#[test]
fn an_authority_that_says_nothing_is_waited_for_a_minute() {
    unreachable(Fault::Silent, "no response within 60 s");
}

/// Authorities count a name that they look for while they answer the challenge as they count any other.
#[test]
fn a_name_that_is_looked_for_at_once_is_counted() {
    let app = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    let home = Home::new();
    let authority = Authority::start(&home.ca, Duration::from_secs(90 * 24 * 3600));
    let other = "[[certificate]]\nacme = \"own\"\nnames = [\"a.test\", \"b.test\"]\n";
    let text = format!("{}{other}", configuration(&home, &authority, &app));
    let instance = home.run(&text);
    for names in ["names=a.test ", "names=\"a.test b.test\""] {
        logged(&instance, "a certificate was obtained", names);
    }
    authority.set_fault(Fault::Looks);
    for _ in 0..2 {
        let said = stderr(&renew(&instance));
        assert_eq!(said.matches("a.test: API error: nothing is there").count(), 2, "{said}");
    }
    // Five for the name, whichever certificate has it.
    let said = stderr(&renew(&instance));
    assert_eq!(said.matches("a.test: API error: nothing is there").count(), 1, "{said}");
    assert!(said.contains("is not asked before 20"), "{said}");
    assert_eq!(authority.requests("/challenge/"), 5);
    instance.stop();
}

/// A machine that boots has no network yet: three attempts follow soon, before the pauses begin that authorities want.
#[test]
fn a_machine_that_boots_has_its_certificate_soon() {
    let app = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    let home = Home::new();
    let authority = Authority::start(&home.ca, Duration::from_secs(90 * 24 * 3600));
    authority.set_fault(Fault::Down);
    let text = configuration(&home, &authority, &app);
    let instance = home.run(&text);
    for seconds in [2, 5, 15] {
        let soon = "no authority can be reached; the next attempt comes soon";
        logged(&instance, soon, &format!("seconds={seconds}"));
    }
    authority.set_fault(Fault::None);
    logged(&instance, "a certificate was obtained", "names=a.test");
    let lines = instance.process.lines(Source::Stderr);
    assert!(!lines.iter().any(|line| line.contains("failures=")), "none was counted: {lines:?}");
    instance.stop();
}

#[test]
fn odd_authorities_are_understood() {
    let app = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    let home = Home::new();
    let authority = Authority::start(&home.ca, Duration::from_secs(90 * 24 * 3600));
    let text = configuration(&home, &authority, &app);
    let instance = home.run(&text);
    logged(&instance, "certificates changed", "");
    for oddity in Oddity::ALL {
        let before = shown(&instance);
        authority.set_fault(Fault::Odd(oddity));
        let renewed = renew(&instance);
        assert_eq!(renewed.status.code(), Some(0), "{oddity:?}: {}", stderr(&renewed));
        instance.until("clients get the new one", || (shown(&instance) != before).then_some(()));
    }
    assert_eq!(failed(&instance), 0.0);
    instance.stop();
}

#[test]
fn certificates_that_are_of_no_use_leave_the_old_one() {
    faults(&[
        (Fault::OtherKey, "what the authority issued: "),
        (Fault::OtherName, "what the authority issued: "),
        (Fault::NoCertificate, "what the authority issued: "),
    ]);
}

#[test]
fn an_authority_that_asks_to_be_left_alone_is() {
    let app = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    let home = Home::new();
    let authority = Authority::start(&home.ca, Duration::from_secs(90 * 24 * 3600));
    let text = configuration(&home, &authority, &app);
    let instance = home.run(&text);
    logged(&instance, "certificates changed", "");
    authority.set_fault(Fault::Limited(7200));
    let refused = renew(&instance);
    assert!(stderr(&refused).contains("rateLimited"), "{}", stderr(&refused));
    let line = logged(&instance, "the next attempt comes later", "failures=1 ");
    let seconds: u64 = line.split("seconds=").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
    assert!((7100..=7200).contains(&seconds), "{line}");
    authority.set_fault(Fault::None);
    let asked = authority.requests("/order");
    let refused = renew(&instance);
    assert!(stderr(&refused).contains("are not asked again before 20"), "{}", stderr(&refused));
    for _ in 0..3 {
        instance.process.signal(Signal::HUP).unwrap();
    }
    instance.until("the reloads have come", || {
        let lines = instance.process.lines(Source::Stderr);
        (lines.iter().filter(|line| line.contains(" reloaded ")).count() >= 1).then_some(())
    });
    let refused = renew(&instance);
    assert_eq!(refused.status.code(), Some(1));
    assert_eq!(authority.requests("/order"), asked);
}

#[test]
fn the_less_an_old_certificate_has_left_the_more_urgent_the_log_is() {
    let app = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    let home = Home::new();
    let authority = Authority::start(&home.ca, Duration::from_secs(30));
    let text = configuration(&home, &authority, &app);
    let instance = home.run(&text);
    logged(&instance, "certificates changed", "");
    let before = shown(&instance);
    authority.set_fault(Fault::Error);
    let left = || {
        let page = Page::scrape(instance.metrics());
        page.get("offramp_certificate_expiry_seconds{name=\"a.test\",source=\"acme\"}")
    };
    // A third of its life, and nobody waits for the next attempt.
    instance.until("it expires soon", || (left() < 10.0).then_some(()));
    assert_eq!(renew(&instance).status.code(), Some(1));
    let line = logged(&instance, "the old certificate expires soon, and there is no new one", "names=a.test");
    assert!(line.contains("ERROR") && line.contains("failures=1 "), "{line}");
    instance.until("it has expired", || (left() < 0.0).then_some(()));
    assert_eq!(renew(&instance).status.code(), Some(1));
    logged(&instance, "the old certificate has expired, and there is no new one", "failures=2 ");
    // Clients get it all the same: many only warn, and nothing else is better.
    assert_eq!(shown(&instance), before);
    assert!((failed(&instance) - 2.0).abs() < 0.1);
}

/// What an authority wants holds for all names: those that clients ask for, and those that are to be renewed.
#[test]
fn a_pause_is_shared_by_all_names() {
    let app = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    let home = Home::new();
    let authority = Authority::start(&home.ca, Duration::from_secs(90 * 24 * 3600));
    let text = configuration(&home, &authority, &app)
        + "[[certificate]]\nacme = \"own\"\non_demand = { names = \"*.shop.test\", wait = \"60s\" }\n\
           [limits]\nhandshake_timeout = \"1m\"\n";
    let instance = home.run(&text);
    logged(&instance, "certificates changed", "");
    let client = trusting(&authority.root(instance.home.path()));
    connect(&client, instance.address(), "first.shop.test").unwrap();
    let orders = authority.requests("/order");
    authority.set_fault(Fault::Limited(7200));
    assert!(connect(&client, instance.address(), "second.shop.test").is_err());
    assert_eq!(authority.requests("/order"), orders + 1);
    // Neither the next name nor a renewal wakes it, though it would be served now.
    authority.set_fault(Fault::None);
    for name in ["third.shop.test", "fourth.shop.test"] {
        assert!(connect(&client, instance.address(), name).is_err(), "{name}");
    }
    let refused = renew(&instance);
    assert_eq!(refused.status.code(), Some(1), "{}", stderr(&refused));
    assert!(stderr(&refused).contains("not asked again before"), "{}", stderr(&refused));
    assert_eq!(authority.requests("/order"), orders + 1);
    let page = Page::scrape(instance.metrics());
    assert_eq!(page.get("offramp_acme_on_demand_total{outcome=\"paused\"}"), 2.0);
    assert_eq!(page.get("offramp_acme_on_demand_total{outcome=\"failed\"}"), 1.0);
    instance.stop();
}
