//! The process harness: output, readiness, bounded life, death on drop.

use std::process::Command;
use std::time::{Duration, Instant};

use offramp_testkit::process::{Process, Ready, Signal, Source, free_port, require};

const SOON: Duration = Duration::from_secs(60);

fn shell(script: &str, life: Duration) -> Process {
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    Process::start(command, life).unwrap()
}

#[test]
fn lines_are_kept_apart_and_awaited() {
    let process = shell("echo out; echo err >&2; exec sleep 60", SOON);
    process.wait_for(&Ready::Line("out".into()), SOON).unwrap();
    process.wait_for(&Ready::Line("err".into()), SOON).unwrap();
    assert_eq!(process.lines(Source::Stdout), ["out"]);
    assert_eq!(process.lines(Source::Stderr), ["err"]);
}

#[test]
fn an_early_end_is_told_with_the_output() {
    let process = shell("echo I cannot; exit 3", SOON);
    let error = process.wait_for(&Ready::Line("ready".into()), SOON).unwrap_err().to_string();
    assert!(error.contains("I cannot") && error.contains('3'), "{error}");
    assert_eq!(process.wait(SOON).unwrap().code(), Some(3));
}

#[test]
fn a_life_is_bounded() {
    let process = shell("exec sleep 60", Duration::from_millis(50));
    assert!(!process.wait(SOON).unwrap().success());
}

#[test]
fn a_signal_arrives() {
    let process = shell("trap 'echo caught; exit 7' TERM; echo ready; while :; do sleep 0.05; done", SOON);
    process.wait_for(&Ready::Line("ready".into()), SOON).unwrap();
    process.signal(Signal::TERM).unwrap();
    assert_eq!(process.wait(SOON).unwrap().code(), Some(7));
    assert_eq!(process.lines(Source::Stdout), ["ready", "caught"]);
}

#[test]
fn dropping_kills() {
    let process = shell("exec sleep 60", SOON);
    let status = format!("/proc/{}/status", process.id());
    assert!(std::fs::exists(&status).unwrap());
    drop(process);
    assert!(!std::fs::exists(&status).unwrap());
}

#[test]
fn a_port_is_awaited_in_vain() {
    let process = shell("exec sleep 60", SOON);
    let ready = Ready::Tcp(([127, 0, 0, 1], free_port()).into());
    let start = Instant::now();
    assert!(process.wait_for(&ready, Duration::from_millis(50)).is_err());
    assert!(start.elapsed() < SOON);
}

#[test]
#[should_panic(expected = "apt-get install no-such-package")]
fn a_missing_program_names_its_package() {
    let _ = require("no-such-program", "no-such-package");
}
