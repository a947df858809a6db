//! SIGUSR2 and what is not in the file: a drained server stays drained, the heaviest clients are known, and what cannot pass
//! over is not lost without a word.

use std::fs;
use std::time::Duration;

use offramp_testkit::process::Signal;
use offramp_testkit::server::{Listen, Server};
use serde_json::Value;

use crate::support::crowd::{Tls, close, connect, get, tcp, trusting};
use crate::support::http_app::{app, respond};
use crate::support::instance::{CERTIFICATE, Home};
use crate::support::logs_desk::{hold, release, until};
use crate::support::offramp::{output, stderr, stdout};
use crate::support::upgrade::Upgraded;
use crate::upgrades_keep_the_admin_socket::ctl;

fn named(name: &'static str) -> Server {
    app(&Listen::Ipv4, move |_, stream| respond(stream, 200, &[], name.as_bytes()))
}

fn refused(upgraded: &Upgraded, arguments: &[&str]) -> String {
    let all = [&["ctl", "--admin", "unix:state/admin.sock"], arguments].concat();
    let refused = output(upgraded.instance.home.path(), &all);
    assert_eq!(refused.status.code(), Some(1), "{arguments:?}: {}", stdout(&refused));
    stderr(&refused)
}

fn states(upgraded: &Upgraded) -> Vec<Value> {
    let shown = ctl(upgraded, &["show", "backends"]);
    let servers = shown["backends"][0]["servers"].as_array().unwrap().clone();
    servers.into_iter().map(|server| server["state"].clone()).collect()
}

#[test]
fn a_drained_server_stays_drained_and_nothing_is_lost_without_a_word() {
    let (one, two) = (named("one"), named("two"));
    let text = format!(
        "[metrics]\naddress = \"127.0.0.1:0\"\n{CERTIFICATE}[[listener]]\naddress = \"127.0.0.1:0\"\nmode = \"http\"\n\
         [[route]]\nbackend = \"shop\"\n[backend.shop]\nservers = [\"{}\", \"{}\"]\n",
        one.address(),
        two.address()
    );
    let upgraded = Upgraded::of(Home::new().run(&text));
    let instance = &upgraded.instance;
    let config = trusting(&instance.home.ca.certificate());
    let server = one.address().to_string();
    let served = |count: usize| {
        for _ in 0..count {
            let mut tls = connect(&config, instance.address(), "localhost").unwrap();
            assert_eq!(get(&mut tls, "/").unwrap(), "two");
            close(tls).unwrap();
        }
    };
    ctl(&upgraded, &["server", "drain", "shop", &server]);
    ctl(&upgraded, &["log-level", "debug"]);
    served(10);
    let requests = || {
        let mut page = tcp(instance.metrics()).unwrap();
        let page = get(&mut page, "/metrics").unwrap();
        let line =
            page.lines().find(|line| line.starts_with("offramp_client_requests_total{client=\"127.0.0.1\"}"));
        line.and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
    };
    instance.until("all requests are counted", || (requests() == Some(10.0)).then_some(()));
    for round in 1..=2 {
        upgraded.upgrade();
        assert_eq!(states(&upgraded), ["draining", "up"]);
        let status = ctl(&upgraded, &["status"]);
        assert_eq!(status["pid"], upgraded.current());
        let lines = status["config"]["unwritten"].as_array().unwrap();
        assert_eq!(lines.len(), 2, "{status}");
        served(5);
        let expected = f64::from(10 + 5 * round);
        instance.until("the client's requests go on", || (requests() == Some(expected)).then_some(()));
        upgraded.until_others_ended();
    }
    assert_eq!(upgraded.logged("were taken over").len(), 2);
    // What waits to be confirmed cannot pass over.
    ctl(&upgraded, &["server", "disable", "shop", &server, "--confirm", "1h"]);
    let said = refused(&upgraded, &["upgrade"]);
    assert!(said.contains("waits to be confirmed") && said.contains("ctl rollback"), "{said}");
    ctl(&upgraded, &["rollback"]);
    assert_eq!(states(&upgraded), ["draining", "up"]);
    // A whole configuration passes over while the file is as it was, comments and all.
    let file = fs::read_to_string(instance.home.file("offramp.toml")).unwrap();
    let other =
        file.replace("[[route]]", "[[route]]\nhost = \"other.example\"\nbackend = \"shop\"\n[[route]]");
    fs::write(instance.home.file("new.toml"), other).unwrap();
    ctl(&upgraded, &["apply", "new.toml"]);
    upgraded.upgrade();
    upgraded.until_others_ended();
    assert_eq!(ctl(&upgraded, &["status"])["routes"], 2);
    // Not where both were changed: a route before the others is no change of an item.
    fs::write(
        instance.home.file("offramp.toml"),
        format!("watch = false\n{file}[limits]\nidle_timeout = \"9m\"\n"),
    )
    .unwrap();
    let said = refused(&upgraded, &["upgrade"]);
    assert!(said.contains("would be lost") && said.contains("other.example"), "{said}");
    assert!(upgraded.fails().contains("would be lost"), "SIGUSR2 does not lose them either");
    fs::write(instance.home.file("offramp.toml"), &file).unwrap();
    upgraded.upgrade_by(|| {
        ctl(&upgraded, &["upgrade", "--force"]);
    });
    assert_eq!(
        (states(&upgraded), ctl(&upgraded, &["status"])["routes"].clone()),
        (vec!["up".into(), "up".into()], 1.into())
    );
    upgraded.until_others_ended();
    // One that the file cannot have any more: it says which, and what to do.
    ctl(&upgraded, &["server", "drain", "shop", &server]);
    fs::write(instance.home.file("offramp.toml"), file.replace(&server, "127.0.0.1:9")).unwrap();
    let said = refused(&upgraded, &["upgrade"]);
    assert!(said.contains(&format!("server {server}: drain")) && said.contains("--force"), "{said}");
    assert_eq!(said.trim_end().lines().count(), 1, "{said}");
    upgraded.stop();
}

/// Whoever reads that the file lacks a change writes it there by hand, and then there is nothing to hand over.
#[test]
fn what_was_written_by_hand_is_not_made_twice() {
    let (one, two) = (named("one"), named("two"));
    let text = format!(
        "[[listener]]\naddress = \"127.0.0.1:0\"\nmode = \"http\"\ntls = false\n\
         [[route]]\nbackend = \"shop\"\n[backend.shop]\nservers = [\"{}\", \"127.0.0.1:9\"]\n",
        one.address()
    );
    let upgraded = Upgraded::of(Home::new().run(&text));
    let two = two.address().to_string();
    ctl(&upgraded, &["server", "remove", "shop", "127.0.0.1:9"]);
    upgraded.instance.home.configure(&text.replace(", \"127.0.0.1:9\"", ""));
    upgraded.upgrade();
    ctl(&upgraded, &["server", "add", "shop", &two]);
    upgraded.instance.home.configure(&text.replace("127.0.0.1:9", &two));
    upgraded.upgrade();
    // One of two is written.
    ctl(&upgraded, &["server", "remove", "shop", &two]);
    ctl(&upgraded, &["log-level", "debug"]);
    upgraded.instance.home.configure(&text.replace(", \"127.0.0.1:9\"", ""));
    upgraded.upgrade();
    let unwritten = ctl(&upgraded, &["status"])["config"]["unwritten"].clone();
    assert_eq!(unwritten.as_array().unwrap().len(), 1, "{unwritten}");
    assert_eq!(states(&upgraded), ["up"]);
    upgraded.stop();
}

/// Both processes have a spool of their own while the store is away: every request is stored, and none twice.
#[test]
fn requests_of_both_processes_wait_for_a_store_that_is_away() {
    let one = named("one");
    let text = format!(
        "[log_store]\nurl = \"sqlite:store.db\"\n{CERTIFICATE}[[listener]]\naddress = \"127.0.0.1:0\"\nmode = \"http\"\n\
         [[route]]\nserver = \"{}\"\n",
        one.address()
    );
    let upgraded = Upgraded::of(Home::new().run(&text));
    let (instance, home) = (&upgraded.instance, upgraded.instance.home.path());
    let config = trusting(&instance.home.ca.certificate());
    let mut sent = 0;
    let mut ask = |tls: &mut Tls, who: &str| {
        for _ in 0..10 {
            assert_eq!(get(tls, &format!("/{who}/{sent}")).unwrap(), "one");
            sent += 1;
        }
    };
    let stored = |count: usize| {
        let query = "SELECT count(*) AS n, count(DISTINCT path) AS different FROM requests";
        until(home, &["query", query], |rows| rows[0]["n"] == count && rows[0]["different"] == count);
    };
    let mut kept = connect(&config, instance.address(), "localhost").unwrap();
    ask(&mut kept, "before");
    stored(10);
    let holder = hold(&home.join("store.db"));
    ask(&mut kept, "away");
    upgraded.upgrade();
    let mut new = connect(&config, instance.address(), "localhost").unwrap();
    ask(&mut new, "new");
    drop(kept);
    upgraded.until_others_ended();
    let bytes = |name: &str| fs::metadata(instance.home.file(name)).map_or(0, |found| found.len());
    assert!(bytes("state/log-store.spool") > 100, "what the old process could not store stays in its spool");
    release(holder);
    stored(10 + 10);
    // The next process finds what the first has left.
    upgraded.upgrade();
    stored(30);
    drop(new);
    upgraded.until_others_ended();
    stored(30);
    upgraded.stop();
}

#[test]
fn a_process_that_does_not_answer_is_told_in_time() {
    let one = named("one");
    let instance = Home::new().run(&Home::one_route(one.address()));
    let ctl = |arguments: &[&str]| output(instance.home.path(), &[&["ctl"], arguments].concat());
    assert!(ctl(&["--timeout", "30s", "status"]).status.success());
    assert_eq!(ctl(&["--timeout", "soon", "status"]).status.code(), Some(2));
    instance.process.signal(Signal::STOP).unwrap();
    for (arguments, seconds) in [
        (&["--timeout", "300ms", "status"][..], 0),
        (&["--timeout", "1s", "log-level", "debug"], 1),
        (&["--timeout", "1s", "watch"], 1),
        (&["status"], 10),
    ] {
        let begun = std::time::Instant::now();
        let silent = ctl(arguments);
        let said = stderr(&silent);
        assert_eq!(silent.status.code(), Some(1), "{said}");
        assert!(said.contains(&format!("no answer within {seconds} s")), "{said}");
        assert_eq!(said.contains("may still be done"), arguments.contains(&"log-level"), "{said}");
        assert!(begun.elapsed() >= Duration::from_secs(seconds), "{:?}", begun.elapsed());
    }
    instance.process.signal(Signal::CONT).unwrap();
    assert!(ctl(&["status"]).status.success());
    instance.stop();
}
