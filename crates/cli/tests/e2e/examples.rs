//! `examples/`: what each README says is done, and happens.

mod walk;

use std::fs;

use offramp_testkit::postgres;
use offramp_testkit::process::free_port;
use offramp_testkit::server::Listen;

use crate::support::http_app::named;
use crate::support::http_curl::get;
use crate::support::{npm, venv};
use walk::{Walk, examples};

#[test]
fn every_folder_has_its_test() {
    let tests = include_str!("examples.rs");
    for entry in fs::read_dir(examples()).unwrap() {
        let entry = entry.unwrap();
        if !entry.path().is_dir() {
            continue;
        }
        let name = entry.file_name().into_string().unwrap();
        assert!(tests.contains(&format!("Walk::through(\"{name}\")")), "{name} has no test");
    }
}

#[test]
fn an_application_of_node_js() {
    Walk::through("nodejs").needs("node", "nodejs").free(3000).go().end();
}

#[test]
fn a_chat_over_websockets() {
    let modules = npm::modules("ws", "8.18.3");
    let walk = Walk::through("websockets").needs("node", "nodejs").free(3000);
    walk.place("npm install ws", "true").variable("NODE_PATH", modules).go().end();
}

/// Has the commands of a README that makes an environment of Python use this one.
fn in_environment(walk: Walk, install: &str, packages: &[(&str, &str)]) -> Walk {
    let python = venv::environment(packages);
    let programs = python.parent().unwrap().display();
    walk.place("venv/bin/", format!("{programs}/")).place(install, "true")
}

#[test]
fn an_application_of_django_over_a_unix_socket() {
    let install = "python3 -m venv venv && venv/bin/pip install --quiet django gunicorn";
    let packages = [("django", "5.2.8"), ("gunicorn", "23.0.0")];
    in_environment(Walk::through("django"), install, &packages).go().end();
}

#[test]
fn a_grpc_service_on_two_servers() {
    let install = "python3 -m venv venv && venv/bin/pip install --quiet grpcio";
    let walk = in_environment(Walk::through("grpc"), install, &[("grpcio", "1.85.1")]);
    // The client sorts what the servers say, and so does the README.
    let mut ports = [free_port(), free_port()];
    ports.sort_unstable();
    walk.port(50051, ports[0]).port(50052, ports[1]).go().end();
}

#[test]
fn a_redis_for_clients_with_a_certificate() {
    let walk = Walk::through("redis-mutual-tls").needs("redis-server", "redis-server");
    walk.needs("redis-cli", "redis-tools").needs("openssl", "openssl").go().end();
}

#[test]
fn a_postgresql_without_tls_of_its_own() {
    let server = postgres::Server::start();
    let url = server.database();
    let name = url.split("log@/").nth(1).and_then(|rest| rest.split('?').next()).unwrap();
    let walk = Walk::through("postgresql").needs("psql", "postgresql-client");
    let walk = walk.place("/run/postgresql/.s.PGSQL.5432", server.socket().display());
    walk.place("user=shop dbname=shop", format!("user=log dbname={name}")).go().end();
}

#[test]
fn a_site_of_files() {
    Walk::through("static-site").go().end();
}

#[test]
fn an_application_behind_haproxy() {
    let port = free_port();
    let walk = Walk::through("behind-a-balancer").needs("haproxy", "haproxy").needs("python3", "python3");
    let walk = walk.free(3000).front(port);
    walk.place("bind :443", format!("bind 127.0.0.1:{port}")).go().end();
}

#[test]
fn an_application_of_java() {
    Walk::through("java").needs("javac", "default-jdk-headless").free(8080).go().end();
}

#[test]
fn servers_of_one_application_and_one_that_waits() {
    // In the order in which the README prints them.
    let mut ports = [free_port(), free_port(), free_port()];
    ports.sort_unstable();
    let walk = Walk::through("balancing").needs("python3", "python3").free(9902);
    let mut walk = walk.port(3001, ports[0]).port(3002, ports[1]).port(3003, ports[2]).go();
    walk.stop_first(2);
    let instance = walk.instance.as_ref().unwrap();
    let ca = instance.home.file("state/ca/ca.pem").display().to_string();
    instance.until("the one that waits answers", || {
        let answer = get(instance, &["--cacert", &ca], "https://api.example.org/");
        (answer.text() == format!("server {}\n", ports[2])).then_some(())
    });
    walk.end();
}

/// What stands in for applications at home: the name of their host, and their port.
const AT_HOME: [(&str, u16); 9] = [
    ("git", 3000),
    ("cloud", 8080),
    ("media", 8096),
    ("music", 4533),
    ("photos", 2283),
    ("grafana", 3001),
    ("vault", 8222),
    ("home", 8123),
    ("paper", 8000),
];

#[test]
fn a_home_server_with_twelve_applications() {
    let walk = Walk::through("home-server").needs("mosquitto", "mosquitto");
    let walk = walk.needs("mosquitto_pub", "mosquitto-clients").free(1883);
    let (office, words) = named(&Listen::Ipv4, "cool");
    let mut walk = walk.port(9980, office.address().socket().port());
    let applications = AT_HOME.map(|(name, port)| (port, named(&Listen::Ipv4, name)));
    for (port, (application, _)) in &applications {
        walk = walk.port(*port, application.address().socket().port());
    }
    let walk = walk.go();
    for ((name, _), (_, (_, seen))) in AT_HOME.iter().zip(&applications) {
        let request = seen.one();
        let said = (request.field("host"), request.field("x-forwarded-proto"));
        assert_eq!(said, (&*format!("{name}.home.arpa"), "https"));
    }
    assert_eq!(words.one().target, "/cool/browser");
    walk.end();
}
