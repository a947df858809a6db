//! Renewal information (ARI, RFC 9773), replacements and certificate profiles, with an authority that has them.

use std::time::{Duration, SystemTime};

use offramp_testkit::server::{Listen, Server, apps};

use crate::support::authority::{Asked, Authority, Fault};
use crate::support::instance::Home;
use crate::support::offramp::{output, stderr};
use crate::support::pebble::logged;

/// Short: certificates are a third of their life apart, whatever an authority suggests.
const LIFE: Duration = Duration::from_secs(60);

fn configuration(home: &Home, authority: &Authority, more: &str, app: &Server) -> String {
    format!(
        "{}[[certificate]]\nacme = \"own\"\nnames = [\"a.test\"]\n[[listener]]\naddress = \"127.0.0.1:0\"\n\
         [[route]]\nserver = \"{}\"\n",
        authority.section(&home.ca.certificate(), more),
        app.address()
    )
}

#[test]
fn a_certificate_is_renewed_when_the_authority_wants_it_and_replaces_the_old_one() {
    let app = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    let home = Home::new();
    let authority = Authority::start(&home.ca, LIFE);
    let text = configuration(&home, &authority, "profile = \"shortlived\"", &app);
    let instance = home.run(&text);
    let line = logged(&instance, "the authority suggests when to renew", "names=a.test");
    assert!(line.contains("start=2090-01-01T") && line.contains("end=2090-01-02T"), "{line}");
    let first: Asked = authority.orders().remove(0);
    assert_eq!(first.payload["profile"], "shortlived");
    assert!(first.payload["replaces"].is_null());
    let id = first.certificate.unwrap();
    assert_eq!(authority.requests(&format!("/ari/{id}")), 1);
    // It will be told at the next question, which a start asks at once.
    authority.suggest(&id);
    instance.process.signal(offramp_testkit::process::Signal::KILL).unwrap();
    instance.process.wait(crate::support::instance::LIFE).unwrap();
    let home = instance.home;
    std::fs::remove_file(home.file("notify.sock")).unwrap();
    // A certificate that is new is not replaced, whatever the authority suggests.
    for entry in std::fs::read_dir(home.file("state/acme/certificates")).unwrap() {
        let path = entry.unwrap().path().join("certificate.pem");
        let file = std::fs::File::options().write(true).open(path).unwrap();
        file.set_modified(SystemTime::now() - LIFE).unwrap();
    }
    let instance = home.run(&text);
    logged(&instance, "a certificate was obtained", "names=a.test");
    let second = authority.orders().remove(1);
    assert_eq!(
        (second.payload["replaces"].as_str(), second.payload["profile"].as_str()),
        (Some(id.as_str()), Some("shortlived"))
    );
    logged(&instance, "the authority suggests when to renew", "start=2090-01-01T");
    assert_eq!(authority.orders().len(), 2);
    let asked = authority.requests(&format!("/ari/{}", second.certificate.unwrap()));
    assert_eq!(asked, 1);
}

/// RFC 9773 has authorities repeat what an order replaces, and say when to ask for advice again. One that does neither is
/// asked for advice all the same, and its certificates are renewed.
#[test]
fn an_authority_that_leaves_out_half_of_it_is_no_reason_to_let_a_certificate_end() {
    let app = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    let home = Home::new();
    let authority = Authority::start(&home.ca, Duration::from_secs(90 * 24 * 3600));
    authority.set_fault(Fault::Forgetful);
    let text = configuration(&home, &authority, "", &app);
    let instance = home.run(&text);
    logged(&instance, "the authority suggests when to renew", "start=2090-01-01T");
    let renewed = output(instance.home.path(), &["cert", "renew", "a.test", "--config", "offramp.toml"]);
    assert_eq!(renewed.status.code(), Some(0), "{}", stderr(&renewed));
    let orders = authority.orders();
    let replaces = |order: &Asked| order.payload["replaces"].is_string();
    // The one that replaces was placed and came to nothing; the one after it is the renewal.
    assert_eq!(orders.iter().map(replaces).collect::<Vec<_>>(), [false, true, false]);
    assert!(orders[1].certificate.is_none() && orders[2].certificate.is_some());
}

#[test]
fn a_profile_that_the_authority_does_not_have_is_told() {
    let app = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    let home = Home::new();
    let authority = Authority::start(&home.ca, LIFE);
    let text = configuration(&home, &authority, "profile = \"eternal\"", &app);
    let instance = home.run(&text);
    let line = logged(&instance, "no certificate was obtained", "names=a.test");
    assert!(line.contains("invalidProfile"), "{line}");
}
