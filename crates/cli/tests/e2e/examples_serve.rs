//! `examples/`: each configuration passes `check`, starts, and does what its comments say.

use std::fs;
use std::path::Path;

use offramp_testkit::ca::{Key, Leaf, Name};
use offramp_testkit::process::free_port;
use offramp_testkit::server::{Listen, Recording, Server};

use crate::conversation::Conversation;
use crate::http_app::{Seen, named};
use crate::http_curl::get;
use crate::instance::{Home, Instance, PATIENCE};
use crate::offramp::{output, stderr};
use crate::openssl::{connect, refused};

/// The example with the places of this machine replaced by those of the home.
fn example(name: &str, replaced: &[(&str, String)]) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(name);
    let mut text = fs::read_to_string(path).unwrap();
    let places = [
        ("/etc/offramp/", ""),
        ("/var/log/offramp/", "./"),
        ("/var/lib/offramp/", ""),
        ("unix:/run/", "unix:"),
    ];
    for (old, new) in places {
        text = text.replace(old, new);
    }
    for (old, new) in replaced {
        assert!(text.contains(old), "{name} has no {old}");
        text = text.replace(old, new);
    }
    // A test must not take a fixed port, nor all interfaces.
    for port in ["443", "80", "6380"] {
        text = text.replace(&format!("\"[::]:{port}\""), "\"127.0.0.1:0\"");
    }
    text.replace("\"127.0.0.1:9902\"", "\"127.0.0.1:0\"")
}

/// Has `check` look at the example without a complaint, and starts it.
fn start(home: Home, text: &str) -> Instance {
    let path = home.configure(text);
    let checked = output(home.path(), &["check", "-c", path.to_str().unwrap()]);
    assert!(checked.status.success(), "{}", stderr(&checked));
    home.run(text)
}

fn port(server: &Server) -> String {
    server.address().socket().to_string()
}

fn local(name: &str) -> (Server, Seen) {
    named(&Listen::Ipv4, name)
}

#[test]
fn a_home_server_has_an_application_under_each_name() {
    let home = Home::new();
    let (_git, _) = named(&Listen::Unix(home.file("gitea.sock")), "git");
    let [music, cloud, office] = ["music", "cloud", "office"].map(local);
    let replaced = [
        ("127.0.0.1:4533", port(&music.0)),
        ("127.0.0.1:8080", port(&cloud.0)),
        ("127.0.0.1:9980", port(&office.0)),
    ];
    let instance = start(home, &example("home-server.toml", &replaced));
    let trust = ["--cacert".to_owned(), instance.home.file("state/ca/ca.pem").display().to_string()];
    let trust = trust.each_ref().map(String::as_str);
    let rows = [
        ("https://git.home.arpa/", "git"),
        ("https://music.home.arpa/", "music"),
        ("https://cloud.home.arpa/files", "cloud"),
        ("https://cloud.home.arpa/office/x", "office"),
    ];
    for (url, application) in rows {
        assert_eq!(get(&instance, &trust, url).text().trim(), application, "{url}");
    }
    let plain = get(&instance, &trust, "http://music.home.arpa/a?b");
    assert_eq!((plain.status(), plain.field("location")), (308, "https://music.home.arpa/a?b"));
    instance.until("the access log has every request", || {
        let log = fs::read_to_string(instance.home.file("access.log")).ok()?;
        (log.lines().filter(|line| line.contains(".home.arpa")).count() == 5).then_some(())
    });
    instance.stop();
}

#[test]
fn a_database_is_for_clients_with_a_certificate_and_hears_who_they_are() {
    let home = Home::new();
    let names = |name: &str| [Name::Dns(name.to_owned())];
    home.ca.issue("db", &Leaf::server(Key::P256, &["db.example.org"])).unwrap();
    home.ca.issue("worker", &Leaf::client("worker", &names("worker.svc.example.org"))).unwrap();
    home.ca.issue("guest", &Leaf::client("guest", &names("guest.example.org"))).unwrap();
    let (_server, recording) = Recording::start(&Listen::Unix(home.file("database.sock"))).unwrap();
    let replaced = [
        ("db.example.org.pem", "db.chain.pem".to_owned()),
        ("db.example.org.key", "db.key".to_owned()),
        ("clients.pem", "ca.pem".to_owned()),
        // The tests look for the listener by this name.
        ("name = \"db\"", "name = \"default\"".to_owned()),
        ("listener = \"db\"", "listener = \"default\"".to_owned()),
    ];
    let instance = start(home, &example("database.toml", &replaced));
    let name = ["-servername", "db.example.org"];
    refused(&instance, &name);
    refused(&instance, &[&name[..], &["-cert", "guest.pem", "-key", "guest.key"]].concat());
    let mut client: Conversation =
        connect(&instance, &[&name[..], &["-cert", "worker.pem", "-key", "worker.key"]].concat());
    client.say("hello database\n");
    recording
        .wait_until(PATIENCE, |connections| {
            let [bytes] = connections else { return false };
            let has = |part: &[u8]| bytes.windows(part.len()).any(|window| window == part);
            bytes.starts_with(b"\r\n\r\n\0\r\nQUIT\n") && has(b"worker") && has(b"hello database")
        })
        .unwrap();
    client.end();
    instance.stop();
}

#[test]
fn requests_go_to_the_servers_that_are_alive() {
    let home = Home::new();
    home.ca.issue("api", &Leaf::server(Key::P256, &["api.example.org"])).unwrap();
    let [one, two, spare] = ["one", "two", "spare"].map(local);
    let replaced = [
        ("api.example.org.pem", "api.chain.pem".to_owned()),
        ("api.example.org.key", "api.key".to_owned()),
        ("127.0.0.1:3001", port(&one.0)),
        ("127.0.0.1:3002", port(&two.0)),
        ("127.0.0.1:3003", port(&spare.0)),
        ("127.0.0.1:50051", format!("127.0.0.1:{}", free_port())),
        ("127.0.0.1:50052", format!("127.0.0.1:{}", free_port())),
    ];
    let instance = start(home, &example("balancing.toml", &replaced));
    let mut answers: Vec<String> =
        (0..8).map(|_| get(&instance, &[], "https://api.example.org/").text().trim().to_owned()).collect();
    answers.sort();
    answers.dedup();
    assert_eq!(answers, ["one", "two"], "the backup waits");
    // Nobody listens where the gRPC servers should be: that is told, and harms nobody else.
    let refused = get(&instance, &[], "https://api.example.org/shop.Orders/List").status();
    assert!([502, 503].contains(&refused), "{refused}");
    drop((one, two));
    instance.until("the backup answers", || {
        let answer = get(&instance, &[], "https://api.example.org/");
        (answer.status() == 200 && answer.text().trim() == "spare").then_some(())
    });
    instance.metrics();
    instance.stop();
}
