//! The table of malformed input, against Offramp and against a plain rustls server: at least its verdict
//! and its alert in every case, no reset, and no next client that suffers.

use offramp_testkit::cases::compare_all;
use offramp_testkit::oracle::Oracle;
use offramp_testkit::server::{Listen, Server, apps};

use crate::support::instance::{CERTIFICATE, Home, LISTENER, cause};

#[test]
fn the_record_layer_is_as_strict_as_rustls() {
    let app = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    let home = Home::new();
    let oracle = Oracle::start(&home.server).unwrap();
    let instance = home.run(&format!("{CERTIFICATE}{LISTENER}[[route]]\nserver = \"{}\"\n", app.address()));
    let differences = compare_all(instance.address(), oracle.address());
    let told: String = differences.iter().map(|difference| format!("{difference}\n")).collect();
    assert!(differences.is_empty(), "{} differences:\n{told}", differences.len());
    let events = instance.stop();
    // None of it was a surprise to Offramp.
    for event in &events {
        assert!(cause(event) != "internal" && event["fault"] != "us", "{event}");
    }
}
