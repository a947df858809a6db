//! Each kind of difference, made on purpose; and what is none.

use std::fs;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use offramp_testkit::ca::{Key, Leaf};
use offramp_testkit::process::temp_dir;

use super::{compare, found, log, reply, report, site, url};
use crate::support::instance::{Home, LISTENER};
use crate::support::offramp::{stderr, stdout};

type Reply = (&'static str, &'static [&'static str], &'static str);

const PLAIN: Reply = ("200 OK", &[], "text");
/// A path, the answers of old and new, and the differences that are found.
const KINDS: [(&str, Reply, Reply, &[&str]); 16] = [
    ("/same", PLAIN, PLAIN, &[]),
    ("/status", PLAIN, ("404 Not Found", &["X-More: 1"], "other"), &["status"]),
    ("/body", PLAIN, ("200 OK", &[], "Text"), &["body"]),
    ("/error", ("404 Not Found", &[], "nginx"), ("404 Not Found", &[], "offramp"), &["body of an error"]),
    (
        "/type",
        ("200 OK", &["Content-Type: text/html"], "a"),
        ("200 OK", &["Content-Type: text/plain"], "a"),
        &["header content-type"],
    ),
    ("/gone", ("200 OK", &["X-Frame-Options: DENY"], "a"), ("200 OK", &[], "a"), &["header x-frame-options"]),
    ("/more", PLAIN, ("200 OK", &["X-More: 1"], "text"), &["header x-more"]),
    (
        "/cookie",
        ("200 OK", &["Set-Cookie: a=1; Secure"], "a"),
        ("200 OK", &["Set-Cookie: a=2"], "a"),
        &["header set-cookie"],
    ),
    (
        "/to",
        ("302 Found", &["Location: /a"], ""),
        ("302 Found", &["Location: /b"], ""),
        &["redirect location"],
    ),
    (
        "/kept",
        ("302 Found", &["Location: /a"], ""),
        ("301 Moved Permanently", &["Location: /a"], ""),
        &["status"],
    ),
    ("/nothing", PLAIN, ("200 OK", &[], ""), &["body"]),
    // Differences that are none.
    (
        "/date",
        ("200 OK", &["Date: a", "Server: old", "ETag: \"1\""], "a"),
        ("200 OK", &["Date: b", "Server: new", "ETag: \"2\""], "a"),
        &[],
    ),
    (
        "/value",
        ("200 OK", &["Set-Cookie: a=1; Path=/"], "a"),
        ("200 OK", &["Set-Cookie: a=2; path=/"], "a"),
        &[],
    ),
    ("/order", ("200 OK", &["Vary: Origin, Accept"], "a"), ("200 OK", &["Vary: accept,origin"], "a"), &[]),
    ("/ignored", ("200 OK", &["X-Served-By: 1"], "a"), ("200 OK", &["X-Served-By: 2"], "a"), &[]),
    ("/id", ("200 OK", &["X-Request-Id: 1"], "a"), PLAIN_A, &[]),
];
const PLAIN_A: Reply = ("200 OK", &[], "a");

fn answer(target: &str, is_new: bool) -> Vec<u8> {
    match KINDS.iter().find(|(path, ..)| *path == target) {
        Some((_, old, new, _)) => {
            let (status, fields, body) = if is_new { *new } else { *old };
            reply(status, fields, body)
        }
        None => reply("200 OK", &[], "text"),
    }
}

#[test]
fn each_kind_is_found_and_named() {
    let folder = temp_dir();
    let home = folder.path();
    let old = site(|request| answer(&request.target, false));
    let new = site(|request| answer(&request.target, true));
    let sides = [url(&old), url(&new)];
    for (path, _, _, expected) in KINDS {
        fs::write(home.join("one.log"), log(&[path])).unwrap();
        let arguments =
            ["--old", &sides[0], "--new", &sides[1], "--log", "one.log", "--ignore-header", "X-Served-By"];
        let report = report(home, &arguments, i32::from(!expected.is_empty()));
        assert_eq!(found(&report), expected, "{path}: {report:#}");
        assert_eq!(
            (&report["same"], &report["different"]),
            (&u8::from(expected.is_empty()).into(), &u8::from(!expected.is_empty()).into()),
            "{path}"
        );
    }
    // All together: the most important first, ten of them, each with two lines of curl that can be typed.
    let paths = KINDS.map(|(path, ..)| path);
    fs::write(home.join("all.log"), log(&paths)).unwrap();
    let output = compare(
        home,
        &["--old", &sides[0], "--new", &sides[1], "--log", "all.log", "--html", "page.html"],
        1,
    );
    let text = stdout(&output);
    assert!(text.contains("\n 1. status in 1 request\n    old: 200\n    new: 404\n    GET "), "{text}");
    assert!(text.contains("\n10. ") && !text.contains("\n11. "), "{text}");
    assert!(text.ends_with("\nOld and new differ in 11 of 16 requests.\n"), "{text}");
    assert_eq!(stderr(&output), "old and new differ\n");
    let lines: Vec<&str> = text.lines().filter(|line| line.contains(": curl ")).collect();
    assert_eq!(lines.len(), 20, "{text}");
    assert!(lines.iter().all(|line| line.contains(" http://") || line.contains(" 'http://")), "{text}");
    let page = fs::read_to_string(home.join("page.html")).unwrap();
    assert!(page.starts_with("<!doctype html>") && page.contains("<h3>status in 1 request</h3>"), "{page}");
}

#[test]
fn what_differs_each_time_is_not_compared() {
    let folder = temp_dir();
    let counter = AtomicU32::new(0);
    let old = site(move |_| {
        let count = counter.fetch_add(1, Ordering::SeqCst);
        reply("200 OK", &[&format!("X-Count: {count}")], &format!("{count}"))
    });
    let new = site(|_| reply("200 OK", &["X-More: 1"], "7000"));
    fs::write(folder.path().join("a.log"), log(&["/"])).unwrap();
    let [one, other] = [url(&old), url(&new)];
    let report = report(folder.path(), &["--old", &one, "--new", &other, "--log", "a.log"], 1);
    assert_eq!(found(&report), ["header x-more"], "{report:#}");
    let varying: Vec<&str> =
        report["varying"].as_array().unwrap().iter().map(|one| one["kind"].as_str().unwrap()).collect();
    assert_eq!(varying, ["body", "header"], "{report:#}");
}

#[test]
fn compression_is_a_difference_and_its_content_is_compared() {
    let folder = temp_dir();
    // `gzip -n` of "text\n".
    const TEXT: &[u8] = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03\x2b\x49\xad\x28\xe1\x02\x00\x27\xda\xec\x37\x05\x00\x00\x00";
    let packed = |content: &[u8]| {
        let head =
            format!("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: {}\r\n\r\n", content.len());
        [head.as_bytes(), content].concat()
    };
    let old = site(|_| reply("200 OK", &[], "text\n"));
    let new =
        site(move |request| if request.target == "/damaged" { packed(&TEXT[..18]) } else { packed(TEXT) });
    let [one, other] = [url(&old), url(&new)];
    for (target, expected) in [("/", &["compression"][..]), ("/damaged", &["body", "compression"])] {
        fs::write(folder.path().join("a.log"), log(&[target])).unwrap();
        let report = report(folder.path(), &["--old", &one, "--new", &other, "--log", "a.log"], 1);
        assert_eq!(found(&report), expected, "{report:#}");
    }
}

#[test]
fn a_side_that_is_much_later_differs_in_time() {
    let folder = temp_dir();
    let old = site(|_| reply("200 OK", &[], "a"));
    let new = site(|_| {
        std::thread::sleep(Duration::from_secs(3));
        reply("200 OK", &[], "a")
    });
    fs::write(folder.path().join("a.log"), log(&["/"])).unwrap();
    let [one, other] = [url(&old), url(&new)];
    let report =
        report(folder.path(), &["--old", &one, "--new", &other, "--log", "a.log", "--slower", "1s"], 1);
    assert_eq!(found(&report), ["time"], "{report:#}");
    assert!(report["time"]["new"]["p50_us"].as_u64().unwrap() >= 3_000_000, "{report:#}");
}

#[test]
fn certificates_are_compared_by_what_clients_see() {
    let home = Home::new();
    fs::create_dir(home.file("www")).unwrap();
    fs::write(home.file("www/index.html"), "home").unwrap();
    home.ca.issue("other", &Leaf::server(Key::P256, &["localhost"])).unwrap();
    let route = "[[route]]\nroot = \"www\"\n";
    let listener =
        |name: &str| LISTENER.replace("address", &format!("mode = \"http\"\nname = \"{name}\"\naddress"));
    let certificate =
        |name: &str| format!("[[certificate]]\ncert = \"{name}.chain.pem\"\nkey = \"{name}.key\"\n");
    fs::write(home.file("a.log"), log(&["/"])).unwrap();
    let ca = home.ca.certificate();
    let old = home.run(&format!("{}{}{route}", certificate("server"), listener("old")));
    let second = Home::new();
    for file in ["other.chain.pem", "other.key"] {
        fs::copy(old.home.file(file), second.file(file)).unwrap();
    }
    // The same files, which have their times.
    let same = format!("[[route]]\nroot = \"{}\"\n", old.home.file("www").display());
    let new = second.run(&format!("{}{}{same}", certificate("other"), listener("new")));
    let [one, other] =
        [&old.address_of("old"), &new.address_of("new")].map(|at| format!("https://localhost:{}", at.port()));
    let sides = ["--old", &one, "--new", &other, "--log", "a.log"];
    // Not trusted by this machine: said, and nothing is sent.
    let refused = compare(old.home.path(), &sides, 2);
    let said = stderr(&refused);
    assert!(said.contains("its certificate is not trusted") && said.contains("--insecure"), "{said}");
    assert_eq!(said.matches("not trusted").count(), 1, "{said}");
    let insecure = report(old.home.path(), &[&sides[..], &["--insecure"]].concat(), 1);
    assert_eq!(found(&insecure), ["certificate names"], "{insecure:#}");
    let trusted = report(old.home.path(), &[&sides[..], &["--ca", ca.to_str().unwrap()]].concat(), 1);
    assert_eq!(found(&trusted), ["certificate names"], "{trusted:#}");
    assert_eq!(
        (&trusted["same"], &trusted["hosts_with_different_tls"]),
        (&1.into(), &1.into()),
        "{trusted:#}"
    );
    // For a name that only the old side can show.
    let named = ["--host", "www.example.org", "--ca", ca.to_str().unwrap()];
    let refused = compare(old.home.path(), &[&sides[..], &named].concat(), 2);
    assert!(stderr(&refused).contains("new (https://localhost"), "{}", stderr(&refused));
    let insecure = report(old.home.path(), &[&sides[..], &named, &["--insecure"]].concat(), 1);
    assert!(found(&insecure).contains(&"certificate trust".to_owned()), "{insecure:#}");
    old.stop();
    new.stop();
}
