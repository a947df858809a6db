//! `openssl s_client` resumes by ticket, in both versions; not where tickets are off.

use offramp_testkit::server::{Listen, Server, apps};

use crate::support::instance::{CERTIFICATE, Home, Instance, LISTENER};
use crate::support::openssl::echo;

/// A first connection that keeps the session, and three that come back with it. Gives what they said.
fn come_back(instance: &Instance, version: &str) -> Vec<String> {
    let first = echo(instance, &[version, "-sess_out", "session.pem"]);
    assert!(first.contains("New, TLSv1."), "{first}");
    (0..3).map(|_| echo(instance, &[version, "-sess_in", "session.pem"])).collect()
}

#[test]
fn openssl_resumes_sessions() {
    let app = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    for (argument, version) in [("-tls1_2", "TLSv1.2"), ("-tls1_3", "TLSv1.3")] {
        let instance = Instance::before(app.address());
        for said in come_back(&instance, argument) {
            assert!(said.contains(&format!("Reused, {version}, ")), "{said}");
        }
        let resumed: Vec<_> = instance.stop().iter().map(|event| event["resumed"].as_bool()).collect();
        assert_eq!(resumed, [Some(false), Some(true), Some(true), Some(true)], "{version}");
    }
}

#[test]
fn a_handshake_gives_one_ticket_unless_more_are_asked_for() {
    let app = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    let one_route = Home::one_route(app.address());
    for (configuration, count) in [(one_route.clone(), 1), (format!("{one_route}[tls]\ntickets = 3\n"), 3)] {
        let instance = Home::new().run(&configuration);
        // Tickets come before the echo.
        let said = echo(&instance, &["-tls1_3"]);
        assert_eq!(said.matches("Post-Handshake New Session Ticket arrived").count(), count, "{said}");
        instance.stop();
    }
}

#[test]
fn without_tickets_every_handshake_is_full() {
    let app = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    let configuration =
        format!("{CERTIFICATE}{LISTENER}[tls]\ntickets = 0\n[[route]]\nserver = \"{}\"\n", app.address());
    let instance = Home::new().run(&configuration);
    for _ in 0..2 {
        let said = echo(&instance, &["-tls1_3", "-sess_out", "session.pem"]);
        assert!(!said.contains("Post-Handshake New Session Ticket"), "{said}");
    }
    assert!(!instance.home.file("session.pem").exists());
    let said = echo(&instance, &["-tls1_2"]);
    assert!(!said.contains("TLS session ticket:"), "{said}");
    assert!(instance.stop().iter().all(|event| event["resumed"] == false));
}
