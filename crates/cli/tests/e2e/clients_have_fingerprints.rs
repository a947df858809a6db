//! JA4: events tell the fingerprint of a client, and `deny_ja4` refuses by it, wherever its ClientHello is seen.

use offramp_testkit::server::{Listen, Recording, Server, apps};

use crate::support::http_curl::{curl, get};
use crate::support::instance::{CERTIFICATE, Home, Instance, LISTENER, cause, text};
use crate::support::openssl::{echo, refused};

const VERSIONS: [&str; 2] = ["-tls1_2", "-tls1_3"];

/// One listener with this route to the server.
fn instance(listener: &str, route: &str) -> Instance {
    Home::new().run(&format!("{CERTIFICATE}{LISTENER}{listener}[[route]]\n{route}\n"))
}

#[test]
fn events_tell_the_fingerprint() {
    let app = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    let instance = instance("", &format!("server = \"{}\"", app.address()));
    for version in VERSIONS.into_iter().chain(VERSIONS) {
        echo(&instance, &[version, "-alpn", "h2"]);
    }
    echo(&instance, &["-tls1_3", "-noservername"]);
    let events = instance.stop();
    let told: Vec<&str> = events.iter().map(|event| text(event, "ja4")).collect();
    // Ciphers and extensions are those of the installed OpenSSL.
    for (ja4, begin) in told.iter().zip(["t12d", "t13d", "t12d", "t13d", "t13i"]) {
        assert!(ja4.len() == 36 && ja4.starts_with(begin), "{told:?}");
    }
    assert_eq!(&told[..2], &told[2..4]);
    assert!(told[..4].iter().all(|ja4| &ja4[8..11] == "h2_") && &told[4][8..11] == "00_", "{told:?}");
}

#[test]
fn a_route_refuses_by_a_whole_fingerprint_or_its_beginning() {
    let app = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    let first = instance("", &format!("server = \"{}\"", app.address()));
    echo(&first, &["-tls1_2"]);
    let seen = first.stop().remove(0);
    let whole = text(&seen, "ja4");
    for pattern in [whole, &format!("{}*", &whole[..30]), "t12*"] {
        let instance = instance("", &format!("server = \"{}\"\ndeny_ja4 = \"{pattern}\"", app.address()));
        echo(&instance, &["-tls1_3"]);
        let before = app.accepted();
        refused(&instance, &["-tls1_2"]);
        assert_eq!(app.accepted(), before, "no server hears of a client that is refused");
        let event = instance.stop().remove(1);
        let told = (cause(&event), text(&event, "fault"), text(&event, "alert_sent"), text(&event, "ja4"));
        assert_eq!(told, ("ja4_denied", "policy", "handshake_failure", whole), "{event}");
        assert!(event["handshake_us"].is_null(), "no work of a handshake is done: {event}");
    }
}

#[test]
fn a_passthrough_refuses_without_ending_tls() {
    let (server, recording) = Recording::start(&Listen::Ipv4).unwrap();
    let instance =
        instance("", &format!("passthrough = \"{}\"\ndeny_ja4 = [\"t12*\", \"t11*\"]", server.address()));
    refused(&instance, &["-tls1_2"]);
    let event = instance.events_of(1).remove(0);
    assert_eq!((cause(&event), text(&event, "alert_sent")), ("ja4_denied", "handshake_failure"), "{event}");
    assert_eq!(server.accepted(), 0);
    let client = crate::support::openssl::connect(&instance, &["-tls1_3"]);
    recording
        .wait_until(crate::support::instance::PATIENCE, |all| {
            all.iter().any(|bytes| bytes.starts_with(b"\x16\x03"))
        })
        .unwrap();
    client.end();
    instance.stop();
}

/// The handshake comes before the request: a name without the rule is no way around it.
#[test]
fn requests_cannot_go_around_it() {
    let route = "host = \"closed.example.org\"\nrespond = { status = 200, body = \"in\" }\ndeny_ja4 = \"t12*\"\n\
                 [[route]]\nhost = \"open.example.org\"\nrespond = { status = 200, body = \"out\" }";
    let instance = instance("mode = \"http\"\n", route);
    let new = ["--tlsv1.3"];
    let old = ["--tls-max", "1.2"];
    assert_eq!(get(&instance, &new, "https://closed.example.org/").status(), 200);
    assert_eq!(get(&instance, &old, "https://open.example.org/").status(), 200);
    // 35: the handshake failed.
    assert_eq!(curl(&instance, &old, "https://closed.example.org/").code, 35);
    let other = ["--tls-max", "1.2", "-H", "host: closed.example.org"];
    assert_eq!(get(&instance, &other, "https://open.example.org/").status(), 421);
    let events = instance.stop();
    let causes: Vec<&str> = events.iter().map(cause).collect();
    assert_eq!(causes, ["completed", "completed", "ja4_denied", "misdirected"]);
    assert!(events.iter().all(|event| text(event, "ja4").len() == 36), "{events:?}");
}

#[test]
fn it_is_left_out_where_nobody_asks_for_it() {
    let app = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    let quiet = "[access_log]\nomit = [\"ja4\"]\n";
    let one = Home::one_route(app.address());
    let instance = Home::new().run(&format!("{quiet}{one}deny_ja4 = \"t12*\"\n"));
    echo(&instance, &["-tls1_3"]);
    refused(&instance, &["-tls1_2"]);
    for event in instance.stop() {
        assert!(event["ja4"].is_null(), "{event}");
    }
    // In text it is for those who look closely.
    for (level, told) in [("info", false), ("debug", true)] {
        let log =
            format!("[access_log]\nformat = \"text\"\noutput = \"events.log\"\n[log]\nlevel = \"{level}\"\n");
        let instance = Home::new().run(&format!("{log}{one}"));
        echo(&instance, &["-tls1_3"]);
        let line = instance.until("an event", || {
            let lines = std::fs::read_to_string(instance.home.file("events.log")).ok()?;
            lines.contains("client_closed").then_some(lines)
        });
        assert_eq!(line.contains(" ja4=t13d"), told, "{line}");
        instance.stop();
    }
}
