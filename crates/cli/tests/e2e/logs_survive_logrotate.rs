//! A real logrotate rotates a log in every way that people configure, while it is followed, while the follower is
//! killed, and while it is away: each line is stored once.

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use offramp_testkit::process::{Process, Signal, require, temp_dir};

use crate::support::instance::{LIFE, PATIENCE};
use crate::support::logs_desk::{answer, command, output, rows, until};
use crate::support::offramp::stderr;

const STORE: [&str; 2] = ["--store", "sqlite:access.db"];

/// A server that writes a log, and has it rotated.
struct Server {
    home: PathBuf,
    options: &'static str,
    open: File,
    written: u32,
    rotations: u32,
    /// How many files of the past are kept.
    kept: u32,
}

impl Server {
    fn start(home: &Path, options: &'static str) -> Self {
        let open = OpenOptions::new().append(true).create(true).open(home.join("access.log")).unwrap();
        Self { home: home.to_owned(), options, open, written: 0, rotations: 0, kept: 50 }
    }

    fn serve(&mut self, count: u32) {
        let text: String = (self.written..self.written + count).map(line).collect();
        self.open.write_all(text.as_bytes()).unwrap();
        self.written += count;
    }

    /// Has it rotated. The server goes on with the old file for `late` lines.
    fn rotate(&mut self, late: u32) {
        // One name a day is not enough here.
        self.rotations += 1;
        let format = format!("dateformat -20261{:03}", self.rotations);
        let options = self.options.replace("dateformat", &format);
        // Root rotates nothing in a folder that others may write to, unless it is told as whom.
        let su = if rustix::process::geteuid().is_root() { " su root root\n" } else { "" };
        let text = format!(
            "{}/access.log {{\n rotate {}\n missingok\n{su}{options}\n}}\n",
            self.home.display(),
            self.kept
        );
        fs::write(self.home.join("logrotate.conf"), text).unwrap();
        let mut logrotate = Command::new(require("logrotate", "logrotate"));
        logrotate.arg("-f").arg("-s").arg(self.home.join("state")).arg(self.home.join("logrotate.conf"));
        let output = logrotate.output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        self.serve(late);
        self.open = OpenOptions::new().append(true).create(true).open(self.home.join("access.log")).unwrap();
    }

    /// Waits until everything is stored, and finds it there once.
    fn assert_stored(&self) {
        let sql = "SELECT count(*) AS n, count(DISTINCT path) AS paths FROM requests";
        let found = until(&self.home, &["query", sql, STORE[0], STORE[1]], |rows| {
            rows[0]["n"].as_u64().unwrap_or(0) >= self.written.into()
        });
        assert_eq!((&found[0]["n"], &found[0]["paths"]), (&self.written.into(), &self.written.into()));
    }
}

fn line(number: u32) -> String {
    format!(
        "192.0.2.{} - - [22/Nov/2026:10:{:02}:{:02} +0000] \"GET /page/{number} HTTP/1.1\" 200 5 \"-\" \"-\" \"a.test\"\n",
        number % 250,
        number / 60 % 60,
        number % 60
    )
}

fn follow(home: &Path) -> Process {
    let arguments = ["ingest", "--follow", "access.log", "--format", "vhost", STORE[0], STORE[1]];
    Process::start(command(home, &arguments), LIFE).unwrap()
}

fn resume(home: &Path) -> String {
    let arguments = ["ingest", "--resume", "access.log", "--format", "vhost", STORE[0], STORE[1]];
    let output = output(home, &arguments);
    assert!(output.status.success(), "{}", stderr(&output));
    stderr(&output)
}

/// Ways of rotating, and how many lines a server writes to the old file afterwards.
const WAYS: [(&str, u32); 6] = [
    ("create", 7),
    ("create\ncompress\ndelaycompress", 7),
    // What comes late is in no archive, but the follower has the file open.
    (
        "nocreate\ndateext\ndateformat\ncompress\ncompresscmd /usr/bin/zstd\ncompressext .zst\ncompressoptions -q",
        0,
    ),
    ("copytruncate", 0),
    ("copytruncate\ncompress", 0),
    ("copytruncate\ndateext\ndateformat\nextension .log\ncompress\ndelaycompress", 0),
];

#[test]
fn every_way_of_rotating_loses_and_doubles_nothing() {
    for (way, late) in WAYS {
        let directory = temp_dir();
        let home = directory.path();
        let mut server = Server::start(home, way);
        server.serve(300);
        let mut follower = follow(home);
        server.assert_stored();
        for round in 0..4u32 {
            server.serve(500);
            // In the middle of whatever it is doing, and while it is away.
            if round % 2 == 1 {
                follower.signal(Signal::KILL).unwrap();
                follower.wait(PATIENCE).unwrap();
                server.serve(100);
            }
            server.rotate(late);
            server.serve(50);
            if round % 2 == 1 {
                if round == 3 {
                    server.rotate(late);
                    server.serve(10);
                }
                follower = follow(home);
            }
            server.assert_stored();
        }
        follower.signal(Signal::TERM).unwrap();
        assert_eq!(follower.wait(PATIENCE).unwrap().code(), Some(0), "{way}: {}", follower.transcript());
        let said = follower.transcript().to_string();
        assert!(!said.contains("missing"), "{way}: {said}");
    }
}

#[test]
fn cron_reads_what_is_new_through_rotations() {
    let directory = temp_dir();
    let home = directory.path();
    let mut server = Server::start(home, "create\ncompress\ndelaycompress");
    for round in 0..4 {
        server.serve(200);
        if round > 0 {
            server.rotate(5);
            server.serve(20);
        }
        resume(home);
        server.assert_stored();
        let said = resume(home);
        assert!(said.contains("0 lines") && said.contains("0 requests stored"), "{said}");
    }
    server.assert_stored();
}

/// The log is copied and truncated without a pause, in the middle of whatever its follower is doing, and few copies are
/// kept. What is lost is said and marked, and nothing is doubled.
#[test]
fn copies_that_nobody_could_see_are_said() {
    for kept in [1, 3] {
        let directory = temp_dir();
        let home = directory.path();
        let mut server = Server::start(home, "copytruncate");
        server.kept = kept;
        server.serve(10);
        let follower = follow(home);
        server.assert_stored();
        for _ in 0..60 {
            server.serve(20);
            server.rotate(0);
        }
        // The last lines stay, and are behind all others.
        server.serve(1);
        let sql = "SELECT count(*) AS n, count(DISTINCT path) AS paths, max(path = '/page/LAST') AS over FROM requests";
        let sql = sql.replace("LAST", &(server.written - 1).to_string());
        until(home, &["query", &sql, STORE[0], STORE[1]], |rows| rows[0]["over"] == 1);
        follower.signal(Signal::TERM).unwrap();
        assert_eq!(follower.wait(PATIENCE).unwrap().code(), Some(0), "{}", follower.transcript());
        let said = follower.transcript().to_string();
        let found = rows(home, &["query", &sql, STORE[0], STORE[1]]);
        let (stored, paths) = (found[0]["n"].as_u64().unwrap(), found[0]["paths"].as_u64().unwrap());
        assert_eq!(stored, paths, "nothing is doubled");
        println!("{kept} kept: {stored} of {} lines stored", server.written);
        let sql = "SELECT count(*) AS n FROM files WHERE state = 'lost'";
        let lost = rows(home, &["query", sql, STORE[0], STORE[1]])[0]["n"].as_u64().unwrap();
        if stored < server.written.into() {
            assert!(said.contains("missing") && said.contains("gap") && lost > 0, "{lost} lost: {said}");
        }
    }
}

#[test]
fn a_gap_is_told_and_marked() {
    let directory = temp_dir();
    let home = directory.path();
    let mut server = Server::start(home, "create");
    server.serve(100);
    resume(home);
    server.serve(10);
    fs::remove_file(home.join("access.log")).unwrap();
    fs::write(home.join("access.log"), line(500)).unwrap();
    let said = resume(home);
    assert!(said.contains("access.log: it is gone") && said.contains("1 gap"), "{said}");
    let files = rows(home, &["query", "SELECT state FROM files ORDER BY number", STORE[0], STORE[1]]);
    assert_eq!((&files[0]["state"], &files[1]["state"]), (&"lost".into(), &"reading".into()));
}

#[test]
fn a_file_that_was_read_adds_nothing_again() {
    let directory = temp_dir();
    let home = directory.path();
    let mut server = Server::start(home, "create\ncompress");
    server.serve(1000);
    let ingest = |arguments: &[&str]| {
        let output =
            output(home, &[&["ingest", "--format", "vhost", STORE[0], STORE[1]], arguments].concat());
        assert!(output.status.success(), "{}", stderr(&output));
        stderr(&output)
    };
    assert!(ingest(&["access.log"]).contains("1000 requests stored"));
    assert!(ingest(&["access.log"]).contains("access.log: all of it was read before"));
    server.rotate(0);
    server.serve(10);
    let said = ingest(&["access.log.1.gz", "access.log"]);
    assert!(said.contains("access.log.1.gz: all of it was read before, as "), "{said}");
    assert!(said.contains("10 requests stored"), "{said}");
    server.serve(5);
    let said = ingest(&["access.log"]);
    assert!(said.contains("bytes were read before") && said.contains("5 requests stored"), "{said}");
    server.assert_stored();
    assert!(ingest(&["--again", "access.log"]).contains("15 requests stored"));
    // Who begins to follow it has it from there on.
    server.serve(3);
    assert!(resume(home).contains("3 requests stored"));
    assert!(ingest(&["access.log"]).contains("--resume reads what is new"));
}

#[test]
fn a_log_of_another_format_is_a_failure_with_advice() {
    let directory = temp_dir();
    let home = directory.path();
    let mut server = Server::start(home, "create");
    server.serve(20);
    for arguments in [&["access.log"][..], &["--resume", "access.log"]] {
        let given = output(home, &[&["ingest", STORE[0], STORE[1]], arguments].concat());
        let said = stderr(&given);
        assert_eq!(given.status.code(), Some(1), "{said}");
        assert!(said.contains("add --format vhost"), "{said}");
    }
    // Nothing is remembered of it.
    answer(home, &["ingest", "--format", "vhost", "access.log", STORE[0], STORE[1]]);
    server.assert_stored();
}
