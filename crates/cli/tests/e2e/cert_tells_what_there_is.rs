//! `offramp cert list` and `offramp cert inspect`.

use std::process::Output;

use offramp_testkit::ca::{Key, Leaf, Validity};
use offramp_testkit::server::{Listen, Server, apps};

use crate::support::client_pki;
use crate::support::instance::{CERTIFICATE, Home, LISTENER, PATIENCE, ask};
use crate::support::offramp::offramp;

fn run(home: &Home, arguments: &[&str]) -> Output {
    ask(offramp(home.path(), &[&["cert"][..], arguments].concat()), b"", PATIENCE)
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn certificates_are_listed_with_the_routes_that_use_them() {
    let home = Home::new();
    std::fs::create_dir(home.file("certs.d")).unwrap();
    home.ca.issue("certs.d/other", &Leaf::server(Key::P384, &["other.test"])).unwrap();
    home.configure(&format!(
        "{CERTIFICATE}[[certificate]]\ndirectory = \"certs.d\"\n{LISTENER}\
         [[route]]\nhost = \"git.example.org\"\nserver = \"127.0.0.1:1\"\n\
         [[route]]\nhost = \"other.test\"\nserver = \"127.0.0.1:2\"\n"
    ));
    let output = run(&home, &["list", "-c", "offramp.toml"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let table = said(&output);
    let line = |name: &str| table.lines().find(|line| line.contains(name)).unwrap().to_owned();
    for part in
        ["localhost,*.example.org", "EC256", "file", "Offramp test CA", "git.example.org", "server.chain.pem"]
    {
        assert!(line("localhost").contains(part), "{part}: {table}");
    }
    assert!(line("other.test").contains("EC384"), "{table}");
    let output = run(&home, &["list", "-c", "offramp.toml", "--json"]);
    let rows: Vec<serde_json::Value> =
        said(&output).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(rows[0]["names"], serde_json::json!(["localhost", "*.example.org"]));
    assert_eq!(rows[0]["routes"], serde_json::json!(["git.example.org"]));
    assert!(rows[0]["days_left"].as_i64().unwrap() > 365, "{}", rows[0]);
    // One that cannot be used is told, and the others are listed all the same.
    std::fs::write(home.file("server.key"), "no key").unwrap();
    let output = run(&home, &["list", "-c", "offramp.toml"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}

#[test]
fn a_chain_is_shown_with_what_is_wrong_with_it() {
    let home = Home::new();
    client_pki::make(home.path());
    client_pki::issue_server(home.path());
    home.ca
        .issue("old", &Leaf { validity: Validity::Expired, ..Leaf::server(Key::P256, &["old.test"]) })
        .unwrap();
    home.ca.issue("client", &Leaf::client("alice", &[])).unwrap();
    let good = run(&home, &["inspect", "server.chain.pem", "--ca", "ca.pem", "--name", "localhost"]);
    assert_eq!(good.status.code(), Some(0), "{good:?}");
    assert!(said(&good).contains("nothing is wrong"), "{good:?}");
    // The issuer is one that clients have; a self-signed one is known itself.
    for arguments in [&["server.pem", "--ca", "ca.pem"][..], &["self.pem", "--ca", "self.pem"]] {
        if arguments[0] == "self.pem" {
            let request =
                ["req", "-x509", "-days", "90", "-nodes", "-newkey", "rsa:2048", "-subj", "/CN=nas"];
            let rest = ["-addext", "subjectAltName=DNS:nas.test", "-out", "self.pem", "-keyout", "self.key"];
            client_pki::openssl(home.path(), &[&request[..], &rest].concat());
        }
        let output = run(&home, &[&["inspect"][..], arguments].concat());
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", said(&output));
    }
    let chain = ["web.pem", "middle.pem"].map(|file| std::fs::read(home.file(file)).unwrap());
    std::fs::write(home.file("disorder.pem"), chain.concat()).unwrap();
    for (arguments, expected) in [
        (&["old.chain.pem", "--ca", "ca.pem"][..], "EXPIRED on 2020-01-01"),
        (&["old.chain.pem", "--ca", "ca.pem"], "expired "),
        (&["client.chain.pem", "--ca", "ca.pem"], "not for servers"),
        (&["server.pem", "--ca", "oca.pem"], "the chain ends at the certificate itself"),
        (&["oca.pem", "--ca", "ca.pem"], "the certificate is self-signed"),
        (&["oca.pem", "--ca", "ca.pem"], "is that of an authority"),
        (&["server.chain.pem", "--ca", "oca.pem"], "not trust it"),
        (&["server.chain.pem", "--ca", "ca.pem", "--name", "a.test"], "is not for a.test"),
        (&["disorder.pem", "--ca", "oca.pem"], "has not issued certificate 0"),
    ] {
        let output = run(&home, &[&["inspect"][..], arguments].concat());
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {output:?}");
        assert!(said(&output).contains(expected), "{arguments:?}: {}", said(&output));
    }
    let output = run(&home, &["inspect", "absent.pem"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}

#[test]
fn a_server_is_asked_for_its_chain() {
    let app = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    let instance = Home::new().run(&Home::one_route(app.address()));
    let target = instance.address().to_string();
    let asked = |more: &[&str]| {
        let arguments = [&["cert", "inspect", &target, "--ca", "ca.pem"][..], more].concat();
        ask(offramp(instance.home.path(), &arguments), b"", PATIENCE)
    };
    let good = asked(&["--name", "localhost"]);
    assert_eq!(good.status.code(), Some(0), "{good:?}");
    for part in ["0: certificate ", "names:   localhost, *.example.org", "1: authority ", "nothing is wrong"]
    {
        assert!(said(&good).contains(part), "{part}: {}", said(&good));
    }
    let other = asked(&["--name", "other.test"]);
    assert!(said(&other).contains("is not for other.test"), "{other:?}");
    instance.stop();
}

#[test]
fn certificates_of_the_local_authority_are_good_where_it_is_trusted() {
    let app = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    let server = app.address();
    let instance = Home::new().run(&format!(
        "[[certificate]]\nlocal = true\nnames = [\"localhost\"]\n{LISTENER}[[route]]\nserver = \"{server}\"\n"
    ));
    let target = format!("localhost:{}", instance.address().port());
    let asked = |ca: &str| {
        let arguments = ["cert", "inspect", &target, "--ca", ca];
        ask(offramp(instance.home.path(), &arguments), b"", PATIENCE)
    };
    let good = asked("state/ca/ca.pem");
    assert_eq!(good.status.code(), Some(0), "{}", said(&good));
    let other = asked("ca.pem");
    assert_eq!(other.status.code(), Some(1), "{}", said(&other));
    assert!(said(&other).contains("none of the trusted authorities has issued"), "{}", said(&other));
    instance.stop();
}

#[test]
fn postgresql_is_asked_for_tls_first() {
    let app = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    let server = app.address();
    let instance = Home::new()
        .run(&format!("{CERTIFICATE}{LISTENER}preamble = \"postgres\"\n[[route]]\nserver = \"{server}\"\n"));
    let asked = |target: &str, more: &[&str]| {
        let arguments = [&["cert", "inspect", target, "--ca", "ca.pem", "--name", "localhost"][..], more];
        ask(offramp(instance.home.path(), &arguments.concat()), b"", PATIENCE)
    };
    let postgres = ["--starttls", "postgres"];
    let good = asked(&instance.address().to_string(), &postgres);
    assert_eq!(good.status.code(), Some(0), "{good:?}");
    assert!(said(&good).contains("nothing is wrong"), "{}", said(&good));
    let declined =
        Server::start(&Listen::Ipv4, offramp_testkit::server::faults::close_in_the_middle(b"N")).unwrap();
    for (target, part) in [(declined.address(), "answers N"), (app.address(), "which is not PostgreSQL")] {
        let output = asked(&target.to_string(), &postgres);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains(part), "{output:?}");
    }
    // Without the option it is found out.
    for (target, is_postgres) in [(declined.address(), true), (app.address(), false)] {
        let output = asked(&target.to_string(), &[]);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let advice = String::from_utf8_lossy(&output.stderr).contains("add --starttls postgres");
        assert_eq!(advice, is_postgres, "{output:?}");
    }
    instance.stop();
}
