//! An OCSP response beside a certificate is stapled while it says that the certificate is good.

use offramp_testkit::process::Source;
use offramp_testkit::server::{Listen, Server, apps};

use crate::support::client_pki;
use crate::support::instance::{Home, Instance, LISTENER};
use crate::support::openssl::echo;

fn is_stapled(instance: &Instance) -> bool {
    let said = echo(instance, &["-status"]);
    let (yes, no) =
        (said.contains("OCSP Response Status: successful"), said.contains("OCSP response: no response sent"));
    assert!(yes != no, "{said}");
    yes
}

/// An Offramp with a certificate of the authority, and this line about it.
fn start(app: &Server, line: &str) -> Instance {
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
    let instance = start(&app, "ocsp = \"staples/web.der\"\n");
    instance.until("a warning that there is none", || {
        let log = instance.process.lines(Source::Stderr);
        log.iter().any(|line| line.contains("web.der") && line.contains("not stapled")).then_some(())
    });
    client_pki::respond(instance.home.path());
    assert!(!is_stapled(&instance));
    let there = instance.home.file("staples/web.der");
    std::fs::rename(instance.home.file("web.ocsp"), &there).unwrap();
    instance.until("it is stapled", || is_stapled(&instance).then_some(()));
    // A new one takes its place.
    let before = std::fs::read(&there).unwrap();
    client_pki::respond(instance.home.path());
    std::fs::rename(instance.home.file("web.ocsp"), &there).unwrap();
    assert_ne!(std::fs::read(&there).unwrap(), before);
    instance.until("the new one is in use", || {
        let log = instance.process.lines(Source::Stderr);
        (log.iter().filter(|line| line.contains("certificates changed")).count() == 2).then_some(())
    });
    assert!(is_stapled(&instance));
    instance.stop();
}

#[test]
fn ocsp_is_stapled() {
    let app = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    let instance = start(&app, "");
    let until = |stapled: bool| {
        instance.until("the response changes", || (is_stapled(&instance) == stapled).then_some(()));
    };
    assert!(!is_stapled(&instance), "there is none yet");
    client_pki::respond(instance.home.path());
    until(true);
    // Half-written, it changes nothing.
    let path = instance.home.file("web.ocsp");
    let whole = std::fs::read(&path).unwrap();
    std::fs::write(&path, &whole[..whole.len() / 2]).unwrap();
    instance.until("the fault is told", || {
        let log = instance.process.lines(Source::Stderr);
        log.iter().any(|line| line.contains("it is not an OCSP response")).then_some(())
    });
    assert!(is_stapled(&instance));
    std::fs::remove_file(&path).unwrap();
    until(false);
    instance.stop();
}
