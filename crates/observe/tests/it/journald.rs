//! A real journald, started for the test in a namespace of its own, and read back with `journalctl`.
//!
//! `systemd-journald NAME` serves a namespace without systemd as process 1: its socket is
//! `/run/systemd/journal.NAME/socket`, its files are in a directory of the namespace under `/var/log/journal`
//! or `/run/log/journal`. It needs root, and both programs; without them the test says so and is skipped.

use crate::samples;
use offramp_observe::facts::RequestFacts;
use offramp_observe::{EventFormat, Flusher, FlusherSettings, Log, Output};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(60);
const JOURNALD: &str = "/lib/systemd/systemd-journald";

struct Journald {
    child: Child,
    namespace: String,
}

impl Journald {
    /// Starts it, or says why not.
    fn start() -> Result<Self, &'static str> {
        if !rustix::process::geteuid().is_root() {
            return Err("only root can start journald");
        }
        if !Path::new(JOURNALD).exists() || !Path::new("/usr/bin/journalctl").exists() {
            return Err("systemd's journald is not installed");
        }
        if !Path::new("/etc/machine-id").exists() {
            return Err("journald needs /etc/machine-id");
        }
        let namespace = format!("offramp-test-{}", std::process::id());
        let mut command = Command::new(JOURNALD);
        let child = command.arg(&namespace).stderr(Stdio::null()).spawn().unwrap();
        let mut journald = Self { child, namespace };
        let start = Instant::now();
        while !journald.socket().exists() {
            if journald.child.try_wait().unwrap().is_some() {
                return Err("journald does not run here");
            }
            assert!(start.elapsed() < LIMIT, "journald does not open its socket");
            std::thread::yield_now();
        }
        Ok(journald)
    }

    fn socket(&self) -> PathBuf {
        format!("/run/systemd/journal.{}/socket", self.namespace).into()
    }

    /// What `journalctl` finds, as JSON objects.
    fn find(&self, matches: &[&str]) -> Vec<Value> {
        let journalctl = |arguments: &[&str]| {
            let mut command = Command::new("journalctl");
            command.arg(format!("--namespace={}", self.namespace)).args(arguments).output().unwrap()
        };
        // Returns when everything that was sent before is in the journal.
        let synced = journalctl(&["--sync"]);
        assert!(synced.status.success(), "{synced:?}");
        let found = journalctl(&[&["-o", "json", "--all", "--no-pager"], matches].concat());
        let text = String::from_utf8(found.stdout).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

impl Drop for Journald {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let machine = std::fs::read_to_string("/etc/machine-id").unwrap_or_default();
        let directory = format!("{}.{}", machine.trim(), self.namespace);
        for parent in ["/var/log/journal", "/run/log/journal"] {
            let _ = std::fs::remove_dir_all(Path::new(parent).join(&directory));
        }
        let _ = std::fs::remove_dir_all(format!("/run/systemd/journal.{}", self.namespace));
    }
}

fn with(host: &str, change: impl FnOnce(&mut RequestFacts)) -> Box<RequestFacts> {
    let mut facts = samples::request();
    facts.request.host = host.into();
    change(&mut facts);
    Box::new(facts)
}

#[test]
fn journalctl_finds_events_by_their_facts() {
    let journald = match Journald::start() {
        Ok(journald) => journald,
        Err(reason) => return eprintln!("skipped: {reason}"),
    };
    let output = Output::Journald(journald.socket());
    let settings = FlusherSettings::new(1, output, EventFormat::Text, Log::silent());
    let (flusher, mut senders) = Flusher::start(settings).unwrap();
    let agent = "x".repeat(300_000);
    senders[0].send(with("git.example.org", |_| {}));
    senders[0].send(with("git.example.org", |facts| facts.status = 502));
    senders[0].send(with("other.example.org", |facts| {
        facts.request.user_agent = Some((*b"line\nbreak \xff").into());
    }));
    senders[0].send(with("big.example.org", |facts| {
        facts.request.user_agent = Some(agent.as_bytes().into());
    }));
    assert_eq!(flusher.stop(LIMIT).written, 4);

    assert_eq!(journald.find(&["OFFRAMP_EVENT=request"]).len(), 4);
    assert_eq!(journald.find(&["OFFRAMP_HOST=git.example.org"]).len(), 2);
    let failed = journald.find(&["OFFRAMP_HOST=git.example.org", "OFFRAMP_STATUS=502"]);
    assert_eq!(failed.len(), 1);
    assert_eq!(failed[0]["PRIORITY"], "4");
    assert_eq!(failed[0]["SYSLOG_IDENTIFIER"], "offramp");
    assert_eq!(failed[0]["OFFRAMP_DURATION_US"], "8402");
    assert_eq!(failed[0]["OFFRAMP_SNI"], "git.example.org");
    assert!(failed[0]["MESSAGE"].as_str().unwrap().starts_with("192.0.2.1:51234"));
    // What is no text comes as a list of bytes.
    let other = &journald.find(&["OFFRAMP_HOST=other.example.org"])[0];
    let bytes: Vec<u64> =
        other["OFFRAMP_USER_AGENT"].as_array().unwrap().iter().map(|byte| byte.as_u64().unwrap()).collect();
    assert_eq!(bytes, b"line\nbreak \xff".map(u64::from));
    let big = &journald.find(&["OFFRAMP_HOST=big.example.org"])[0];
    assert_eq!(big["OFFRAMP_USER_AGENT"], agent);
}
