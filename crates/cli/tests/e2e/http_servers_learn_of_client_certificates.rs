//! `Client-Cert`, `Client-Cert-Chain` (RFC 9440) and `X-Forwarded-Client-Cert`: what a client has shown, and nothing
//! that it says.

use std::process::Command;

use offramp_testkit::process::require;
use offramp_testkit::server::{Listen, Server};

use crate::support::client_pki;
use crate::support::http_app::{Seen, named};
use crate::support::http_curl::{HTTP, PLAIN, get};
use crate::support::instance::{CERTIFICATE, Home, Instance, PATIENCE, ask};

/// What a client says of itself.
const CLAIMS: [&str; 10] = [
    "--header",
    "Client-Cert: :Zm9yZ2Vk:",
    "--header",
    "Client_Cert: :Zm9yZ2Vk:",
    "--header",
    "Client-Cert-Chain: :Zm9yZ2Vk:",
    "--header",
    "X-Forwarded-Client-Cert: Hash=forged",
    "--header",
    "X-Other: kept",
];

fn served(client_auth: &str) -> (Server, Seen, Instance) {
    let home = Home::new();
    client_pki::make(home.path());
    let (app, seen) = named(&Listen::Unix(home.file("app.sock")), "app");
    let text = format!(
        "{CERTIFICATE}{PLAIN}{HTTP}[[route]]\nhost = \"a.example.org\"\nserver = \"unix:app.sock\"\n{client_auth}\n\
         [[route]]\nhost = \"b.example.org\"\nserver = \"unix:app.sock\"\n"
    );
    (app, seen, home.run(&text))
}

/// The base64 of a certificate's DER, by openssl.
fn base64(instance: &Instance, cert: &str) -> String {
    let mut command = Command::new(require("openssl", "openssl"));
    command.args(["x509", "-in", cert]).current_dir(instance.home.path());
    let pem = String::from_utf8(ask(command, b"", PATIENCE).stdout).unwrap();
    pem.lines().filter(|line| !line.starts_with("-----")).collect()
}

#[test]
fn servers_get_what_a_client_has_shown() {
    let (_app, seen, instance) =
        served("client_auth = { mode = \"optional\", ca = \"oca.pem\", xfcc = true }");
    let chain =
        [std::fs::read(instance.home.file("carol.pem")), std::fs::read(instance.home.file("middle.pem"))];
    std::fs::write(instance.home.file("chain.pem"), chain.map(Result::unwrap).concat()).unwrap();
    let carol = format!(":{}:", base64(&instance, "carol.pem"));
    let middle = format!(":{}:", base64(&instance, "middle.pem"));
    for version in ["--http1.1", "--http2"] {
        let shows = [version, "--cert", "chain.pem", "--key", "carol.key"];
        get(&instance, &[&shows[..], &CLAIMS].concat(), "https://a.example.org/x");
        let request = seen.one();
        assert_eq!(request.field("client-cert"), carol, "{version}");
        assert_eq!(request.field("client-cert-chain"), middle, "{version}");
        assert_eq!((request.field("client_cert"), request.field("x-other")), ("", "kept"));
        let envoy = request.field("x-forwarded-client-cert");
        assert!(envoy.starts_with("Hash=") && !envoy.contains("forged"), "{envoy}");
        for part in [
            ";Cert=\"-----BEGIN%20CERTIFICATE-----%0A",
            ";Subject=\"CN=carol\"",
            ";URI=spiffe://example.org/ns/prod/sa/bob",
            ";DNS=bob.svc.test",
        ] {
            assert!(envoy.contains(part), "{part}: {envoy}");
        }
        // A client that shows none says nothing by saying so.
        get(&instance, &[&[version][..], &CLAIMS].concat(), "https://a.example.org/x");
        let request = seen.one();
        assert!(!format!("{request:?}").contains("forged") && !format!("{request:?}").contains("Zm9yZ2Vk"));
        assert_eq!(request.field("x-other"), "kept");
    }
    instance.stop();
}

#[test]
fn the_field_of_envoy_is_sent_only_on_request_and_claims_are_dropped_everywhere() {
    let (_app, seen, instance) = served("client_auth = { ca = \"oca.pem\" }");
    let shows = ["--cert", "bob.pem", "--key", "bob.key"];
    get(&instance, &[&shows[..], &CLAIMS].concat(), "https://a.example.org/x");
    let request = seen.one();
    assert_eq!(request.field("client-cert"), format!(":{}:", base64(&instance, "bob.pem")));
    for absent in ["client-cert-chain", "x-forwarded-client-cert", "client_cert"] {
        assert_eq!(request.field(absent), "");
    }
    for url in ["https://b.example.org/x", "http://b.example.org/x"] {
        get(&instance, &CLAIMS, url);
        let request = seen.one();
        for absent in ["client-cert", "client-cert-chain", "x-forwarded-client-cert", "client_cert"] {
            assert_eq!(request.field(absent), "", "{url}");
        }
    }
    instance.stop();
}
