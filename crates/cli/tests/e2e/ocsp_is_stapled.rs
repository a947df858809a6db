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

/// An Offramp with a certificate of the authority, and this line about it.
fn start(app: &Server, line: &str) -> House {
    let home = Home::new();
    client_pki::make(home.path());
    client_pki::issue_server(home.path());
    std::fs::create_dir(home.file("staples")).unwrap();
    // With its issuer behind it, the response is held against the key of that, too.
    let chain = ["web.pem", "oca.pem"].map(|file| std::fs::read(home.file(file)).unwrap());
    std::fs::write(home.file("web.pem"), chain.concat()).unwrap();
    home.run(&format!(
        "[[certificate]]\ncert = \"web.pem\"\nkey = \"web.key\"\n{line}{LISTENER}[[route]]\nserver = \"{}\"\n",
        app.address()
    ))
}

/// `ocsp` names the file: what lies beside the certificate does not count then.
#[test]
fn a_response_is_stapled_from_the_file_that_is_named() {
    let app = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    let house = start(&app, "ocsp = \"staples/web.der\"\n");
    house.until("a warning that there is none", || {
        let log = house.process.lines(Source::Stderr);
        log.iter().any(|line| line.contains("web.der") && line.contains("not stapled")).then_some(())
    });
    client_pki::respond(house.home.path());
    assert!(!is_stapled(&house));
    let there = house.home.file("staples/web.der");
    std::fs::rename(house.home.file("web.ocsp"), &there).unwrap();
    house.until("it is stapled", || is_stapled(&house).then_some(()));
    // A new one takes its place.
    let before = std::fs::read(&there).unwrap();
    client_pki::respond(house.home.path());
    std::fs::rename(house.home.file("web.ocsp"), &there).unwrap();
    assert_ne!(std::fs::read(&there).unwrap(), before);
    house.until("the new one is in use", || {
        let log = house.process.lines(Source::Stderr);
        (log.iter().filter(|line| line.contains("certificates changed")).count() == 2).then_some(())
    });
    assert!(is_stapled(&house));
    house.stop();
}

#[test]
fn ocsp_is_stapled() {
    let app = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    let house = start(&app, "");
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
        log.iter().any(|line| line.contains("it is not an OCSP response")).then_some(())
    });
    assert!(is_stapled(&house));
    std::fs::remove_file(&path).unwrap();
    until(false);
    house.stop();
}
