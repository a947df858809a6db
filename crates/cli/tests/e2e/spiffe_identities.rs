//! A SPIFFE-style PKI of two trust domains, minted here: identities are URIs in certificates without a subject, of
//! several authorities per route, and the bundle changes while connections live.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;

use offramp_testkit::ca::{Ca, Key, Leaf, Name};
use offramp_testkit::process::Source;
use offramp_testkit::server::{Listen, Server, apps};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::support::http_curl::{HTTP, curl};
use crate::support::instance::{CERTIFICATE, Home, Instance, LISTENER, cause, text};

/// One authority of each trust domain, and the one that follows the first.
struct Domains {
    own: Ca,
    own_next: Ca,
    partner: Ca,
}

impl Domains {
    fn new(home: &Home) -> Self {
        let domain = |name: &str| {
            std::fs::create_dir(home.file(name)).unwrap();
            Ca::new(&home.file(name)).unwrap()
        };
        Self { own: domain("own"), own_next: domain("own-next"), partner: domain("partner") }
    }
}

/// An identity document (X.509-SVID): a URI and nothing else, good for both roles.
fn svid(authority: &Ca, name: &str, id: &str) -> (String, String) {
    let uri = [Name::Uri(id.to_owned())];
    let leaf = Leaf { common_name: None, key: Key::P256, ..Leaf::client(name, &uri) };
    let files = authority.issue(name, &leaf).unwrap();
    (files.cert.display().to_string(), files.key.display().to_string())
}

fn client(instance: &Instance, (cert, key): &(String, String)) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(instance.home.ca.certificate()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let chain = vec![CertificateDer::from_pem_file(cert).unwrap()];
    let key = PrivateKeyDer::from_pem_file(key).unwrap();
    Arc::new(builder.with_root_certificates(roots).with_client_auth_cert(chain, key).unwrap())
}

type Tls = StreamOwned<ClientConnection, TcpStream>;

/// Connects and has a word echoed; `None`: it was refused.
fn admitted(instance: &Instance, config: &Arc<ClientConfig>) -> Option<Tls> {
    let stream = crate::support::crowd::tcp(instance.address()).unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let mut tls = StreamOwned::new(ClientConnection::new(Arc::clone(config), name).unwrap(), stream);
    echoed(&mut tls).then_some(tls)
}

fn echoed(tls: &mut Tls) -> bool {
    let mut back = [0; 5];
    tls.write_all(b"hello").is_ok() && tls.read_exact(&mut back).is_ok() && &back == b"hello"
}

fn until_changed(instance: &Instance, times: usize) {
    instance.until("the bundle is in use", || {
        let log = instance.process.lines(Source::Stderr);
        (log.iter().filter(|line| line.contains("certificates changed")).count() >= times).then_some(())
    });
}

/// Puts a bundle of these authorities at its place, whole or not at all.
fn bundle(home: &Home, authorities: &[&Ca]) {
    let parts: Vec<_> = authorities.iter().map(|ca| std::fs::read(ca.certificate()).unwrap()).collect();
    std::fs::write(home.file("next.pem"), parts.concat()).unwrap();
    std::fs::rename(home.file("next.pem"), home.file("bundle.pem")).unwrap();
}

#[test]
fn spiffe_identities_of_two_domains_are_let_in_by_their_uris() {
    let app = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    let home = Home::new();
    let domains = Domains::new(&home);
    bundle(&home, &[&domains.own]);
    let allow = "allow = [\"uri:spiffe://example.org/ns/prod/*\", \"uri:spiffe://partner.test/billing\"]";
    let instance = home.run(&format!(
        "{CERTIFICATE}{LISTENER}[[route]]\nserver = \"{}\"\n\
         client_auth = {{ ca = [\"bundle.pem\", \"partner/ca.pem\"], {allow} }}\n",
        app.address()
    ));
    let rows = [
        (&domains.own, "spiffe://example.org/ns/prod/sa/web", "client_closed"),
        (&domains.partner, "spiffe://partner.test/billing", "client_closed"),
        (&domains.own, "spiffe://example.org/ns/dev/sa/web", "client_certificate_not_allowed"),
        (&domains.own, "spiffe://example.org.evil.test/ns/prod/sa/web", "client_certificate_not_allowed"),
        (&domains.partner, "spiffe://partner.test/billing/admin", "client_certificate_not_allowed"),
        // The right name by an authority that nobody believes: all authorities of the tests have one name.
        (&domains.own_next, "spiffe://example.org/ns/prod/sa/web", "client_certificate_rejected"),
    ];
    for (number, (authority, id, expected)) in rows.into_iter().enumerate() {
        let files = svid(authority, &format!("svid-{number}"), id);
        drop(admitted(&instance, &client(&instance, &files)));
        let event = instance.events_of(number + 1).remove(number);
        let ended = [expected, "client_vanished"].contains(&cause(&event));
        assert!(ended && (expected == "client_closed" || cause(&event) == expected), "{id}: {event}");
        if expected != "client_closed" {
            assert!(text(&event, "detail").contains(&format!("uri:{id}; issuer")), "{event}");
        }
    }
    assert_eq!(app.accepted(), 2);
    instance.stop();
}

/// With `trust_domains` an authority vouches for the identities of its own domain alone, also by a ticket of a route on
/// which it may vouch for all.
#[test]
fn no_authority_issues_identities_of_another_trust_domain() {
    let app = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    let home = Home::new();
    let domains = Domains::new(&home);
    let instance = home.run(&format!(
        "{CERTIFICATE}{LISTENER}[[route]]\nserver = \"{0}\"\nclient_auth = {{ trust_domains = {{ \
         \"example.org\" = [\"own/ca.pem\", \"own-next/ca.pem\"], \"partner.test\" = \"partner/ca.pem\" }} }}\n\
         [[route]]\nhost = \"any.example.org\"\nserver = \"{0}\"\n\
         client_auth = {{ ca = [\"own/ca.pem\", \"own-next/ca.pem\", \"partner/ca.pem\"] }}\n",
        app.address()
    ));
    let (own, next, partner) = (&domains.own, &domains.own_next, &domains.partner);
    let rejected = "client_certificate_rejected";
    let unknown = "client_certificate_unknown_issuer";
    let spiffe = |id: &str| vec![Name::Uri(format!("spiffe://{id}"))];
    let rows = [
        (own, spiffe("example.org/web"), "client_closed"),
        (next, spiffe("example.org/web"), "client_closed"),
        (partner, spiffe("partner.test/billing"), "client_closed"),
        // The authority of one domain, and an identity of the other; all authorities of the tests have one name.
        (partner, spiffe("example.org/web"), rejected),
        (own, spiffe("partner.test/billing"), rejected),
        (own, spiffe("other.test/web"), unknown),
        (own, spiffe("example.org"), rejected),
        (own, [spiffe("example.org/web"), spiffe("partner.test/billing")].concat(), rejected),
        (own, vec![Name::Dns("web.example.org".to_owned())], rejected),
    ];
    for (number, (authority, names, expected)) in rows.into_iter().enumerate() {
        let leaf = Leaf { common_name: None, key: Key::P256, ..Leaf::client("svid", &names) };
        let files = authority.issue(&format!("svid-{number}"), &leaf).unwrap();
        let files = (files.cert.display().to_string(), files.key.display().to_string());
        let admitted = admitted(&instance, &client(&instance, &files)).is_some();
        assert_eq!(admitted, expected == "client_closed", "{names:?}");
        let event = instance.events_of(number + 1).remove(number);
        let ended = cause(&event) == expected || (admitted && cause(&event) == "client_vanished");
        assert!(ended, "{names:?}: {event}");
    }
    // The route for everybody gives a ticket, which is none for the other route.
    let config = client(&instance, &svid(partner, "minted", "spiffe://example.org/web"));
    let stream = crate::support::crowd::tcp(instance.address()).unwrap();
    let name = ServerName::try_from("any.example.org").unwrap();
    let mut tls = StreamOwned::new(ClientConnection::new(Arc::clone(&config), name).unwrap(), stream);
    assert!(echoed(&mut tls));
    drop(tls);
    assert!(admitted(&instance, &config).is_none());
    instance.stop();
}

/// The authorities of a domain are rotated as SPIRE does it: first both, then the new one alone. Who is connected stays,
/// and who comes anew is checked by the bundle of that moment.
#[test]
fn a_bundle_changes_while_connections_live() {
    let app = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    let home = Home::new();
    let domains = Domains::new(&home);
    bundle(&home, &[&domains.own]);
    let id = "spiffe://example.org/ns/prod/sa/web";
    let auth = "client_auth = { ca = \"bundle.pem\", allow = \"uri:spiffe://example.org/*\" }";
    let instance =
        home.run(&format!("{CERTIFICATE}{LISTENER}[[route]]\nserver = \"{}\"\n{auth}\n", app.address()));
    let old = client(&instance, &svid(&domains.own, "old", id));
    let new = client(&instance, &svid(&domains.own_next, "new", id));
    let mut first = admitted(&instance, &old).expect("the old identity is good");
    assert!(admitted(&instance, &new).is_none());
    bundle(&instance.home, &[&domains.own, &domains.own_next]);
    until_changed(&instance, 1);
    let mut second = admitted(&instance, &new).expect("the new one is good");
    assert!(admitted(&instance, &old).is_some() && echoed(&mut first));
    bundle(&instance.home, &[&domains.own_next]);
    until_changed(&instance, 2);
    // Its ticket does not help it either: the configuration of the client has kept one.
    assert!(admitted(&instance, &old).is_none());
    assert!(admitted(&instance, &new).is_some());
    for _ in 0..3 {
        assert!(echoed(&mut first) && echoed(&mut second));
    }
    drop((first, second));
    instance.stop();
}

/// Over an open HTTP connection a client is not asked again, so that its further requests are sent elsewhere.
#[test]
fn requests_on_a_connection_from_before_are_misdirected() {
    let home = Home::new();
    let domains = Domains::new(&home);
    bundle(&home, &[&domains.own]);
    let (cert, key) = svid(&domains.own, "web", "spiffe://example.org/web");
    let auth = "client_auth = { ca = \"bundle.pem\", allow = \"uri:spiffe://example.org/*\" }";
    let instance = home.run(&format!(
        "{CERTIFICATE}{HTTP}[[route]]\nrespond = {{ status = 200, body = \"here\" }}\n{auth}\n"
    ));
    let config = client(&instance, &(cert.clone(), key.clone()));
    let stream = crate::support::crowd::tcp(instance.address()).unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let mut tls = StreamOwned::new(ClientConnection::new(config, name).unwrap(), stream);
    let mut status = || {
        tls.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"here") && !String::from_utf8_lossy(&head).contains(" 421 ") {
            let mut byte = [0];
            tls.read_exact(&mut byte).unwrap();
            head.push(byte[0]);
        }
        String::from_utf8_lossy(&head[9..12]).into_owned()
    };
    assert_eq!(status(), "200");
    assert_eq!(status(), "200");
    bundle(&instance.home, &[&domains.own_next]);
    until_changed(&instance, 1);
    assert_eq!(status(), "421");
    // The client needs a new connection, and is told so.
    let mut rest = Vec::new();
    tls.read_to_end(&mut rest).unwrap();
    assert!(String::from_utf8_lossy(&rest).to_ascii_lowercase().contains("connection: close"));
    // Nor by a new one.
    let refused = curl(&instance, &["--cert", &cert, "--key", &key], "https://localhost/");
    assert_ne!(refused.code, 0, "{refused:?}");
    instance.stop();
}
