//! `allow` and `deny`: which addresses may enter by a listener and by a route, in every mode and version.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use offramp_testkit::ca::{Key, Leaf};
use offramp_testkit::geoip;
use offramp_testkit::process::Source;
use offramp_testkit::server::{Listen, Server, apps};
use socket2::{Domain, Socket, Type};

use crate::reload_loses_no_request::reload;
use crate::support::figures::Page;
use crate::support::http_app::named;
use crate::support::http_curl::{HTTP, PLAIN, curl, get};
use crate::support::instance::{CERTIFICATE, Home, Instance, LISTENER, PATIENCE, cause, text};
use crate::support::offramp::{output, stderr};

const VERSIONS: [&str; 2] = ["--http1.1", "--http2"];
const METRICS: &str = "[metrics]\naddress = \"127.0.0.1:0\"\n";

/// What a client with the address `127.0.0.LAST` gets.
fn status(instance: &Instance, version: &str, last: u8, url: &str, more: &[&str]) -> u16 {
    let from = format!("127.0.0.{last}");
    curl(instance, &[&[version, "--interface", &from][..], more].concat(), url).status()
}

#[test]
fn a_route_admits_by_address_and_tells_the_others_403() {
    let home = Home::new();
    let (_app, seen) = named(&Listen::Unix(home.file("app.sock")), "app");
    fs::write(home.file("blocked"), "# told to stay away\n127.0.0.66\n").unwrap();
    let instance = home.run(&format!(
        "{CERTIFICATE}{HTTP}[[route]]\nserver = \"unix:app.sock\"\n\
         allow = \"127.0.0.0/25\"\ndeny = [\"127.0.0.7\", \"file:blocked\"]\n\
         [[route]]\npath = \"/open\"\nrespond = {{ body = \"open\" }}\n\
         [[route]]\npath = \"/closed\"\nrespond = {{ body = \"closed\" }}\nallow = \"192.0.2.0/24\"\n"
    ));
    for version in VERSIONS {
        for (client, expected) in [(1, 200), (7, 403), (66, 403), (127, 200), (128, 403)] {
            assert_eq!(status(&instance, version, client, "https://localhost/", &[]), expected, "{client}");
        }
        for (path, expected) in [("open", 200), ("closed", 403)] {
            let url = format!("https://localhost/{path}");
            assert_eq!(status(&instance, version, 7, &url, &[]), expected, "{path}");
        }
        // The body is not taken, and the connection is good for the next request.
        let large = "x".repeat(100_000);
        fs::write(instance.home.file("large"), &large).unwrap();
        let answer = get(
            &instance,
            &[version, "--interface", "127.0.0.7", "--data-binary", "@large"],
            "https://localhost/",
        );
        assert_eq!(answer.status(), 403);
    }
    assert_eq!(seen.take().len(), 4);
    let json = ["--header", "Accept: application/json", "--interface", "127.0.0.7"];
    let answer = get(&instance, &json, "https://localhost/");
    assert!(answer.text().contains("\"status\":403"), "{}", answer.text());
    let events = instance.stop();
    let refused: Vec<_> = events.iter().filter(|event| cause(event) == "address_denied").collect();
    assert_eq!(refused.len(), 2 * 5 + 1);
    assert!(refused.iter().all(|event| event["status"] == 403 && event["fault"] == "policy"), "{refused:?}");
    assert!(refused.iter().all(|event| event["server"].is_null()));
}

#[test]
fn countries_stand_for_their_networks() {
    let home = Home::new();
    fs::write(home.file("country.mmdb"), geoip::halves("NO", "SE")).unwrap();
    let answer = |path: &str, key: &str, country: &str| {
        format!(
            "[[route]]\npath = \"{path}\"\nrespond = {{ body = \"in\" }}\n{key} = \"country:{country}\"\n"
        )
    };
    let instance = home.run(&format!(
        "geoip = \"country.mmdb\"\n{CERTIFICATE}{HTTP}trusted_proxies = \"127.0.0.1\"\n{}{}{}",
        answer("/no", "allow", "NO"),
        answer("/se", "allow", "se"),
        answer("/not-no", "deny", "NO")
    ));
    for version in VERSIONS {
        let ask = |path: &str, more: &[&str]| {
            status(&instance, version, 1, &format!("https://localhost/{path}"), more)
        };
        assert_eq!(["no", "se", "not-no"].map(|path| ask(path, &[])), [200, 403, 403]);
        let named = ["--header", "X-Forwarded-For: 203.0.113.9"];
        assert_eq!(["no", "se", "not-no"].map(|path| ask(path, &named)), [403, 200, 200]);
    }
    // One that the next database does not know, and one that is none.
    for (file, said) in
        [(geoip::halves("NO", "DK"), "knows no network of SE"), (Vec::new(), "country.mmdb: ")]
    {
        fs::write(instance.home.file("country.mmdb"), file).unwrap();
        let outcome = reload(&instance);
        assert!(outcome.contains("reload refused") && outcome.contains(said), "{outcome}");
    }
    assert_eq!(status(&instance, "--http2", 1, "https://localhost/no", &[]), 200);
    instance.stop();
}

#[test]
fn the_client_is_the_one_that_trusted_proxies_name() {
    let instance = Home::new().run(&format!(
        "{CERTIFICATE}{HTTP}trusted_proxies = \"127.0.0.1\"\n{PLAIN}\
         [[route]]\nrespond = {{ body = \"in\" }}\nallow = \"203.0.113.0/24\"\n"
    ));
    let named = ["--header", "X-Forwarded-For: 203.0.113.9"];
    let stranger = ["--header", "X-Forwarded-For: 203.0.114.9"];
    for version in VERSIONS {
        assert_eq!(status(&instance, version, 1, "https://localhost/", &named), 200);
        assert_eq!(status(&instance, version, 1, "https://localhost/", &stranger), 403);
        assert_eq!(status(&instance, version, 1, "https://localhost/", &[]), 403);
        // Whoever is not trusted is what it is.
        assert_eq!(status(&instance, version, 2, "https://localhost/", &named), 403);
    }
    assert_eq!(status(&instance, "--http1.1", 1, "http://localhost/", &named), 403);
    let events = instance.stop();
    assert!(events.iter().any(|event| text(event, "client") == "203.0.114.9"), "{events:?}");
}

#[test]
fn a_listener_disconnects_others_before_their_handshake_and_says_so_once() {
    let instance = Home::new().run(&format!(
        "{METRICS}{CERTIFICATE}{HTTP}deny = [\"127.0.0.7\"]\n{PLAIN}allow = \"127.0.0.1\"\n\
         [[route]]\nrespond = {{ body = \"in\" }}\n"
    ));
    for _ in 0..5 {
        assert_eq!(status(&instance, "--http2", 7, "https://localhost/", &[]), 0);
    }
    assert_eq!(status(&instance, "--http2", 8, "https://localhost/", &[]), 200);
    assert_eq!(status(&instance, "--http1.1", 8, "http://localhost/", &[]), 0);
    assert_eq!(status(&instance, "--http1.1", 1, "http://localhost/", &[]), 200);
    let page = instance.until("all are counted", || {
        let page = Page::scrape(instance.metrics());
        (page.closed("address_denied") >= 6.0).then_some(page)
    });
    assert_eq!(page.get("offramp_limit_refusals_total{limit=\"address_denied\"}"), 6.0);
    let said = || -> Vec<String> {
        let lines = instance.process.lines(Source::Stderr);
        lines.into_iter().filter(|line| line.contains("limit=address_denied")).collect()
    };
    instance.until("the log says so", || (!said().is_empty()).then_some(()));
    assert!(said()[0].contains("client=127.0.0.7") && said()[0].contains("route.deny"), "{:?}", said());
    assert!(said().len() <= 2, "{:?}", said());
    let events = instance.stop();
    let refused: Vec<_> = events.iter().filter(|event| cause(event) == "address_denied").collect();
    assert_eq!(refused.len(), 6);
    assert!(refused.iter().all(|event| event["tls_version"].is_null() && event["alert_sent"].is_null()));
}

/// Asks over plain HTTP from `127.0.0.2`, with this before the request; gives what comes back.
fn from_proxy(instance: &Instance, before: &str) -> String {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from(([127, 0, 0, 2], 0)).into()).unwrap();
    socket.connect(&instance.address_of("plain").into()).unwrap();
    let mut stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let request = format!("{before}GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    let mut answer = Vec::new();
    // Who is refused may be reset, and then has no answer.
    let _ = stream.write_all(request.as_bytes()).and_then(|()| stream.read_to_end(&mut answer));
    String::from_utf8(answer).unwrap()
}

#[test]
fn a_proxy_header_names_the_client_of_a_listener() {
    let instance = Home::new().run(&format!(
        "{CERTIFICATE}{PLAIN}accept_proxy = \"127.0.0.2\"\ndeny = \"127.0.0.9\"\n\
         [[route]]\nrespond = {{ body = \"in\" }}\n"
    ));
    let admitted = from_proxy(&instance, "PROXY TCP4 127.0.0.1 127.0.0.1 5 80\r\n");
    assert!(admitted.starts_with("HTTP/1.1 200 "), "{admitted}");
    assert_eq!(from_proxy(&instance, "PROXY TCP4 127.0.0.9 127.0.0.1 5 80\r\n"), "");
    assert_eq!(status(&instance, "--http1.1", 9, "http://localhost/", &[]), 0);
    instance.stop();
}

#[test]
fn routes_of_connections_refuse_with_an_alert() {
    let app = Server::start(&Listen::Ipv4, apps::http).unwrap();
    let sealed = Instance::before(app.address());
    let instance = Home::new().run(&format!(
        "{CERTIFICATE}{LISTENER}[[listener]]\nname = \"plain\"\naddress = \"127.0.0.1:0\"\ntls = false\n\
         [[route]]\nserver = \"{app}\"\ndeny = \"127.0.0.7\"\n\
         [[route]]\nhost = \"sealed.example.org\"\npassthrough = \"{}\"\ndeny = \"127.0.0.7\"\n",
        sealed.address(),
        app = app.address(),
    ));
    for url in ["https://localhost/", "https://sealed.example.org/", "http://localhost/"] {
        assert_eq!(status(&instance, "--http1.1", 7, url, &["--insecure"]), 0, "{url}");
        assert_eq!(status(&instance, "--http1.1", 1, url, &["--insecure"]), 200, "{url}");
    }
    let events = instance.stop();
    let refused: Vec<_> = events.iter().filter(|event| cause(event) == "address_denied").collect();
    let alerts: Vec<&str> = refused.iter().map(|event| text(event, "alert_sent")).collect();
    assert_eq!(alerts, ["access_denied", "access_denied", ""]);
    sealed.stop();
}

#[test]
fn a_list_is_read_again_with_the_configuration_and_a_bad_one_changes_nothing() {
    let home = Home::new();
    fs::write(home.file("list"), "127.0.0.1\n").unwrap();
    let configuration =
        format!("{CERTIFICATE}{HTTP}[[route]]\nrespond = {{ body = \"in\" }}\nallow = \"file:list\"\n");
    let instance = home.run(&configuration);
    let list = instance.home.file("list");
    let admitted = || [1, 2].map(|last| status(&instance, "--http2", last, "https://localhost/", &[]));
    assert_eq!(admitted(), [200, 403]);
    fs::write(&list, "127.0.0.2 # moved\n").unwrap();
    assert!(reload(&instance).contains(" reloaded "));
    assert_eq!(admitted(), [403, 200]);
    fs::write(&list, "127.0.0.1\n\n127.0.0.0/33\n").unwrap();
    let outcome = reload(&instance);
    assert!(outcome.contains("reload refused") && outcome.contains("list:3: "), "{outcome}");
    assert_eq!(admitted(), [403, 200]);
    let check = output(instance.home.path(), &["check", "--config", "offramp.toml"]);
    assert!(!check.status.success() && stderr(&check).contains("list:3: "), "{}", stderr(&check));
    // New certificates do not wait until the list is mended.
    instance.home.ca.issue("server", &Leaf::server(Key::P256, &["localhost"])).unwrap();
    instance.until("the new certificate", || {
        let lines = instance.process.lines(Source::Stderr);
        lines.iter().any(|line| line.contains("certificates changed")).then_some(())
    });
    assert_eq!(admitted(), [403, 200]);
    fs::remove_file(&list).unwrap();
    assert!(reload(&instance).contains("cannot read"));
    instance.stop();
}
