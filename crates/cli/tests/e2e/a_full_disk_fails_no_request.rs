//! The disk is full that has the access log, the log store, the state and the configuration: requests are served all the
//! same, what is lost is counted, a change that could not be written is not made, and all goes on once there is room.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use offramp_testkit::process::require;

use crate::a_full_disk_keeps_the_old_certificate::fill;
use crate::support::crowd::{get, tcp, until};
use crate::support::figures::Page;
use crate::support::instance::{Home, PATIENCE, ask as ask_program};
use crate::support::offramp::{output, stderr, stdout};
use crate::support::skipped::is_root_or_skipped;

const TEXT: &str = r#"workers = 1
[access_log]
output = "access.log"
[log_store]
url = "sqlite:access.db"
[metrics]
address = "127.0.0.1:0"
# The socket is elsewhere, for those who are not in the namespace.
[admin]
address = "unix:../admin.sock"
[[listener]]
address = "127.0.0.1:0"
mode = "http"
tls = false
[[route]]
respond = { body = "hello" }
"#;

#[test]
fn requests_are_served_and_what_is_lost_is_counted() {
    if !is_root_or_skipped("only root may mount") {
        return;
    }
    let home = Home::new();
    fs::create_dir(home.file("small")).unwrap();
    let script = "mount -t tmpfs -o size=1m,mode=700 tmpfs small; cp \"$3\" small
                  exec \"$2\" run --config small/offramp.toml";
    let mut unshare = Command::new(require("unshare", "util-linux"));
    unshare.args(["-m", "sh", "-euc", script, "sh", "run", env!("CARGO_BIN_EXE_offramp")]);
    unshare.current_dir(home.path()).env("NO_COLOR", "1");
    let instance = home.start(unshare, TEXT);
    let disk = PathBuf::from(format!(
        "/proc/{}/root{}",
        instance.process.id(),
        instance.home.file("small").display()
    ));
    let mut client = tcp(instance.address()).unwrap();
    let mut asked = 0.0;
    let mut ask = |count: u32| {
        for _ in 0..count {
            assert_eq!(get(&mut client, "/a-path-of-some-length").unwrap(), "hello");
        }
        asked += f64::from(count);
        asked
    };
    let page = || Page::scrape(instance.metrics());
    let stored = |page: &Page| page.get("offramp_log_store_events_total{outcome=\"stored\"}");
    let all_stored =
        |page: &Page| stored(page) + page.get("offramp_log_store_events_total{outcome=\"dropped\"}");
    let written = |page: &Page| page.get("offramp_events_written_total");
    let all_written =
        |page: &Page| written(page) + page.get("offramp_events_dropped_total{reason=\"output_failed\"}");
    let so_far = ask(200);
    until("all are stored", || (stored(&page()) >= so_far).then_some(()));

    let filler = fill(&disk);
    ask(3000);
    until("the store is full, and so is the file of the access log", || {
        let page = page();
        (page.get("offramp_log_store_up") == 0.0 && all_written(&page) > written(&page)).then_some(())
    });
    // A change that was to be written to the file is not made otherwise.
    let level = |level: &str, more: &[&str]| {
        let words = ["ctl", "--admin", "unix:admin.sock", "log-level", level];
        output(instance.home.path(), &[&words[..], more].concat())
    };
    let configured = fs::read_to_string(disk.join("offramp.toml")).unwrap();
    let refused = level("debug", &["--persist"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(stderr(&refused).contains("No space left on device"), "{}", stderr(&refused));
    assert_eq!(fs::read_to_string(disk.join("offramp.toml")).unwrap(), configured);
    assert!(!disk.join(".offramp.toml.new").exists());
    let shown = output(instance.home.path(), &["ctl", "--admin", "unix:admin.sock", "--json", "history"]);
    assert!(!stdout(&shown).contains("log.level"), "nothing has changed");
    assert!(level("debug", &[]).status.success(), "one that needs no disk");

    fs::remove_file(filler).unwrap();
    let so_far = ask(100);
    let page = instance.until("the store has caught up, and each event has its end", || {
        let page = page();
        let is_whole = all_stored(&page) >= so_far && all_written(&page) >= so_far;
        (is_whole && page.get("offramp_log_store_up") == 1.0).then_some(page)
    });
    assert_eq!((all_stored(&page), all_written(&page)), (so_far, so_far));
    let lines = fs::read_to_string(disk.join("access.log")).unwrap();
    let whole = lines.lines().filter(|line| serde_json::from_str::<serde_json::Value>(line).is_ok()).count();
    let cut = lines.lines().count() - whole;
    assert!(cut <= 1, "{cut} lines are cut off");
    // By those who are in the namespace: SQLite follows links, and there would be no such file.
    let mut query = Command::new(require("nsenter", "util-linux"));
    query.args(["-m", "-t", &instance.process.id().to_string(), env!("CARGO_BIN_EXE_offramp")]);
    query.args(["logs", "query", "SELECT count(*) AS n FROM requests", "--json", "--store"]);
    query.arg(format!("sqlite:{}", instance.home.file("small/access.db").display()));
    let rows = ask_program(query, b"", PATIENCE);
    let rows = format!("{}{}", stdout(&rows), stderr(&rows));
    assert!(rows.contains(&format!("\"n\":{}", stored(&page))), "{rows} of {}", stored(&page));
    let done = level("info", &["--persist"]);
    assert!(done.status.success(), "{}", stderr(&done));
    let log = instance.process.transcript();
    for told in ["wait in the spool", "events cannot be written"] {
        let times = log.matches(told).count();
        assert!((1..5).contains(&times), "{told}: {times} times\n{log}");
    }
    instance.process.signal(offramp_testkit::process::Signal::TERM).unwrap();
    let status = instance.process.wait(PATIENCE).unwrap();
    assert_eq!(status.code(), Some(0), "{}", instance.process.transcript());
}
