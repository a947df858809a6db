//! A self-signed certificate as `openssl req -x509` makes it (CA:TRUE) is trusted where it is named: that of a server, of
//! a client, of the admin interface.

use std::fs;

use offramp_testkit::process::Source;
use offramp_testkit::server::{Listen, Server, apps};

use crate::support::client_pki::openssl;
use crate::support::crowd::{get, tcp};
use crate::support::instance::{CERTIFICATE, Home, Instance, LISTENER, cause, text};
use crate::support::offramp::{output, stderr};
use crate::support::openssl::{echo, refused};

/// Makes `NAME.pem` and `NAME.key`.
fn make(home: &Home, name: &str, names: &str) {
    let [cert, key] = ["pem", "key"].map(|end| format!("{name}.{end}"));
    let mut arguments = vec!["req", "-x509", "-days", "30", "-nodes", "-newkey", "ec", "-subj", "/CN=nas"];
    arguments.extend(["-pkeyopt", "ec_paramgen_curve:P-256", "-out", &cert, "-keyout", &key]);
    if !names.is_empty() {
        arguments.extend(["-addext", names]);
    }
    openssl(home.path(), &arguments);
}

/// A device with a self-signed certificate, and an Offramp before it that trusts the certificate in `trusted`.
fn before(app: &Server, names: &str, trusted: &str) -> (Instance, Instance) {
    let home = Home::new();
    make(&home, "device", names);
    make(&home, "other", names);
    let [device, other] = ["device.pem", "other.pem"].map(|file| fs::read(home.file(file)).unwrap());
    let certificate = "[[certificate]]\ncert = \"device.pem\"\nkey = \"device.key\"\n";
    let instance = home.run(&format!("{certificate}{LISTENER}[[route]]\nserver = \"{}\"\n", app.address()));
    let front = Home::new();
    fs::write(front.file("device.pem"), device).unwrap();
    fs::write(front.file("other.pem"), other).unwrap();
    let front = front.run(&format!(
        "[[listener]]\naddress = \"127.0.0.1:0\"\nmode = \"http\"\ntls = false\n[[route]]\nbackend = \"nas\"\n\
         [backend.nas]\nservers = \"{}\"\ntls = {{ verify = \"{trusted}\", name = \"nas.test\" }}\n",
        instance.address()
    ));
    (instance, front)
}

#[test]
fn a_server_with_the_named_certificate_is_trusted_and_no_other() {
    let app = Server::start(&Listen::Ipv4, apps::http).unwrap();
    for (names, trusted, expected) in [
        ("subjectAltName=DNS:nas.test", "device.pem", Ok(())),
        // Many devices have a common name alone.
        ("", "device.pem", Ok(())),
        ("subjectAltName=DNS:nas.test", "other.pem", Err("server_certificate_untrusted")),
        ("subjectAltName=DNS:else.test", "device.pem", Err("server_certificate_wrong_name")),
    ] {
        let (device, front) = before(&app, names, trusted);
        get(&mut tcp(front.address()).unwrap(), "/").unwrap();
        let event = front.events_of(1).pop().unwrap();
        match expected {
            Ok(()) => assert_eq!(cause(&event), "completed", "{names}: {event}"),
            Err(expected) => {
                assert_eq!(cause(&event), expected, "{names} {trusted}: {event}");
                for word in ["CaUsed", "Other", "UnknownIssuer", "NotValid", "{"] {
                    assert!(!text(&event, "detail").contains(word), "{event}");
                }
            }
        }
        drop((device, front));
    }
}

#[test]
fn a_client_with_the_named_certificate_gets_in_and_no_other() {
    let app = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    let home = Home::new();
    ["first", "second", "third"].iter().for_each(|name| make(&home, name, ""));
    let both = ["first.pem", "second.pem"].map(|file| fs::read(home.file(file)).unwrap());
    fs::write(home.file("clients.pem"), both.concat()).unwrap();
    let instance = home.run(&format!(
        "{CERTIFICATE}{LISTENER}[[route]]\nserver = \"{}\"\nclient_auth = {{ ca = \"clients.pem\" }}\n",
        app.address()
    ));
    for (index, version) in ["-tls1_2", "-tls1_3"].into_iter().enumerate() {
        let files = |name: &str| ["pem", "key"].map(|end| format!("{name}.{end}"));
        for name in ["first", "second"] {
            let [cert, key] = files(name);
            let kept = [version, "-cert", &cert, "-key", &key, "-sess_out", "session.pem"];
            echo(&instance, &kept);
            let back = echo(&instance, &[version, "-cert", &cert, "-key", &key, "-sess_in", "session.pem"]);
            assert!(back.contains("Reused, TLSv1."), "{back}");
        }
        let [cert, key] = files("third");
        refused(&instance, &[version, "-cert", &cert, "-key", &key]);
        let event = instance.until("the event of the refusal", || {
            let is_refusal = |event: &serde_json::Value| cause(event) == "client_certificate_unknown_issuer";
            instance.events().into_iter().filter(is_refusal).nth(index)
        });
        assert_eq!(text(&event, "alert_sent"), "unknown_ca", "{event}");
        assert!(text(&event, "detail").contains("none of the authorities in `ca` has issued"), "{event}");
    }
    instance.stop();
}

#[test]
fn ctl_trusts_the_certificate_that_it_is_given() {
    let home = Home::new();
    make(&home, "admin", "subjectAltName=DNS:localhost");
    make(&home, "other", "subjectAltName=DNS:localhost");
    fs::write(home.file("token"), "0123456789abcdef\n").unwrap();
    let instance = home.run(
        "[admin]\naddress = \"127.0.0.1:0\"\ntoken_file = \"token\"\ncertificate = \"admin.pem\"\nkey = \"admin.key\"\n\
         [[listener]]\naddress = \"127.0.0.1:0\"\nmode = \"http\"\ntls = false\n[[route]]\nrespond = { body = \"a\" }\n",
    );
    let port = instance.until("the log says where", || {
        let lines = instance.process.lines(Source::Stderr);
        let line = lines.iter().find(|line| line.contains(" admin "))?;
        Some(line.split("address=127.0.0.1:").nth(1)?.split_whitespace().next()?.to_owned())
    });
    let admin = format!("https://localhost:{port}");
    for (ca, good) in [("admin.pem", true), ("other.pem", false)] {
        let said = output(
            instance.home.path(),
            &["ctl", "--admin", &admin, "--cacert", ca, "--token-file", "token", "status"],
        );
        assert_eq!(said.status.success(), good, "{ca}: {}", stderr(&said));
        assert!(
            good || stderr(&said).contains("none of the trusted authorities has issued"),
            "{}",
            stderr(&said)
        );
    }
    instance.stop();
}
