//! `offramp serve DIR`: the files of a directory over HTTPS, without a configuration.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use offramp_testkit::process::{Process, Ready, Signal, Source, require};

use crate::support::instance::{Home, LIFE, PATIENCE, ask};
use crate::support::offramp::{offramp, output, stderr, stdout};
use crate::the_first_minutes_are_plain::{said, stopped};

/// Starts `offramp serve` with these arguments and waits until it has said all that it says by itself.
fn started(home: &Path, arguments: &[&str]) -> Process {
    let common = ["--listen", "0", "--state-dir", "state", "--workers", "1"];
    let process = Process::start(offramp(home, &[&["serve"], arguments, &common].concat()), LIFE).unwrap();
    process.wait_for(&Ready::Line(" INFO  started ".to_owned()), PATIENCE).unwrap();
    process
}

/// The `curl` line of the banner, with another path and more arguments.
fn curl(home: &Path, process: &Process, path: &str, more: &[&str]) -> Output {
    let line = said(process, "try");
    let mut command = Command::new(require("curl", "curl"));
    command.args(["-q", "--silent", "--show-error", "--max-time", "100", "--noproxy", "*"]);
    command.args(line.strip_prefix("curl ").unwrap().split_whitespace());
    command.args(["--request-target", path]).args(more).current_dir(home);
    let outcome = ask(command, b"", PATIENCE);
    assert!(outcome.status.success(), "{path}: {}\n{}", stderr(&outcome), process.transcript());
    outcome
}

#[test]
fn one_command_serves_a_directory_over_both_versions() {
    let home = Home::new();
    fs::create_dir_all(home.file("www/sub")).unwrap();
    fs::write(home.file("www/index.html"), "<p>home").unwrap();
    fs::write(home.file("www/sub/a b.txt"), "text").unwrap();
    fs::write(home.file("www/.hidden"), "hidden").unwrap();
    fs::write(home.file("beside"), "secret").unwrap();
    let process = started(home.path(), &["www"]);
    let text = process.transcript();
    assert!(
        text.contains(&format!("Offramp serves the files below {}", home.file("www").display())),
        "{text}"
    );
    assert!(text.contains("(this machine only; --public admits others)"), "{text}");
    assert!(said(&process, "mode").starts_with("http: HTTP/1.1 and HTTP/2"), "{text}");
    assert!(said(&process, "listening").starts_with("127.0.0.1:"), "{text}");
    let status = ["--output", "out", "--write-out", "%{http_code} %{http_version} %{content_type}"];
    for (version, number) in [("--http1.1", "1.1"), ("--http2", "2")] {
        for (path, expected) in [
            ("/", format!("200 {number} text/html; charset=utf-8")),
            ("/sub/a%20b.txt", format!("200 {number} text/plain; charset=utf-8")),
            ("/.hidden", format!("404 {number} ")),
            ("/nothing", format!("404 {number} ")),
            ("/%2e%2e/beside", format!("400 {number} ")),
        ] {
            let outcome = curl(home.path(), &process, path, &[&status[..], &[version]].concat());
            assert!(stdout(&outcome).starts_with(&expected), "{path}: {}", stdout(&outcome));
        }
        assert_eq!(stdout(&curl(home.path(), &process, "/", &[version])), "<p>home");
    }
    process.wait_for(&Ready::Line("\"path\":\"/nothing\"".to_owned()), PATIENCE).unwrap();
    stopped(&process);
}

#[test]
fn the_directory_may_be_the_current_one_and_a_single_page_application() {
    let home = Home::new();
    fs::create_dir(home.file("app")).unwrap();
    fs::write(home.file("app/index.html"), "<p>app").unwrap();
    fs::write(home.file("app/.env"), "hidden").unwrap();
    let mut command = offramp(home.path(), &["serve", ".", "--fallback", "index.html", "--hidden"]);
    command.args(["--listen", "0", "--state-dir", "../state"]).current_dir(home.file("app"));
    let process = Process::start(command, LIFE).unwrap();
    process.wait_for(&Ready::Line(" INFO  started ".to_owned()), PATIENCE).unwrap();
    assert_eq!(stdout(&curl(&home.file("app"), &process, "/deep/link", &[])), "<p>app");
    assert_eq!(stdout(&curl(&home.file("app"), &process, "/.env", &[])), "hidden");
    process.signal(Signal::INT).unwrap();
    assert_eq!(process.wait(PATIENCE).unwrap().code(), Some(0), "{}", process.transcript());
    assert!(process.lines(Source::Stdout).iter().any(|line| line.contains("/deep/link")));
}

#[test]
fn a_directory_that_cannot_be_served_is_named() {
    let home = Home::new();
    fs::write(home.file("file"), "").unwrap();
    for (directory, why) in [("nowhere", "No such file"), ("file", "Not a directory")] {
        let outcome = output(home.path(), &["serve", directory, "--listen", "0"]);
        assert_eq!(outcome.status.code(), Some(2), "{}", stderr(&outcome));
        let expected = format!("error: cannot read the directory {directory}: {why}");
        assert!(stderr(&outcome).contains(&expected), "{}", stderr(&outcome));
    }
    let outcome = output(home.path(), &["serve", ".", "--public", "--listen", "127.0.0.1:0"]);
    assert_eq!(outcome.status.code(), Some(2));
    assert!(stderr(&outcome).contains("omit --public"), "{}", stderr(&outcome));
}
