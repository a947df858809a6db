//! Mutual TLS: required, optional, and with `allow`; each refusal has its alert and its cause.

use std::process::Command;

use offramp_testkit::ca::{Ca, Key, Leaf, Name, Validity};
use offramp_testkit::process::require;
use offramp_testkit::server::{Listen, Server, apps};

use crate::support::instance::{CERTIFICATE, Home, Instance, LISTENER, PATIENCE, ask, cause, text};
use crate::support::openssl::{echo, refused};

const VERSIONS: [&str; 2] = ["-tls1_2", "-tls1_3"];

/// An Offramp whose one route to `app` wants `client_auth`, with these client certificates in its home:
/// `alice` (common name, DNS name and URI), `expired`, `early`, `server` (not for clients), `self` (signed
/// by itself), and in `elsewhere` one of a CA that only bears the same name.
fn instance(app: &Server, client_auth: &str) -> Instance {
    let home = Home::new();
    let names = [Name::Dns("alice.svc.test".into()), Name::Uri("spiffe://example.org/alice".into())];
    let alice = Leaf::client("alice", &names);
    home.ca.issue("alice", &alice).unwrap();
    home.ca.issue("expired", &Leaf { validity: Validity::Expired, ..alice.clone() }).unwrap();
    home.ca.issue("early", &Leaf { validity: Validity::NotYet, ..alice.clone() }).unwrap();
    home.ca.issue("rsa", &Leaf { key: Key::Rsa2048, ..alice.clone() }).unwrap();
    let elsewhere = home.file("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    Ca::new(&elsewhere).unwrap().issue("stranger", &alice).unwrap();
    sign_by_itself(&home);
    home.run(&format!(
        "{CERTIFICATE}{LISTENER}[[route]]\nserver = \"{}\"\nclient_auth = {{ ca = \"ca.pem\", {client_auth} }}\n",
        app.address()
    ))
}

/// Mints `self.pem` and `self.key`.
fn sign_by_itself(home: &Home) {
    let mut command = Command::new(require("openssl", "openssl"));
    command.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]);
    command.args(["-subj", "/CN=alice", "-days", "30", "-addext", "extendedKeyUsage=clientAuth"]);
    command.args(["-addext", "basicConstraints=critical,CA:FALSE", "-addext", "subjectAltName=DNS:alice"]);
    command.args(["-out", "self.pem", "-keyout", "self.key"]).current_dir(home.path());
    let output = ask(command, b"", PATIENCE);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// The arguments that show this certificate.
fn shows<'a>(version: &'a str, files: &'a [String; 2]) -> [&'a str; 5] {
    [version, "-cert", &files[0], "-key", &files[1]]
}

fn files(name: &str) -> [String; 2] {
    [format!("{name}.pem"), format!("{name}.key")]
}

#[test]
fn clients_show_certificates() {
    let app = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    let instance = instance(&app, "mode = \"required\"");
    for version in VERSIONS {
        for name in ["alice", "rsa"] {
            let said = echo(&instance, &shows(version, &files(name)));
            assert!(said.contains("CN = Offramp test CA"), "the authorities are named: {said}");
        }
    }
    for event in instance.stop() {
        assert_eq!((cause(&event), text(&event, "client_cn")), ("client_closed", "alice"), "{event}");
    }
}

#[test]
fn clients_without_a_good_certificate_are_refused_where_it_is_required() {
    let app = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    let instance = instance(&app, "mode = \"required\"");
    let cases = [
        (None, "client_certificate_missing", "certificate_required"),
        (Some("self"), "client_certificate_unknown_issuer", "unknown_ca"),
        (Some("elsewhere/stranger"), "client_certificate_rejected", "decrypt_error"),
        (Some("expired"), "client_certificate_expired", "certificate_expired"),
        (Some("early"), "client_certificate_not_yet_valid", "certificate_expired"),
        (Some("server"), "client_certificate_wrong_purpose", "unsupported_certificate"),
    ];
    for (name, expected, alert) in cases {
        for version in VERSIONS {
            let seen = instance.events().len();
            match name {
                None => refused(&instance, &[version]),
                Some(name) => refused(&instance, &shows(version, &files(name))),
            };
            let event = instance.events_of(seen + 1).pop().unwrap();
            assert_eq!(cause(&event), expected, "{name:?} {event}");
            assert_eq!(event["fault"], "client", "{event}");
            assert_eq!(text(&event, "alert_sent"), alert, "{name:?} {event}");
            let quiet = text(&event, "detail").is_empty() || event["offered_schemes"].is_null();
            assert!(!quiet, "{name:?} {event}");
        }
    }
    assert_eq!(app.accepted(), 0);
    instance.stop();
}

#[test]
fn clients_need_no_certificate_where_it_is_optional_but_a_bad_one_is_refused() {
    let app = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    let instance = instance(&app, "mode = \"optional\"");
    for version in VERSIONS {
        echo(&instance, &[version]);
        echo(&instance, &shows(version, &files("alice")));
        refused(&instance, &shows(version, &files("elsewhere/stranger")));
    }
    let told: Vec<_> = instance
        .stop()
        .iter()
        .map(|event| (cause(event).to_owned(), text(event, "client_cn").to_owned()))
        .collect();
    let once = [("client_closed", ""), ("client_closed", "alice"), ("client_certificate_rejected", "alice")];
    let expected: Vec<_> =
        once.iter().chain(&once).map(|(cause, name)| ((*cause).to_owned(), (*name).to_owned())).collect();
    assert_eq!(told, expected);
}

#[test]
fn clients_are_let_in_by_the_names_of_their_certificate() {
    let app = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    for (allow, admits) in [
        ("dns:*.svc.test", true),
        ("dns:bob.svc.test", false),
        ("uri:spiffe://example.org/*", true),
        ("uri:spiffe://example.net/*", false),
        ("cn:alice", true),
        ("cn:bob", false),
    ] {
        let instance = instance(&app, &format!("mode = \"required\", allow = \"{allow}\""));
        for version in VERSIONS {
            let before = app.accepted();
            if admits {
                echo(&instance, &shows(version, &files("alice")));
            } else {
                refused(&instance, &shows(version, &files("alice")));
            }
            assert_eq!(app.accepted() - before, usize::from(admits), "{allow}");
        }
        for event in instance.stop() {
            let expected = if admits {
                ("client_closed", "nobody", "")
            } else {
                ("client_certificate_not_allowed", "policy", "access_denied")
            };
            let told = (cause(&event), text(&event, "fault"), text(&event, "alert_sent"));
            assert_eq!(told, expected, "{allow}: {event}");
            assert_eq!(text(&event, "client_cn"), "alice", "{event}");
        }
    }
}
