//! The page on the admin interface: who gets in, and which requests of browsers are refused.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::process::Command;
use std::time::{Duration, Instant};

use offramp_testkit::process::{Source, require};
use serde_json::json;

use crate::support::crowd::{connect, trusting, until};
use crate::support::instance::{Home, Instance, PATIENCE, ask};
use crate::support::offramp::{output, stderr, stdout};
use crate::support::page_client::{login, open, read_to_end, read_until, send, session};

const TOKEN: &str = "0123456789abcdef";
/// The password of anna is `U*U`: a test vector of bcrypt's author.
const ANNA: &str = "anna:$2a$05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW\n";
const WEB: &str = "[[listener]]\naddress = \"127.0.0.1:0\"\nmode = \"http\"\ntls = false\n\
                   [[route]]\nrespond = { body = \"hello\" }\n";

/// Starts Offramp with an admin interface on TCP, and these keys more.
fn start(keys: &str) -> (Instance, SocketAddr) {
    let home = Home::new();
    fs::write(home.file("token"), TOKEN).unwrap();
    fs::write(home.file("users"), ANNA).unwrap();
    let instance = home.run(&format!("[admin]\naddress = \"127.0.0.1:0\"\n{keys}\n{WEB}"));
    let address = instance.until("the log says where", || {
        let lines = instance.process.lines(Source::Stderr);
        let line = lines.iter().find(|line| line.contains(" admin "))?;
        line.split("address=").nth(1)?.split_whitespace().next()?.parse().ok()
    });
    (instance, address)
}

#[test]
fn the_page_cannot_be_framed_and_runs_no_foreign_script() {
    let (instance, address) = start("token_file = \"token\"");
    let page = send(address, "GET /ui/", "accept-encoding: br\r\n", "");
    assert_eq!(page.status, 200);
    for (field, value) in [
        ("content-type", "text/html; charset=utf-8"),
        ("x-content-type-options", "nosniff"),
        ("referrer-policy", "no-referrer"),
        ("x-frame-options", "DENY"),
        ("cache-control", "no-cache"),
        ("content-encoding", "br"),
    ] {
        assert_eq!(page.field(field), Some(value), "{page:?}");
    }
    let policy = page.field("content-security-policy").unwrap();
    assert!(policy.starts_with("default-src 'none'; script-src 'self';"), "{policy}");
    assert!(policy.contains("frame-ancestors 'none'") && !policy.contains("unsafe"), "{policy}");
    let tag = page.field("etag").unwrap();
    let again = send(address, "GET /ui/", &format!("accept-encoding: br\r\nif-none-match: {tag}\r\n"), "");
    assert_eq!((again.status, again.body.as_str()), (304, ""));
    assert_eq!(send(address, "GET /ui", "", "").field("location"), Some("/ui/"));
    assert_eq!(send(address, "GET /", "accept: text/html,*/*\r\n", "").field("location"), Some("/ui/"));
    let missing = send(address, "GET /ui/../etc/passwd", "", "");
    assert_eq!(missing.status, 404);
    for line in ["GET /ui/session", "GET /v1/status", "GET /v1/config"] {
        let refused = send(address, line, "", "");
        assert_eq!(refused.status, 401, "{line}");
        assert!(refused.field("content-security-policy").is_some() && !refused.detail().is_empty(), "{line}");
    }
    instance.stop();
}

#[test]
fn foreign_names_origins_and_frames_are_refused() {
    let (instance, address) =
        start("token_file = \"token\"\nhosts = [\"Admin.Example\", \"*.page.example\"]");
    let login = session(&login(address, &json!({ "token": TOKEN })));
    let port = address.port();
    let status =
        |line: &str, fields: &str| send(address, line, &format!("{}{fields}", login.fields()), "").status;
    assert_eq!(status("GET /v1/status", ""), 200);
    // The session is that of the port, by whichever own name the browser comes.
    for own in [format!("localhost:{port}"), format!("127.0.0.1:{port}"), format!("[::1]:{port}")] {
        assert_eq!(
            status("GET /v1/status", &format!("host: {own}\r\norigin: http://{own}\r\n")),
            200,
            "{own}"
        );
    }
    for line in ["GET /v1/status", "GET /ui/", "GET /ui/session", "POST /ui/login", "POST /v1/reload"] {
        for host in ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example"] {
            assert_eq!(status(line, &format!("host: {host}:{port}\r\n")), 421, "{line} {host}");
        }
        let others =
            ["null", "http://evil.example", "http://localhost:1", &format!("http://localhost:{port}")];
        for origin in others {
            assert_eq!(status(line, &format!("origin: {origin}\r\n")), 403, "{line} {origin}");
        }
        for dest in ["iframe", "image", "script", "empty"] {
            let fields = format!("sec-fetch-site: cross-site\r\nsec-fetch-dest: {dest}\r\n");
            assert_eq!(status(line, &fields), 403, "{line} {dest}");
            assert_eq!(status(line, &fields.replace("cross-site", "same-site")), 403, "{line} {dest}");
        }
    }
    // A proxy with TLS stands before it.
    for own in [format!("admin.example:{port}"), format!("a.page.example:{port}")] {
        let fields = format!("host: {own}\r\norigin: https://{own}\r\n");
        assert_eq!(status("GET /v1/status", &fields), 200, "{own}");
        let fields = format!("{fields}content-type: application/json\r\n");
        let entered = send(address, "POST /ui/login", &fields, &json!({ "token": TOKEN }).to_string());
        assert!(entered.field("set-cookie").unwrap().contains("; Secure"), "{entered:?}");
    }
    // A link on another page leads here.
    let link = "sec-fetch-site: cross-site\r\nsec-fetch-mode: navigate\r\nsec-fetch-dest: document\r\n";
    assert_eq!(status("GET /ui/", link), 200);
    // A program with the token has no page.
    let bearer = format!("authorization: Bearer {TOKEN}\r\n");
    assert_eq!(send(address, "GET /v1/status", &format!("{bearer}host: any.example\r\n"), "").status, 200);
    let foreign = format!("{bearer}origin: http://evil.example\r\n");
    assert_eq!(send(address, "GET /v1/status", &foreign, "").status, 403);
    instance.stop();
}

#[test]
fn a_session_changes_things_by_its_secret_and_ends_with_the_logout() {
    let (instance, address) = start("token_file = \"token\"");
    let entered = login(address, &json!({ "token": format!("{TOKEN}\n") }));
    let cookie = entered.field("set-cookie").unwrap();
    assert!(cookie.contains("; HttpOnly; SameSite=Strict") && !cookie.contains("Secure"), "{cookie}");
    assert_eq!(entered.json()["interface"], "tcp");
    let own = session(&entered);
    let told = send(address, "GET /ui/session", &own.reading(), "");
    assert_eq!((told.status, told.json()["csrf"].as_str()), (200, Some(&*own.csrf)));
    let other = session(&login(address, &json!({ "token": TOKEN })));
    for (line, body) in [
        ("POST /v1/reload", ""),
        ("PUT /v1/log-level", "{\"level\":\"debug\"}"),
        ("PUT /v1/config", "# nothing"),
        ("PATCH /v1/routes/x", "{}"),
        ("DELETE /v1/connections/1", ""),
        ("POST /ui/logout", ""),
    ] {
        let crossed = format!("{}x-offramp-csrf: {}\r\n", own.reading(), other.csrf);
        for fields in [own.reading(), crossed] {
            let refused = send(address, line, &fields, body);
            assert_eq!(refused.status, 403, "{line}");
            assert!(refused.detail().contains("X-Offramp-CSRF"), "{line}");
        }
    }
    let changed = send(address, "PUT /v1/log-level", &own.fields(), "{\"level\":\"debug\"}");
    assert_eq!(changed.status, 200, "{changed:?}");
    let history = send(address, "GET /v1/changes", &own.reading(), "");
    assert!(history.body.contains("token, from 127.0.0.1:"), "{}", history.body);
    let streams = [&own, &other].map(|login| open(address, "GET /v1/events", &login.reading(), ""));
    streams.iter().for_each(|stream| read_until(stream, "HTTP/1.1 200 OK"));
    let left = send(address, "POST /ui/logout", &own.fields(), "");
    assert!(left.status == 204 && left.field("set-cookie").unwrap().contains("Max-Age=0"), "{left:?}");
    assert_eq!(send(address, "GET /v1/status", &own.reading(), "").status, 401);
    read_to_end(&streams[0]);
    send(address, "PUT /v1/log-level", &other.fields(), "{\"level\":\"info\"}");
    read_until(&streams[1], "event: change");
    assert_eq!(send(address, "GET /v1/status", &other.reading(), "").status, 200, "another browser stays");
    for (body, kind, status) in [
        ("{}", "application/json", 400),
        ("[1", "application/json", 400),
        ("{\"token\":\"a\",\"token\":\"b\"}", "application/json", 400),
        ("{\"token\":\"a\",\"name\":\"b\"}", "application/json", 400),
        ("{\"name\":\"anna\"}", "application/json", 400),
        ("{\"once\":\"x\"}", "application/json", 401),
        ("{\"token\":\"0123456789abcdef\"}", "text/plain", 415),
        ("token=0123456789abcdef", "application/x-www-form-urlencoded", 415),
    ] {
        let refused = send(address, "POST /ui/login", &format!("content-type: {kind}\r\n"), body);
        assert!(refused.status == status && refused.field("set-cookie").is_none(), "{body}: {refused:?}");
    }
    let large = "x".repeat(10_000);
    assert_eq!(send(address, "POST /ui/login", "content-type: application/json\r\n", &large).status, 413);
    instance.stop();
}

#[test]
fn users_log_in_by_name_until_the_file_has_them_no_longer() {
    let (instance, address) = start("users = \"users\"");
    let entered = login(address, &json!({ "name": "anna", "password": "U*U" }));
    assert_eq!(entered.json()["name"], "anna");
    let anna = session(&entered);
    for (name, password) in [("anna", "U*"), ("anna", ""), ("bernd", "U*U")] {
        let refused = login(address, &json!({ "name": name, "password": password }));
        assert_eq!((refused.status, refused.detail().as_str()), (401, "the name or the password is wrong"));
    }
    let token = login(address, &json!({ "token": TOKEN }));
    assert_eq!(token.status, 401, "no token was configured");
    assert_eq!(send(address, "PUT /v1/log-level", &anna.fields(), "{\"level\":\"debug\"}").status, 200);
    let history = send(address, "GET /v1/changes", &anna.reading(), "");
    assert!(history.body.contains("anna, from 127.0.0.1:"), "{}", history.body);
    let replace = |text: &str| {
        fs::write(instance.home.file("new"), text).unwrap();
        fs::rename(instance.home.file("new"), instance.home.file("users")).unwrap();
    };
    // A file with a mistake leaves them as they are, and keeps no reload from being made.
    replace("anna\n");
    until("the log tells the mistake", || {
        assert_eq!(send(address, "POST /v1/reload", &anna.fields(), "").status, 200);
        let lines = instance.process.lines(Source::Stderr);
        lines
            .iter()
            .any(|line| line.contains("the page keeps its users") && line.contains("users:1:1"))
            .then_some(())
    });
    let checked = output(instance.home.path(), &["check", "-c", "offramp.toml"]);
    assert_eq!(checked.status.code(), Some(2));
    let said = format!("{}{}", stdout(&checked), stderr(&checked));
    assert!(
        said.contains("users:1:1: a line must be `name:hash`") && said.contains("offramp.toml:"),
        "{said}"
    );
    replace("# nobody\n");
    until("the session of a removed user ends", || {
        (send(address, "GET /v1/status", &anna.reading(), "").status == 401).then_some(())
    });
    assert_eq!(login(address, &json!({ "name": "anna", "password": "U*U" })).status, 401);
    instance.stop();
}

#[test]
fn wrong_tokens_are_slowed_down_and_right_ones_wait_for_a_second_at_most() {
    let (instance, address) = start("token_file = \"token\"");
    let early = session(&login(address, &json!({ "token": TOKEN })));
    let wrong = |number: u32| login(address, &json!({ "token": format!("wrong-token-{number}") })).status;
    let first = (0..200).find(|number| wrong(*number) == 429).expect("guesses are refused");
    assert!(first >= 10, "{first}");
    let later = login(address, &json!({ "token": "another-wrong-one" }));
    assert_eq!((later.status, later.field("retry-after")), (429, Some("1")), "{later:?}");
    // Programs come by the same door.
    let bearer = "authorization: Bearer yet-another-wrong-one\r\n";
    assert_eq!(send(address, "GET /v1/status", bearer, "").status, 429);
    // Whoever is in stays in.
    assert_eq!(send(address, "GET /v1/status", &early.reading(), "").status, 200);
    let begun = Instant::now();
    until("the right token", || (login(address, &json!({ "token": TOKEN })).status == 200).then_some(()));
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    instance.stop();
}

#[test]
fn clients_of_a_proxy_read_no_log_without_the_token() {
    let (instance, address) = start("token_file = \"token\"\nhosts = [\"admin.example\"]");
    let login = format!("authorization: Bearer {TOKEN}\r\n");
    for line in [
        "GET /grafana",
        "GET /grafana/",
        "POST /grafana/search",
        "POST /grafana/query",
        "GET /grafana/x",
        "GET /x",
    ] {
        for host in ["host: admin.example\r\n", "host: other.example\r\n", ""] {
            let refused = send(address, line, host, "");
            assert!([401, 403].contains(&refused.status), "{line} {host}: {refused:?}");
        }
        let status = send(address, line, &login, "").status;
        assert!(![401, 403].contains(&status), "{line}: {status}");
    }
    instance.stop();
    let (instance, address) = start("token_file = \"token\"");
    assert_eq!(
        send(address, "POST /grafana/search", "", "").status,
        503,
        "this machine alone, without a store"
    );
    instance.stop();
}

#[test]
fn without_a_login_nothing_is_shown_and_the_unix_socket_is_as_before() {
    let (instance, address) = start("");
    let index = send(address, "GET /", "accept: text/html\r\n", "");
    assert_eq!(
        (index.status, index.json()["grafana"].as_str()),
        (200, Some("/grafana/")),
        "the index for people"
    );
    for line in ["GET /ui/", "GET /ui/offramp.js", "GET /ui/session", "POST /ui/login"] {
        let refused = send(address, line, "", "");
        assert_eq!(refused.status, 403, "{line}");
        assert!(refused.detail().contains("offramp ui"), "{}", refused.detail());
    }
    instance.stop();
    let home = Home::new();
    let instance = home.run(&format!("[admin]\naddress = \"unix:admin.sock\"\n{WEB}"));
    let curl = |path: &str, more: &[&str]| {
        let mut command = Command::new(require("curl", "curl"));
        command.args(["-q", "--silent", "--noproxy", "*", "--write-out", "\n%{http_code}", "--unix-socket"]);
        command.arg(instance.home.file("admin.sock")).args(more).arg(format!("http://x{path}"));
        stdout(&ask(command, b"", PATIENCE))
    };
    assert!(curl("/v1/status", &[]).ends_with("\n200"));
    assert!(curl("/ui/", &[]).ends_with("\n200"));
    let told = curl("/ui/session", &[]);
    assert!(told.contains("\"interface\":\"unix\"") && told.ends_with("\n200"), "{told}");
    for path in ["/v1/status", "/ui/", "/ui/session"] {
        assert!(curl(path, &["-H", "origin: http://localhost:3000"]).ends_with("\n403"), "{path}");
    }
    instance.stop();
}

#[test]
fn over_tls_the_names_are_those_of_the_certificate() {
    let keys = "token_file = \"token\"\ncertificate = \"server.chain.pem\"\nkey = \"server.key\"";
    let (instance, address) = start(keys);
    let config = trusting(&instance.home.ca.certificate());
    let ask = |host: &str, fields: &str, body: &str| {
        let mut tls = connect(&config, address, "localhost").unwrap();
        let line = if body.is_empty() { "GET /ui/" } else { "POST /ui/login" };
        let length = body.len();
        let request = format!(
            "{line} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\ncontent-type: application/json\r\n\
             content-length: {length}\r\n{fields}\r\n{body}"
        );
        tls.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        // Some ends come without a close_notify.
        let _ = tls.read_to_string(&mut answer);
        answer
    };
    let port = address.port();
    for (host, status) in [
        (format!("localhost:{port}"), "200"),
        (format!("a.example.org:{port}"), "200"),
        (format!("127.0.0.1:{port}"), "200"),
        (format!("evil.example:{port}"), "421"),
        (format!("a.b.example.org:{port}"), "421"),
    ] {
        assert!(ask(&host, "", "").starts_with(&format!("HTTP/1.1 {status} ")), "{host}");
    }
    let own = format!("localhost:{port}");
    let body = json!({ "token": TOKEN }).to_string();
    let entered = ask(&own, &format!("origin: https://{own}\r\n"), &body);
    assert!(entered.starts_with("HTTP/1.1 200 ") && entered.contains("; Secure"), "{entered}");
    let plain = ask(&own, &format!("origin: http://{own}\r\n"), &body);
    assert!(plain.starts_with("HTTP/1.1 403 "), "{plain}");
    let status = output(
        instance.home.path(),
        &[
            "ctl",
            "--admin",
            &format!("https://{own}"),
            "--cacert",
            &instance.home.ca.certificate().display().to_string(),
            "--token-file",
            "token",
            "status",
        ],
    );
    assert!(status.status.success(), "{}", stderr(&status));
    instance.stop();
}
