//! `offramp logs tail` shows requests as they are written to the store, and only those that are asked for.

use std::fs;
use std::path::Path;

use offramp_testkit::process::{Process, Ready, Signal, Source, temp_dir};

use crate::support::instance::{LIFE, PATIENCE};
use crate::support::logs_desk::{answer, command};

/// Writes a request of now with this path and status to the store.
fn add(home: &Path, path: &str, status: u16) {
    let now = jiff::Timestamp::now();
    let file = format!("{status}.log");
    fs::write(home.join(&file), format!("{now}|192.0.2.9|GET {path} HTTP/1.1|{status}|40\n")).unwrap();
    let format = "$time_iso8601|$remote_addr|$request|$status|$body_bytes_sent";
    answer(home, &["ingest", "--log-format", format, "--host", "a.test", "--store", "sqlite:a.db", &file]);
}

/// The reason why a request failed stands in its line, and in JSON.
#[test]
fn the_cause_is_shown() {
    let home = temp_dir();
    let now = jiff::Timestamp::now();
    let event = |path: &str, cause: &str, fault: &str| {
        format!(
            r#"{{"time":"{now}","event":"request","client":"192.0.2.9","method":"GET","host":"a.test","path":"{path}","status":502,"bytes_to_client":40,"total_us":1000,"cause":"{cause}","fault":"{fault}"}}"#
        )
    };
    let lines = [event("/refused", "connect_refused", "server"), event("/fine", "completed", "nobody")];
    fs::write(home.path().join("a.log"), lines.join("\n") + "\n").unwrap();
    answer(home.path(), &["ingest", "--format", "json", "--store", "sqlite:a.db", "a.log"]);
    for (json, refused, fine) in [
        (false, "1.0 ms  connect_refused", "a.test/fine  40 B  1.0 ms"),
        (true, r#""duration_us":1000,"cause":"connect_refused","#, r#""duration_us":1000,"cause":null,"#),
    ] {
        let arguments = ["tail", "--store", "sqlite:a.db", "--json"];
        let tail = Process::start(command(home.path(), &arguments[..3 + usize::from(json)]), LIFE).unwrap();
        tail.wait_for(&Ready::Line("/fine".to_owned()), PATIENCE).unwrap();
        let lines = tail.lines(Source::Stdout);
        assert!(lines.iter().any(|line| line.contains("/refused") && line.contains(refused)), "{lines:?}");
        assert!(lines.iter().any(|line| line.contains("/fine") && line.contains(fine)), "{lines:?}");
        assert!(!lines.iter().any(|line| line.ends_with("ms  ")), "{lines:?}");
        tail.signal(Signal::TERM).unwrap();
    }
}

#[test]
fn requests_are_shown_as_they_come() {
    let home = temp_dir();
    add(home.path(), "/before", 503);
    add(home.path(), "/fine", 200);
    let arguments = ["tail", "--status", "5xx", "--host", "a.*", "--store", "sqlite:a.db"];
    let tail = Process::start(command(home.path(), &arguments), LIFE).unwrap();
    let shown = |path: &str| {
        let deadline = std::time::Instant::now() + PATIENCE;
        loop {
            let lines = tail.lines(Source::Stdout);
            if let Some(line) = lines.iter().find(|line| line.contains(path)) {
                return line.clone();
            }
            assert!(std::time::Instant::now() < deadline, "no {path}: {}", tail.transcript());
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    };
    let line = shown("a.test/before");
    assert!(line.contains("  503  192.0.2.9        GET   a.test/before  40 B"), "{line}");
    add(home.path(), "/good", 204);
    add(home.path(), "/bad", 500);
    shown("a.test/bad");
    tail.signal(Signal::TERM).unwrap();
    assert_eq!(tail.lines(Source::Stdout).len(), 2, "{}", tail.transcript());
}
