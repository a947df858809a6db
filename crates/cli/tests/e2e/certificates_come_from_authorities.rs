//! Certificates are obtained by ACME from a real authority, with every challenge, and served without a restart.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use offramp_testkit::ca::{Key, Leaf};
use offramp_testkit::process::{Process, Signal, Source, free_port, require, write_program};
use offramp_testkit::server::{Listen, Server, apps};

use crate::support::crowd::{Crowd, trusting};
use crate::support::figures::Page;
use crate::support::instance::{Home, Instance, LIFE, ask};
use crate::support::offramp::offramp;
use crate::support::openssl::{command, echo};
use crate::support::pebble::{KEY, Pebble, Terms, logged, section};

/// A listener for clients with TLS on this port.
fn listener(port: u16) -> String {
    format!("[[listener]]\nname = \"default\"\naddress = \"127.0.0.1:{port}\"\n")
}

/// A listener for plain HTTP on this port, and its redirect.
fn plain(port: u16) -> String {
    format!(
        "[[listener]]\nname = \"plain\"\naddress = \"127.0.0.1:{port}\"\nmode = \"http\"\ntls = false\n\
         [[route]]\nlistener = \"plain\"\nredirect = \"https\"\n"
    )
}

fn certificate(names: &str) -> String {
    format!("[[certificate]]\nacme = \"pebble\"\nnames = [{names}]\n")
}

fn route(app: &Server) -> String {
    format!("[[route]]\nlistener = \"default\"\nserver = \"{}\"\n", app.address())
}

/// Whom the certificate that this name gets is from.
fn issuer(instance: &Instance, name: &str) -> String {
    let said = echo(instance, &["-servername", name]);
    said.lines().find(|line| line.trim_start().starts_with("issuer=")).unwrap_or_default().to_owned()
}

fn obtained(instance: &Instance) {
    logged(instance, "a certificate was obtained", "");
    logged(instance, "certificates changed", "");
}

#[test]
fn by_handshake_in_tcp_mode_though_every_second_nonce_is_refused() {
    let app = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    let home = Home::new();
    let terms = Terms { refused_nonces: 50, ..Terms::default() };
    let pebble = Pebble::start(home.path(), &home.ca, &terms);
    let section = pebble.section(&home.ca, "");
    let text =
        [&*section, &certificate("\"a.test\", \"b.test\""), &listener(pebble.tls), &route(&app)].concat();
    let instance = home.run(&text);
    let line = logged(&instance, "ordering a certificate", "authority=pebble");
    assert!(line.contains("a.test b.test") && line.contains("local CA"), "{line}");
    obtained(&instance);
    for name in ["a.test", "B.test"] {
        assert!(issuer(&instance, name).contains("Pebble"), "{name}");
    }
    let kept = instance.home.file("state/acme/certificates");
    let directory = fs::read_dir(kept).unwrap().next().unwrap().unwrap().path();
    let mode = |path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(directory.clone()), mode(directory.join("certificate.pem"))), (0o700, 0o600));
    assert!(!directory.join("order.json").exists());
    let events = instance.stop();
    // The authority looks from several places.
    let challenges = events.iter().filter(|event| crate::support::instance::cause(event) == "acme_challenge");
    assert!(
        challenges.clone().count() >= 2 && challenges.clone().all(|event| event["alpn"] == "acme-tls/1"),
        "{events:?}"
    );
}

#[test]
fn what_was_obtained_outlives_a_restart_and_is_not_ordered_again() {
    let app = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    let home = Home::new();
    let pebble = Pebble::start(home.path(), &home.ca, &Terms::default());
    let section = pebble.section(&home.ca, "");
    let text = [&*section, &certificate("\"a.test\""), &listener(pebble.tls), &route(&app)].concat();
    let instance = home.run(&text);
    obtained(&instance);
    let instance = again(instance, &text);
    assert!(issuer(&instance, "a.test").contains("Pebble"));
    // A reload looks at everything once more.
    instance.process.signal(Signal::HUP).unwrap();
    logged(&instance, " reloaded ", "");
    assert_eq!(pebble.count("Added order"), 1);
    assert!(
        instance.process.lines(Source::Stderr).iter().all(|line| !line.contains("ordering a certificate"))
    );
}

/// Kills it without warning, and starts it in the same place.
fn again(instance: Instance, text: &str) -> Instance {
    instance.process.signal(Signal::KILL).unwrap();
    instance.process.wait(LIFE).unwrap();
    let home = instance.home;
    fs::remove_file(home.file("notify.sock")).unwrap();
    home.run(text)
}

#[test]
fn by_plain_http_before_routes_and_redirects_for_the_hosts_of_routes() {
    let app = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    let home = Home::new();
    let pebble = Pebble::start(home.path(), &home.ca, &Terms { refused_nonces: 20, ..Terms::default() });
    let hosts = format!(
        "[[route]]\nhost = [\"a.test\", \"b.test\"]\nserver = \"{}\"\n[tls]\ncertificates = \"acme\"\n",
        app.address()
    );
    let section = pebble.section(&home.ca, "challenge = \"http-01\"");
    let instance = home.run(&[&*section, &listener(pebble.tls), &plain(pebble.http), &hosts].concat());
    for name in ["a.test", "b.test"] {
        logged(&instance, "a certificate was obtained", &format!("names={name} "));
    }
    instance.until("both are served", || {
        ["a.test", "b.test"].iter().all(|name| issuer(&instance, name).contains("Pebble")).then_some(())
    });
    let events = instance.stop();
    let answered = events
        .iter()
        .filter(|event| event["path"].as_str().is_some_and(|path| path.contains("acme-challenge")));
    assert!(
        answered.clone().count() >= 2 && answered.clone().all(|event| event["status"] == 200),
        "{events:?}"
    );
}

#[test]
fn by_records_of_dns_for_wildcards_with_an_account_elsewhere_and_a_key_of_rsa() {
    let app = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    let home = Home::new();
    let pebble = Pebble::start(home.path(), &home.ca, &Terms { bound: true, ..Terms::default() });
    let curl = require("curl", "curl");
    let hook = home.file("hook");
    let management = pebble.management;
    write_program(
        &hook,
        &format!(
            "#!/bin/sh -e\ncase $1 in present) verb=set-txt;; cleanup) verb=clear-txt;; esac\n\
             echo \"$1 $2\" >>{}\n\
             {curl} -sf -d \"{{\\\"host\\\":\\\"$2.\\\",\\\"value\\\":\\\"$3\\\"}}\" http://127.0.0.1:{management}/$verb\n",
            home.file("calls").display(),
            curl = curl.display()
        ),
    );
    fs::write(home.file("eab.key"), KEY).unwrap();
    let section = pebble.section(
        &home.ca,
        "challenge = \"dns-01\"\ndns_hook = \"hook\"\ndns_wait = \"0s\"\n\
         eab = { key_id = \"kid-1\", key_file = \"eab.key\" }",
    );
    let text = [
        &*section,
        &certificate("\"*.w.test\""),
        "key_type = \"rsa2048\"\n",
        &listener(pebble.tls),
        &route(&app),
    ];
    let instance = home.run(&text.concat());
    obtained(&instance);
    let said = echo(&instance, &["-servername", "x.w.test"]);
    assert!(said.contains("Pebble") && said.contains("RSA"), "{said}");
    let calls = fs::read_to_string(instance.home.file("calls")).unwrap();
    assert_eq!(calls, "present _acme-challenge.w.test\ncleanup _acme-challenge.w.test\n");
}

#[test]
fn a_name_that_leads_elsewhere_is_told_and_tried_again_with_a_reload() {
    let app = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    let home = Home::new();
    let pebble = Pebble::start(home.path(), &home.ca, &Terms::default());
    // Nobody listens there.
    pebble.tell_names("/set-default-ipv4", "{\"ip\":\"127.0.0.9\"}");
    let section = pebble.section(&home.ca, "");
    let metrics = "[metrics]\naddress = \"127.0.0.1:0\"\n";
    let text = [&*section, metrics, &certificate("\"a.test\""), &listener(pebble.tls), &route(&app)].concat();
    let instance = home.run(&text);
    let line = logged(&instance, "no certificate was obtained", "names=a.test");
    assert!(line.contains("authority=pebble") && line.contains("urn:ietf:params:acme:error"), "{line}");
    let line = logged(&instance, "the next attempt comes later", "failures=1");
    assert!(line.contains("seconds=60") || line.contains("seconds=59"), "{line}");
    assert!(issuer(&instance, "a.test").contains("Offramp Local CA"));
    pebble.tell_names("/set-default-ipv4", "{\"ip\":\"127.0.0.1\"}");
    instance.process.signal(Signal::HUP).unwrap();
    obtained(&instance);
    assert!(issuer(&instance, "a.test").contains("Pebble"));
    let page = Page::scrape(instance.metrics());
    for outcome in ["failed", "obtained"] {
        assert_eq!(
            page.get(&format!("offramp_acme_orders_total{{outcome=\"{outcome}\"}}")),
            1.0,
            "{outcome}"
        );
    }
}

#[test]
fn an_authority_that_is_down_or_answers_pages_for_people_stops_nothing() {
    let app = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    let home = Home::new();
    let files = home.ca.issue("page", &Leaf::server(Key::P256, &["localhost"])).unwrap();
    let (page, down, own) = (free_port(), free_port(), free_port());
    let mut server = std::process::Command::new(require("openssl", "openssl"));
    server.args(["s_server", "-www", "-accept", &format!("127.0.0.1:{page}")]);
    server.arg("-cert").arg(&files.chain).arg("-key").arg(&files.key);
    let _server = Process::start(server, LIFE).unwrap();
    let other = section(down, &home.ca, "").replace("[acme.pebble]", "[acme.down]");
    let both = "[[certificate]]\nacme = [\"down\", \"pebble\"]\nnames = [\"a.test\"]\n";
    let text = [&*section(page, &home.ca, ""), &other, both, &listener(own), &route(&app)].concat();
    let instance = home.run(&text);
    let line = logged(&instance, "no certificate was obtained", "authority=down");
    assert!(line.contains("cannot connect"), "{line}");
    // It may not listen yet, which a reload mends.
    instance.until("a page is answered", || {
        instance.process.signal(Signal::HUP).unwrap();
        let lines = instance.process.lines(Source::Stderr);
        lines.into_iter().find(|line| line.contains("authority=pebble") && line.contains("text/html"))
    });
    assert!(issuer(&instance, "a.test").contains("Offramp Local CA"));
}

#[test]
fn of_two_processes_on_one_state_dir_one_orders_and_both_serve() {
    let app = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    let home = Home::new();
    let pebble = Pebble::start(home.path(), &home.ca, &Terms::default());
    let section = pebble.section(&home.ca, "");
    let text = [&*section, &certificate("\"a.test\""), &listener(pebble.tls), &route(&app)].concat();
    let instance = home.run(&text);
    obtained(&instance);
    let other = instance.home.file("other.toml");
    let first = fs::read_to_string(instance.home.file("offramp.toml")).unwrap();
    let port = free_port();
    fs::write(&other, first.replace(&format!(":{}\"", pebble.tls), &format!(":{port}\""))).unwrap();
    let mut second = offramp(instance.home.path(), &["run", "--config"]);
    second.arg(other);
    let second = Process::start(second, LIFE).unwrap();
    let line = instance.until("the second process says that the lock is taken", || {
        let lines = second.lines(Source::Stderr);
        lines.into_iter().find(|line| line.contains("this process orders no certificates"))
    });
    assert!(line.contains("another process has the lock") && line.contains("state/acme"), "{line}");
    let mut client = command(&instance, &["-servername", "a.test", "-brief"]);
    let address = format!("127.0.0.1:{port}");
    let arguments: Vec<_> = client.get_args().map(std::ffi::OsStr::to_owned).collect();
    let mut to_second = std::process::Command::new(client.get_program());
    client.stdin(std::process::Stdio::null());
    to_second.args(["s_client", "-connect", &address]).args(&arguments[3..]);
    to_second.arg("-showcerts");
    let output = ask(to_second, b"Q\n", LIFE);
    let said =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("Pebble"), "{said}");
    assert_eq!(pebble.count("Added order"), 1);
}

#[test]
fn a_renewal_under_load_fails_no_connection() {
    let app = Server::start(&Listen::Ipv4, apps::http).unwrap();
    let home = Home::new();
    let terms =
        Terms { refused_nonces: 30, validity: std::time::Duration::from_secs(60), ..Terms::default() };
    let pebble = Pebble::start(home.path(), &home.ca, &terms);
    let root = pebble.root(home.path());
    let section = pebble.section(&home.ca, "");
    let text = [&*section, &certificate("\"a.test\""), &listener(pebble.tls), &route(&app)].concat();
    let instance = home.run(&text);
    obtained(&instance);
    let renewals = || {
        let lines = instance.process.lines(Source::Stderr);
        lines.iter().filter(|line| line.contains("certificates changed")).count()
    };
    let crowd = Crowd::send(4, &trusting(&root), instance.address(), "a.test");
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(150);
    while renewals() < 2 {
        crowd.busy(10);
        assert!(std::time::Instant::now() < deadline, "{}", instance.process.transcript());
    }
    crowd.busy(20);
    let tally = crowd.stop();
    assert!(tally.failures.is_empty() && tally.turned_away == 0, "{tally:?}");
}

#[test]
fn one_command_serves_a_name_and_waits_for_a_slow_authority() {
    let app = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    let home = Home::new();
    let delay = std::time::Duration::from_secs(3);
    let pebble =
        Pebble::start(home.path(), &home.ca, &Terms { delay, refused_nonces: 50, ..Terms::default() });
    let root = pebble.root(home.path());
    let (target, directory) = (app.address().to_string(), format!("https://localhost:{}/dir", pebble.port));
    let (listen, ca) = (format!("127.0.0.1:{}", pebble.tls), home.ca.certificate());
    let mut command = offramp(home.path(), &["to", &target, "--name", "a.test", "--listen", &listen]);
    command.args(["--acme", "me@example.org", "--acme-directory", &directory, "--acme-ca"]).arg(ca);
    command.args(["--state-dir", "state"]);
    let process = Process::start(command, LIFE).unwrap();
    let address = listen.parse().unwrap();
    let deadline = std::time::Instant::now() + LIFE / 2;
    let client = trusting(&root);
    // Until it is issued, clients get one of the local CA, which this one does not trust.
    while crate::support::crowd::connect(&client, address, "a.test").is_err() {
        assert!(std::time::Instant::now() < deadline, "{}", process.transcript());
        std::thread::park_timeout(std::time::Duration::from_millis(20));
    }
    let lines = process.lines(Source::Stderr);
    assert!(
        lines.iter().any(|line| line.contains("a certificate was obtained") && line.contains("names=a.test"))
    );
    assert_eq!(pebble.count("Added order"), 1);
    process.signal(Signal::TERM).unwrap();
    assert_eq!(process.wait(LIFE).unwrap().code(), Some(0), "{}", process.transcript());
}
