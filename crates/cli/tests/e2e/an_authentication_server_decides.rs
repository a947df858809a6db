//! `forward_auth`: a stand-in for Authelia, Authentik or oauth2-proxy is asked about each request, and its word holds.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::sync::{Arc, Mutex};

use offramp_testkit::server::{Listen, Server};

use crate::support::http_app::{Request, Seen, app, named, respond};
use crate::support::http_curl::{Answer, HTTP, PLAIN, curl, get};
use crate::support::instance::{CERTIFICATE, Home, Instance, cause, text};

const ANNA: &str = "anna:$2a$05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW\n";
const VERSIONS: [&str; 2] = ["--http1.1", "--http2"];
const KEYS: &str = "forward_auth = { server = \"unix:auth.sock\", path = \"/api/authz?x=1\", \
                    headers = [\"Remote-User\", \"Remote-Groups\"], timeout = \"100s\" }";

/// The page to log in is open to all.
const LOGIN: &str = "[[route]]\npath = \"/login\"\nserver = \"unix:auth.sock\"\n";

/// What the stand-in was asked.
type Asked = Arc<Mutex<Vec<Request>>>;

/// The stand-in: who has its cookie enters, others are sent to a page to log in. Some paths have it do wrong. It speaks as
/// Authelia does for proxies that send `X-Forwarded-*`.
fn stand_in(home: &Home) -> (Server, Asked) {
    let asked = Asked::default();
    let server = app(&Listen::Unix(home.file("auth.sock")), {
        let asked = Arc::clone(&asked);
        move |request, stream| {
            asked.lock().unwrap().push(request.clone());
            if request.target == "/login" {
                return match &request.body[..] {
                    b"user=anna&password=secret" => {
                        let cookie = "Set-Cookie: authelia_session=good; Path=/; Secure; HttpOnly";
                        respond(stream, 200, &[cookie], b"welcome")
                    }
                    _ => respond(stream, 401, &[], b"no"),
                };
            }
            match request.field("x-forwarded-uri") {
                // Until Offramp has had enough.
                "/hang" => stream.read(&mut [0]).map(drop),
                "/breaks" => Err(io::Error::other("it breaks")),
                "/fails" => respond(stream, 500, &[], b"failed"),
                // Larger than any page to log in, with and without its length.
                "/large" => respond(stream, 403, &[], &vec![b'x'; (1 << 20) + 1]),
                "/fits" => respond(stream, 403, &[], &vec![b'x'; 1 << 20]),
                "/endless" => {
                    stream.write_all(b"HTTP/1.1 403 Forbidden\r\nTransfer-Encoding: chunked\r\n\r\n")?;
                    // Until Offramp has had enough.
                    loop {
                        stream.write_all(&[b"10000\r\n", &[b'x'; 65_536][..], b"\r\n"].concat())?;
                    }
                }
                "/changes" => respond(stream, 101, &["Connection: upgrade", "Upgrade: x"], b""),
                _ if request.field("cookie").contains("session=good") => {
                    let fields = [
                        "Remote-User: anna",
                        "Remote-Groups: staff,ops",
                        "X-Secret: 1",
                        "Set-Cookie: authelia_session=renewed; Path=/",
                        "Set-Cookie: other=1; Path=/",
                    ];
                    respond(stream, 200, &fields, b"OK")
                }
                uri => {
                    let (scheme, host) =
                        (request.field("x-forwarded-proto"), request.field("x-forwarded-host"));
                    let method = request.field("x-forwarded-method");
                    let page =
                        format!("Location: {scheme}://{host}/login?rd={scheme}://{host}{uri}&rm={method}");
                    let fields =
                        [&page, "Set-Cookie: authelia_session=new; Path=/", "Connection: keep-alive"];
                    respond(stream, 302, &fields, b"log in")
                }
            }
        }
    });
    (server, asked)
}

fn served(keys: &str) -> (Vec<Server>, Seen, Asked, Instance) {
    served_within("100s", keys)
}

/// The same, with this time for the authentication server.
fn served_within(timeout: &str, keys: &str) -> (Vec<Server>, Seen, Asked, Instance) {
    let keys = format!("{}\n{keys}", KEYS.replace("100s", timeout));
    let home = Home::new();
    let (app, seen) = named(&Listen::Unix(home.file("app.sock")), "app");
    let (auth, asked) = stand_in(&home);
    fs::write(home.file("users"), ANNA).unwrap();
    fs::write(home.file("redirects.csv"), "/moved,/new\n").unwrap();
    let instance =
        home.run(&format!("{CERTIFICATE}{HTTP}[[route]]\nserver = \"unix:app.sock\"\n{keys}\n{LOGIN}"));
    (vec![app, auth], seen, asked, instance)
}

fn take(asked: &Asked) -> Vec<Request> {
    std::mem::take(&mut asked.lock().unwrap())
}

#[test]
fn a_yes_lets_the_request_pass_with_what_the_server_says_of_the_client() {
    let (_servers, seen, asked, instance) = served("");
    for version in VERSIONS {
        let arguments = [
            version,
            "--data",
            "a body",
            "--header",
            "Cookie: one=1; session=good",
            "--header",
            "Remote-User: root",
            "--header",
            "Remote_Groups: wheel",
            "--header",
            "X-Forwarded-Uri: /public",
            "--header",
            "X-Original-URL: https://localhost/public",
            "--header",
            "If-None-Match: \"x\"",
            "--header",
            "Authorization: Bearer token",
        ];
        assert_eq!(get(&instance, &arguments, "https://localhost/private?q=1").status(), 200);
        let mut questions = take(&asked);
        assert_eq!(questions.len(), 1);
        let question = questions.remove(0);
        assert_eq!((question.method.as_str(), question.target.as_str()), ("GET", "/api/authz?x=1"));
        assert!(question.body.is_empty());
        for (name, value) in [
            ("x-forwarded-method", "POST"),
            ("x-forwarded-proto", "https"),
            ("x-forwarded-host", "localhost"),
            ("x-forwarded-uri", "/private?q=1"),
            ("x-forwarded-for", "127.0.0.1"),
            ("host", "localhost"),
            ("cookie", "one=1; session=good"),
            ("authorization", "Bearer token"),
        ] {
            assert_eq!(question.field(name), value, "{name} {version}");
        }
        for name in [
            "content-length",
            "content-type",
            "remote-user",
            "remote_groups",
            "x-original-url",
            "if-none-match",
        ] {
            assert_eq!(question.field(name), "", "{name} {version}");
        }
        let request = seen.one();
        assert_eq!((request.method.as_str(), &request.body[..]), ("POST", &b"a body"[..]));
        assert_eq!((request.field("remote-user"), request.field("remote-groups")), ("anna", "staff,ops"));
        for name in ["remote_groups", "x-secret", "x-forwarded-uri", "x-forwarded-method"] {
            assert_eq!(request.field(name), "", "{name} {version}");
        }
    }
    instance.stop();
}

/// oauth2-proxy and Authentik renew their sessions in the responses that let requests pass.
#[test]
fn the_cookies_of_a_yes_reach_the_client_whatever_else_it_gets() {
    let (_servers, seen, _asked, instance) = served("redirects = \"redirects.csv\"");
    for version in VERSIONS {
        let ask = |path: &str| {
            let arguments = [version, "--header", "Cookie: session=good"];
            get(&instance, &arguments, &format!("https://localhost{path}"))
        };
        for (path, status) in [("/private", 200), ("/moved", 308)] {
            let answer = ask(path);
            assert_eq!(answer.status(), status, "{path} {version}");
            let cookies = ["authelia_session=renewed; Path=/", "other=1; Path=/"];
            assert_eq!(answer.values("set-cookie"), cookies, "{path} {version}");
            assert_eq!(answer.field("x-secret"), "", "{path} {version}");
        }
        // A no has its own.
        let answer = get(&instance, &[version], "https://localhost/private");
        assert_eq!(answer.values("set-cookie"), ["authelia_session=new; Path=/"], "{version}");
    }
    assert!(seen.take().iter().all(|request| request.field("set-cookie").is_empty()));
    instance.stop();
}

#[test]
fn a_no_has_a_bound() {
    let (_servers, seen, _asked, instance) = served("");
    for version in VERSIONS {
        let fits = get(&instance, &[version], "https://localhost/fits");
        assert_eq!((fits.status(), fits.body.len()), (403, 1 << 20), "{version}");
        assert_eq!(get(&instance, &[version], "https://localhost/large").status(), 503, "{version}");
        let cut = curl(&instance, &[version], "https://localhost/endless");
        assert_ne!(cut.code, 0, "{version}: the client notices");
        assert_eq!(cut.status(), 403, "{version}");
        assert!(cut.body.len() <= 1 << 20, "{version}: {}", cut.body.len());
    }
    assert!(seen.take().is_empty());
    let events = instance.stop();
    let cut = |event: &&serde_json::Value| {
        cause(event) == "auth_unavailable" && text(event, "detail") == "its response has more than 1 MiB"
    };
    assert_eq!(events.iter().filter(cut).count(), 4, "{events:?}");
}

#[test]
fn a_client_logs_in_as_with_authelia() {
    let (_servers, seen, asked, instance) = served("");
    for version in VERSIONS {
        let jar = format!("jar{version}");
        let ask = |more: &[&str], path: &str| -> Answer {
            let cookies = [version, "--cookie", &jar, "--cookie-jar", &jar];
            get(&instance, &[&cookies[..], more].concat(), &format!("https://localhost{path}"))
        };
        let answer = ask(&[], "/private?q=1");
        assert_eq!(answer.status(), 302);
        let page = "https://localhost/login?rd=https://localhost/private?q=1&rm=GET";
        assert_eq!(answer.field("location"), page);
        assert_eq!(ask(&[], "/private").status(), 302, "a session is no login");
        assert_eq!(ask(&["--data", "user=anna&password=guess"], "/login").status(), 401);
        assert_eq!(ask(&["--data", "user=anna&password=secret"], "/login").status(), 200);
        assert!(seen.take().is_empty());
        assert_eq!(ask(&[], "/private?q=1").text(), "app\n");
        assert_eq!(seen.one().field("remote-user"), "anna");
    }
    let questions = take(&asked);
    assert!(questions.iter().any(|question| question.field("cookie") == "authelia_session=new"));
    let events = instance.stop();
    let named: Vec<_> = events.iter().filter(|event| !event["user"].is_null()).collect();
    assert!(named.len() == 2 && named.iter().all(|event| event["user"] == "anna"), "{events:?}");
}

#[test]
fn a_trusted_proxy_tells_how_the_client_came_but_not_for_which_host() {
    let home = Home::new();
    let (_app, seen) = named(&Listen::Unix(home.file("app.sock")), "app");
    let (_auth, asked) = stand_in(&home);
    let instance = home.run(&format!(
        "{PLAIN}trusted_proxies = \"127.0.0.1\"\n[[route]]\nserver = \"unix:app.sock\"\n{KEYS}\n"
    ));
    let fields = [
        "Cookie: session=good",
        "X-Forwarded-For: 203.0.113.9",
        "X-Forwarded-Proto: https",
        "X-Forwarded-Host: public.test",
        "X-Forwarded-Uri: /public",
        "Remote-User: root",
    ];
    let arguments: Vec<&str> = fields.iter().flat_map(|field| ["--header", field]).collect();
    assert_eq!(get(&instance, &arguments, "http://localhost/private").status(), 200);
    let question = take(&asked).remove(0);
    for (name, value) in [
        ("x-forwarded-for", "203.0.113.9"),
        ("x-forwarded-proto", "https"),
        ("x-forwarded-host", "localhost"),
        ("x-forwarded-uri", "/private"),
        ("remote-user", ""),
    ] {
        assert_eq!(question.field(name), value, "{name}");
    }
    assert_eq!(seen.one().field("remote-user"), "anna");
    instance.stop();
}

#[test]
fn any_other_response_is_for_the_client() {
    let (_servers, seen, asked, instance) = served("");
    for version in VERSIONS {
        let answer = get(&instance, &[version, "--data", "a body"], "https://localhost/");
        assert_eq!((answer.status(), answer.text().as_str()), (302, "log in"));
        assert_eq!(answer.field("location"), "https://localhost/login?rd=https://localhost/&rm=POST");
        assert_eq!(answer.field("set-cookie"), "authelia_session=new; Path=/");
        let head = get(&instance, &[version, "--head"], "https://localhost/");
        assert_eq!((head.status(), head.body.len()), (302, 0));
        let failed = get(&instance, &[version], "https://localhost/fails");
        assert_eq!((failed.status(), failed.text().as_str()), (500, "failed"));
    }
    assert_eq!((take(&asked).len(), seen.take().len()), (6, 0));
    instance.stop();
}

#[test]
fn who_cannot_ask_lets_nobody_in() {
    let (mut servers, seen, _asked, instance) = served_within("500ms", "");
    let cookie = ["--header", "Cookie: session=good"];
    for version in VERSIONS {
        for path in ["hang", "breaks", "changes"] {
            let url = format!("https://localhost/{path}");
            let answer = get(&instance, &[&[version][..], &cookie].concat(), &url);
            assert_eq!(answer.status(), 503, "{path} {version}");
        }
    }
    // It is gone altogether.
    drop(servers.pop());
    for version in VERSIONS {
        let answer = curl(&instance, &[&[version][..], &cookie].concat(), "https://localhost/");
        assert_eq!(answer.status(), 503, "{version}");
    }
    assert!(seen.take().is_empty());
    let events = instance.stop();
    assert_eq!(events.len(), 8);
    assert!(events.iter().all(|event| cause(event) == "auth_unavailable"), "{events:?}");
    assert!(events.iter().any(|event| text(event, "detail").contains("in time")), "{events:?}");
}

#[test]
fn passwords_come_first() {
    let (_servers, seen, asked, instance) = served("basic_auth = \"users\"\n");
    let cookie = ["--header", "Cookie: session=good"];
    assert_eq!(get(&instance, &cookie, "https://localhost/").status(), 401);
    assert!(take(&asked).is_empty() && seen.take().is_empty());
    let both = [&cookie[..], &["--user", "anna:U*U"]].concat();
    assert_eq!(get(&instance, &both, "https://localhost/").status(), 200);
    assert_eq!((take(&asked).len(), seen.take().len()), (1, 1));
    instance.stop();
}
