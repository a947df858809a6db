//! The local CA: minted on first use, its keys for nobody else, its certificate good for what it is told.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use offramp_testkit::server::{Listen, Server, apps};

use crate::reload_loses_no_request::reload;
use crate::support::crowd::{close, connect, echo, trusting};
use crate::support::instance::{Home, LISTENER};
use crate::support::offramp::{output, stderr, stdout};

/// Every file below `directory`, with its mode.
fn modes(directory: &Path) -> Vec<(String, u32)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let metadata = fs::metadata(&path).unwrap();
        if metadata.is_dir() {
            found.extend(modes(&path));
        } else {
            found.push((path.display().to_string(), metadata.permissions().mode() & 0o777));
        }
    }
    found
}

#[test]
fn it_vouches_for_the_hosts_of_the_routes() {
    let app = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    let route =
        format!("[[route]]\nhost = [\"a.home.arpa\", \"*.b.home.arpa\"]\nserver = \"{}\"\n", app.address());
    let instance = Home::new().run(&format!("{LISTENER}{route}"));
    let ca = instance.home.file("state/ca/ca.pem");
    let config = trusting(&ca);
    for name in ["a.home.arpa", "x.b.home.arpa"] {
        let mut tls = connect(&config, instance.address(), name).unwrap();
        echo(&mut tls, "hello").unwrap();
        close(tls).unwrap();
    }
    // Not with the CA of the test, and not for a name that was not asked for.
    assert!(connect(&trusting(&instance.home.ca.certificate()), instance.address(), "a.home.arpa").is_err());
    assert!(connect(&config, instance.address(), "c.home.arpa").is_err());

    let state = instance.home.file("state");
    assert_eq!(fs::metadata(&state).unwrap().permissions().mode() & 0o777, 0o700);
    let modes = modes(&state);
    let keys: Vec<_> = modes
        .iter()
        .filter(|(path, _)| fs::read_to_string(path).is_ok_and(|text| text.contains("PRIVATE KEY")))
        .collect();
    assert!(!keys.is_empty() && keys.iter().all(|(_, mode)| *mode == 0o600), "{modes:?}");

    // `offramp ca` tells where the very same certificate is, and not the key.
    let told = output(instance.home.path(), &["ca", "-c", "offramp.toml"]);
    assert_eq!(told.status.code(), Some(0), "{}", stderr(&told));
    assert!(stdout(&told).contains(&ca.display().to_string()), "{}", stdout(&told));
    assert!(!stdout(&told).contains("PRIVATE KEY") && !stdout(&told).contains("ca.key"));
    instance.stop();
}

/// A certificate has a hundred names at most, and a configuration as many hosts as it likes: from its routes, or on the
/// list of a certificate.
#[test]
fn more_names_than_a_certificate_has_are_all_served() {
    let app = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    let names: Vec<String> = (0..230).map(|number| format!("\"n{number}.home.arpa\"")).collect();
    let names = names.join(", ");
    let server = app.address();
    for text in [
        format!("{LISTENER}[[route]]\nhost = [{names}]\nserver = \"{server}\"\n"),
        format!(
            "{LISTENER}[[certificate]]\nlocal = true\nnames = [{names}]\n[[route]]\nserver = \"{server}\"\n"
        ),
    ] {
        let instance = Home::new().run(&text);
        let config = trusting(&instance.home.file("state/ca/ca.pem"));
        for number in [0, 99, 100, 199, 200, 229] {
            let mut tls = connect(&config, instance.address(), &format!("n{number}.home.arpa")).unwrap();
            echo(&mut tls, "hello").unwrap();
            close(tls).unwrap();
        }
        assert!(connect(&config, instance.address(), "n230.home.arpa").is_err());
        let issued = fs::read_dir(instance.home.file("state/ca/issued")).unwrap().count();
        assert_eq!(issued, 3);
        // A restart and a reload find them again.
        reload(&instance);
        assert_eq!(fs::read_dir(instance.home.file("state/ca/issued")).unwrap().count(), issued);
        instance.stop();
    }
}

#[test]
fn a_restart_keeps_it() {
    let app = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    let text = format!("{LISTENER}[[route]]\nhost = \"a.home.arpa\"\nserver = \"{}\"\n", app.address());
    let home = Home::new();
    home.configure(&text);
    let made = output(home.path(), &["ca", "-c", "offramp.toml"]);
    assert_eq!(made.status.code(), Some(0), "{}", stderr(&made));
    let before = fs::read(home.file("state/ca/ca.pem")).unwrap();
    let instance = home.run(&text);
    assert_eq!(fs::read(instance.home.file("state/ca/ca.pem")).unwrap(), before);
    let config = trusting(&instance.home.file("state/ca/ca.pem"));
    assert!(connect(&config, instance.address(), "a.home.arpa").is_ok());
    instance.stop();
}
