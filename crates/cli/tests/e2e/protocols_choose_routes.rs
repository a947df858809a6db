//! The protocols that a client offers (ALPN) choose the route, and the route's one is agreed upon.

use offramp_testkit::server::{Listen, Server};

use crate::support::instance::{CERTIFICATE, Home, Instance, LISTENER, cause, text};
use crate::support::openssl::{connect, refused};

/// An application that says its name and waits for the client to go.
fn says(name: &'static str) -> Server {
    let behaviour = move |mut stream: offramp_testkit::server::Stream| {
        use std::io::{Read as _, Write as _};
        // A client that is gone already needs no name.
        let _ = stream.write_all(name.as_bytes());
        let _ = stream.read_to_end(&mut Vec::new());
    };
    Server::start(&Listen::Ipv4, behaviour).unwrap()
}

/// Connects, waits for what the application says, and gives all that s_client has written.
fn hear(instance: &Instance, arguments: &[&str], name: &str) -> String {
    let mut client = connect(instance, arguments);
    client.hear(name);
    client.say("Q\n");
    client.end().1
}

#[test]
fn protocols_choose_routes() {
    let (h2, http, redis, any) = (says("I-am-h2"), says("I-am-http"), says("I-am-redis"), says("I-am-any"));
    let mut configuration = format!("{CERTIFICATE}{LISTENER}");
    for (protocols, server) in [("\"h2\"", &h2), ("\"http/1.1\", \"http/1.0\"", &http), ("\"redis\"", &redis)]
    {
        configuration += &format!("[[route]]\nalpn = [{protocols}]\nserver = \"{}\"\n", server.address());
    }
    configuration += &format!("[[route]]\nserver = \"{}\"\n", any.address());
    let instance = Home::new().run(&configuration);
    let asked = [
        ("h2", "I-am-h2", "h2"),
        ("http/1.1", "I-am-http", "http/1.1"),
        // The order of the file decides, not the client's.
        ("http/1.1,h2", "I-am-h2", "h2"),
        ("http/1.0,http/1.1", "I-am-http", "http/1.1"),
        ("ftp,redis", "I-am-redis", "redis"),
    ];
    for (offered, name, agreed) in asked {
        for version in ["-tls1_2", "-tls1_3"] {
            let said = hear(&instance, &[version, "-alpn", offered], name);
            assert!(said.contains(&format!("ALPN protocol: {agreed}\n")), "{said}");
        }
    }
    for arguments in [&["-alpn", "ftp"][..], &[]] {
        let said = hear(&instance, arguments, "I-am-any");
        assert!(said.contains("No ALPN negotiated"), "{said}");
    }
    let events = instance.stop();
    let agreed: Vec<_> = events.iter().map(|event| text(event, "alpn")).collect();
    assert_eq!(
        agreed[..10],
        ["h2", "h2", "http/1.1", "http/1.1", "h2", "h2", "http/1.1", "http/1.1", "redis", "redis"]
    );
    assert_eq!(agreed[10..], ["", ""]);
}

#[test]
fn where_no_route_takes_the_protocol_the_alert_says_so() {
    let (h2, http) = (says("I-am-h2"), says("I-am-http"));
    let instance = Home::new().run(&format!(
        "{CERTIFICATE}{LISTENER}[[route]]\nhost = \"localhost\"\nalpn = \"h2\"\nserver = \"{}\"\n\
         [[route]]\nhost = \"localhost\"\nalpn = \"http/1.1\"\nserver = \"{}\"\n",
        h2.address(),
        http.address()
    ));
    for version in ["-tls1_2", "-tls1_3"] {
        // RFC 7301 §3.2.
        let said = refused(&instance, &[version, "-alpn", "ftp,redis"]);
        assert!(said.contains("no application protocol") && said.contains("SSL alert number 120"), "{said}");
    }
    // A name without any route is another matter.
    let said = refused(&instance, &["-alpn", "h2", "-servername", "nobody.test"]);
    assert!(said.contains("SSL alert number 112"), "{said}");

    let events = instance.stop();
    for event in &events[..2] {
        assert_eq!((cause(event), text(event, "alert_sent")), ("no_common_alpn", "no_application_protocol"));
        assert_eq!(event["offered_alpn"], serde_json::json!(["ftp", "redis"]), "{event}");
        assert_eq!(event["configured_alpn"], serde_json::json!(["h2", "http/1.1"]), "{event}");
    }
    assert_eq!((cause(&events[2]), text(&events[2], "alert_sent")), ("no_route", "unrecognized_name"));
}
