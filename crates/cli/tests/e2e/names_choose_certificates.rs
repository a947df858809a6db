//! The name that a client asks for chooses the certificate; one that nobody knows gets the default, or
//! `unrecognized_name` where every certificate says that it is none.

use offramp_testkit::ca::{Key, Leaf};
use offramp_testkit::server::{Listen, Server, apps};

use crate::support::instance::{CERTIFICATE, Home, Instance, LISTENER, cause, text};
use crate::support::openssl::{echo, refused};

/// An Offramp with a certificate for `localhost` and one for `other.test`; the application is an echo.
fn instance(app: &Server, default: &str) -> Instance {
    let home = Home::new();
    home.ca.issue("other", &Leaf::server(Key::P256, &["other.test"])).unwrap();
    home.run(&format!(
        "{CERTIFICATE}{default}\n[[certificate]]\ncert = \"other.chain.pem\"\nkey = \"other.key\"\n{default}\n\
         {LISTENER}[[route]]\nserver = \"{}\"\n",
        app.address()
    ))
}

#[test]
fn names_choose_certificates() {
    let app = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    let instance = instance(&app, "");
    let asked = [
        (&["-servername", "localhost"][..], "localhost"),
        (&["-servername", "git.example.org"], "localhost"),
        (&["-servername", "OTHER.test"], "other.test"),
        // Nobody's name, a wildcard too deep, and no name: the default.
        (&["-servername", "nobody.test"], "localhost"),
        (&["-servername", "a.b.example.org"], "localhost"),
        (&["-noservername"], "localhost"),
    ];
    for (arguments, subject) in asked {
        for version in ["-tls1_2", "-tls1_3"] {
            let said = echo(&instance, &[&[version], arguments].concat());
            assert!(said.contains(&format!("subject=CN = {subject}\n")), "{arguments:?}: {said}");
        }
    }
    let events = instance.stop();
    let names: Vec<_> = events.iter().step_by(2).map(|event| text(event, "sni")).collect();
    assert_eq!(names, ["localhost", "git.example.org", "other.test", "nobody.test", "a.b.example.org", ""]);
    assert!(events.iter().all(|event| cause(event) == "client_closed"));
}

#[test]
fn without_a_default_an_unknown_name_is_refused() {
    let app = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    let instance = instance(&app, "default = false");
    echo(&instance, &["-servername", "other.test"]);
    for version in ["-tls1_2", "-tls1_3"] {
        let said = refused(&instance, &[version, "-servername", "nobody.test"]);
        assert!(said.contains("unrecognized name") && said.contains("SSL alert number 112"), "{said}");
    }
    // RFC 8446 §9.2 has an alert for a client that names nobody; TLS 1.2 has not.
    let said = refused(&instance, &["-tls1_3", "-noservername"]);
    assert!(said.contains("SSL alert number 109"), "{said}");
    let said = refused(&instance, &["-tls1_2", "-noservername"]);
    assert!(said.contains("SSL alert number 112"), "{said}");
    assert_eq!(app.accepted(), 1);

    let events = instance.stop();
    assert_eq!(events.len(), 5);
    for (event, (name, alert)) in events[1..].iter().zip([
        ("nobody.test", "unrecognized_name"),
        ("nobody.test", "unrecognized_name"),
        ("", "missing_extension"),
        ("", "unrecognized_name"),
    ]) {
        assert_eq!((cause(event), &event["fault"]), ("unknown_name", &"policy".into()), "{event}");
        assert_eq!((text(event, "sni"), text(event, "alert_sent")), (name, alert), "{event}");
    }
}
