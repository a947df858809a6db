//! Revocation lists, several authorities, pins, units and addresses; each refusal says who was refused.

use offramp_testkit::ca::Leaf;
use offramp_testkit::process::Source;
use offramp_testkit::server::{Listen, Server, apps};

use crate::client_pki::{self, pin};
use crate::house::{CERTIFICATE, Home, House, LISTENER, cause, text};
use crate::openssl::{echo, refused};

const VERSIONS: [&str; 2] = ["-tls1_2", "-tls1_3"];

fn home() -> Home {
    let home = Home::new();
    client_pki::make(home.path());
    home.ca.issue("alice", &Leaf::client("alice", &[])).unwrap();
    home
}

fn run(home: Home, app: &Server, client_auth: &str) -> House {
    home.run(&format!(
        "{CERTIFICATE}{LISTENER}[[route]]\nserver = \"{}\"\nclient_auth = {{ {client_auth} }}\n",
        app.address()
    ))
}

fn shows<'a>(version: &'a str, files: &'a [String; 2]) -> [&'a str; 5] {
    [version, "-cert", &files[0], "-key", &files[1]]
}

fn files(name: &str) -> [String; 2] {
    [format!("{name}.pem"), format!("{name}.key")]
}

/// Connects as this client, is refused, and gives the event.
fn turned_away(house: &House, version: &str, name: &str) -> serde_json::Value {
    let refusals = || house.events().into_iter().filter(|event| !text(event, "alert_sent").is_empty());
    let seen = refusals().count();
    refused(house, &shows(version, &files(name)));
    house.until("the event of the refusal", || refusals().nth(seen))
}

#[test]
fn who_is_revoked_is_refused_from_the_moment_on_at_which_the_list_says_so() {
    let app = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    let house = run(home(), &app, "ca = [\"ca.pem\", \"oca.pem\"], crl = \"crl.pem\"");
    for version in VERSIONS {
        for name in ["bob", "alice"] {
            echo(&house, &shows(version, &files(name)));
        }
    }
    client_pki::revoke(house.home.path(), "bob");
    house.until("the new list is in use", || {
        let log = house.process.lines(Source::Stderr);
        log.iter().any(|line| line.contains("certificates changed")).then_some(())
    });
    for version in VERSIONS {
        let event = turned_away(&house, version, "bob");
        assert_eq!(cause(&event), "client_certificate_revoked", "{event}");
        assert_eq!(text(&event, "alert_sent"), "certificate_revoked", "{event}");
        assert_eq!(text(&event, "client_cn"), "bob", "{event}");
        for part in ["CN=bob", "spiffe://example.org/ns/prod/sa/bob", "issuer CN=Offramp test PKI"] {
            assert!(text(&event, "detail").contains(part), "{part}: {event}");
        }
        // The other authority has no list, and has revoked nobody.
        echo(&house, &shows(version, &files("alice")));
    }
    house.until("the log tells of the refusal", || {
        let log = house.process.lines(Source::Stderr);
        let told =
            |line: &String| line.contains("a client certificate is refused") && line.contains("CN=bob");
        log.iter().any(told).then_some(())
    });
    house.stop();
}

#[test]
fn a_client_that_leaves_its_chain_out_is_refused() {
    let app = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    let house = run(home(), &app, "ca = \"oca.pem\"");
    let chain = ["-cert_chain", "middle.pem"];
    for version in VERSIONS {
        let event = turned_away(&house, version, "carol");
        assert_eq!(cause(&event), "client_certificate_unknown_issuer", "{event}");
        assert_eq!(text(&event, "alert_sent"), "unknown_ca", "{event}");
        assert!(text(&event, "detail").contains("CN=carol"), "{event}");
        let files = files("carol");
        echo(&house, &[&shows(version, &files)[..], &chain].concat());
    }
    house.stop();
}

#[test]
fn clients_are_let_in_by_unit_address_and_key() {
    let app = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    let probe = home();
    let other = pin(probe.path(), "alice.pem");
    drop(probe);
    for (allow, admits) in [
        ("ou:ops", true),
        ("ou:dev", true),
        ("ou:op", false),
        ("ip:192.0.2.0/24", true),
        ("ip:192.0.2.8", false),
        ("pin", true),
        (&format!("pin:sha256/{other}"), false),
    ] {
        let home = home();
        let allow = match allow {
            "pin" => format!("pin:sha256/{}", pin(home.path(), "bob.pem")),
            other => other.to_owned(),
        };
        let house = run(home, &app, &format!("ca = \"oca.pem\", allow = \"{allow}\""));
        if admits {
            echo(&house, &shows("-tls1_3", &files("bob")));
        } else {
            let event = turned_away(&house, "-tls1_3", "bob");
            assert_eq!(cause(&event), "client_certificate_not_allowed", "{allow}: {event}");
            assert_eq!(text(&event, "alert_sent"), "access_denied", "{allow}: {event}");
            assert!(text(&event, "detail").contains("CN=bob"), "{event}");
        }
        house.stop();
    }
}
