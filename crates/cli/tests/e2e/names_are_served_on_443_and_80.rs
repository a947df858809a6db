//! `offramp to --name --acme` and `offramp cert order` without `--listen`: on ports 443 and 80, where authorities look.
//!
//! Other tests must not have these ports, and on many machines somebody has them. So the test runs once more, in a network
//! namespace with a loopback and nothing else.

use std::net::TcpStream;
use std::process::Command;

use offramp_testkit::process::{Process, Ready, Source, require};
use offramp_testkit::server::{Listen, Server, apps};

use crate::support::instance::{Home, LIFE, PATIENCE, ask};
use crate::support::offramp::{offramp, output, stderr, stdout};
use crate::support::pebble::{Pebble, Terms};
use crate::the_first_minutes_are_plain::stopped;

/// Says that this process is the one in the namespace.
const INSIDE: &str = "OFFRAMP_TEST_INSIDE_NAMESPACE";

/// Whether this process is in a namespace of its own. If not, the test called `name` has run in one, and has passed.
fn is_inside(name: &str) -> bool {
    if std::env::var_os(INSIDE).is_some() {
        return true;
    }
    let (unshare, _) = (require("unshare", "util-linux"), require("ip", "iproute2"));
    let own = std::env::current_exe().unwrap();
    let prepare = "ip link set lo up && exec \"$@\"";
    let mut said = String::new();
    // Root may do it; others, and root in a container, are root in a user namespace of their own.
    for means in [&["--net"][..], &["--map-root-user", "--net"]] {
        let mut possible = Command::new(&unshare);
        possible.args(means).args(["sh", "-c", prepare, "sh", "true"]);
        let possible = ask(possible, b"", PATIENCE);
        if !possible.status.success() {
            said += &stderr(&possible);
            continue;
        }
        let mut test = Command::new(&unshare);
        test.args(means).args(["sh", "-c", prepare, "sh"]).arg(&own);
        test.args(["--exact", name, "--nocapture", "--test-threads", "1"]).env(INSIDE, "yes");
        let ran = ask(test, b"", LIFE);
        let all = format!("{}{}", stdout(&ran), stderr(&ran));
        assert!(ran.status.success() && all.contains("1 passed"), "{all}");
        return false;
    }
    panic!("no network namespace can be made, neither as root nor in a user namespace: {said}");
}

/// An authority that looks at ports 443 and 80.
fn authority(home: &Home) -> Pebble {
    Pebble::start_looking(home.path(), &home.ca, &Terms::default(), [443, 80])
}

/// Who has issued the certificate of this name on port 443, and what stands in it.
fn issuer(home: &Home, name: &str) -> String {
    let mut openssl = Command::new(require("openssl", "openssl"));
    openssl.args(["s_client", "-connect", "127.0.0.1:443", "-servername", name]).current_dir(home.path());
    let output = ask(openssl, b"", PATIENCE);
    stdout(&output).lines().find(|line| line.starts_with("issuer=")).unwrap_or_default().to_owned()
}

#[test]
fn one_command_serves_a_public_name() {
    if !is_inside("names_are_served_on_443_and_80::one_command_serves_a_public_name") {
        return;
    }
    let app = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    let home = Home::new();
    let pebble = authority(&home);
    let (target, directory) = (app.address().to_string(), format!("https://localhost:{}/dir", pebble.port));
    let ca = home.ca.certificate().display().to_string();
    let asks =
        ["--name", "a.test", "--acme", "me@example.org", "--acme-directory", &directory, "--acme-ca", &ca];
    let rest = ["--http", "--state-dir", "state", "--workers", "1"];
    let process = offramp(home.path(), &[&["to", &target][..], &asks, &rest].concat());
    let process = Process::start(process, LIFE).unwrap();
    process.wait_for(&Ready::Line("a certificate was obtained".to_owned()), PATIENCE).unwrap();
    let found = crate::support::crowd::until("clients get it", || {
        Some(issuer(&home, "a.test")).filter(|issuer| issuer.contains("Pebble"))
    });
    assert!(!found.is_empty() && TcpStream::connect("[::1]:443").is_ok(), "{}", process.transcript());
    // Browsers that come without TLS are sent to it.
    let mut curl = Command::new(require("curl", "curl"));
    curl.args(["-s", "-o", "/dev/null", "-w", "%{http_code} %{redirect_url}"]);
    curl.args(["-H", "Host: a.test", "http://127.0.0.1/x?y"]);
    let said = stdout(&ask(curl, b"", PATIENCE));
    assert_eq!(said, "308 https://a.test/x?y", "{}", process.transcript());
    // Orders are placed on port 443 once, and the account is kept.
    assert_eq!(pebble.count("Added order"), 1);
    assert!(process.lines(Source::Stderr).iter().all(|line| !line.contains("no certificate was obtained")));
    stopped(&process);
}

#[test]
fn one_order_listens_where_the_authority_looks() {
    if !is_inside("names_are_served_on_443_and_80::one_order_listens_where_the_authority_looks") {
        return;
    }
    let home = Home::new();
    let pebble = authority(&home);
    let directory = format!("https://localhost:{}/dir", pebble.port);
    let ca = home.ca.certificate().display().to_string();
    let asks = ["--directory", &directory, "--ca", &ca, "--email", "me@example.org", "--state-dir", "state"];
    for (name, challenge, port) in [("b.test", "tls-alpn-01", 443), ("c.test", "http-01", 80)] {
        let arguments = ["cert", "order", name, "--challenge", challenge];
        // Somebody has the port: the message says what to do.
        let taken = std::net::TcpListener::bind(("127.0.0.1", port)).unwrap();
        let refused = output(home.path(), &[&arguments[..], &asks].concat());
        assert_eq!(refused.status.code(), Some(1), "{}", stderr(&refused));
        assert!(stderr(&refused).contains(&format!(":{port}")), "{}", stderr(&refused));
        drop(taken);
        let issued = output(home.path(), &[&arguments[..], &asks].concat());
        assert_eq!(issued.status.code(), Some(0), "{challenge}: {}", stderr(&issued));
        assert!(stdout(&issued).contains(&format!("{name}: issued")), "{}", stdout(&issued));
        // It is free again.
        drop(std::net::TcpListener::bind(("127.0.0.1", port)).unwrap());
    }
}
