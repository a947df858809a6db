//! `offramp cert order` obtains a certificate without a server, with every challenge, and says why where it does not.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use offramp_testkit::process::{require, write_program};
use offramp_testkit::server::{Listen, Server, apps};

use crate::support::instance::Home;
use crate::support::knot::{Knot, SECRET};
use crate::support::offramp::{output, stderr, stdout};
use crate::support::pebble::{Pebble, Terms, logged};

/// Orders from this authority, with further arguments.
fn order(home: &Home, pebble: &Pebble, arguments: &[&str]) -> Output {
    let directory = format!("https://localhost:{}/dir", pebble.port);
    let ca = home.ca.certificate();
    let mut all = vec!["cert", "order"];
    all.extend(["--directory", &directory, "--ca", ca.to_str().unwrap(), "--state-dir", "state"]);
    all.extend(arguments);
    output(home.path(), &all)
}

/// What openssl says of a certificate in a file.
fn described(home: &Home, file: &str) -> String {
    let mut openssl = Command::new(require("openssl", "openssl"));
    openssl.args(["x509", "-noout", "-issuer", "-ext", "subjectAltName", "-in"]).arg(home.file(file));
    stdout(&openssl.output().unwrap())
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn by_handshake_and_by_response_on_a_port_of_its_own() {
    let home = Home::new();
    let pebble = Pebble::start(home.path(), &home.ca, &Terms { refused_nonces: 30, ..Terms::default() });
    let listen = format!("127.0.0.1:{}", pebble.tls);
    let files = ["--cert", "site.pem", "--key", "site.key", "--email", "me@example.org"];
    let issued = order(&home, &pebble, &[&["A.test", "b.test", "--listen", &listen][..], &files].concat());
    assert_eq!(issued.status.code(), Some(0), "{}", stderr(&issued));
    let said = stdout(&issued);
    assert!(said.starts_with("a.test b.test: issued, valid until 20") && said.contains("site.pem"), "{said}");
    let found = described(&home, "site.pem");
    assert!(found.contains("Pebble") && found.contains("DNS:a.test, DNS:b.test"), "{found}");
    assert_eq!((mode(&home.file("site.pem")), mode(&home.file("site.key"))), (0o644, 0o600));
    // The port is free again.
    drop(TcpListener::bind(&listen).unwrap());
    // One file for both has both.
    let both = ["--listen", &listen, "--cert", "both.pem", "--key", "both.pem"];
    let issued = order(&home, &pebble, &[&["d.test"][..], &both, &files[4..]].concat());
    assert_eq!(issued.status.code(), Some(0), "{}", stderr(&issued));
    let text = fs::read_to_string(home.file("both.pem")).unwrap();
    assert!(text.contains("BEGIN CERTIFICATE") && text.contains("PRIVATE KEY"), "{text}");
    assert_eq!(mode(&home.file("both.pem")), 0o600);
    // Another one, with the same account; both parts in the state directory alone.
    let listen = format!("127.0.0.1:{}", pebble.http);
    let arguments = ["c.test", "--challenge", "http-01", "--listen", &listen, "--key-type", "rsa2048"];
    let issued = order(&home, &pebble, &[&arguments[..], &files[4..]].concat());
    assert_eq!(issued.status.code(), Some(0), "{}", stderr(&issued));
    let file = stdout(&issued);
    let file = file.trim().rsplit(' ').next().unwrap();
    assert!(file.contains("state/acme/certificates/c.test-") && mode(Path::new(file)) == 0o600, "{file}");
    assert!(!stderr(&issued).contains("an account was made"), "{}", stderr(&issued));
}

#[test]
fn by_records_that_a_program_or_a_name_server_sets() {
    let home = Home::new();
    let pebble = Pebble::start(home.path(), &home.ca, &Terms::default());
    let (curl, management) = (require("curl", "curl"), pebble.management);
    write_program(
        &home.file("hook"),
        &format!(
            "#!/bin/sh -e\ncase $1 in present) verb=set-txt;; cleanup) verb=clear-txt;; esac\n\
             {curl} -sf -d \"{{\\\"host\\\":\\\"$2.\\\",\\\"value\\\":\\\"$3\\\"}}\" http://127.0.0.1:{management}/$verb\n",
            curl = curl.display()
        ),
    );
    let by_dns = ["--challenge", "dns-01", "--dns-wait", "0", "--cert", "all.pem"];
    let issued = order(&home, &pebble, &[&["*.w.test", "--dns-hook", "hook"][..], &by_dns].concat());
    assert_eq!(issued.status.code(), Some(0), "{}", stderr(&issued));
    assert!(described(&home, "all.pem").contains("DNS:*.w.test"));
    // The key is in the same file, which is closed to others.
    let text = fs::read_to_string(home.file("all.pem")).unwrap();
    assert!(text.contains("PRIVATE KEY") && mode(&home.file("all.pem")) == 0o600);
    let other = Home::new();
    let knot = Knot::start(other.path());
    let pebble = Pebble::start_with(other.path(), &other.ca, &Terms::default(), Some(knot.port));
    fs::write(other.file("tsig.key"), SECRET).unwrap();
    let server = format!("127.0.0.1:{}", knot.port);
    let updates =
        ["--dns-server", &server, "--dns-zone", "test", "--tsig-name", "offramp", "--tsig-key", "tsig.key"];
    let issued = order(&other, &pebble, &[&["w.test", "*.w.test"][..], &by_dns, &updates].concat());
    assert_eq!(issued.status.code(), Some(0), "{}", stderr(&issued));
    assert!(!knot.has_text("_acme-challenge.w.test"));
}

#[test]
fn what_is_in_the_way_is_told() {
    let home = Home::new();
    let pebble = Pebble::start(home.path(), &home.ca, &Terms::default());
    let listen = format!("127.0.0.1:{}", pebble.tls);
    let refused = |arguments: &[&str], code: i32, reason: &str| {
        let refused = order(&home, &pebble, arguments);
        assert_eq!(refused.status.code(), Some(code), "{arguments:?}: {}", stderr(&refused));
        assert!(stderr(&refused).contains(reason), "{arguments:?}: {}", stderr(&refused));
        assert_eq!(stdout(&refused), "");
    };
    let taken = TcpListener::bind(&listen).unwrap();
    refused(&["a.test", "--listen", &listen], 1, "another server listens there");
    drop(taken);
    refused(&["*.a.test"], 2, "a wildcard needs --challenge dns-01");
    refused(&["a.test", "--challenge", "dns-01"], 2, "needs --dns-hook, or --dns-server");
    refused(&["a.test", "--dns-hook", "hook"], 2, "for --challenge dns-01 alone");
    pebble.tell_names("/set-default-ipv4", "{\"ip\":\"127.0.0.9\"}");
    refused(&["a.test", "--listen", &listen, "--cert", "no.pem"], 1, "urn:ietf:params:acme:error");
    assert!(!home.file("no.pem").exists());
    let public = output(home.path(), &["cert", "order", "nas.lan", "--state-dir", "state"]);
    assert_eq!(public.status.code(), Some(2));
    assert!(stderr(&public).contains("no authority issues for nas.lan"), "{public:?}");
    pebble.tell_names("/set-default-ipv4", "{\"ip\":\"127.0.0.1\"}");
    // A running Offramp has the right to order.
    let app = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    let text = format!(
        "{}[[certificate]]\nacme = \"pebble\"\nnames = [\"b.test\"]\n\
         [[listener]]\naddress = \"127.0.0.1:{}\"\n[[route]]\nserver = \"{}\"\n",
        pebble.section(&home.ca, ""),
        pebble.tls,
        app.address()
    );
    let instance = home.run(&text);
    logged(&instance, "a certificate was obtained", "");
    let refused = order(&instance.home, &pebble, &["a.test", "--listen", "127.0.0.1:0"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(stderr(&refused).contains("use `offramp cert renew`"), "{}", stderr(&refused));
}
