//! Bad sources, and bad sides.

use std::fs;
use std::net::TcpListener;

use offramp_testkit::process::{free_address, temp_dir};
use offramp_testkit::server::{Listen, Server};

use super::{compare, found, log, reply, report, site, url};
use crate::support::offramp::{offramp, stderr, stdout};

#[test]
fn sources_without_a_request_are_refused() {
    let folder = temp_dir();
    let home = folder.path();
    let server = site(|_| reply("200 OK", &[], "a"));
    let one = url(&server);
    fs::write(
        home.join("binary"),
        (0..40_000_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect::<Vec<u8>>(),
    )
    .unwrap();
    fs::write(home.join("empty"), "").unwrap();
    fs::write(home.join("post.log"), log(&["POST /a", "PUT /b"])).unwrap();
    fs::write(
        home.join("json.log"),
        "{\"time\":\"2026-11-28T10:00:00Z\",\"method\":\"GET\",\"path\":\"/\",\"status\":200}\n",
    )
    .unwrap();
    fs::write(home.join("other.json"), "{\"secret\": 7}").unwrap();
    fs::write(home.join("empty.har"), "{\"log\": {\"entries\": []}}").unwrap();
    let cases: [(&[&str], &str); 12] = [
        (&["--log", "binary"], "no line has the given format"),
        (&["--log", "empty"], "the source is empty"),
        (&["--log", "post.log"], "2 with a method that may change something; --methods"),
        (&["--log", "json.log"], "add --format json"),
        (&["--log", "missing.log"], "missing.log"),
        (&["--har", "binary"], "no HAR file"),
        (&["--har", "other.json"], "it has no log.entries"),
        (&["--har", "empty.har"], "the source is empty"),
        (&["--har", "missing.har"], "missing.har"),
        (&["--from-store"], "which store?"),
        (&["--log", "post.log", "--methods", "CONNECT"], "no method that can be repeated"),
        (&["--log", "post.log", "--ignore-header", "a b"], "write the name of a field"),
    ];
    for (arguments, words) in cases {
        let output = compare(home, &[&["--old", &one, "--new", &one][..], arguments].concat(), 2);
        let said = stderr(&output);
        assert!(said.contains(words) && !said.contains("secret"), "{arguments:?}: {said}");
        assert_eq!(stdout(&output), "", "{arguments:?}");
    }
    assert_eq!(server.accepted(), 0, "nothing is sent before the source is read");
}

#[test]
fn sides_that_cannot_be_asked_are_named_once() {
    let folder = temp_dir();
    let home = folder.path();
    let server = site(|_| reply("200 OK", &[], "a"));
    let (one, gone) = (url(&server), format!("http://{}", free_address()));
    fs::write(home.join("a.log"), log(&["/a", "/b", "/c"])).unwrap();
    let deaf = TcpListener::bind("127.0.0.1:0").unwrap();
    let closing = Server::start(&Listen::Ipv4, drop).unwrap();
    let tls = format!("https://{}", closing.address());
    let cases: [(&str, &str, &str); 8] = [
        (&gone, &one, "old (http://127.0.0.1:"),
        (&one, &gone, "new (http://127.0.0.1:"),
        (&one, "http://192.0.2.1:80", "say its name once more: --remote 192.0.2.1"),
        (&one, "http://127.0.0.1:80/path", "write the URL without one"),
        (&one, "127.0.0.1:80", "write http://127.0.0.1:3000/"),
        (&one, "http://anna:pass@localhost/", "passwords"),
        (&one, "unix:none.sock", "whole path"),
        (&one, &tls, "no handshake of TLS"),
    ];
    for (old, new, words) in cases {
        let output =
            offramp(home, &["compare", "--old", old, "--new", new, "--log", "a.log"]).output().unwrap();
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{new}: {said}");
        assert!(said.contains(words) && !said.contains("secret"), "{new}: {said}");
        assert!(said.matches("does not answer").count() <= 1, "{new}: {said}");
    }
    // Another address for the same name, which must be on this machine, too.
    let at = server.address().to_string();
    let named = ["--old", "http://shop.test", "--old-at", &at, "--new", "http://shop.test", "--new-at"];
    let same = report(home, &[&named[..], &[&at, "--log", "a.log"]].concat(), 0);
    assert_eq!(same["same"], 3, "{same:#}");
    let remote = compare(home, &[&named[..], &["192.0.2.1:80", "--log", "a.log"]].concat(), 2);
    assert!(stderr(&remote).contains("--remote 192.0.2.1"), "{}", stderr(&remote));
    // One that takes connections and never answers is given up, with what was compared.
    let silent = format!("http://{}", deaf.local_addr().unwrap());
    let lines: Vec<String> = (0..50).map(|at| format!("/{at}")).collect();
    fs::write(home.join("many.log"), log(&lines.iter().map(String::as_str).collect::<Vec<_>>())).unwrap();
    let arguments = ["--old", &one, "--new", &silent, "--log", "many.log", "--timeout", "1s"];
    let given_up = report(home, &arguments, 2);
    assert_eq!(given_up["verdict"], "not_compared");
    assert!(
        given_up["says"].as_str().unwrap().contains("new did not answer 5 requests in a row"),
        "{given_up:#}"
    );
}

#[test]
fn bodies_have_bounds() {
    let folder = temp_dir();
    let home = folder.path();
    let server = |is_new: bool| {
        site(move |request| match (request.target.as_str(), is_new) {
            // Without a length, and the connection ends with the function.
            ("/long", _) => reply("200 OK", &[], &"x".repeat((1 << 20) + 1)),
            ("/longer", true) => reply("200 OK", &[], &format!("{}y", "x".repeat(1 << 20))),
            ("/longer", false) => reply("200 OK", &[], &"x".repeat(1 << 20)),
            ("/broken", true) => b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhe".to_vec(),
            ("/broken", false) => {
                b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n".to_vec()
            }
            ("/endless", _) => {
                b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\nContent-Type: text/event-stream\r\n\r\ndata"
                    .to_vec()
            }
            ("/garbage", true) => b"\x00\xff no HTTP\r\n\r\n".to_vec(),
            ("/silent", true) => Vec::new(),
            _ => reply("200 OK", &[], "a"),
        })
    };
    let (old, new) = (server(false), server(true));
    let [one, other] = [url(&old), url(&new)];
    let cases: [(&str, &[&str], &str); 6] = [
        ("/long", &[], ""),
        ("/longer", &["body"], "longer than --max-body"),
        ("/broken", &["body"], "broken off"),
        ("/endless", &[], ""),
        ("/garbage", &["no answer"], "answers 200"),
        ("/silent", &["no answer"], "answers 200"),
    ];
    for (target, expected, words) in cases {
        fs::write(home.join("a.log"), log(&[target])).unwrap();
        let arguments =
            ["--old", &one, "--new", &other, "--log", "a.log", "--max-body", "1", "--timeout", "3s"];
        let report = report(home, &arguments, i32::from(!expected.is_empty()));
        assert_eq!(found(&report), expected, "{target}: {report:#}");
        assert!(report.to_string().contains(words), "{target}: {report:#}");
    }
}

#[test]
fn logged_text_is_harmless_in_reports() {
    let folder = temp_dir();
    let home = folder.path();
    let old = site(|_| reply("200 OK", &["X-Evil: <script>alert(1)</script>"], "a"));
    let new = site(|_| reply("200 OK", &["X-Evil: <img src=x onerror=alert(1)>"], "a"));
    let [one, other] = [url(&old), url(&new)];
    let line = log(&["/PLACE"]).replace("PLACE", r"\xff\x1b[31m<script>alert(2)</script>'$(id)");
    fs::write(home.join("a.log"), line).unwrap();
    let output = compare(home, &["--old", &one, "--new", &other, "--log", "a.log", "--html", "page.html"], 1);
    let text = stdout(&output);
    assert!(!text.contains('\x1b'), "{text:?}");
    assert!(text.contains("paths had bytes that no URL has") && text.contains("%FF%1B"), "{text}");
    let page = fs::read_to_string(home.join("page.html")).unwrap();
    assert!(!page.contains("<script") && !page.contains("<img"), "{page}");
    assert!(page.contains("&lt;img src=x"), "{page}");
}
