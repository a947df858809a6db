//! `openssl s_client` resumes by ticket, in both versions; not where tickets are off.

use offramp_testkit::server::{Listen, Server, apps};

use crate::house::{CERTIFICATE, Home, House, LISTENER};
use crate::openssl::echo;

/// A first connection that keeps the session, and three that come back with it. Gives what they said.
fn come_back(house: &House, version: &str) -> Vec<String> {
    let first = echo(house, &[version, "-sess_out", "session.pem"]);
    assert!(first.contains("New, TLSv1."), "{first}");
    (0..3).map(|_| echo(house, &[version, "-sess_in", "session.pem"])).collect()
}

#[test]
fn openssl_resumes_sessions() {
    let app = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    for (argument, version) in [("-tls1_2", "TLSv1.2"), ("-tls1_3", "TLSv1.3")] {
        let house = House::before(app.address());
        for said in come_back(&house, argument) {
            assert!(said.contains(&format!("Reused, {version}, ")), "{said}");
        }
        let resumed: Vec<_> = house.stop().iter().map(|event| event["resumed"].as_bool()).collect();
        assert_eq!(resumed, [Some(false), Some(true), Some(true), Some(true)], "{version}");
    }
}

#[test]
fn a_handshake_gives_one_ticket_unless_more_are_asked_for() {
    let app = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    let one_route = Home::one_route(app.address());
    for (configuration, count) in [(one_route.clone(), 1), (format!("{one_route}[tls]\ntickets = 3\n"), 3)] {
        let house = Home::new().run(&configuration);
        // Tickets come before the echo.
        let said = echo(&house, &["-tls1_3"]);
        assert_eq!(said.matches("Post-Handshake New Session Ticket arrived").count(), count, "{said}");
        house.stop();
    }
}

#[test]
fn without_tickets_every_handshake_is_full() {
    let app = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    let configuration =
        format!("{CERTIFICATE}{LISTENER}[tls]\ntickets = 0\n[[route]]\nserver = \"{}\"\n", app.address());
    let house = Home::new().run(&configuration);
    for _ in 0..2 {
        let said = echo(&house, &["-tls1_3", "-sess_out", "session.pem"]);
        assert!(!said.contains("Post-Handshake New Session Ticket"), "{said}");
    }
    assert!(!house.home.file("session.pem").exists());
    let said = echo(&house, &["-tls1_2"]);
    assert!(!said.contains("TLS session ticket:"), "{said}");
    assert!(house.stop().iter().all(|event| event["resumed"] == false));
}
