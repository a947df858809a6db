//! Versions, ciphers and unknown names: `[tls]`, and what routes have in its place. Servers that nobody verifies.

use std::fs;

use offramp_testkit::ca::{Ca, Key, Leaf};
use offramp_testkit::process::temp_dir;
use offramp_testkit::server::{Listen, Server, apps};

use crate::support::crowd::{get, tcp};
use crate::support::instance::{CERTIFICATE, Home, Instance, LISTENER, cause, text};
use crate::support::offramp::{output, stderr, stdout};
use crate::support::openssl::{connect, refused};

/// Connects, and gives version and cipher suite.
fn agreed(instance: &Instance, arguments: &[&str]) -> String {
    let mut client = connect(instance, arguments);
    client.hear("Cipher is ");
    client.say("Q\n");
    let said = client.end().1;
    let line = said.lines().find(|line| line.contains("Cipher is ")).unwrap();
    line.trim_start_matches("New, ").replace(", Cipher is", "").to_owned()
}

/// Is refused, and gives cause and alert.
fn refusal(instance: &Instance, arguments: &[&str]) -> (String, String) {
    // Those of connections before may still be on their way.
    let refusals = || instance.events().into_iter().filter(|event| !text(event, "alert_sent").is_empty());
    let seen = refusals().count();
    refused(instance, arguments);
    let event = instance.until("the event of the refusal", || refusals().nth(seen));
    (cause(&event).to_owned(), text(&event, "alert_sent").to_owned())
}

const HOSTS: &str = "\
[[route]]
host = \"new.example.org\"
respond = { body = \"new\" }
tls = { policy = \"modern\" }
[[route]]
host = \"old.example.org\"
respond = { body = \"old\" }
tls = { max_version = \"1.2\" }
[[route]]
host = \"strong.example.org\"
respond = { body = \"strong\" }
tls = { aeads = \"aes-256-gcm\" }
[[route]]
respond = { body = \"any\" }
";

#[test]
fn each_host_has_its_versions_and_ciphers() {
    let instance = Home::new().run(&format!("{CERTIFICATE}{LISTENER}mode = \"http\"\n{HOSTS}"));
    for (host, offers, expected) in [
        ("new", &[][..], "TLSv1.3 TLS_AES_"),
        ("old", &[], "TLSv1.2 ECDHE-ECDSA-AES"),
        ("strong", &[], "TLSv1.3 TLS_AES_256_GCM_SHA384"),
        ("strong", &["-tls1_2"], "TLSv1.2 ECDHE-ECDSA-AES256-GCM-SHA384"),
        ("other", &["-tls1_2"], "TLSv1.2 ECDHE-ECDSA-AES"),
    ] {
        let name = format!("{host}.example.org");
        let got = agreed(&instance, &[&["-servername", &name][..], offers].concat());
        assert!(got.starts_with(expected), "{host} {offers:?}: {got}");
    }
    for (host, offers, expected) in [
        ("new", &["-tls1_2"][..], ("no_common_version", "protocol_version")),
        ("old", &["-tls1_3"], ("no_common_version", "protocol_version")),
        (
            "strong",
            &["-tls1_3", "-ciphersuites", "TLS_AES_128_GCM_SHA256"],
            ("no_common_suite", "handshake_failure"),
        ),
    ] {
        let name = format!("{host}.example.org");
        let (cause, alert) = refusal(&instance, &[&["-servername", &name][..], offers].concat());
        assert_eq!((&*cause, &*alert), expected, "{host} {offers:?}");
    }
    // A connection by the terms of another host is none for this one.
    for (host, status) in [("old", "HTTP/1.1 200"), ("new", "HTTP/1.1 421"), ("other", "HTTP/1.1 421")] {
        let mut client = connect(&instance, &["-servername", "old.example.org", "-quiet"]);
        client.say(&format!("GET / HTTP/1.1\r\nHost: {host}.example.org\r\nConnection: close\r\n\r\n"));
        client.hear(status);
    }
    instance.stop();
}

#[test]
fn names_without_a_certificate_are_served_or_refused() {
    let app = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    for (no_name, unknown) in
        [("default", "default"), ("refuse", "default"), ("default", "refuse"), ("refuse", "refuse")]
    {
        let instance = Home::new().run(&format!(
            "[tls]\nno_server_name = \"{no_name}\"\nunknown_name = \"{unknown}\"\n{CERTIFICATE}{LISTENER}\
             [[route]]\nserver = \"{}\"\n",
            app.address()
        ));
        assert!(agreed(&instance, &["-servername", "a.example.org"]).starts_with("TLSv1.3"));
        for (policy, name, alerts) in [
            (
                no_name,
                &["-noservername"][..],
                [("-tls1_3", "missing_extension"), ("-tls1_2", "unrecognized_name")],
            ),
            (
                unknown,
                &["-servername", "unknown.test"],
                [("-tls1_3", "unrecognized_name"), ("-tls1_2", "unrecognized_name")],
            ),
        ] {
            for (version, alert) in alerts {
                let arguments = [name, &[version]].concat();
                if policy == "default" {
                    assert!(agreed(&instance, &arguments).starts_with("TLSv1."), "{arguments:?}");
                } else {
                    let expected = ("unknown_name".to_owned(), alert.to_owned());
                    assert_eq!(refusal(&instance, &arguments), expected, "{arguments:?}");
                }
            }
        }
        instance.stop();
    }
}

#[test]
fn a_server_that_nobody_verifies_has_a_warning() {
    let strangers = temp_dir();
    let stranger = Ca::new(strangers.path()).unwrap();
    let files = stranger.issue("server", &Leaf::server(Key::P256, &["elsewhere.test"])).unwrap();
    let device = Home::new();
    fs::copy(files.chain, device.file("device.pem")).unwrap();
    fs::copy(files.key, device.file("device.key")).unwrap();
    let device = device.run(&format!(
        "[[certificate]]\ncert = \"device.pem\"\nkey = \"device.key\"\n{LISTENER}mode = \"http\"\n\
         [[route]]\nrespond = {{ body = \"device\" }}\n"
    ));
    let text = |tls: &str| {
        format!(
            "{LISTENER}mode = \"http\"\ntls = false\n[[route]]\nbackend = \"nas\"\n[backend.nas]\n\
             servers = \"{}\"\ntls = {{ {tls} }}\n",
            device.address()
        )
    };
    let front = Home::new().run(&text("unsafe_no_verification = true"));
    let response = get(&mut tcp(front.address()).unwrap(), "/").unwrap();
    assert!(response.contains("device"), "{response}");
    let check = || output(front.home.path(), &["check", "--config", "offramp.toml"]);
    let said = |of: &std::process::Output| format!("{}{}", stdout(of), stderr(of));
    let warned = check();
    assert!(warned.status.success(), "{}", said(&warned));
    assert!(
        said(&warned).contains("the certificates of these servers are not verified"),
        "{}",
        said(&warned)
    );
    front.home.configure(&text("verify = \"off\""));
    let refused = check();
    assert!(!refused.status.success());
    assert!(said(&refused).contains("unsafe_no_verification = true"), "{}", said(&refused));
    front.stop();
    device.stop();
}
