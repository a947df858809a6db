//! Orders that have names in common, and what an order that was killed has left behind.

use std::fs;

use offramp_testkit::process::{Signal, Source, require, write_program};
use offramp_testkit::server::{Listen, Server, apps};

use crate::support::instance::{CERTIFICATE, Home, LIFE, LISTENER};
use crate::support::openssl::echo;
use crate::support::pebble::{Pebble, Terms, logged};

#[test]
fn two_kinds_of_key_for_one_name_are_proved_one_after_the_other() {
    let app = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    let home = Home::new();
    let pebble = Pebble::start(home.path(), &home.ca, &Terms::default());
    let certificate = |key: &str| {
        format!("[[certificate]]\nacme = \"pebble\"\nnames = [\"a.test\"]\nkey_type = \"{key}\"\n")
    };
    let text = format!(
        "{}{}{}[[listener]]\naddress = \"127.0.0.1:{}\"\n[[route]]\nserver = \"{}\"\n",
        pebble.section(&home.ca, ""),
        certificate("p256"),
        certificate("p384"),
        pebble.tls,
        app.address()
    );
    let instance = home.run(&text);
    let both = || {
        let lines = instance.process.lines(Source::Stderr);
        let obtained = lines.iter().filter(|line| line.contains("a certificate was obtained")).count();
        (obtained == 2).then_some(())
    };
    instance.until("both certificates are there", both);
    assert_eq!(pebble.count("set INVALID"), 0);
}

/// A hook that notes its calls, and tells the authority's name server.
fn hook(home: &Home, management: u16) {
    let path = home.file("hook");
    let curl = require("curl", "curl");
    let text = format!(
        "#!/bin/sh -e\ncase $1 in present) verb=set-txt;; cleanup) verb=clear-txt;; esac\n\
         {curl} -sf -d \"{{\\\"host\\\":\\\"$2.\\\",\\\"value\\\":\\\"$3\\\"}}\" http://127.0.0.1:{management}/$verb\n\
         echo \"$1\" >>{}\n",
        home.file("calls").display(),
        curl = curl.display()
    );
    write_program(&path, &text);
}

#[test]
fn a_record_of_a_process_that_was_killed_is_removed_by_the_next_one() {
    let app = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    let home = Home::new();
    let pebble = Pebble::start(home.path(), &home.ca, &Terms::default());
    hook(&home, pebble.management);
    let text = |wait: &str| {
        format!(
            "{}[[certificate]]\nacme = \"pebble\"\nnames = [\"w.test\"]\n\
             [[listener]]\naddress = \"127.0.0.1:{}\"\n[[route]]\nserver = \"{}\"\n",
            pebble.section(
                &home.ca,
                &format!("challenge = \"dns-01\"\ndns_hook = \"hook\"\ndns_wait = \"{wait}\"")
            ),
            pebble.tls,
            app.address()
        )
    };
    let (first, second) = (text("1h"), text("0s"));
    let calls = home.file("calls");
    let instance = home.run(&first);
    instance.until("the record is set", || calls.exists().then_some(()));
    instance.process.signal(Signal::KILL).unwrap();
    instance.process.wait(LIFE).unwrap();
    assert_eq!(fs::read_to_string(&calls).unwrap(), "present\n");
    let home = instance.home;
    fs::remove_file(home.file("notify.sock")).unwrap();
    let instance = home.run(&second);
    logged(&instance, "certificates changed", "");
    assert!(echo(&instance, &["-servername", "w.test"]).contains("Pebble"));
    let calls = fs::read_to_string(calls).unwrap();
    assert_eq!(calls, "present\ncleanup\npresent\ncleanup\n");
    let left =
        fs::read_dir(instance.home.file("state/acme/certificates")).unwrap().next().unwrap().unwrap().path();
    assert!(!left.join("records.json").exists());
}

/// A certificate leaves the configuration in the middle of its order, with a reload or with the next start: no later order
/// would remove its record.
#[test]
fn a_record_of_a_certificate_that_was_removed_does_not_stay() {
    let app = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    for by_reload in [true, false] {
        let home = Home::new();
        let pebble = Pebble::start(home.path(), &home.ca, &Terms::default());
        hook(&home, pebble.management);
        let section =
            pebble.section(&home.ca, "challenge = \"dns-01\"\ndns_hook = \"hook\"\ndns_wait = \"1h\"");
        let rest = format!("{CERTIFICATE}{LISTENER}[[route]]\nserver = \"{}\"\n", app.address());
        let wanted = "[[certificate]]\nacme = \"pebble\"\nnames = [\"w.test\"]\n";
        let calls = home.file("calls");
        let instance = home.run(&[&*section, wanted, &rest].concat());
        instance.until("the record is set", || calls.exists().then_some(()));
        let without = [&*section, &rest].concat();
        let instance = if by_reload {
            instance.home.configure(&without);
            instance.process.signal(Signal::HUP).unwrap();
            instance
        } else {
            instance.process.signal(Signal::KILL).unwrap();
            instance.process.wait(LIFE).unwrap();
            fs::remove_file(instance.home.file("notify.sock")).unwrap();
            instance.home.run(&without)
        };
        let left =
            fs::read_dir(instance.home.file("state/acme/certificates")).unwrap().next().unwrap().unwrap();
        let records = left.path().join("records.json");
        instance.until("the record is removed", || {
            let done = fs::read_to_string(&calls).unwrap() == "present\ncleanup\n";
            (done && !records.exists()).then_some(())
        });
        instance.stop();
    }
}
