//! Variables in the fields that a route sets: what is known of the client, the request, TLS and the certificate, in requests and in
//! responses of every kind. What does not exist is empty, and nothing that a client says ends a field.

use offramp_testkit::server::{Listen, Server};

use crate::support::client_pki;
use crate::support::http_app::{Seen, named};
use crate::support::http_curl::{HTTP, PLAIN, get};
use crate::support::instance::{CERTIFICATE, Home, Instance};

const VERSIONS: [&str; 2] = ["--http1.1", "--http2"];

/// The variables that have one value for a request of a test, with it.
const KNOWN: [(&str, &str); 9] = [
    ("client", "127.0.0.1"),
    ("host", "a.example.org"),
    ("scheme", "https"),
    ("method", "GET"),
    ("path", "/app/x"),
    ("query", "q=%22&r"),
    ("uri", "/app/x?q=%22&r"),
    ("route", "a.example.org/app"),
    ("tls.sni", "a.example.org"),
];
/// Those of a client's certificate, with the beginning of their values for `bob`.
const OF_BOB: [(&str, &str); 8] = [
    ("client_cert.cn", "bob"),
    ("client_cert.subject", "O=Example"),
    ("client_cert.issuer", ""),
    ("client_cert.serial", ""),
    ("client_cert.dns", "bob.svc.test"),
    ("client_cert.uri", "spiffe://example.org/ns/prod/sa/bob"),
    ("client_cert.fingerprint", ""),
    ("client_cert.not_after", ""),
];

/// Rules that say every variable of `names`, each in a field of its own.
fn rules<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let rule = |name: &str| format!("\"{}\" = \"<{{{name}}}>\"", field(name));
    names.into_iter().map(rule).collect::<Vec<_>>().join(", ")
}

fn field(variable: &str) -> String {
    format!("x-{}", variable.replace(['.', '_'], "-"))
}

fn served(listener: &str) -> (Server, Seen, Instance) {
    let home = Home::new();
    client_pki::make(home.path());
    let (app, seen) = named(&Listen::Unix(home.file("app.sock")), "app");
    let of_requests = KNOWN.iter().chain(&OF_BOB).map(|(name, _)| *name).chain(["id", "client_port"]);
    let of_requests = rules(of_requests.chain(["tls.version", "tls.cipher"]));
    let of_responses = of_requests.clone() + ", " + &rules(["server"]);
    let keys = format!(
        "request_headers = {{ set = {{ {of_requests} }}, add = {{ X-Two = [\"{{client}}\", \"{{{{client}}}}\"] }} }}\n\
         response_headers = {{ set = {{ {of_responses}, NEL = '{{\"report_to\":\"{{host}}\",\"max_age\":1}}' }} }}\n\
         client_auth = {{ mode = \"optional\", ca = \"oca.pem\" }}\n"
    );
    let route = |path: &str, target: &str| {
        format!("[[route]]\nhost = \"a.example.org\"\npath = \"{path}\"\n{target}\n{keys}")
    };
    let answers = keys.split_once('\n').unwrap().1;
    let text = format!(
        "{CERTIFICATE}{HTTP}{listener}{PLAIN}{}[[route]]\nhost = \"a.example.org\"\npath = \"/say\"\n\
         respond = {{ body = \"said\" }}\n{answers}[[route]]\nhost = \"b.example.org\"\n\
         listener = \"plain\"\nserver = \"unix:app.sock\"\n{}",
        route("/app", "server = \"unix:app.sock\"\nreplace_path = \"/else\"\n"),
        keys.split_once("client_auth").unwrap().0
    );
    (app, seen, home.run(&text))
}

#[test]
fn requests_and_responses_say_what_is_known() {
    let (_app, seen, instance) = served("");
    let url = "https://a.example.org/app/x?q=%22&r";
    for version in VERSIONS {
        let shows = [version, "--cert", "bob.pem", "--key", "bob.key"];
        let answer = get(&instance, &shows, url);
        let request = seen.one();
        assert_eq!(request.target, "/else/x?q=%22&r", "variables are of the request as it came");
        for (name, value) in KNOWN {
            let expected = format!("<{value}>");
            assert_eq!(request.field(&field(name)), expected, "{version} {name}");
            assert_eq!(answer.field(&field(name)), expected, "{version} {name}");
        }
        for (name, value) in OF_BOB {
            let said = request.field(&field(name));
            assert!(said.starts_with(&format!("<{value}")) && said.len() > 2, "{version} {name}: {said}");
            assert_eq!(answer.field(&field(name)), said, "{version} {name}");
        }
        let fingerprint = request.field("x-client-cert-fingerprint");
        assert_eq!(fingerprint.len(), 66, "{fingerprint}");
        assert_eq!(request.field("x-tls-version"), "<TLSv1.3>");
        assert!(request.field("x-tls-cipher").starts_with("<TLS_"), "{}", request.field("x-tls-cipher"));
        let id = request.field("x-request-id");
        assert_eq!(request.field("x-id"), format!("<{id}>"));
        assert_eq!(answer.field("x-id"), format!("<{id}>"));
        assert!(request.field("x-client-port").trim_matches(['<', '>']).parse::<u16>().is_ok());
        let server = format!("<unix:{}>", instance.home.file("app.sock").display());
        assert_eq!(answer.field("x-server"), server);
        assert_eq!(request.values("x-two"), ["127.0.0.1", "{client}"]);
        assert_eq!(answer.field("nel"), "{\"report_to\":\"a.example.org\",\"max_age\":1}");
        // A response of Offramp's own, and one whose request had no body to send.
        for more in [&[][..], &["--head"]] {
            let answer = get(&instance, &[&shows[..], more].concat(), "https://a.example.org/say?x");
            assert_eq!(answer.field("x-uri"), "</say?x>", "{version}");
            assert_eq!(
                (answer.field("x-client"), answer.field("x-server")),
                ("<127.0.0.1>", "<>"),
                "{version}"
            );
            assert!(answer.field("x-id").len() > 30, "{version}");
        }
    }
    instance.stop();
}

#[test]
fn what_does_not_exist_is_empty() {
    let (_app, seen, instance) = served("");
    for (version, scheme, host) in
        [("--http1.1", "https", "a"), ("--http2", "https", "a"), ("--http1.1", "http", "b")]
    {
        let answer = get(&instance, &[version], &format!("{scheme}://{host}.example.org/app"));
        let request = seen.one();
        let absent = OF_BOB.iter().map(|(name, _)| *name).chain(["query"]);
        let tls = ["tls.version", "tls.cipher", "tls.sni"].into_iter().filter(|_| scheme == "http");
        for name in absent.chain(tls) {
            assert_eq!(request.field(&field(name)), "<>", "{scheme} {version} {name}");
            assert_eq!(answer.field(&field(name)), "<>", "{scheme} {version} {name}");
        }
        assert_eq!(request.field("x-scheme"), format!("<{scheme}>"));
    }
    instance.stop();
}

/// The client is whom trusted proxies name, whose port nobody knows.
#[test]
fn the_client_is_whom_trusted_proxies_name() {
    let (_app, seen, instance) = served("trusted_proxies = \"127.0.0.1\"\n");
    for version in VERSIONS {
        let claim = [version, "--header", "X-Forwarded-For: 203.0.113.9"];
        let answer = get(&instance, &claim, "https://a.example.org/app");
        assert_eq!(answer.field("x-client"), "<203.0.113.9>", "{version}");
        let request = seen.one();
        assert_eq!((request.field("x-client"), request.field("x-client-port")), ("<203.0.113.9>", "<>"));
        assert_eq!(request.field("x-real-ip"), "203.0.113.9");
    }
    instance.stop();
}
