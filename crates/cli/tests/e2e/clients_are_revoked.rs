//! Revocation lists, several authorities, pins, units and addresses; each refusal says who was refused.

use std::time::{Duration, SystemTime};

use offramp_testkit::ca::{Leaf, Validity};
use offramp_testkit::process::Source;
use offramp_testkit::server::{Listen, Server, apps};

use crate::support::client_pki::{self, pin};
use crate::support::instance::{CERTIFICATE, Home, Instance, LISTENER, cause, text};
use crate::support::openssl::{connect, echo, refused};

const VERSIONS: [&str; 2] = ["-tls1_2", "-tls1_3"];

fn home() -> Home {
    let home = Home::new();
    client_pki::make(home.path());
    home.ca.issue("alice", &Leaf::client("alice", &[])).unwrap();
    home
}

fn run(home: Home, app: &Server, client_auth: &str) -> Instance {
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
fn turned_away(instance: &Instance, version: &str, name: &str) -> serde_json::Value {
    let refusals = || instance.events().into_iter().filter(|event| !text(event, "alert_sent").is_empty());
    let seen = refusals().count();
    refused(instance, &shows(version, &files(name)));
    instance.until("the event of the refusal", || refusals().nth(seen))
}

#[test]
fn who_is_revoked_is_refused_from_the_moment_on_at_which_the_list_says_so() {
    let app = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    let instance = run(home(), &app, "ca = [\"ca.pem\", \"oca.pem\"], crl = \"crl.pem\"");
    for version in VERSIONS {
        for name in ["bob", "alice"] {
            echo(&instance, &shows(version, &files(name)));
        }
    }
    client_pki::revoke(instance.home.path(), "bob");
    instance.until("the new list is in use", || {
        let log = instance.process.lines(Source::Stderr);
        log.iter().any(|line| line.contains("certificates changed")).then_some(())
    });
    for version in VERSIONS {
        let event = turned_away(&instance, version, "bob");
        assert_eq!(cause(&event), "client_certificate_revoked", "{event}");
        assert_eq!(text(&event, "alert_sent"), "certificate_revoked", "{event}");
        assert_eq!(text(&event, "client_cn"), "bob", "{event}");
        for part in ["CN=bob", "spiffe://example.org/ns/prod/sa/bob", "issuer CN=Offramp test PKI"] {
            assert!(text(&event, "detail").contains(part), "{part}: {event}");
        }
        // The other authority has no list, and has revoked nobody.
        echo(&instance, &shows(version, &files("alice")));
    }
    instance.until("the log tells of the refusal", || {
        let log = instance.process.lines(Source::Stderr);
        let told =
            |line: &String| line.contains("a client certificate is refused") && line.contains("CN=bob");
        log.iter().any(told).then_some(())
    });
    instance.stop();
}

/// Connects with the session of a connection before, and with or without this certificate; is refused, and gives the
/// event.
fn turned_away_with_ticket(instance: &Instance, arguments: &[&str]) -> serde_json::Value {
    let refusals = || instance.events().into_iter().filter(|event| !text(event, "alert_sent").is_empty());
    let seen = refusals().count();
    refused(instance, &[arguments, &["-sess_in", "session.pem"]].concat());
    instance.until("the event of the refusal", || refusals().nth(seen))
}

/// Who keeps a ticket from the time in which it was believed comes back with it as long as nothing has changed, and
/// not any more from the moment on at which its certificate is revoked or its authority is gone.
#[test]
fn a_ticket_is_good_only_as_long_as_the_certificate() {
    let app = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    for version in VERSIONS {
        let home = home();
        let both = ["ca.pem", "oca.pem"].map(|file| std::fs::read(home.file(file)).unwrap());
        std::fs::write(home.file("clients.pem"), both.concat()).unwrap();
        let instance = run(home, &app, "ca = \"clients.pem\", crl = \"crl.pem\"");
        let changed = |times: usize| {
            instance.until("the change is in use", || {
                let log = instance.process.lines(Source::Stderr);
                let told = log.iter().filter(|line| line.contains("certificates changed")).count();
                (told >= times).then_some(())
            });
        };
        let steps: [(&str, &dyn Fn(), &str); 2] = [
            ("bob", &|| client_pki::revoke(instance.home.path(), "bob"), "client_certificate_revoked"),
            (
                "alice",
                &|| {
                    std::fs::copy(instance.home.file("oca.pem"), instance.home.file("next.pem")).unwrap();
                    std::fs::rename(instance.home.file("next.pem"), instance.home.file("clients.pem"))
                        .unwrap();
                },
                "client_certificate_unknown_issuer",
            ),
        ];
        for (step, (name, change, expected)) in steps.into_iter().enumerate() {
            let files = files(name);
            let shows = shows(version, &files);
            echo(&instance, &[&shows[..], &["-sess_out", "session.pem"]].concat());
            let back = echo(&instance, &[&shows[..], &["-sess_in", "session.pem"]].concat());
            assert!(back.contains("Reused, TLSv1."), "{back}");
            change();
            changed(step + 1);
            let before = app.accepted();
            let event = turned_away_with_ticket(&instance, &shows);
            assert_eq!((cause(&event), text(&event, "client_cn")), (expected, name), "{event}");
            // The ticket does not stand in for a certificate either.
            let event = turned_away_with_ticket(&instance, &[version]);
            assert_eq!(cause(&event), "client_certificate_missing", "{event}");
            assert_eq!(app.accepted(), before, "{name}");
        }
        instance.stop();
    }
}

/// A certificate that ends while its ticket lives: the ticket ends with it, and the client is asked for a certificate.
#[test]
fn a_ticket_ends_with_the_certificate() {
    let app = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    let instance = run(home(), &app, "ca = \"ca.pem\"");
    for version in VERSIONS {
        // A machine that is too slow for the first gets more time.
        let (end, files) = [3, 9, 27, 81]
            .into_iter()
            .find_map(|seconds| {
                let end = SystemTime::now() + Duration::from_secs(seconds);
                let leaf = Leaf { validity: Validity::Until(end), ..Leaf::client("dave", &[]) };
                instance.home.ca.issue("dave", &leaf).unwrap();
                let files = files("dave");
                let keeps = [&shows(version, &files)[..], &["-sess_out", "session.pem"]].concat();
                let mut client = connect(&instance, &keeps);
                client.say("a line to be echoed\n");
                client.hear_either("a line to be echoed", "SSL alert number").then_some((end, files))
            })
            .expect("81 seconds are enough");
        let shows = shows(version, &files);
        while SystemTime::now() <= end + Duration::from_secs(1) {
            std::thread::sleep(Duration::from_millis(50));
        }
        let event = turned_away_with_ticket(&instance, &shows);
        let said = (cause(&event), text(&event, "alert_sent"), &event["resumed"]);
        let expected = ("client_certificate_expired", "certificate_expired", &serde_json::Value::Null);
        assert_eq!(said, expected, "{event}");
        assert!(text(&event, "detail").contains("CN=dave"), "{event}");
        instance.home.ca.issue("dave", &Leaf::client("dave", &[])).unwrap();
        let back = echo(&instance, &[&shows[..], &["-sess_in", "session.pem"]].concat());
        assert!(back.contains("New, TLSv1."), "{back}");
    }
    instance.stop();
}

#[test]
fn a_client_that_leaves_its_chain_out_is_refused() {
    let app = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    let instance = run(home(), &app, "ca = \"oca.pem\"");
    let chain = ["-cert_chain", "middle.pem"];
    for version in VERSIONS {
        let event = turned_away(&instance, version, "carol");
        assert_eq!(cause(&event), "client_certificate_unknown_issuer", "{event}");
        assert_eq!(text(&event, "alert_sent"), "unknown_ca", "{event}");
        assert!(text(&event, "detail").contains("CN=carol"), "{event}");
        let files = files("carol");
        echo(&instance, &[&shows(version, &files)[..], &chain].concat());
    }
    instance.stop();
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
        let instance = run(home, &app, &format!("ca = \"oca.pem\", allow = \"{allow}\""));
        if admits {
            echo(&instance, &shows("-tls1_3", &files("bob")));
        } else {
            let event = turned_away(&instance, "-tls1_3", "bob");
            assert_eq!(cause(&event), "client_certificate_not_allowed", "{allow}: {event}");
            assert_eq!(text(&event, "alert_sent"), "access_denied", "{allow}: {event}");
            assert!(text(&event, "detail").contains("CN=bob"), "{event}");
        }
        instance.stop();
    }
}
