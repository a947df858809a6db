//! The places that requests come from: logs in several formats, the log store, HAR files.

use std::fs;
use std::sync::{Arc, Mutex};

use offramp_testkit::process::temp_dir;
use offramp_testkit::server::Server;
use serde_json::json;

use super::{compare, log, reply, report, site, url};
use crate::support::logs_desk::answer;
use crate::support::offramp::{stderr, stdout};

type Heads = Arc<Mutex<Vec<String>>>;

/// A server that answers everything alike, and keeps the heads of requests.
fn listening() -> (Server, Heads) {
    let heads = Heads::default();
    let seen = Arc::clone(&heads);
    let server = site(move |request| {
        seen.lock().unwrap().push(request.head.to_ascii_lowercase());
        reply("200 OK", &[], if request.method == "HEAD" { "" } else { "a" })
    });
    (server, heads)
}

#[test]
fn safe_requests_of_a_log_are_sent_with_their_hosts_and_the_others_are_counted() {
    let folder = temp_dir();
    let (old, heads) = listening();
    let (new, _) = listening();
    let [one, other] = [url(&old), url(&new)];
    let lines = log(&["/a", "HEAD /b", "POST /c", "DELETE /d", "/a", "CONNECT x:1", "/with%20blank?x=1"])
        .replace("\"Firefox\"", "\"Firefox\" \"shop.test\"");
    let strange =
        "192.0.2.9 - - [28/Nov/2026:10:00:00 +0000] \"\\x16\\x03\" 400 0 \"-\" \"-\" \"\"\nno line\n";
    fs::write(folder.path().join("a.log"), lines.clone() + strange).unwrap();
    let sides = ["--old", &one, "--new", &other];
    let from = ["--log", "a.log", "--format", "vhost"];
    let first = report(folder.path(), &[&sides[..], &from].concat(), 0);
    assert_eq!(
        (&first["usable"], &first["chosen"], &first["same"]),
        (&4.into(), &3.into(), &3.into()),
        "{first:#}"
    );
    assert_eq!(first["skipped"], json!({"method": 2, "no_replay": 2, "unparsed": 1}), "{first:#}");
    let seen = heads.lock().unwrap().clone();
    assert_eq!(seen.len(), 3, "{seen:?}");
    for line in ["get /a http/1.1", "head /b http/1.1", "get /with%20blank?x=1 http/1.1"] {
        assert!(seen.iter().any(|head| head.starts_with(line)), "{line}: {seen:?}");
    }
    assert!(seen.iter().all(|head| head.contains("\r\nhost: shop.test")), "{seen:?}");
    // A method that is named is sent.
    let second = report(folder.path(), &[&sides[..], &from, &["--methods", "delete"]].concat(), 0);
    assert_eq!(second["chosen"], 1, "{second:#}");
    assert!(heads.lock().unwrap().last().unwrap().starts_with("delete /d "));
    // Each page comes before a second request of one.
    let many: String = (0..5000).map(|at| log(&[&*format!("/{}?{at}", at % 7)])).collect();
    fs::write(folder.path().join("many.log"), many).unwrap();
    let third = report(
        folder.path(),
        &[&sides[..], &["--log", "many.log", "--most", "10", "--rate", "1000"]].concat(),
        0,
    );
    assert_eq!((&third["usable"], &third["chosen"]), (&5000.into(), &10.into()), "{third:#}");
    let seen = heads.lock().unwrap().clone();
    let last: std::collections::BTreeSet<char> =
        seen[seen.len() - 10..].iter().filter_map(|head| head.chars().nth(5)).collect();
    assert_eq!(last.into_iter().collect::<String>(), "0123456");
    // From standard input, and only of a time.
    let mut command = crate::support::offramp::offramp(folder.path(), &["compare"]);
    command.args(sides).args(["--log", "-", "--format", "vhost", "--since", "2026-11-28T11:00", "--json"]);
    let late = crate::support::instance::ask(command, lines.as_bytes(), crate::support::instance::PATIENCE);
    assert_eq!(late.status.code(), Some(2), "{}", stdout(&late));
    assert!(stderr(&late).contains("7 outside of --since and --until"), "{}", stderr(&late));
}

#[test]
fn requests_of_the_log_store_are_sent() {
    let folder = temp_dir();
    let (old, heads) = listening();
    let (new, _) = listening();
    let lines = log(&["/a?x=1", "HEAD /b", "POST /c"]).replace("\"Firefox\"", "\"Firefox\" \"shop.test\"");
    fs::write(folder.path().join("a.log"), lines).unwrap();
    answer(folder.path(), &["ingest", "--format", "vhost", "a.log", "--store", "sqlite:access.db"]);
    let [one, other] = [url(&old), url(&new)];
    let sides = ["--old", &one, "--new", &other, "--from-store", "--store"];
    let report = report(folder.path(), &[&sides[..], &["sqlite:access.db"]].concat(), 0);
    assert_eq!((&report["same"], &report["skipped"]), (&2.into(), &json!({"method": 1})), "{report:#}");
    let seen = heads.lock().unwrap().join("\n");
    assert!(seen.contains("get /a?x=1 http/1.1") && seen.contains("host: shop.test"), "{seen}");
    let missing = compare(folder.path(), &[&sides[..], &["sqlite:none.db"]].concat(), 2);
    assert!(stderr(&missing).contains("none.db"), "{}", stderr(&missing));
}

#[test]
fn har_files_keep_their_secrets() {
    let folder = temp_dir();
    let (old, heads) = listening();
    let new = site(|_| reply("404 Not Found", &[], "b"));
    let field = |name: &str, value: &str| json!({"name": name, "value": value});
    let har = json!({"log": {"version": "1.2", "entries": [
        {"request": {"method": "GET", "url": "https://shop.test/a?token=hidden-url&page=2", "headers": [
            field("Host", "shop.test"), field("Cookie", "sid=hidden-cookie"), field("Authorization", "Bearer hidden-auth"),
            field("X-Api-Key", "hidden-key"), field("Accept-Language", "de"),
        ]}},
        {"request": {"method": "POST", "url": "https://shop.test/b", "headers": [], "postData": {"text": "password=hidden-body"}}},
        {"request": {"method": "GET", "url": "data:text/plain,a", "headers": []}},
        {"comment": "none"},
    ]}});
    fs::write(folder.path().join("a.har"), har.to_string()).unwrap();
    let [one, other] = [url(&old), url(&new)];
    let sides = ["--old", &one, "--new", &other, "--har", "a.har", "--html", "page.html"];
    let first = compare(folder.path(), &sides, 1);
    let text = stdout(&first);
    assert!(
        text.contains("cookie (1)") && text.contains("2 left out: entries that are no HTTP requests"),
        "{text}"
    );
    let sent = heads.lock().unwrap().join("\n");
    assert!(sent.contains("accept-language: de") && sent.contains("token=hidden-url"), "{sent}");
    for secret in ["hidden-cookie", "hidden-auth", "hidden-key"] {
        assert!(!sent.contains(secret), "{secret} was sent: {sent}");
    }
    let second = compare(folder.path(), &[&sides[..], &["--send-credentials", "--json"]].concat(), 1);
    let sent = heads.lock().unwrap().join("\n");
    for secret in ["hidden-cookie", "hidden-auth", "hidden-key"] {
        assert!(sent.contains(secret), "{secret} was not sent: {sent}");
    }
    let page = fs::read_to_string(folder.path().join("page.html")).unwrap();
    for shown in [text, stdout(&second), stderr(&first), stderr(&second), page] {
        assert!(!shown.contains("hidden-"), "{shown}");
    }
}
