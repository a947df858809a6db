//! A client of Go, which keeps its session ticket until it gets another one, gets in with its new certificate at once,
//! whatever has become of the one with which the ticket was made.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use offramp_testkit::ca::{Ca, Leaf, Validity};
use offramp_testkit::process::{Source, require, temp_dir};
use offramp_testkit::server::{Listen, Server, apps};

use crate::reload_loses_no_request::reload_to;
use crate::support::client_pki;
use crate::support::conversation::Conversation;
use crate::support::instance::{CERTIFICATE, Home, Instance, cause, text};

const VERSIONS: [&str; 2] = ["1.2", "1.3"];

/// Two listeners for one name, each with its own rule. Many clients keep one session for a name, whatever the port.
fn configuration(app: &Server, [rule, other]: [&str; 2]) -> String {
    let part = |listener: &str, rule: &str| {
        format!(
            "[[listener]]\nname = \"{listener}\"\naddress = \"127.0.0.1:0\"\n\
             [[route]]\nlistener = \"{listener}\"\nserver = \"{}\"\nclient_auth = {{ {rule} }}\n",
            app.address()
        )
    };
    format!("{CERTIFICATE}{}{}", part("default", rule), part("other", other))
}

const BY_CA: &str = "ca = \"ca.pem\"";

fn build(directory: &Path) -> PathBuf {
    let source = directory.join("rotating_client.go");
    std::fs::write(&source, include_str!("rotating_client.go")).unwrap();
    let mut go = Command::new(require("go", "golang-go"));
    go.args(["build", "-o", "rotating_client"]).arg(source).current_dir(directory);
    go.env("GOFLAGS", "-mod=mod").env("GOTOOLCHAIN", "local").env("GOPROXY", "off");
    assert!(go.status().unwrap().success(), "go build");
    directory.join("rotating_client")
}

/// The client and how often it has connected.
struct Client {
    conversation: Conversation,
    connections: usize,
}

impl Client {
    fn start(program: &Path, instance: &Instance, version: &str) -> Self {
        let mut command = Command::new(program);
        command.arg(instance.home.ca.certificate()).arg(version).current_dir(instance.home.path());
        Self { conversation: Conversation::start(command), connections: 0 }
    }

    /// Connects, and gives how that went: `full`, `resumed`, or why it failed.
    fn connect(&mut self, instance: &Instance, listener: &str) -> String {
        self.connections += 1;
        self.conversation.say(&format!("{}\n", instance.address_of(listener)));
        let (number, next) = (format!("{}: ", self.connections), ".\n");
        self.conversation.hear_times(next, self.connections);
        let heard = self.conversation.heard();
        let line = heard.lines().find(|line| line.starts_with(&number)).unwrap();
        line[number.len()..].trim_end_matches('.').to_owned()
    }
}

/// Puts a certificate where the client reads it.
fn show(instance: &Instance, name: &str) {
    for extension in ["pem", "key"] {
        let [from, to] = [name, "client"].map(|name| instance.home.file(&format!("{name}.{extension}")));
        std::fs::copy(from, to).unwrap();
    }
}

fn issue(ca: &Ca, name: &str, validity: Validity) {
    ca.issue(name, &Leaf { validity, ..Leaf::client(name, &[]) }).unwrap();
}

#[test]
fn a_client_with_a_new_certificate_is_not_kept_out_by_its_old_session() {
    let (app, programs) = (Server::start(&Listen::Ipv4, apps::echo).unwrap(), temp_dir());
    let program = build(programs.path());
    let instance = Home::new().run(&configuration(&app, [BY_CA, BY_CA]));
    for version in VERSIONS {
        // A machine that is too slow for the first gets more time.
        let (end, mut client) = [3, 9, 27, 81]
            .into_iter()
            .find_map(|seconds| {
                let end = SystemTime::now() + Duration::from_secs(seconds);
                issue(&instance.home.ca, "first", Validity::Until(end));
                show(&instance, "first");
                let mut client = Client::start(&program, &instance, version);
                let went = [(); 2].map(|()| client.connect(&instance, "default"));
                (went == ["full", "resumed"]).then_some((end, client))
            })
            .expect("81 seconds are enough");
        while SystemTime::now() <= end + Duration::from_secs(1) {
            std::thread::sleep(Duration::from_millis(50));
        }
        let went = client.connect(&instance, "default");
        assert!(went.starts_with("failed, ") && went.contains("expired certificate"), "{version}: {went}");
        let event = instance.event("that of the refusal", |event| {
            cause(event) == "client_certificate_expired" && event["resumed"].is_null()
        });
        assert!(text(&event, "detail").contains("CN=first"), "{event}");
        issue(&instance.home.ca, "second", Validity::Valid);
        show(&instance, "second");
        let went = [(); 2].map(|()| client.connect(&instance, "default"));
        assert_eq!(went, ["full", "resumed"], "{version}");
    }
    instance.stop();
}

/// What makes a session worthless while its certificate is valid.
enum Change {
    /// The client comes to the other listener.
    Listener,
    /// Both listeners get these rules.
    Rules([&'static str; 2]),
    /// `bob` is revoked.
    Revoked,
    /// The authority of `bob` is trusted no longer.
    Distrusted,
}

/// The rules of both listeners, with which certificate a client comes first, what changes, and with which certificate it
/// comes then.
type Row = ([&'static str; 2], &'static str, Change, &'static str);

const LISTED: &str = "ca = \"clients.pem\", crl = \"crl.pem\"";

const ROWS: [Row; 6] = [
    (
        ["ca = \"ca.pem\", allow = \"cn:first\"", "ca = \"ca.pem\", allow = \"cn:alice\""],
        "first",
        Change::Listener,
        "alice",
    ),
    ([BY_CA, "ca = \"oca.pem\""], "first", Change::Listener, "bob"),
    ([BY_CA, "ca = \"ca.pem\", mode = \"optional\""], "first", Change::Listener, "alice"),
    (
        ["ca = \"ca.pem\", allow = \"cn:first\"", BY_CA],
        "first",
        Change::Rules(["ca = \"ca.pem\", allow = \"cn:alice\"", BY_CA]),
        "alice",
    ),
    ([LISTED, BY_CA], "bob", Change::Revoked, "alice"),
    ([LISTED, BY_CA], "bob", Change::Distrusted, "alice"),
];

/// Makes the change, and gives the listener that the client comes to.
fn change(instance: &Instance, change: &Change, app: &Server) -> &'static str {
    let home = &instance.home;
    let certificates_changed = || {
        instance.until("the new files are in use", || {
            let log = instance.process.lines(Source::Stderr);
            log.iter().any(|line| line.contains("certificates changed")).then_some(())
        });
    };
    match change {
        Change::Listener => return "other",
        Change::Rules(rules) => {
            let outcome = reload_to(instance, &configuration(app, *rules));
            assert!(outcome.contains(" reloaded "), "{outcome}");
        }
        Change::Revoked => {
            client_pki::revoke(home.path(), "bob");
            certificates_changed();
        }
        Change::Distrusted => {
            std::fs::copy(home.file("ca.pem"), home.file("next.pem")).unwrap();
            std::fs::rename(home.file("next.pem"), home.file("clients.pem")).unwrap();
            certificates_changed();
        }
    }
    "default"
}

#[test]
fn whatever_forbids_a_session_leads_to_a_full_handshake() {
    let (app, programs) = (Server::start(&Listen::Ipv4, apps::echo).unwrap(), temp_dir());
    let program = build(programs.path());
    for (row, (rules, first, forbidden, next)) in ROWS.into_iter().enumerate() {
        for version in VERSIONS {
            let home = Home::new();
            client_pki::make(home.path());
            let both = ["ca.pem", "oca.pem"].map(|file| std::fs::read(home.file(file)).unwrap());
            std::fs::write(home.file("clients.pem"), both.concat()).unwrap();
            ["first", "alice"].iter().for_each(|name| issue(&home.ca, name, Validity::Valid));
            let instance = home.run(&configuration(&app, rules));
            show(&instance, first);
            let mut client = Client::start(&program, &instance, version);
            let went = [(); 2].map(|()| client.connect(&instance, "default"));
            assert_eq!(went, ["full", "resumed"], "row {row}, {version}");
            let to = change(&instance, &forbidden, &app);
            show(&instance, next);
            let went = [(); 2].map(|()| client.connect(&instance, to));
            assert_eq!(went, ["full", "resumed"], "row {row}, {version}");
            instance.stop();
        }
    }
}
