//! Servers in the manner of CGI make one variable of `Remote-User`, `Remote_User`, `Remote.User` and `Remote~User`: in no
//! spelling does a client say who it is, by any way in which fields reach a server.

use std::cell::RefCell;
use std::fs;
use std::io::{Read as _, Write as _};

use offramp_testkit::server::{Listen, Server};

use crate::reload_loses_no_request::reload_to;
use crate::support::crowd::{connect, trusting};
use crate::support::h2_client::kind::HEADERS;
use crate::support::h2_client::{END_HEADERS, END_STREAM, H2, data, headers};
use crate::support::http_app::{Request, Seen, app, named, respond};
use crate::support::http_curl::{HTTP, get};
use crate::support::instance::{CERTIFICATE, Home, Instance};
use crate::support::smuggling_backend::Backend;

const ANNA: &str = "anna:$2a$05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW\n";
const VERSIONS: [&str; 2] = ["--http1.1", "--http2"];
/// Every byte of a token that is neither letter nor digit (RFC 9110 §5.6.2).
const BYTES: [char; 15] = ['-', '_', '.', '~', '!', '#', '$', '%', '&', '\'', '*', '+', '^', '`', '|'];
const LIE: &str = "6.6.6.6";

/// `names` with each byte in the place of `-`, as curl takes them.
fn lies(names: &[&str]) -> Vec<String> {
    let spelt = |name: &&str| BYTES.map(|byte| format!("{}: {LIE}", name.replace('-', &byte.to_string())));
    names.iter().flat_map(spelt).collect()
}

/// What a server in the manner of CGI calls a field.
fn variable(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' }).collect()
}

/// The variables with the lie.
fn fooled(request: &Request) -> Vec<String> {
    let lying = |(_, value): &&(String, String)| value.contains(LIE);
    request.fields.iter().filter(lying).map(|(name, _)| variable(name)).collect()
}

fn served(listener: &str) -> (Vec<Server>, Seen, Seen, Instance) {
    let home = Home::new();
    let (application, seen) = named(&Listen::Unix(home.file("app.sock")), "app");
    let (copies, copied) = named(&Listen::Unix(home.file("copy.sock")), "copy");
    let asked = copied.clone();
    let auth = app(&Listen::Unix(home.file("auth.sock")), move |request, stream| {
        asked.note(request);
        respond(stream, 200, &["Remote-User: anna"], b"")
    });
    fs::write(home.file("users"), ANNA).unwrap();
    let route = |path: &str, keys: &str| {
        format!("[[route]]\npath = \"/{path}\"\nserver = \"unix:app.sock\"\n{keys}\n")
    };
    let routes = [
        route("plain", ""),
        route("kept", "keep_original_url = true"),
        route("rules", "request_headers = { set = { X-User = \"nobody\" }, remove = [\"X-Internal\"] }"),
        route("basic", "basic_auth = \"users\""),
        route("asked", "forward_auth = { server = \"unix:auth.sock\", headers = [\"Remote-User\"] }"),
        route("copied", "mirror = \"copies\""),
    ];
    let text = format!(
        "[limits]\nrequest_headers = 1000\n{CERTIFICATE}{HTTP}{listener}{}\
         [backend.copies]\nservers = \"unix:copy.sock\"\n",
        routes.concat()
    );
    (vec![application, copies, auth], seen, copied, home.run(&text))
}

#[test]
fn no_spelling_reaches_a_server() {
    let (_servers, seen, copied, instance) = served("");
    let claims = ["X-Real-IP", "Client-Cert", "X-Forwarded-User", "X-Original-URL", "X-Rewrite-URL"];
    for version in VERSIONS {
        let ask = |path: &str, names: &[&str], more: &[&str]| {
            let lies = lies(&[names, &claims].concat());
            let lines = lies.iter().flat_map(|line| ["--header", line]);
            let arguments: Vec<&str> =
                [version].into_iter().chain(lines).chain(more.iter().copied()).collect();
            assert_eq!(
                get(&instance, &arguments, &format!("https://localhost{path}")).status(),
                200,
                "{path}"
            );
            seen.one()
        };
        for (path, names, more) in [
            ("/plain", &["X-Original-URI", "X-Original-Method", "X-Original-Host"][..], &[][..]),
            ("/rules", &["X-User", "X-Internal"], &[]),
            ("/basic", &["Remote-User"], &["--user", "anna:U*U"]),
            ("/asked", &["Remote-User"], &[]),
            ("/copied", &[], &[]),
        ] {
            let request = ask(path, names, more);
            assert_eq!(fooled(&request), [""; 0], "{version} {path}");
        }
        // The authentication server and the copy.
        let others = RefCell::new(Vec::new());
        instance.until("both", || {
            others.borrow_mut().extend(copied.take());
            (others.borrow().len() == 2).then_some(())
        });
        for request in others.take() {
            assert_eq!(fooled(&request), [""; 0], "{version} {request:?}");
        }
        let mut kept = fooled(&ask("/kept", &["X-Original-Method"], &[]));
        kept.dedup();
        assert!(
            kept.iter().all(|name| name.starts_with("X_ORIGINAL_") || name == "X_REWRITE_URL"),
            "{version} {kept:?}"
        );
        assert_eq!(kept.len(), 3, "{version} {kept:?}");
    }
    instance.stop();
}

/// Proxies write names with `-` alone; all other spellings are those of their clients.
#[test]
fn what_trusted_proxies_say_passes_in_one_spelling() {
    let (_servers, seen, _copied, instance) = served("trusted_proxies = \"127.0.0.1\"\n");
    for version in VERSIONS {
        let lies = lies(&["Client-Cert", "X-Original-URL", "CF-Connecting-IP"]);
        let lines = lies.iter().flat_map(|line| ["--header", line]);
        let arguments: Vec<&str> = [version].into_iter().chain(lines).collect();
        assert_eq!(get(&instance, &arguments, "https://localhost/plain").status(), 200);
        let request = seen.one();
        assert_eq!(fooled(&request), ["CLIENT_CERT", "X_ORIGINAL_URL", "CF_CONNECTING_IP"], "{version}");
        assert_eq!(request.field("client-cert"), LIE);
    }
    instance.stop();
}

/// A head with the field `Trailer`, and trailers, of names that the route of `/` speaks of.
fn with_trailers(names: &[String]) -> (String, String) {
    let lines: String = names.iter().map(|name| format!("{name}: {LIE}\r\n")).collect();
    let head = format!(
        "POST / HTTP/1.1\r\nHost: localhost\r\nTrailer: {}, x-sum\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n",
        names.join(", ")
    );
    (head, format!("0\r\n{lines}x-sum: 1\r\n\r\n"))
}

/// The rules of a request are those of its beginning: a reload that takes a rule back does not open its trailers.
#[test]
fn trailers_follow_the_rules_with_which_their_request_began() {
    let backend = Backend::start();
    let home = Home::new();
    let config = trusting(&home.ca.certificate());
    let text =
        |route: &str| format!("{CERTIFICATE}{HTTP}[[route]]\nserver = \"{}\"\n{route}\n", backend.address());
    let guarded =
        "path = \"/\"\nrequest_headers = { set = { X-User = \"nobody\" }, remove = [\"X-Internal\"] }";
    let instance = home.run(&text(guarded));
    let spelt = |name: &str| BYTES.map(|byte| name.replace('-', &byte.to_string()));
    let names: Vec<String> = ["x-user", "x-internal", "x-real-ip"].into_iter().flat_map(spelt).collect();
    let (head, end) = with_trailers(&names);

    let mut tls = connect(&config, instance.address(), "localhost").unwrap();
    tls.write_all(head.as_bytes()).unwrap();
    let announced = format!("{}, x-sum", names.join(", "));
    let mut h2 = H2::open(&config, instance.address(), &[]);
    let fields = crate::support::h2_client::request("POST", "/", &[("trailer", &announced)]);
    h2.send(&[headers(1, END_HEADERS, &fields), data(1, 0, b"ok")].concat());
    instance.until("both have begun", || (backend.heads() == 2).then_some(()));

    let line = reload_to(&instance, &text("path = \"/other\"\n[[route]]\nrespond = { body = \"no\" }"));
    assert!(line.contains("reloaded"), "{line}");
    tls.write_all(end.as_bytes()).unwrap();
    let trailers: Vec<_> = names.iter().map(|name| (name.as_str(), LIE)).chain([("x-sum", "1")]).collect();
    h2.send(&headers(1, END_HEADERS | END_STREAM, &trailers));
    let mut start = [0; 12];
    tls.read_exact(&mut start).unwrap();
    assert_eq!(&start, b"HTTP/1.1 200");
    assert_eq!(h2.find("answer", |frame| frame.kind == HEADERS).status(), 200);
    let (raw, whole) = backend.take();
    assert_eq!(whole.len(), 2);
    assert!(!raw.windows(LIE.len()).any(|bytes| bytes == LIE.as_bytes()), "{}", raw.escape_ascii());
    for request in whole {
        assert!(request.body.ends_with(b"0\r\nx-sum: 1\r\n\r\n"), "{}", request.body.escape_ascii());
        assert!(request.head.contains("trailer: x-sum\r\n"), "{}", request.head);
    }
    instance.stop();
}
