//! An OCSP response beside a certificate is stapled while it says that the certificate is good.

use offramp_testkit::process::Source;
use offramp_testkit::server::{Listen, Server, apps};

use crate::client_pki;
use crate::house::{Home, House, LISTENER};
use crate::openssl::echo;

fn is_stapled(house: &House) -> bool {
    let said = echo(house, &["-status"]);
    let (yes, no) =
        (said.contains("OCSP Response Status: successful"), said.contains("OCSP response: no response sent"));
    assert!(yes != no, "{said}");
    yes
}

#[test]
fn ocsp_is_stapled() {
    let app = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    let home = Home::new();
    client_pki::make(home.path());
    client_pki::issue_server(home.path());
    let house = home.run(&format!(
        "[[certificate]]\ncert = \"web.pem\"\nkey = \"web.key\"\n{LISTENER}[[route]]\nserver = \"{}\"\n",
        app.address()
    ));
    let until =
        |stapled: bool| house.until("the response changes", || (is_stapled(&house) == stapled).then_some(()));
    assert!(!is_stapled(&house), "there is none yet");
    client_pki::respond(house.home.path());
    until(true);
    // Half-written, it changes nothing.
    let path = house.home.file("web.ocsp");
    let whole = std::fs::read(&path).unwrap();
    std::fs::write(&path, &whole[..whole.len() / 2]).unwrap();
    house.until("the fault is told", || {
        let log = house.process.lines(Source::Stderr);
        log.iter().any(|line| line.contains("it is no OCSP response")).then_some(())
    });
    assert!(is_stapled(&house));
    std::fs::remove_file(&path).unwrap();
    until(false);
    house.stop();
}
