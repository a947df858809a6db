//! `offramp cert renew` has the running process renew a certificate, and says what came of it.

use std::process::Command;

use offramp_testkit::process::require;
use offramp_testkit::server::{Listen, Server, apps};
use serde_json::Value;

use crate::support::instance::{Home, Instance, PATIENCE, ask};
use crate::support::offramp::{output, stderr, stdout};
use crate::support::openssl::echo;
use crate::support::pebble::{Pebble, Terms, logged};

/// The certificate that clients get, in PEM.
fn shown(instance: &Instance) -> String {
    let said = echo(instance, &["-servername", "a.test"]);
    let (begin, end) = ("-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----");
    let begin = said.find(begin).unwrap();
    said[begin..].split(end).next().unwrap().to_owned()
}

/// The answer of the admin interface to an order of this certificate.
fn renewed_by_the_api(instance: &Instance, certificate: &str) -> Value {
    let mut command = Command::new(require("curl", "curl"));
    command.args(["-q", "--silent", "--show-error", "--fail-with-body", "--request", "POST"]);
    command.args(["--unix-socket", "state/admin.sock"]);
    command.arg(format!("http://localhost/v1/certificates/{certificate}/renew"));
    command.current_dir(instance.home.path());
    let output = ask(command, b"", PATIENCE);
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn a_renewal_is_reported_and_used_at_once_and_a_failure_leaves_the_old_one() {
    let app = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    let home = Home::new();
    let pebble = Pebble::start(home.path(), &home.ca, &Terms { refused_nonces: 20, ..Terms::default() });
    let text = format!(
        "{}[[certificate]]\nacme = \"pebble\"\nnames = [\"a.test\", \"b.test\"]\n\
         [[listener]]\nname = \"default\"\naddress = \"127.0.0.1:{}\"\n[[route]]\nserver = \"{}\"\n",
        pebble.section(&home.ca, ""),
        pebble.tls,
        app.address()
    );
    let configuration = home.configure(&text);
    let configuration = configuration.to_str().unwrap();
    // Nobody runs yet.
    let none = output(home.path(), &["cert", "renew", "a.test", "--config", configuration]);
    assert_eq!(none.status.code(), Some(1));
    assert!(stderr(&none).contains("no running Offramp keeps certificates of authorities in"), "{none:?}");
    let instance = home.run(&text);
    logged(&instance, "certificates changed", "");
    let before = shown(&instance);
    let renew =
        |name: &str| output(instance.home.path(), &["cert", "renew", name, "--config", configuration]);
    let renewed = renew("B.test");
    assert_eq!(renewed.status.code(), Some(0), "{renewed:?}");
    assert!(stdout(&renewed).starts_with("b.test: renewed, valid until 20"), "{renewed:?}");
    instance.until("clients get the new one", || (shown(&instance) != before).then_some(()));
    assert_eq!(pebble.count("Added order"), 2);
    let asked = renewed_by_the_api(&instance, "a.test%2Cb.test");
    assert!(asked["renewed"][0]["until"].as_str().unwrap().starts_with("20"), "{asked}");
    assert_eq!(pebble.count("Added order"), 3);
    let stranger = renew("c.test");
    assert_eq!(stranger.status.code(), Some(1));
    assert!(stderr(&stranger).contains("no certificate of an authority has the name c.test"), "{stranger:?}");
    // One that fails says why, in the authority's words.
    let before = shown(&instance);
    pebble.tell_names("/set-default-ipv4", "{\"ip\":\"127.0.0.9\"}");
    let failed = renew("a.test");
    assert_eq!((failed.status.code(), stdout(&failed).as_str()), (Some(1), ""));
    assert!(
        stderr(&failed).contains("error: pebble: ") && stderr(&failed).contains("urn:ietf:params:acme"),
        "{failed:?}"
    );
    assert_eq!(shown(&instance), before);
    // However often somebody asks, the authority looks in vain for no name more than five times in an hour.
    for _ in 0..8 {
        let failed = renew("a.test");
        assert_eq!(failed.status.code(), Some(1), "{failed:?}");
    }
    let refused = renew("b.test");
    assert!(stderr(&refused).contains("are not asked again before 20"), "{refused:?}");
    assert_eq!(pebble.count("Added order"), 3 + 5);
}

#[test]
fn a_name_in_two_certificates_fails_no_more_often_than_authorities_allow() {
    let app = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    let home = Home::new();
    let pebble = Pebble::start(home.path(), &home.ca, &Terms::default());
    pebble.tell_names("/set-default-ipv4", "{\"ip\":\"127.0.0.9\"}");
    let certificate =
        |other: &str| format!("[[certificate]]\nacme = \"pebble\"\nnames = [\"a.test\", \"{other}\"]\n");
    let text = format!(
        "{}{}{}[[listener]]\nname = \"default\"\naddress = \"127.0.0.1:{}\"\n[[route]]\nserver = \"{}\"\n",
        pebble.section(&home.ca, ""),
        certificate("b.test"),
        certificate("c.test"),
        pebble.tls,
        app.address()
    );
    let instance = home.run(&text);
    for other in ["a.test b.test", "a.test c.test"] {
        logged(&instance, "no certificate was obtained", other);
    }
    let mut said = String::new();
    for _ in 0..4 {
        let refused = output(instance.home.path(), &["cert", "renew", "a.test", "--config", "offramp.toml"]);
        assert_eq!(refused.status.code(), Some(1), "{refused:?}");
        said = stderr(&refused);
    }
    // Two of each, and one more.
    assert_eq!(said.matches("not asked again before 20").count(), 2, "{said}");
    let looked = instance.process.lines(offramp_testkit::process::Source::Stderr);
    let looked = looked
        .iter()
        .filter(|line| line.contains("no certificate was obtained") && line.contains("127.0.0.9"));
    assert_eq!(looked.count(), 5, "{}", instance.process.transcript());
}
