//! dns-01 without a program: Offramp updates the records on a real name server (RFC 2136), and the authority asks that.

use std::fs;

use offramp_testkit::server::{Listen, Server, apps};

use crate::house::Home;
use crate::knot::{Knot, SECRET};
use crate::openssl::echo;
use crate::pebble::{Pebble, Terms, logged};

fn update(knot: &Knot, key_name: &str, zone: &str) -> String {
    format!(
        "challenge = \"dns-01\"\ndns_wait = \"0s\"\ndns_update = {{ server = \"127.0.0.1:{}\", zone = \"{zone}\", \
         key_name = \"{key_name}\", key_file = \"tsig.key\" }}",
        knot.port
    )
}

#[test]
fn by_signed_updates_for_a_name_and_its_wildcard_at_once() {
    let app = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    let home = Home::new();
    let knot = Knot::start(home.path());
    let pebble = Pebble::start_with(home.path(), &home.ca, &Terms::default(), Some(knot.port));
    fs::write(home.file("tsig.key"), SECRET).unwrap();
    let section = pebble.section(&home.ca, &update(&knot, "offramp", "test"));
    let rest = format!(
        "[[certificate]]\nacme = \"pebble\"\nnames = [\"w.test\", \"*.w.test\"]\n\
         [[listener]]\naddress = \"127.0.0.1:0\"\n[[route]]\nserver = \"{}\"\n",
        app.address()
    );
    let house = home.run(&(section + &rest));
    logged(&house, "certificates changed", "");
    assert!(echo(&house, &["-servername", "x.w.test"]).contains("Pebble"));
    house.until("the records are gone", || (!knot.has_text("_acme-challenge.w.test")).then_some(()));
    assert!(!house.process.transcript().contains("stays behind"));
}

#[test]
fn a_key_or_a_zone_that_the_server_does_not_know_is_told() {
    let app = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    for (key, zone, told) in [("stranger", "test", "BADKEY"), ("offramp", "other.test", "NOTAUTH")] {
        let home = Home::new();
        let knot = Knot::start(home.path());
        let pebble = Pebble::start_with(home.path(), &home.ca, &Terms::default(), Some(knot.port));
        fs::write(home.file("tsig.key"), SECRET).unwrap();
        let rest = format!(
            "[[certificate]]\nacme = \"pebble\"\nnames = [\"w.test\"]\n\
             [[listener]]\naddress = \"127.0.0.1:0\"\n[[route]]\nserver = \"{}\"\n",
            app.address()
        );
        let text = pebble.section(&home.ca, &update(&knot, key, zone)) + &rest;
        let house = home.run(&text);
        let line = logged(&house, "no certificate was obtained", "_acme-challenge.w.test");
        assert!(line.contains(told), "{line}");
    }
}
